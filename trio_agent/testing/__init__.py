"""The testing kit: scripted models, checks of what a run left, and sweeps that disturb a run at every step.

Sweeps work on any trio code: `sweep`, `sweep_pairs`, `explore`, `replay`, with a `Scenario` and invariants of your
own. For agents there are `AgentWatch` and the `GUARANTEES`. On the command line: ``python -m trio_agent.testing``.
"""

from ._checks import check_events, check_transcript
from ._engine import run_plan
from ._guarantees import GUARANTEES, check_run, guarantees_hold
from ._plan import Injection, Plan
from ._private import UnsupportedTrioError
from ._probe import Probe
from ._reading import Reading
from ._recorded import Act, Effect, RecordedRun
from ._recording import ReplayModel, record
from ._report import Entry, Failure, Report
from ._scenario import Invariant, Scenario, find_scenario, scenario
from ._scripted import Fail, ScriptedModel, Stop, Wait
from ._sweep import check_determinism, explore, replay, sweep, sweep_pairs
from ._swept import check_report, swept
from ._trace import Fired, Note, ScopeSpan, StepSpan, Trace
from ._watch import AGENT_ACTIONS, AgentWatch

__all__ = [
    "AGENT_ACTIONS",
    "GUARANTEES",
    "Act",
    "AgentWatch",
    "Effect",
    "Entry",
    "Fail",
    "Failure",
    "Fired",
    "Injection",
    "Invariant",
    "Note",
    "Plan",
    "Probe",
    "Reading",
    "RecordedRun",
    "ReplayModel",
    "Report",
    "Scenario",
    "ScopeSpan",
    "ScriptedModel",
    "StepSpan",
    "Stop",
    "Trace",
    "UnsupportedTrioError",
    "Wait",
    "check_determinism",
    "check_events",
    "check_report",
    "check_run",
    "check_transcript",
    "explore",
    "find_scenario",
    "guarantees_hold",
    "record",
    "replay",
    "run_plan",
    "scenario",
    "sweep",
    "sweep_pairs",
    "swept",
]
