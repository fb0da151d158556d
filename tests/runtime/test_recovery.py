"""What was cut can be read: every marker's own words, called as a tool, give what is missing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from muntin import Message, ToolCall, Window, assistant, tool, user
from muntin.agent.tools import call_tool, tool_name, tool_schema
from muntin.core.counting.counter import Counter
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx
from muntin.runtime.recovery import MOST_CHARACTERS, Reader
from muntin.runtime.sources import Source
from muntin.testing import ScriptedModel
from muntin.timeline.items import Draft, draft_of
from muntin.timeline.store.memory import MemoryStore
from tests.runtime.conftest import call, memory, run, texts, wakes

HINT = re.compile(r"(load_\w+)\(([^)]*)\)")


def hints(window: Window) -> list[tuple[str, list[Any]]]:
    """Return the calls that the markers of a window name."""
    found = HINT.findall("\n".join(text for text in texts(window) if "load_" in text))
    return [(name, json.loads(f"[{arguments}]")) for name, arguments in found]


def follow(app: App, entity: str, name: str, arguments: list[Any]) -> str:
    """Call one of the three tools as a model would."""
    made = {tool_name(each): each for each in Reader(app.session(entity)).tools}[name]
    function = tool_schema(made)["function"]
    given = dict(zip(function["parameters"]["properties"], arguments, strict=True))
    return run(call_tool(made, ToolCall("c1", name, json.dumps(given)), Counter(len)))


def wake(app: App, payload: Any, *, budget: int, sources: Any) -> Window:
    model = ScriptedModel(lambda window: "ok")

    async def handler(ctx: Ctx) -> None:
        made = sources(ctx) if callable(sources) else sources
        ctx.use_context(source_budget=budget, sources=made)
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, payload))
    return model.windows[-1]


TEXT = "".join(f"line {n}\n" for n in range(400))


@pytest.mark.parametrize("tier", ["pinned", "stable", "slow-changing", "volatile"])
@pytest.mark.parametrize("keep", ["head", "tail"])
def test_the_rest_of_a_text_is_read_by_its_marker(tier, keep, store_url):
    app = App(store_url, tokenizer=len)
    window = wake(
        app, "wake", budget=2_000, sources={"docs": Source(TEXT, max=900, cache=tier, keep=keep)}
    )
    ((name, arguments),) = hints(window)
    assert name == "load_source_range"
    rest = follow(app, "e/1", name, arguments)
    shown = "\n".join(texts(window)[:-1])
    kept = re.sub(r"\n?\[docs: [^\]]*\]\n?", "", shown)
    assert kept in TEXT
    assert (kept + rest if keep == "head" else rest + kept) == TEXT
    app.store.close()


@pytest.mark.parametrize("text", ["x" * 1_500, "\U0001f600" * 700, "雨" * 900])
def test_a_text_below_its_max_that_sharing_cut_is_read_by_its_marker(text):
    app = memory()
    window = wake(
        app,
        "wake",
        budget=800,
        sources={"a": Source(text, max=5_000), "b": Source("y" * 2_000, max=5_000)},
    )
    found = {arguments[0]: arguments for _, arguments in hints(window)}
    assert set(found) == {"a", "b"}
    rest = follow(app, "e/1", "load_source_range", found["a"])
    assert text.endswith(rest)
    assert rest


def test_a_text_with_more_tokens_than_characters_is_read_by_its_marker():
    """A tokenizer may count several tokens for a character."""

    def three(text: str) -> int:
        return 3 * len(text)

    app = App(MemoryStore(), tokenizer=three)
    text = "x" * 400
    window = wake(app, "wake", budget=3_000, sources={"a": Source(text, max=900, cache="stable")})
    ((name, arguments),) = hints(window)
    rest = follow(app, "e/1", name, arguments)
    assert rest
    assert "no snapshot" not in rest
    assert text.endswith(rest)


def test_a_marker_still_works_after_the_source_has_changed():
    app = memory()
    first = wake(app, "1", budget=900, sources={"a": Source("old " * 400, max=500)})
    app._wakes.handlers.clear()
    wake(app, "2", budget=900, sources={"a": Source("new " * 400, max=500)})
    ((name, arguments),) = hints(first)
    rest = follow(app, "e/1", name, arguments)
    assert "old" in rest
    assert "new" not in rest


def test_the_same_content_has_the_same_marker_and_another_content_another():
    def marker(text: str, payload: str) -> str:
        window = wake(memory(), payload, budget=900, sources={"a": Source(text, max=500)})
        return next(each for each in texts(window) if "load_source_range" in each)

    assert marker("x" * 900, "one") == marker("x" * 900, "two")
    assert marker("x" * 900, "one") != marker("x" * 899 + "y", "one")


# Timelines.


def fill(app: App, turns: int) -> list[str]:
    """Fill a timeline with turns that called a tool; return all texts."""
    session = app.session("e/1")
    for n in range(turns):
        call_ = call("look", f"c{n}", n=n)
        with session.turn() as turn:
            turn.append(user(f"question {n} " + "q" * 40))
            (item,) = turn.append(Draft("run"))
            for message in (
                assistant(tool_calls=[call_]),
                tool(f"c{n}", f"result {n} " + "r" * 40),
                assistant(f"answer {n} " + "a" * 40),
            ):
                turn.append(draft_of(message, run=item.position))
    return [m.text for m in session.timeline_messages() if m.text]


def chat(ctx: Ctx) -> Any:
    return {"chat": Source(ctx.timeline_messages, max=700)}


@pytest.mark.parametrize("turns", [8, 60])
def test_all_that_is_missing_of_a_timeline_is_read_by_its_marker(turns):
    app = memory()
    everything = fill(app, turns)
    window = wake(app, "wake", budget=2_000, sources=chat)
    shown = set(texts(window))
    missing = [text for text in everything if text not in shown]
    assert missing
    ((name, arguments),) = hints(window)
    assert name == "load_timeline_range"
    read = ""
    start, end = arguments
    while start <= end:  # bounded: it says where to go on
        answer = follow(app, "e/1", name, [start, end])
        read += answer
        more = re.search(r"load_timeline_range[^\d]*(\d+)", answer)
        if not more:
            break
        start = int(more[1])
    for text in missing:
        assert text in read


def test_the_marker_of_a_timeline_reads_a_run_that_was_cut_off():
    app = memory()
    fill(app, 3)
    window = wake(
        app,
        "wake",
        budget=2_000,
        sources=lambda ctx: {"chat": Source(ctx.timeline_messages, max=400)},
    )
    ((name, arguments),) = hints(window)
    answer = follow(app, "e/1", name, arguments)
    for words in ("question 0", "result 0", "answer 0"):
        assert words in answer


def test_the_marker_of_a_timeline_is_the_same_while_the_same_is_missing():
    def marker() -> list[str]:
        app = memory()
        fill(app, 20)
        return [
            text for text in texts(wake(app, "wake", budget=2_000, sources=chat)) if "load_" in text
        ]

    assert marker() == marker()
    assert len(marker()) == 1


@pytest.mark.parametrize("tier", ["stable", "volatile"])
def test_messages_missing_of_a_list_are_read_by_its_marker(tier):
    """A list that is no timeline: undated messages of a source."""
    app = memory()
    given = [Message("user", f"note {n} " + "x" * 40) for n in range(40)]
    window = wake(app, "wake", budget=2_000, sources={"notes": Source(given, max=600, cache=tier)})
    missing = [m.text for m in given if m.text not in texts(window)]
    assert missing
    ((name, arguments),) = hints(window)
    answer = follow(app, "e/1", name, arguments)
    for text in missing:
        assert text in answer


# The tools by themselves.


def test_the_model_can_follow_a_marker_in_the_same_run():
    app = memory()

    def reads(window: Window) -> Any:
        if len(model.windows) > 1:
            return "done"
        ((name, arguments),) = hints(window)
        keys = ("name", "start", "end", "snapshot")
        return ToolCall("c1", name, json.dumps(dict(zip(keys, arguments, strict=True))))

    model = ScriptedModel(reads)

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(
            source_budget=2_000, sources={"docs": Source(TEXT, max=500, cache="stable")}
        )
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, "wake"))
    result = model.windows[1].messages[-1]
    assert result.role == "tool"
    assert result.text == TEXT[TEXT.index(result.text[:20]) :]


def test_what_a_tool_gives_is_bounded():
    app = memory()
    text = "y" * 100_000
    window = wake(app, "wake", budget=2_000, sources={"a": Source(text, max=500)})
    ((name, arguments),) = hints(window)
    answer = follow(app, "e/1", name, arguments)
    assert len(answer) < MOST_CHARACTERS + 200
    # Where it was cut is told, so that one can read on.
    assert str(MOST_CHARACTERS) in answer[-200:] or str(arguments[1] + MOST_CHARACTERS) in answer


def test_a_long_range_of_a_timeline_is_bounded_and_says_where_to_go_on():
    app = memory()
    app.session("e/1").append(*(user(f"m{n}.") for n in range(1_000)))
    answer = follow(app, "e/1", "load_timeline_range", [1, 1_000])
    assert "m0." in answer
    assert "m999." not in answer
    more = re.search(r"(\d+)\D*$", answer)
    assert more
    assert f"m{int(more[1]) - 1}." in follow(
        app, "e/1", "load_timeline_range", [int(more[1]), 1_000]
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("load_timeline_range", [0, 5]),
        ("load_timeline_range", [5, 4]),
        ("load_timeline_range", [-3, -1]),
        ("load_source_range", ["a", 5, 4, "x"]),
        ("load_source_range", ["a", -1, 4, "x"]),
        ("load_source_range", ["a", 0, 4, "unknown"]),
        ("load_context_history", ["unknown", 1]),
    ],
)
def test_a_wrong_call_is_told_to_the_model(name, arguments):
    app = memory()
    app.session("e/1").append(user("hello"))
    assert follow(app, "e/1", name, arguments).startswith("Error: ")


def test_the_history_of_an_entry_is_read_by_position():
    app = memory()
    session = app.session("e/1")
    session.append(user("hello"))
    old = session.insert_context("n", name="Name", content="old")
    session.append(user("more"))
    new = session.insert_context("n", name="Name", content="new")
    session.remove_context("n")

    def at(position: int) -> str:
        return follow(app, "e/1", "load_context_history", ["n", position])

    assert at(old.inserted_at) == at(new.inserted_at - 1) == "old"
    assert at(new.inserted_at) == "new"
    assert at(1).startswith("Error: ")


def test_an_entry_that_was_removed_is_told_as_removed_after_that():
    app = memory()
    session = app.session("e/1")
    session.append(user("hello"))
    entry = session.insert_context("n", name="Name", content="secret")
    session.remove_context("n")
    last = session.items.all()[-1].position
    answer = follow(app, "e/1", "load_context_history", ["n", last])
    assert last > entry.inserted_at
    assert "secret" not in answer


def test_the_tools_read_their_own_session_only():
    app = memory()
    app.session("e/1").append(user("mine"))
    app.session("e/2").append(user("theirs"))
    assert "theirs" not in follow(app, "e/1", "load_timeline_range", [1, 100])
    window = wake(app, "wake", budget=900, sources={"a": Source("z" * 2_000, max=500)})
    ((name, arguments),) = hints(window)
    assert follow(app, "e/2", name, arguments).startswith("Error: ")


def test_hidden_items_are_not_read_by_the_tools():
    from muntin.timeline.items import Visibility

    app = memory()
    hidden = draft_of(assistant("hidden"), visibility=Visibility(history=False))
    app.session("e/1").append(user("seen"), hidden)
    assert "hidden" not in follow(app, "e/1", "load_timeline_range", [1, 10])


def test_a_tool_of_the_same_name_is_the_users():
    def load_timeline_range(start: int, end: int) -> str:
        """Read it my way."""
        return "mine"

    model = ScriptedModel([call("load_timeline_range", start=1, end=1), "ok"])

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=100, sources={"a": Source("x")})
        ctx.use_agent(model=model, tools=[load_timeline_range])
        await ctx.agent.run()

    run(wakes(memory(), handler, "wake"))
    assert texts(model.windows[1])[-1] == "mine"
    assert len(model.windows[0].tools) == 5
