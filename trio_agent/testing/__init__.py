"""The testing kit: a scripted model, and checks that say what is wrong with a run."""

from ._checks import check_events, check_transcript
from ._scripted import Fail, ScriptedModel, Stop, Wait

__all__ = ["Fail", "ScriptedModel", "Stop", "Wait", "check_events", "check_transcript"]
