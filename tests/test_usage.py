"""Tokens add up over a run, and cost what the user says a million of them costs."""

from decimal import Decimal
from typing import Any

import pytest

from trio_agent import Agent, Prices, ToolCall, Usage, tool
from trio_agent.testing import ScriptedModel

PRICES = Prices(input=3, output="15", cache_read=0.3, cache_write=Decimal("3.75"))


@pytest.mark.parametrize(
    ("usage", "prices", "cost"),
    [
        (Usage(1_000_000, 0), PRICES, "3"),
        (Usage(0, 2_000_000), PRICES, "30"),
        (Usage(1000, 100, 900, 50), PRICES, "0.0021075"),
        (Usage(1000, 100, 900, 50), Prices(input=3, output=15), "0.0045"),
        (Usage(7, 3, reasoning_tokens=2), Prices(input="0.1", output="0.2"), "0.0000013"),
        (Usage(), PRICES, "0"),
    ],
)
def test_cost_is_exact(usage: Usage, prices: Prices, cost: str) -> None:
    assert usage.cost(prices) == Decimal(cost)


async def test_usage_adds_up_over_a_run_and_the_last_value_of_a_response_counts() -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "done"

    first = [Usage(5, 1), Usage(10, 2, 4, 1, 1), ToolCall("1", "work")]
    model = ScriptedModel(first, ["end", Usage(20, 3, 8, 0, 2)])
    result = await Agent(model, tools=[work]).prompt("go")
    assert result.usage == Usage(30, 5, 12, 1, 3)
    assert result.usage.cost(PRICES) == (17 * 3 + 12 * Decimal("0.3") + Decimal("3.75") + 75) / 1_000_000


@pytest.mark.parametrize("wrong", [{"input": 1}, {"output": 1}, {"input": "much", "output": 1}])
def test_wrong_prices_are_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ArithmeticError)):
        Prices(**wrong)
