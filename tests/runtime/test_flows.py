"""Flows: checked, recorded, run; the user's turn once, and history within the flow's window."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from muntin import (
    Action,
    App,
    Attachment,
    Image,
    Input,
    InvalidInput,
    Message,
    Text,
    Tokens,
    Turns,
    flow,
    generator,
    user,
)
from muntin.errors import InvalidType
from muntin.providers.model import Finished, TextDelta
from muntin.testing import ScriptedModel
from tests.runtime.conftest import memory, run, said, statuses, texts


class Chat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    message: str


FIFTY = Turns(50)


def echo() -> ScriptedModel:
    return ScriptedModel(lambda window: f"re: {window.messages[-1].text}")


def chatting(model: ScriptedModel, window: Turns | Tokens = FIFTY, **given: Any):
    """Return the chat-agent shape: the user's message wired on both sides."""
    chat = generator(
        name="chat",
        model=model,
        prompt="P",
        input=Chat,
        **{"history": Turns(8), "user": lambda i: i.message, **given},
    )
    action = Action(block=chat, input=Chat, user_message=lambda i: i.message)
    return flow("chat-app", actions={"chat": action}, history_window=window)


async def talk(made, *messages: str, **given: Any) -> list[str]:
    return [(await made.run("chat", {"message": each}, **given)).text for each in messages]


# The user's turn.


def test_the_users_turn_is_there_once_and_the_next_turn_remembers_it(store_url):
    model = echo()
    made = chatting(model)

    async def turns():
        async with App(store_url) as app:
            assert await talk(made, "hi", "again", "again", session="s1", app=app) == [
                *("re: hi", "re: again", "re: again")
            ]
            assert statuses(app, "s1") == ["completed"] * 3
            assert said(app.session("s1").items.all()) == [
                *("hi", "re: hi", "again", "re: again", "again", "re: again")
            ]

    run(turns())
    assert [texts(window) for window in model.windows] == [
        ["P", "hi"],
        ["P", "hi", "re: hi", "again"],
        ["P", "hi", "re: hi", "again", "re: again", "again"],
    ]


IMAGE = Image(url="https://example.com/a.png")


# What the action recorded, what the generator says, and what the model is sent of both.
EQUAL = [
    ("hi", "hi", ["hi"]),
    ("hi", user("hi"), ["hi"]),
    ("hi", Message("user", (Text("hi"),)), ["hi"]),
    (Message("user", (Text("hi"),)), "hi", ["hi"]),
    ("hi", {"role": "user", "content": [{"type": "text", "text": "hi"}]}, ["hi"]),
    ("hi", Input("hi"), ["hi"]),
    ("hi", ["hi", "and more"], ["hi", "and more"]),
    ("hi", None, ["hi"]),
    ("hi", "", ["hi"]),
    (None, "hi", ["hi"]),
]
DIFFERENT = [
    ("hi", "Task: hi", ["hi", "Task: hi"]),
    ("hi", "hi ", ["hi", "hi "]),
    ("hi", Message("user", (Text("hi"), IMAGE)), ["hi", "hi"]),
    ("hi", Message("assistant", "hi"), ["hi", "hi"]),
]


def sent(recorded: Any, own: Any, history: Any) -> list[str]:
    model = ScriptedModel(["ok"])
    block = generator(model=model, history=history, user=lambda: own)
    made = flow("f", actions={"chat": Action(block=block, user_message=lambda: recorded)})
    run(made.run("chat"))
    return texts(model.windows[0])


@pytest.mark.parametrize(("recorded", "own", "expected"), EQUAL)
def test_equal_user_content_is_sent_once(recorded, own, expected):
    assert sent(recorded, own, True) == sent(recorded, own, None) == expected


@pytest.mark.parametrize(("recorded", "own", "expected"), DIFFERENT)
def test_a_workers_different_text_is_kept_and_without_history_it_stands_alone(
    recorded, own, expected
):
    assert sent(recorded, own, True) == expected
    assert sent(recorded, own, None) == expected[1:]


def test_the_users_message_is_required_and_stands_behind_what_the_turn_did_so_far():
    model = ScriptedModel(["Looked it up.", "Answer."])
    worker = generator(name="worker", model=model, user=lambda i: f"Task: {i.message}")
    chat = generator(name="chat", model=model, history=True, user=lambda i: i.message)

    async def block(input, ctx):
        await ctx.run(worker, input)
        return await ctx.run(chat, input)

    action = Action(block=block, input=Chat, user_message=lambda i: i.message)
    made = flow("f", actions={"chat": action})
    assert run(made.run("chat", {"message": "why?"})).text == "Answer."
    assert texts(model.windows[0]) == ["Task: why?"]
    assert texts(model.windows[1]) == ["Looked it up.", "why?"]


