"""Play a recorded scenario of tests/cases on our runtime, and reduce what happened to the recording's form."""

import json
from typing import Any

import attrs
import trio

from trio_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AssistantMessage,
    CustomMessage,
    Message,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    MessageWriter,
    ModelError,
    ModelRequest,
    NothingToResumeError,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    TurnEnd,
    UserMessage,
)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def flat(message: Message) -> str:
    pieces = []
    for part in message.content:
        match part:
            case Text(text):
                pieces.append(text)
            case Thinking(thinking):
                pieces.append(f"<think>{thinking}</think>")
            case ToolCall(id, name, arguments):
                pieces.append(f"<call {id} {name} {compact(arguments)}>")
    return "".join(pieces)


def reduce_message(message: Message) -> dict[str, Any]:
    reduced: dict[str, Any] = {"role": message.role}
    if isinstance(message, ToolResultMessage):
        reduced |= {"tool_call_id": message.tool_call_id, "tool_name": message.tool_name}
    reduced["text"] = flat(message)
    if isinstance(message, AssistantMessage):
        reduced["stop_reason"] = message.stop_reason
        if message.error_message is not None:
            reduced["error"] = message.error_message
    if isinstance(message, ToolResultMessage):
        reduced["is_error"] = message.is_error
    return reduced


def reduce_event(event: AgentEvent) -> dict[str, Any]:
    reduced: dict[str, Any] = {"type": event.type}
    match event:
        case MessageStart(message):
            reduced["role"] = message.role
        case MessageUpdate(kind=kind, delta=delta):
            reduced |= {"role": "assistant", "update": kind}
            if kind.endswith("_delta"):
                reduced["delta"] = delta
        case MessageEnd(message):
            reduced["message"] = reduce_message(message)
        case ToolExecutionStart(id, name, arguments):
            reduced |= {"tool_call_id": id, "tool_name": name, "args": arguments}
        case ToolExecutionUpdate(id, name, partial_result=partial):
            reduced |= {"tool_call_id": id, "tool_name": name, "text": partial.text}
        case ToolExecutionEnd(id, name, result=result, is_error=is_error):
            reduced |= {"tool_call_id": id, "tool_name": name, "is_error": is_error, "text": result.text}
        case TurnEnd(message, results):
            assert message is not None
            reduced |= {"message": reduce_message(message), "tool_results": [r.tool_call_id for r in results]}
        case AgentEnd(messages):
            reduced["messages"] = len(messages)
    return reduced


class RecordedModel:
    """The scenario's scripted model."""

    name = "recorded"
    provider = "tests"

    def __init__(self, player: "Player", turns: list[list[dict[str, Any]]]) -> None:
        self.player = player
        self.turns = turns
        self.requests: list[list[dict[str, Any]]] = []

    async def stream(self, request: ModelRequest, out: MessageWriter) -> None:
        self.requests.append([reduce_message(message) for message in request.messages])
        for step in self.turns[len(self.requests) - 1]:
            match step:
                case {"text": delta}:
                    await out.text(delta)
                case {"thinking": delta}:
                    await out.thinking(delta)
                case {"tool_call": {"id": id, "name": name, "arguments": arguments}}:
                    await out.tool_call(id, name, arguments)
                case {"error": text}:
                    raise ModelError(text)
                case {"stop": reason}:
                    out.finish(reason)
                case _:
                    self.player.queue(step)


def custom_message(entry: dict[str, Any]) -> CustomMessage:
    kind = attrs.make_class("Custom", [], bases=(CustomMessage,), frozen=True, slots=True)
    kind.role = entry["role"]
    message = kind(entry["text"])
    assert isinstance(message, CustomMessage)
    return message


def history_message(entry: dict[str, Any]) -> Message:
    match entry["role"]:
        case "user":
            return UserMessage(entry["text"])
        case "assistant":
            calls = [ToolCall(c["id"], c["name"], c["arguments"]) for c in entry.get("tool_calls", [])]
            return AssistantMessage((Text(entry["text"]), *calls), entry.get("stop_reason", "stop"))
        case "tool_result":
            return ToolResultMessage(
                entry["tool_call_id"], entry["tool_name"], entry["text"], is_error=entry.get("is_error", False)
            )
    return custom_message(entry)


class Player:
    """One play of one scenario."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.model = RecordedModel(self, scenario["turns"])
        self.agent = Agent(
            self.model,
            system_prompt=scenario.get("system_prompt", ""),
            messages=[history_message(entry) for entry in scenario.get("history", [])],
            tools=[self.make_tool(spec) for spec in scenario.get("tools", [])],
            steering_mode=scenario.get("steering_mode", "one-at-a-time"),
            follow_up_mode=scenario.get("follow_up_mode", "one-at-a-time"),
            tool_execution=scenario.get("tool_execution", "sequential"),
        )
        for text in scenario.get("queued_steering", []):
            self.agent.steer(text)
        for text in scenario.get("queued_follow_ups", []):
            self.agent.follow_up(text)

    def queue(self, step: dict[str, Any]) -> None:
        match step:
            case {"steer": text}:
                self.agent.steer(text)
            case {"follow_up": text}:
                self.agent.follow_up(text)
            case _:
                raise AssertionError(f"unknown step {step}")

    def make_tool(self, spec: dict[str, Any]) -> Tool:
        async def execute(arguments: dict[str, Any], context: ToolContext) -> str:
            calls = spec.get("calls", {})
            for step in calls.get(context.tool_call_id, spec.get("steps", [])):
                match step:
                    case {"update": text}:
                        context.update(text)
                    case {"return": text}:
                        return str(text)
                    case {"raise": text}:
                        raise ToolError(text)
                    case {"echo": _}:
                        return compact(arguments)
                    case {"sleep": milliseconds}:
                        await trio.sleep(milliseconds / 1000)
                    case _:
                        self.queue(step)
            return "ok"

        return Tool(spec["name"], "", spec["parameters"], execute)

    async def play(self, *, through: str) -> tuple[dict[str, Any], list[AgentEvent]]:
        """Through observers or through the stream: the reduced run, and its events."""
        events: list[AgentEvent] = []
        raises = False
        prompts = self.scenario["prompts"]
        try:
            if through == "observers":
                self.agent.subscribe(events.append)
                await (self.agent.resume() if prompts is None else self.agent.prompt(prompts))
            else:
                async with self.agent.run(prompts) as run:
                    events.extend([event async for event in run])
        except NothingToResumeError:
            raises = True
        reduced = {
            "trace": [reduce_event(event) for event in events],
            "requests": self.model.requests,
            "transcript": [reduce_message(message) for message in self.agent.messages],
            "left_steering": len(self.agent.state.queued_steering),
            "left_follow_ups": len(self.agent.state.queued_follow_ups),
            "raises": raises,
        }
        return reduced, events
