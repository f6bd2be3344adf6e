"""Pure functions of a recorded run; each returns a list of anomalies, the smallest witness first."""

from collections.abc import Sequence

from trio_agent import AgentEvent, GrammarError, RunGrammar, RunState, check_transcript

__all__ = ["check_events", "check_transcript"]


def check_events(events: Sequence[AgentEvent], *, complete: bool = True) -> list[str]:
    """What is wrong with a sequence of events, in words. Empty if it is a sentence of the grammar (guarantee G1).

    Args:
        events: what a reader or an observer saw, from the first event on.
        complete: the sequence must have come to its ``agent_end``; False accepts a prefix.
    """
    grammar = RunGrammar()
    for index, event in enumerate(events):
        try:
            grammar.advance(event)
        except GrammarError as error:
            return [f"event {index} ({event.type}): {error}"]
    if complete and grammar.state is not RunState.ENDED:
        step = grammar.exit()
        return [f"ends after {len(events)} events in state {grammar.state.name}; {step[0] if step else ''} was due"]
    return []
