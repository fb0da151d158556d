"""The peers, each as its users run it: LangChain's agents, and Microsoft's Agent Framework.

Their real code decides what is sent. Each model is the vendor's chat model of that library, with
only the call over the network replaced; what it would have sent is what is scored. All count with
the same exact tokenizer, and each is given the room that system text and tools leave.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from time import process_time
from typing import Any, Protocol

from bench.runs.ours import about
from bench.runs.score import Score
from bench.runs.script import Script, Turn
from bench.runs.wire import FRAME, count, lines

RECURSION = 100_000


class Summarises(Protocol):
    """What a peer that summarises asks of its stage."""

    def summarise(self, text: str) -> str:
        """Write a summary."""
        ...


class Stage:
    """Where a script is played for a peer: the turn, the step, and the scores of both wires."""

    def __init__(self, script: Script, scores: Mapping[str, Score]) -> None:
        self.script = script
        self.scores = scores
        self.results = script.results
        self.window = next(iter(scores.values())).window
        self.turn: Turn = script.turns[0]
        self.step = 0
        self.started = 0.0

    def begin(self, turn: Turn) -> str:
        """Begin a turn, and return what the user says."""
        self.turn, self.step, self.started = turn, 0, process_time()
        return turn.text

    def asked(self, encode: Callable[[], Mapping[str, Mapping[str, Any]]]) -> int:
        """Score what is sent, and return which step is next; -1 is the answer."""
        seconds = process_time() - self.started
        for rules, request in encode().items():
            self.scores[rules].take(self.turn, self.step, request, seconds)
        step, self.step = self.step, self.step + 1
        self.started = process_time()
        return step if step < len(self.turn.steps) else -1

    def failed(self, error: Exception) -> None:
        """Note that a turn broke off."""
        for score in self.scores.values():
            name = type(error).__name__
            score.faults[name] = score.faults.get(name, 0) + 1

    def summarise(self, text: str) -> str:
        """Write a summary, on everybody's bill."""
        said, *_ = [score.summariser(text) for score in self.scores.values()]
        return said

    def room(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        """Return what the system's text and the tools leave of the window."""
        return room(self.window, self.script.system, schemas)


def room(window: int, system: str, schemas: Sequence[Mapping[str, Any]]) -> int:
    """Return what a system's text and tools leave of a window."""
    request = {"tools": schemas, "messages": [{"role": "system", "content": system}]}
    return window - sum(line.tokens for line in lines("openai", request))


# LangChain.


def _langchain(stage: Stage, make: Callable[[Summarises, int, Any], Sequence[Any]]) -> None:
    agents = import_module("langchain.agents")
    core = import_module("langchain_core.messages")
    tools = _langchain_tools(stage)
    schemas = [import_module("langchain_core.utils.function_calling").convert_to_openai_tool(t)
               for t in tools]  # fmt: skip
    model = _chat_model(stage, tools)
    agent = agents.create_agent(
        model,
        tools=tools,
        system_prompt=stage.script.system,
        middleware=make(stage, stage.room(schemas), model),
    )
    said: list[Any] = []
    for turn in stage.script.turns:
        said.append(core.HumanMessage(stage.begin(turn)))
        try:
            state = agent.invoke({"messages": said}, {"recursion_limit": RECURSION})
            said = list(state["messages"])
        except Exception as error:  # whatever a peer raises
            stage.failed(error)
            said.append(core.AIMessage(turn.answer))


def _langchain_tools(stage: Stage) -> list[Any]:
    factory = import_module("langchain_core.tools").StructuredTool

    def look(step: str, arguments: dict[str, Any]) -> str:
        return stage.results[step]

    return [factory.from_function(look, name=n, description=about(n)) for n in stage.script.names]


def _chat_model(stage: Stage, tools: Sequence[Any]) -> Any:
    """Return a ChatOpenAI that answers by the script; a ChatAnthropic encodes the same beside."""
    outputs = import_module("langchain_core.outputs")
    core = import_module("langchain_core.messages")
    openai: Any = import_module("langchain_openai").ChatOpenAI
    anthropic: Any = import_module("langchain_anthropic").ChatAnthropic

    class Other(anthropic):  # type: ignore[misc]
        def payload(self, messages: Any, options: Any) -> Any:
            return self._get_request_payload(messages, **options)

    other = Other(model="claude-sonnet-4-5", api_key="none", max_tokens=1_000)
    bound = other.bind_tools(tools).kwargs

    class Scripted(openai):  # type: ignore[misc]
        def _generate(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
        ) -> Any:
            def encode() -> dict[str, Any]:
                return {
                    "openai": self._get_request_payload(messages, stop=stop, **options),
                    "anthropic": other.payload(messages, bound),
                }

            step = stage.asked(encode)
            turn = stage.turn
            calls = [] if step < 0 else [
                {"id": each.id, "name": each.name, "args": json.loads(each.arguments)}
                for each in turn.steps[step]
            ]  # fmt: skip
            said = core.AIMessage("" if calls else turn.answer, tool_calls=calls)
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=said)])

    return Scripted(model="gpt-5", api_key="none", use_responses_api=False)


