"""Random toolboxes, budgets, searches, calls, moves and lost servers on three wires: no request is
over budget, refers to what is not declared, or begins in another way without a move."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import Message, Profile, Slots, Tool, Toolbox, ToolCall, assistant, system, user
from muntin.agent.tools import as_tools
from muntin.core.counting.counter import Counter
from muntin.core.planning.plan import Plan
from muntin.core.tool_marks import found_names
from muntin.core.toolboxes.finding import answer_search, with_marks
from muntin.core.toolboxes.offer import ToolOffer, ToolSearch
from muntin.core.window import Window
from tests.products import EXAMPLES
from tests.tool_rules import check_anthropic, check_chat, check_responses
from tests.toolboxes import boxes, functions

COUNTER = Counter()
NAMES = [tool["name"] for box in boxes() for tool in box["tools"]]
QUERIES = ["read", "file", "send a message to Ada", "weather\nroute", "zzz", "pdf of a document"]
PROFILES = {
    "reference": Profile.for_model("anthropic/claude-sonnet-5"),
    "item": replace(Profile.for_model("openai/gpt-5.6"), tool_loading="item"),
    "text": Profile.for_model("ollama/qwen3"),
}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("find"), st.sampled_from([*QUERIES, *NAMES])),
        st.tuples(st.just("call"), st.sampled_from(NAMES)),
        st.tuples(st.just("again"), st.integers(0, 7)),
        st.tuples(st.just("work"), st.integers(1, 900)),
        st.tuples(st.just("turn"), st.integers(1, 60)),
        st.tuples(st.just("lose"), st.integers(0, 8)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


def work_on(path: str) -> str:
    """Work on a file."""
    return path


@cache
def all_boxes() -> list[Toolbox]:
    return [Toolbox(box["name"], functions(box), about=box["about"]) for box in boxes()]


class Talk:
    """A conversation that a program keeps itself."""

    def __init__(self, loading: str, budget: int, share: float) -> None:
        self.profile, self.budget, self.share = PROFILES[loading], budget, share
        self.lost: set[int] = set()
        self.messages: list[Message] = [user("Begin")]
        self.previous: Any = None
        self.window: Window | None = None
        self.request: list[Any] = []
        self.count = 0
        self.is_changed = False
        self.offered: ToolOffer | None = None

    def offer(self) -> ToolOffer:
        if self.offered is not None:
            return self.offered
        listed = [box for n, box in enumerate(all_boxes()) if n not in self.lost]
        tools = as_tools([Tool(work_on), *listed], "test").offer_now(
            "test",
            budget=self.budget,
            counter=COUNTER,
            search=ToolSearch(self.share),
            loading=self.profile.tool_loading,
        )
        schemas = tools.schemas
        assert isinstance(schemas, ToolOffer)
        self.offered = schemas
        return schemas

    def ask(self) -> Window:
        """Compose a request, and check it."""
        slots = Slots(
            self.budget,
            counter=COUNTER,
            tools=self.offer(),
            profile=self.profile,
            previous=self.previous,
            ladder=True,
        )
        slots.add("system", [system("You help.")], tier="pinned", required=True)
        slots.add("history", self.messages)
        window = slots.render()
        assert not window.over_budget, window.report
        if self.profile.tool_loading == "reference":
            request = window.anthropic()
            check_anthropic(request)
            sent = [request["system"], *request["messages"]]
        elif self.profile.tool_loading == "item":
            request = window.openai(api="responses")
            check_responses(request)
            sent = request["input"]
        else:
            request = window.openai()
            check_chat(request)
            sent = request["messages"]
        plain = plainly(sent)
        plan = window.explained
        assert isinstance(plan, Plan)
        moved = any(part.has_moved for part in plan.slots)
        if self.request and not moved and not self.is_changed:
            assert plain[: len(self.request)] == self.request
        self.request, self.previous, self.is_changed = plain, window, False
        self.window = window
        return window

    def step(self, kind: str, value: Any) -> None:
        """Do one thing, as a model and its program would."""
        if kind == "lose":
            self.lost.add(value)
            self.is_changed, self.offered = True, None
            return
        if kind == "restart":
            if isinstance(self.previous, Window):
                self.previous = stored(self.previous)
            return
        if kind == "turn":
            self.messages += [assistant("Done."), user("word " * value)]
            self.is_changed = True  # the question of the turn before may have been cut
            return
        window, offer = self.ask(), self.offer()
        self.count += 1
        id = f"c{self.count}"
        if kind == "find" and offer.is_search:
            call = ToolCall(id, "find_tools", json.dumps({"query": value}))
        elif kind == "again" and found_names(window.messages):
            names = found_names(window.messages)
            call = ToolCall(id, names[value % len(names)], "{}")
        elif kind == "call" and value in offer.catalogue.by_name:
            call = ToolCall(id, value, "{}")
        else:
            call = ToolCall(id, "work_on", '{"path":"x"}')
        answer = with_marks(assistant(tool_calls=[call]), offer, window.messages)
        self.messages.append(answer)
        if call.name == "find_tools":
            result = answer_search(answer.tool_calls[0], offer, COUNTER, self.messages[:-1])
        else:
            size = value if kind == "work" else 20
            result = Message("tool", "lorem " * size, tool_call_id=id)
        self.messages.append(result)


def stored(window: Window) -> Any:
    """Return what a process finds of a window after a restart."""
    frontier = window.frontier
    return type(frontier).from_dict(json.loads(json.dumps(frontier.to_dict())))


def plainly(value: Any) -> Any:
    """Return a request without marks of a cache, a marked text as it is without a mark."""
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {k: plainly(v) for k, v in value.items() if k not in marks}
    if isinstance(value, list):
        items = [plainly(item) for item in value]
        if len(items) == 1 and isinstance(items[0], dict) and set(items[0]) == {"type", "text"}:
            return items[0]["text"]
        return items
    return value


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(
    st.sampled_from(sorted(PROFILES)),
    st.integers(1_500, 8_000),
    st.sampled_from([0.02, 0.05, 0.1, 0.2]),
    STEPS,
)
def test_no_request_is_over_budget_refused_or_changed_at_its_beginning(
    loading, budget, share, steps
):
    talk = Talk(loading, budget, share)
    for kind, value in steps:
        talk.step(kind, value)
    talk.ask()
