"""pytest-trio takes a test for passed that ends with a `trio.Cancelled`, whoever let it out. Here it has failed."""

import functools
import inspect
from typing import Any

import pytest
import trio


def _with_an_end(function: Any) -> Any:
    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> None:
        try:
            await function(*args, **kwargs)
        except trio.Cancelled as error:
            raise AssertionError("a trio.Cancelled came out of the test: somebody let it out of its scope") from error

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _with_an_end(item.obj)
