"""A call of a generator: the messages in order, each step, pressure, and the answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from muntin import App, Budget, assistant, capability, context, generator, prompt_file, user
from muntin.errors import BudgetExceeded, OutputInvalid
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, memory, run, said, statuses, texts
from tests.runtime.generators.conftest import Ask, echo, lookup, shown

# The order of the messages.


def test_the_messages_stand_in_the_order_system_texts_history_user():
    chat = generator(
        name="chat",
        model=echo(),
        prompt="You are a research assistant.",
        context=[
            "Background.",
            {"documents": ["first", "second"]},
            lambda i: f"About {i.topic}.",
            {"memory": {"shortTerm": "recent", "longTerm": "older"}},
            {"role": "assistant", "content": "(an example)"},
        ],
        history=True,
        user=lambda i: i.message,
        input=Ask,
    )

    async def talk():
        await chat.run({"message": "one"}, session="s")
        return await chat.window({"message": "two"}, session="s")

    assert [(m.role, m.content) for m in run(talk()).messages] == [
        (
            "system",
            "You are a research assistant.\n\n"
            "<documents>\nfirst\nsecond\n</documents>\n"
            "<memory>\n<short-term>recent</short-term>\n<long-term>older</long-term>\n</memory>",
        ),
        ("system", "Background."),
        ("system", "About lamps."),
        ("assistant", "(an example)"),
        ("user", "one"),
        ("assistant", "re: one"),
        ("user", "two"),
    ]


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ({}, []),
        ({"prompt": ""}, []),
        ({"prompt": lambda: None}, []),
        ({"context": {"notes": None, "more": {}}}, []),
        ({"prompt": "P"}, [("system", "P")]),
        ({"context": {"notes": "n"}}, [("system", "<notes>\nn\n</notes>")]),
        ({"prompt": "P", "context": {"notes": "n"}}, [("system", "P\n\n<notes>\nn\n</notes>")]),
        ({"prompt": "P", "context": "plain"}, [("system", "P"), ("system", "plain")]),
        ({"context": "plain"}, [("system", "plain")]),
        ({"context": lambda: {"a": "b"}}, [("system", "<a>\nb\n</a>")]),
        ({"prompt": "P", "context": [None, "", False, {}, [], lambda: None]}, [("system", "P")]),
        ({"context": [["a", ["b"]], "c"]}, [("system", "a"), ("system", "b"), ("system", "c")]),
        ({"user": "hi"}, [("user", "hi")]),
        ({"user": ["a", None, user("b"), "", lambda: ["c", "d"]]}, [("user", c) for c in "abcd"]),
        ({"user": {"role": "user", "content": "hi"}}, [("user", "hi")]),
        ({"user": [assistant("So?"), "hi"]}, [("assistant", "So?"), ("user", "hi")]),
    ],
)
def test_a_part_that_is_empty_leaves_no_trace(given, messages):
    assert shown(generator(**given)) == messages


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_plain_texts_are_sent_byte_for_byte(text):
    assert shown(generator(prompt="P", context=[text, {"t": "x"}]))[1] == ("system", text)


def test_texts_from_functions_and_capabilities_follow_in_author_order():
    one = capability("one", presets={"p": {"context": ["from one", lambda: "and again"]}})
    made = generator(context=[lambda: ["own", "own too"]], uses=[one])
    assert [text for _, text in shown(made)] == ["own", "own too", "from one", "and again"]


# Each model step.


def test_prompt_and_context_are_resolved_at_each_step_history_and_user_once():
    asked: list[str] = []

    def tell(name):
        def resolver():
            asked.append(name)
            return f"{name} {asked.count(name)}"

        return resolver

    model = ScriptedModel([call("lookup", "c1", key="a"), call("lookup", "c2", key="b"), "Done."])
    chat = generator(
        model=model,
        prompt=tell("prompt"),
        context=[{"tag": tell("tag")}, tell("text")],
        history=lambda: [user(tell("history")())],
        user=tell("user"),
        tools=[lookup],
    )
    run(chat.run())
    assert [texts(window)[:4] for window in model.windows] == [
        [f"prompt {n}\n\n<tag>\ntag {n}\n</tag>", f"text {n}", "history 1", "user 1"]
        for n in (1, 2, 3)
    ]
    assert texts(model.windows[2])[4:] == ["", "found a", "", "found b"]


def test_what_a_tool_changed_is_in_the_context_of_the_next_step():
    found: list[str] = []

    def search(words: str) -> str:
        """Search."""
        found.append(words)
        return "see documents"

    model = ScriptedModel([call("search", words="lamps"), "Found."])
    run(
        generator(model=model, context={"documents": lambda: found}, tools=[search], user="?").run()
    )
    assert texts(model.windows[1])[0] == "<documents>\nlamps\n</documents>"


# Under pressure.


@given(
    budget=st.integers(0, 220),
    sizes=st.lists(st.integers(1, 25), max_size=6),
    tag=st.integers(0, 40),
    plain=st.lists(st.integers(1, 20), max_size=2),
)
def test_history_goes_first_in_whole_turns_then_context_and_never_prompt_or_user(
    budget, sizes, tag, plain
):
    app = memory()
    past = []
    for number, size in enumerate(sizes):
        turn = [f"q{number}" + "?" * size, f"a{number}" + "!" * size]
        app.session("s").append(user(turn[0]), assistant(turn[1]))
        past.append(turn)
    made = generator(
        prompt="PROMPT",
        context=[{"t": "x" * tag}, *("y" * size for size in plain)],
        history=True,
        user="USER",
        budget=budget,
    )
    window = run(made.window(app=app, session="s", model=echo()))
    found = texts(window)
    assert found[0].startswith("PROMPT")
    assert found[-1] == "USER"
    assert window.over_budget == (budget < 10)
    kept = [text for text in found if text[0] in "qa"]
    suffixes = [[text for turn in past[n:] for text in turn] for n in range(len(past) + 1)]
    block = f"\n\n<t>\n{'x' * tag}\n</t>" if tag else ""
    context = [f"PROMPT{block}", *("y" * size for size in plain)]
    left = [text for text in found if text[0] not in "qaU"]
    # What is missing of the context would not fit even if no history stood beside the rest.
    missing = list((Counter(context[1:]) - Counter(left[1:])).elements())
    missing += [block] if left[0] != context[0] else []
    for text in missing:
        assert sum(map(len, [*left, "USER", text])) > budget
    room = budget - sum(map(len, [*left, "USER"]))
    if kept not in suffixes:  # only of the newest turn, if it alone is too large
        assert kept == past[-1][1:]
        assert sum(map(len, past[-1])) > room
    elif kept != suffixes[0]:
        more = sum(map(len, suffixes[suffixes.index(kept) - 1]))
        assert sum(map(len, suffixes[0])) > room
        assert more > room // 2  # it went to half of the room, and no further


def test_a_context_keeps_its_own_priority_and_a_pinned_one_stays():
    made = generator(
        context=[
            context(id="pinned", system="Be brief & kind.", priority=100),
            "y" * 20,
            context(id="low", system="z" * 20, priority=20),
        ],
        user="USER",
        budget=45,
    )
    window = run(made.window(app=memory(), model=echo()))
    assert texts(window) == ["Be brief & kind.", "y" * 20, "USER"]
    assert [row.name for row in window.report.slots if row.status == "dropped"] == ["context:low"]


def test_what_cannot_be_dropped_and_does_not_fit_is_never_sent():
    model = echo()
    made = generator(model=model, prompt="P" * 50, user="U" * 50, budget=80)
    with pytest.raises(BudgetExceeded):
        run(made.run(app=memory()))
    assert model.windows == []
    assert run(made.window(app=memory())).over_budget


def test_the_budget_is_the_generators_else_the_apps_else_the_models():
    def budget(made, **given):
        return run(made.window(**given)).report.budget

    small = echo(budget=1_000)
    assert budget(generator(model=small)) == 1_000
    assert budget(generator(model=echo())) == 128_000
    assert budget(generator(model=small), app=App("memory:", budget=500)) == 500
    assert budget(generator(model=small, budget=Budget(300)), app=App("memory:", budget=500)) == 300


class Answer(BaseModel):
    city: str
    nights: int


# Answers of a given form.


def test_an_answer_of_a_given_form_is_read():
    model = ScriptedModel(['Here:\n```json\n{"city": "Bonn", "nights": 2}\n```'])
    reply = run(generator(model=model, output=Answer, user="?").run())
    assert reply.output == Answer(city="Bonn", nights=2)
    assert model.settings[0]["output_name"] == "Answer"


def test_a_wrong_answer_is_repaired_once_with_all_that_led_to_it():
    app = memory()
    model = ScriptedModel([call("lookup", key="a"), "Bonn", '{"city": "Bonn", "nights": 2}', "ok"])
    book = generator(model=model, output=Answer, tools=[lookup], user="book", history=True)
    reply = run(book.run(app=app, session="s"))
    assert reply.output == Answer(city="Bonn", nights=2)
    roles = [m.role for m in model.windows[2].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert texts(model.windows[2])[-1].startswith("Your answer is not a valid Answer: ")
    assert reply.usage.input == sum(window.tokens for window in model.windows)
    client = said(app.session("s").items.client())
    assert client == ["book", "", "found a", "Bonn", '{"city": "Bonn", "nights": 2}']
    assert statuses(app, "s") == ["completed"]
    other = generator(model=model, history=True)
    run(other.run(app=app, session="s"))
    assert [m.role for m in model.windows[3].messages] == [*roles, "assistant"]


def test_an_answer_that_stays_wrong_is_an_error_and_the_turn_failed():
    app = memory()
    model = ScriptedModel(["a", "b"])
    with pytest.raises(OutputInvalid, match="not a valid Answer"):
        run(generator(model=model, output=Answer, user="?").run(app=app, session="s"))
    assert statuses(app, "s") == ["failed"]


FILE = """---
name: support
model: openai/gpt-4o
temperature: 0.2
max_tokens: 100
---
<system>
You are {{ config.name }} of {{ input.message }}, {{ config.temperature }}.
</system>
"""


USER = "<user>About {{ input.topic }} in {{ ctx.session.id }}</user>\n"


CONTEXT = """<context>
{% if config.context.userDocs %}Documents: {{ config.context.user_docs }}{% endif %}
</context>
"""


@pytest.fixture
def write(tmp_path):
    def file(*parts: str) -> Any:
        path = tmp_path / "chat.md"
        path.write_text("".join(parts), encoding="utf-8")
        return prompt_file(path)

    return file


# Prompt files.


def test_a_prompt_file_is_a_prompt_and_the_block_follows_it(write):
    made = generator(prompt=write(FILE, USER), context={"user-docs": "a & b"}, input=Ask)
    assert (made.name, made.model) == ("support", "openai/gpt-4o")
    assert shown(made, {"message": "Fenster"}, session="s1") == [
        ("system", "You are support of Fenster, 0.2.\n\n<user-docs>\na &amp; b\n</user-docs>"),
        ("user", "About lamps in s1"),
    ]


def test_a_context_section_owns_the_block(write):
    made = generator(prompt=write(FILE, CONTEXT), context=[{"userDocs": ["a", "<b>"]}, "plain"])
    assert shown(made, {"message": "Fenster"}) == [
        (
            "system",
            "You are support of Fenster, 0.2.\n\n<context>\nDocuments: a\n&lt;b&gt;\n</context>",
        ),
        ("system", "plain"),
    ]
    empty = generator(prompt=write(FILE, CONTEXT), context={"other": "x"})
    assert shown(empty, {"message": "F"}) == [("system", "You are support of F, 0.2.")]


def test_a_template_sees_what_capabilities_gave_and_its_user_section_is_recorded(write):
    app = memory()
    model = echo()
    notes = capability("my-notes", functions=lambda ctx: {"title": "N", "count": 3})
    file = write("<system>{{ ctx.cap.my_notes.title }} {{ ctx.session.id }}</system>\n", USER)
    made = generator(model=model, prompt=file, uses=[notes])
    run(made.run({"topic": "t"}, app=app, session="s"))
    assert texts(model.windows[0]) == ["N s", "About t in s"]
    assert said(app.session("s").items.all()) == ["About t in s", "re: About t in s"]


def test_explicit_arguments_win_over_the_front_matter_and_user_over_its_section(write):
    model = echo()
    made = generator(
        name="mine",
        model=model,
        prompt=write(FILE, USER),
        user="My own.",
        settings={"temperature": 0.9},
    )
    run(made.run({"message": "F", "topic": "t"}))
    assert texts(model.windows[0]) == ["You are mine of F, 0.9.", "My own."]
    assert model.settings[0] == {"temperature": 0.9, "max_tokens": 100}


def test_the_block_of_a_prompt_file_goes_under_pressure_and_its_text_stays(write):
    file = write(
        "<system>PROMPT</system><context>{{ config.context.a }}</context>".replace("><c", ">\n<c")
    )
    made = generator(prompt=file, context={"a": "x" * 50}, user="U", budget=30)
    assert shown(made, app=memory()) == [("system", "PROMPT"), ("user", "U")]


@pytest.mark.parametrize(("front", "marked"), [("caching: true", True), ("caching: false", False)])
def test_a_prompt_file_may_say_that_it_is_not_to_be_cached(write, front, marked):
    rules = "Never promise a refund before the order was found. " * 300
    file = write(f"---\n{front}\n---\n<system>{rules}</system>")
    chat = generator(prompt=file, model=ScriptedModel([], name="anthropic/claude-sonnet-4-5"))
    window = run(chat.window("Hello."))
    assert bool(window.breakpoints) is marked