def test_files_of_the_recorded_message_are_not_lost_to_an_equal_text():
    model = ScriptedModel(["ok"])
    file = Attachment("f1", "a.pdf", 10, "document")
    block = generator(model=model, history=True, user="look")
    action = Action(block=block, user_message=lambda: user("look", attachments=[file]))
    run(flow("f", actions={"chat": action}).run("chat"))
    assert [m.attachments for m in model.windows[0].messages] == [(file,)]


def test_the_same_text_of_an_earlier_turn_that_failed_stays():
    app = memory()
    model = ScriptedModel([OSError("down"), "ok"])
    made = chatting(model)

    async def turns():
        with pytest.raises(OSError, match="down"):
            await talk(made, "hi", session="s", app=app)
        await talk(made, "hi", session="s", app=app)

    run(turns())
    assert statuses(app, "s") == ["failed", "completed"]
    window = texts(model.windows[1])
    assert window[:2] == ["P", "hi"]
    assert window[-1] == "hi"
    assert len([text for text in window if text == "hi"]) == 2


# Input.


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "message: Field required"),
        ({"message": 3}, "message: Input should be a valid string"),
        ({"message": "hi", "extra": 1}, "extra: Extra inputs are not permitted"),
        ("hi", "input: Input should be a valid dictionary"),
        (None, "message: Field required"),
    ],
)
def test_invalid_input_changes_nothing_and_says_what_is_wrong(wrong, words):
    app = memory()
    model = echo()
    made = chatting(model)
    with pytest.raises(InvalidInput) as caught:
        run(made.run("chat", wrong, session="s", app=app))
    assert str(caught.value).startswith("action 'chat' of flow 'chat-app': invalid input: ")
    assert words in str(caught.value)
    assert model.windows == []
    assert app.store.sessions(id="s") == []


def test_what_the_generator_does_not_accept_changes_nothing_either():
    class Strict(BaseModel):
        message: str
        city: str

    app = memory()
    block = generator(name="g", model=echo(), input=Strict, user="x")
    for action in (Action(block=block), Action(block=block, input=Chat)):
        made = flow("f", actions={"go": action})
        with pytest.raises(
            InvalidInput, match="generator 'g': invalid input: city: Field required"
        ):
            run(made.run("go", {"message": "hi"}, session="s", app=app))
    assert app.store.sessions(id="s") == []


def test_the_generators_own_model_sees_the_actions_input():
    class Both(BaseModel):
        message: str
        shout: bool = True

    model = echo()
    block = generator(model=model, input=Both, user=lambda i: i.message.upper() if i.shout else "")
    made = flow("f", actions={"chat": Action(block=block, input=Chat)})
    run(made.run("chat", Chat(message="hi")))
    assert texts(model.windows[0]) == ["HI"]


def test_a_user_message_that_fails_or_is_no_user_message_changes_nothing():
    app = memory()

    def say(user_message):
        action = Action(block=generator(model=echo()), user_message=user_message)
        return run(flow("f", actions={"a": action}).run("a", session="s", app=app))

    with pytest.raises(ZeroDivisionError) as caught:
        say(lambda: 1 / 0)
    assert caught.value.__notes__ == ["raised by user_message of action 'a' of flow 'f'"]
    with pytest.raises(InvalidType, match="user_message of action 'a' of flow 'f' must be a text"):
        say(lambda: 3)
    with pytest.raises(InvalidInput, match="must be a user message, not 'system'"):
        say(lambda: Message("system", "x"))
    assert app.store.sessions(id="s") == []


# History.


@pytest.mark.parametrize(
    ("window", "history", "seen"),
    [
        (Turns(3), True, 3),
        (Turns(3), Turns(2), 2),
        (Turns(3), Turns(99), 3),
        (Turns(3), lambda i, ctx: list(ctx.history.recent(100)), 3),
        (Turns(3), Tokens(10_000), 3),
        (Tokens(16), True, 2),
        (Turns(50), True, 6),
    ],
)
def test_the_flows_window_caps_history_and_a_limit_only_narrows_it(window, history, seen):
    app = memory()
    model = echo()
    made = chatting(model, window, history=history)
    run(talk(made, *(f"m{n}" for n in range(7)), session="s", app=app))
    past = texts(model.windows[-1])[1:-1]
    assert past == [text for n in range(6 - seen, 6) for text in (f"m{n}", f"re: m{n}")]


def test_the_window_bounds_what_is_read_from_the_store(monkeypatch):
    app = memory()
    made = chatting(echo(), Turns(2), history=True)
    run(talk(made, *(f"m{n}" for n in range(20)), session="s", app=app))
    read: list[int] = []
    plain = app.store.read

    def counting(*args, **given):
        found = plain(*args, **given)
        read.append(len(found))
        return found

    monkeypatch.setattr(app.store, "read", counting)
    run(talk(made, "now", session="s", app=app))
    assert max(read) <= 10


def test_fifty_turns_are_the_default():
    app = memory()
    model = echo()
    made = flow("f", actions={"chat": Action(block=generator(model=model, history=True))})
    for n in range(60):
        app.session("s").append(user(f"q{n}"), Message("assistant", "a"))
    run(made.run("chat", session="s", app=app))
    assert len(model.windows[0].messages) == 100


