"""``@swept``: a scenario as a test, for pytest or whatever calls test functions."""

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from ._engine import ScenarioFunction
from ._plan import Position
from ._report import Report
from ._scenario import Invariant, to_scenario
from ._sweep import POSITIONS, check_determinism, explore, sweep, sweep_pairs

__all__ = ["check_report", "swept"]


def check_report(report: Report) -> None:
    """Raise an AssertionError that shows the table, the first failures and their replay tokens.

    Raises:
        AssertionError: something in the report did not hold.
    """
    if not report.ok:
        raise AssertionError(f"{len(report.failures)} of {report.runs} runs do not hold\n{report.table(failures=5)}")


def swept(
    actions: Iterable[str] = ("cancel",),
    *,
    invariants: Iterable[Invariant] = (),
    positions: Sequence[Position] = POSITIONS,
    modules: Iterable[ModuleType | str] = (),
    pairs: bool = False,
    orders: bool = False,
    bound: int | None = None,
) -> Callable[[ScenarioFunction], Callable[[], None]]:
    """Make a test of a scenario: ``@swept(["cancel"]) async def test_x(probe): ...``.

    The test is a plain function: it checks that the scenario runs twice in the same way, then sweeps it, and fails
    with the table and the replay tokens. No plugin is needed. The scenario itself is ``test_x.scenario``.

    Args:
        actions, invariants, positions, modules: see `sweep`.
        pairs: also every pair of the actions.
        orders: also every order of the ready tasks, within ``bound``; see `explore`.
    """

    def decorate(function: ScenarioFunction) -> Callable[[], None]:
        subject = to_scenario(function, invariants=invariants, actions=actions, modules=modules)

        def test() -> None:
            differences = check_determinism(subject)
            if differences:
                raise AssertionError(f"the scenario does not run twice in the same way: {differences[0]}")
            check_report(sweep(subject, positions=positions))
            if pairs:
                check_report(sweep_pairs(subject))
            if orders:
                check_report(explore(subject, bound=bound))

        test.__name__ = getattr(function, "__name__", "test")
        test.__qualname__ = getattr(function, "__qualname__", test.__name__)
        test.__module__ = function.__module__
        test.__doc__ = function.__doc__
        test.scenario = subject  # type: ignore[attr-defined]
        return test

    return decorate
