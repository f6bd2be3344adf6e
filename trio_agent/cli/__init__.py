"""The ``trio-agent`` command: `main` is the console script; `run_cli` the same with a model and streams of yours."""

from ._command import UsageError, main, make_model, parse_arguments, run_cli
from ._show import Streams

__all__ = ["Streams", "UsageError", "main", "make_model", "parse_arguments", "run_cli"]