# Blocks.


def test_a_function_is_given_input_and_ctx_and_its_result_is_returned():
    app = memory()

    async def block(input, ctx):
        ctx.insert_context("last", name="note", content=input.message)
        return input.message, ctx.message.text, texts(ctx.history.recent(9)), ctx.session.id

    action = Action(block=block, input=Chat, user_message=lambda i: i.message.upper())
    made = flow("f", actions={"note": action})
    assert run(made.run("note", {"message": "a"}, session="s", app=app)) == ("a", "A", [], "s")
    assert run(made.run("note", {"message": "b"}, session="s", app=app)) == ("b", "B", ["A"], "s")
    assert [entry.content for entry in app.session("s").list_context()] == ["b"]
    assert statuses(app, "s") == ["completed", "completed"]
    meta = {"flow": "f", "action": "note"}
    assert [i.meta for i in app.session("s").items.all() if i.kind == "message"] == [meta, meta]


def test_a_block_that_fails_leaves_the_message_and_a_failed_turn():
    app = memory()

    async def block(input, ctx):
        raise LookupError("nothing there")

    made = flow("f", actions={"go": Action(block=block, user_message=lambda: "please")})
    with pytest.raises(LookupError) as caught:
        run(made.run("go", session="s", app=app))
    assert caught.value.__notes__ == ["raised by action 'go' of flow 'f'"]
    assert said(app.session("s").items.all()) == ["please"]
    assert statuses(app, "s") == ["failed"]


def test_without_a_user_message_a_turn_begins_with_nothing_anyone_sees():
    app = memory()
    made = flow("f", actions={"tick": Action(block=generator(model=echo(), user="tick"))})
    run(made.run("tick", session="s", app=app))
    items = app.session("s").items
    assert said(items.all()) == ["re: tick"]
    assert [item.kind for item in items.history()] == ["run", "message"]
    assert [item.kind for item in items.client()] == ["run", "message"]


def test_actions_on_one_session_run_one_after_the_other():
    app = memory()
    at_once = 0

    async def block(input, ctx):
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        await asyncio.sleep(0.01)
        at_once -= 1

    made = flow("f", actions={"go": Action(block=block)})

    async def all_of_them():
        await asyncio.gather(*(made.run("go", session="s", app=app) for _ in range(5)))

    run(all_of_them())
    assert statuses(app, "s") == ["completed"] * 5


def test_without_an_app_sessions_are_kept_in_memory_apart():
    model = echo()
    made = chatting(model)

    async def turns():
        await talk(made, "a", "b", session="one")
        await talk(made, "c", session="two")
        await talk(made, "d")

    run(turns())
    assert [len(window.messages) for window in model.windows] == [2, 4, 2, 2]


def test_a_generator_streams_and_a_function_does_not():
    app = memory()
    made = chatting(echo())

    async def streamed(flow, action):
        return [e async for e in flow.stream(action, {"message": "hi"}, session="s", app=app)]

    events = run(streamed(made, "chat"))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "re: hi"
    assert isinstance(events[-1], Finished)
    assert said(app.session("s").items.all()) == ["hi", "re: hi"]
    assert statuses(app, "s") == ["completed"]

    async def block(input, ctx):
        return None

    with pytest.raises(InvalidInput, match="action 'go' of flow 'f' is a function"):
        run(streamed(flow("f", actions={"go": Action(block=block)}), "go"))
    assert statuses(app, "s") == ["completed"]


# Definitions.


def test_an_unknown_action_is_an_error_that_names_those_there_are():
    with pytest.raises(InvalidInput, match="flow 'chat-app' has no action 'caht'; it has: chat"):
        run(chatting(echo()).run("caht", {}))


WRONG: Any = "wrong"


def plain(input, ctx):
    return None


async def three(a, b, c):
    return None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Action(block=plain), "Action.block must be a generator or an async function"),
        (lambda: Action(block=three), r"Action.block must take \(\), \(input\) or \(input, ctx\)"),
        (lambda: Action(block=generator(), input=WRONG), "Action.input must be a Pydantic model"),
        (lambda: Action(block=generator(), user_message=WRONG), "user_message must be a function"),
        (
            lambda: Action(block=generator(), user_message=lambda i, ctx: ""),
            r"user_message must take \(\) or \(input\)",
        ),
        (lambda: flow("", actions={"a": Action(block=generator())}), "kind must not be empty"),
        (lambda: flow("f", actions={}), "flow 'f': actions must map names to Action"),
        (lambda: flow("f", actions={"a": WRONG}), r"flow 'f': actions\['a'\] must be an Act"),
        (
            lambda: flow("f", actions={"a": Action(block=generator())}, history_window=WRONG),
            r"flow 'f': history_window must be Turns\(n\) or Tokens\(n\), not 'wrong'",
        ),
    ],
)
def test_a_wrong_definition_is_refused_by_name(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        wrong()