@lru_cache(maxsize=20_000)
def _size(text: str, calls: str) -> int:
    return FRAME + count(text) + (count(calls) if calls else 0)


def _tokens(messages: Sequence[Any]) -> int:
    """Count LangChain's messages, as they are counted when they are scored."""
    return sum(
        _size(m.text, "\n".join(f"{c['name']} {json.dumps(c['args'])}"
                                for c in getattr(m, "tool_calls", ())))
        for m in messages
    )  # fmt: skip


def trimming(start_on: Any) -> Callable[[Summarises, int, Any], Sequence[Any]]:
    def make(stage: Summarises, room: int, model: Any) -> Sequence[Any]:
        middleware = import_module("langchain.agents.middleware")
        trim = import_module("langchain_core.messages").trim_messages

        @middleware.wrap_model_call  # type: ignore[untyped-decorator]
        def trimmed(request: Any, handler: Any) -> Any:
            trimmed = trim(
                request.messages,
                max_tokens=room,
                token_counter=_tokens,
                strategy="last",
                start_on=start_on,
                end_on=("human", "tool"),
            )
            return handler(request.override(messages=trimmed))

        return [trimmed]

    return make


def clearing(stage: Summarises, room: int, model: Any) -> Sequence[Any]:
    middleware = import_module("langchain.agents.middleware")
    edit = middleware.ClearToolUsesEdit(trigger=room)
    return [middleware.ContextEditingMiddleware(edits=[edit], token_counter=_tokens)]


def summarising(stage: Summarises, room: int, model: Any) -> Sequence[Any]:
    middleware = import_module("langchain.agents.middleware")
    strings = import_module("langchain_core.messages").get_buffer_string
    return [
        middleware.SummarizationMiddleware(
            model=model,
            trigger=("tokens", room),
            keep=("tokens", room // 2),
            token_counter=_tokens,
            summarizer=lambda messages: stage.summarise(strings(messages)),
        )
    ]


# Microsoft's Agent Framework.


class _Tokenizer:
    """The exact tokenizer in the form that the framework asks for."""

    def count_tokens(self, text: str) -> int:
        return count(text)


def _microsoft(stage: Stage) -> None:
    os.environ.setdefault("OTEL_SDK_DISABLED", "true")
    logging.getLogger("agent_framework").setLevel(logging.ERROR)
    asyncio.run(_microsoft_run(stage))


async def _microsoft_run(stage: Stage) -> None:
    af = import_module("agent_framework")
    client = _chat_client(stage, af)
    client.function_invocation_configuration["max_iterations"] = RECURSION

    def look(step: str, arguments: dict[str, Any]) -> str:
        return stage.results[step]

    tools = [af.FunctionTool(name=n, description=about(n), func=look) for n in stage.script.names]
    schemas = [tool.to_json_schema_spec() for tool in tools]
    agent = af.Agent(
        client=client,
        instructions=stage.script.system,
        tools=tools,
        compaction_strategy=af.ContextWindowCompactionStrategy(
            max_context_window_tokens=stage.room(schemas),
            max_output_tokens=0,
            tokenizer=_Tokenizer(),
        ),
    )
    session = agent.create_session()
    for turn in stage.script.turns:
        try:
            await agent.run(stage.begin(turn), session=session)
        except Exception as error:  # whatever a peer raises
            stage.failed(error)


def _chat_client(stage: Stage, af: Any) -> Any:
    """Return a client for OpenAI that answers by the script; one for Anthropic encodes beside."""
    base: Any = import_module("agent_framework_openai").OpenAIChatCompletionClient
    anthropic: Any = import_module("agent_framework_anthropic").AnthropicClient

    class Other(anthropic):  # type: ignore[misc]
        def payload(self, messages: Any, options: Any) -> Any:
            return self._prepare_options(messages, options)

    other = Other(model="claude-sonnet-4-5", api_key="none")

    class Scripted(base):  # type: ignore[misc]
        def _inner_get_response(
            self, *, messages: Any, options: Any, stream: bool = False, **given: Any
        ) -> Any:
            async def answer() -> Any:
                def encode() -> dict[str, Any]:
                    return {
                        "openai": self._prepare_options(messages, options),
                        "anthropic": other.payload(messages, options),
                    }

                step = stage.asked(encode)
                turn = stage.turn
                contents = [turn.answer] if step < 0 else [
                    af.Content.from_function_call(
                        call_id=each.id, name=each.name, arguments=each.arguments
                    )
                    for each in turn.steps[step]
                ]  # fmt: skip
                return af.ChatResponse(messages=[af.Message(role="assistant", contents=contents)])

            return answer()

    return Scripted(model="gpt-5", api_key="none")


PEERS: dict[str, Callable[[Stage], None]] = {
    "LangChain trim_messages": lambda stage: _langchain(stage, trimming(("human", "ai"))),
    "LangChain trim_messages, human first": lambda stage: _langchain(stage, trimming("human")),
    "LangChain ClearToolUsesEdit": lambda stage: _langchain(stage, clearing),
    "LangChain SummarizationMiddleware": lambda stage: _langchain(stage, summarising),
    "Agent Framework compaction": _microsoft,
}
