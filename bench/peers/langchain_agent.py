"""langgraph: ``create_agent`` of langchain (the present home of ``create_react_agent``) with an in-memory saver."""

import asyncio
import os
from functools import partial
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import RunControl

from ._asyncio_sweep import Peer, Row, main
from ._judge import Transcript
from ._scenario import CALLS, PAUSE, World


class FakeModel(BaseChatModel):
    """Answers from the scenario."""

    world: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The tools are known anyway."""
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        response = self.world.request()
        for _ in range(4):
            await asyncio.sleep(PAUSE)
        calls: list[Any] = [{"name": name, "args": {}, "id": id} for name, id in response.calls.items()]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(response.text, tool_calls=calls))])


def make_tool(world: World, name: str) -> StructuredTool:
    """The fake tool of this name."""

    async def fake() -> str:
        return await world.work(name, asyncio.sleep)

    return StructuredTool.from_function(coroutine=fake, name=name, description=name)


class Run:
    """``ainvoke`` of the graph on one thread."""

    def __init__(self, world: World, concurrency: int | None) -> None:
        tools = [make_tool(world, name) for name in CALLS]
        self.graph = create_agent(FakeModel(world=world), tools, checkpointer=InMemorySaver())
        self.config: Any = {"configurable": {"thread_id": "1"}}
        if concurrency is not None:
            self.config["max_concurrency"] = concurrency
        self.control = RunControl()

    async def run(self) -> None:
        """The first prompt."""
        await self._invoke("go", control=self.control)

    def stop(self) -> None:
        """Ask for a drain."""
        self.control.request_drain()

    def transcript(self) -> Transcript:
        """The checkpoint's messages, and what finished tasks have left there as pending writes."""
        record = Transcript()
        state = self.graph.get_state(self.config)
        messages = list(state.values.get("messages", []))
        for task in state.tasks:
            messages += (task.result or {}).get("messages", []) if isinstance(task.result, dict) else []
        for message in messages:
            if isinstance(message, AIMessage):
                record.calls += [call["id"] or "" for call in message.tool_calls]
            elif isinstance(message, ToolMessage):
                record.results[message.tool_call_id] = str(message.content)
        return record

    async def again(self) -> str:
        """A second prompt on the same thread."""
        state = await self._invoke("again")
        text = state["messages"][-1].content
        return "ok" if text == "All done." else f"answered {text!r}"

    async def _invoke(self, text: str, **kwargs: Any) -> Any:
        return await self.graph.ainvoke({"messages": [("user", text)]}, self.config, **kwargs)


def rows() -> tuple[Row, ...]:
    """Sequential means ``max_concurrency=1``."""
    found = []
    for mode, concurrency in (("sequential", 1), ("parallel", None)):
        build = partial(Run, concurrency=concurrency)
        found.append(Row(f"{mode}, ainvoke", "cancel", build))
        found.append(Row(f"{mode}, ainvoke", "abort softly", build, "stop"))
    return tuple(found)


PEER = Peer(
    name="langgraph",
    packages=("langgraph", "langchain", "langgraph-checkpoint"),
    stop_call="softly: RunControl.request_drain(), which means to let the superstep end; no other",
    record="the messages of the thread's last checkpoint, with the pending writes of finished tasks",
    rows=rows(),
)

if __name__ == "__main__":
    main(PEER)
