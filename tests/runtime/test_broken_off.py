"""Answers that a provider breaks off, and its summaries: a turn goes on, and nothing is lost."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from muntin import App, Message, Window, user
from muntin.agent import run_agent
from muntin.core.planning.slots import Slots
from muntin.providers.model import Event, Finished, Reply
from muntin.wire import anthropic, responses
from tests.runtime.conftest import run, statuses

SUMMARY = {"type": "compaction", "content": "They talked of " + "many things " * 40}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


class Vendor:
    """A model that answers in the form of a vendor, and holds the requests as they are sent."""

    wire: Any = anthropic
    blocks, envelope = "content", "messages"

    def __init__(self, *answers: Any, name: str = "anthropic/claude-opus-4-6") -> None:
        self.name = name
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []

    async def complete(self, window: Window, *, settings: Mapping[str, Any]) -> Reply:
        self.requests.append(copy.deepcopy(self.wire.encode(window)))
        blocks, why = self.answers.pop(0) if self.answers else ([text("Yes.")], "end_turn")
        usage = {"input_tokens": 7, "output_tokens": 3}
        answer = {self.blocks: blocks, "stop_reason": why, "usage": usage}
        reply: Reply = self.wire.decode(answer, window)
        return reply

    async def stream(self, window: Window, *, settings: Mapping[str, Any]) -> AsyncIterator[Event]:
        yield Finished(await self.complete(window, settings=settings))

    @property
    def sent(self) -> list[Any]:
        """The messages of the newest request."""
        return [*self.requests[-1][self.envelope]]


class OpenAI(Vendor):
    wire = responses
    blocks, envelope = "output", "input"


def of(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


@pytest.mark.parametrize("store", ["memory:", "file"])
def test_a_conversation_begins_at_the_summary_of_its_provider_from_then_on(store, tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}" if store == "file" else store
    model = Vendor(
        ([text("It is QX7731.")], "end_turn"),
        ([SUMMARY], "compaction"),
        ([text("Noted.")], "end_turn"),
    )

    async def talk() -> None:
        async with App(url, model=model, budget=2_000) as app:
            chat = app.conversation("c", system_prompt="Be brief.")
            await chat.send("What is my locker?")
            reply = await chat.send("Remember it.")
            assert reply.text == "Noted."
            assert reply.usage.input == 14
            # Sent back as it is: no message of the user's, and nothing before the summary.
            assert model.sent == [of("assistant", SUMMARY)]
            assert model.requests[-1]["system"] == [text("Be brief.")]
            assert statuses(app, "c") == ["completed", "completed"]
            messages = [item.message for item in chat.session.items.all() if item.message]
            assert [message.text for message in messages][-1] == "Noted."
            for number in range(12):
                await chat.send(f"Question {number} " + "word " * 150)
                assert model.sent[0]["content"][0] == SUMMARY
                assert [m["content"][0] for m in model.sent].count(SUMMARY) == 1
                assert "locker" not in json.dumps(model.sent)
            assert "Question 0 " not in json.dumps(model.sent)

    run(talk())
    if store == "file":
        again = Vendor()

        async def later() -> None:
            async with App(url, model=again, budget=2_000) as app:
                await app.conversation("c", system_prompt="Be brief.").send("And now?")

        run(later())
        assert again.sent[0]["content"][0] == SUMMARY


def test_the_compaction_item_of_openai_begins_the_conversation():
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 200}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    said["content"] = [{"type": "output_text", "text": "Noted.", "annotations": []}]  # type: ignore[assignment]
    model = OpenAI(([said], None), ([item, {**said, "id": "msg_2"}], None), name="openai/gpt-6")

    async def talk() -> None:
        async with App("memory:", model=model, budget=2_000) as app:
            chat = app.conversation("c")
            for words in ("My locker is QX7731.", "Remember it."):
                await chat.send(words)
            for number in range(12):
                model.answers = [([{**said, "id": f"msg_{number + 9}"}], None)]
                await chat.send(f"Question {number} " + "word " * 150)
                assert model.sent[0] == item
                assert "locker" not in json.dumps(model.sent)

    run(talk())


def test_an_entity_begins_at_the_summary_too():
    model = Vendor(([SUMMARY, text("Noted.")], "end_turn"))

    async def talk() -> None:
        async with App("memory:", model=model, budget=2_000) as app:

            @app.entity("clerk")
            async def handler(ctx: Any, wake: Any) -> Any:
                return ctx.use_agent(system_prompt="Be brief.")

            for number in range(8):
                await app.ask("clerk/1", f"Question {number} " + "word " * 150)
                if number:
                    assert model.sent[0]["content"][0] == SUMMARY
                    assert "Question 0 " not in json.dumps(model.sent)

    run(talk())


def look(where: str) -> str:
    """Look somewhere."""
    return "nothing " * 60


def test_a_summary_in_the_middle_of_a_run_takes_the_place_of_the_question():
    def called(number: int) -> dict[str, Any]:
        at = {"where": str(number)}
        return {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": at}

    steps = [([THOUGHT, called(number)], "tool_use") for number in range(9)]
    steps[3] = ([SUMMARY, THOUGHT, called(3)], "tool_use")
    model = Vendor(*steps)

    async def talk() -> None:
        async with App("memory:", model=model, budget=1_200) as app:
            reply = await app.conversation("c", tools=[look]).send("Where is it?")
            assert reply.text == "Yes."

    run(talk())
    assert model.requests[3]["messages"][0] == of("user", text("Where is it?"))
    for request in model.requests[4:]:
        first = request["messages"][0]["content"]
        assert first[0] == SUMMARY
        assert [block["type"] for block in first[-1:]] == ["tool_use"]
        assert "Where is it?" not in json.dumps(request["messages"])


@pytest.mark.parametrize("streaming", [False, True])
def test_a_paused_answer_is_sent_back_as_it_is_within_one_turn(streaming):
    paused: list[Any] = [THOUGHT, SEARCH]
    rest: list[Any] = [FOUND, {**THOUGHT, "thinking": "so"}, text("Found.")]
    model = Vendor((paused, "pause_turn"), (rest, "end_turn"))

    async def talk() -> None:
        async with App("memory:", model=model) as app:
            chat = app.conversation("c")
            if streaming:
                *_, last = [event async for event in chat.stream("Search for it.")]
                assert isinstance(last, Finished)
                reply = last.reply
            else:
                reply = await chat.send("Search for it.")
            assert (reply.text, reply.usage.input) == ("Found.", 14)
            assert statuses(app, "c") == ["completed"]
            assert model.sent == [of("user", text("Search for it.")), of("assistant", *paused)]
            await chat.send("Thanks.")
            assert model.sent == [
                of("user", text("Search for it.")),
                of("assistant", *paused, *rest),
                of("user", text("Thanks.")),
            ]

    run(talk())


def test_a_turn_goes_on_ten_times_and_then_ends_with_what_there_is():
    model = Vendor(*[([text(f"part {n}"), SEARCH], "pause_turn") for n in range(20)])

    async def talk() -> None:
        async with App("memory:", model=model) as app:
            reply = await app.conversation("c", max_steps=1).send("Search.")
            assert (reply.finish_reason, reply.text) == ("pause_turn", "part 10")
            assert statuses(app, "c") == ["completed"]

    run(talk())
    assert len(model.requests) == 11


def test_a_run_that_stopped_at_a_paused_answer_goes_on_from_there():
    kept: list[Message] = []
    model = Vendor(([THOUGHT, SEARCH], "pause_turn"))

    def compose(messages: tuple[Message, ...]) -> Window:
        if len(kept) == 1 and not stopped:
            stopped.append(True)
            raise ConnectionError
        slots = Slots(10_000, profile=model.name)
        slots.add("input", [user("Search.")])
        slots.add("run", [*messages], run=True)
        return slots.render()

    stopped: list[bool] = []
    with pytest.raises(ConnectionError):
        run(run_agent(model, compose, record=lambda messages: kept.extend(messages)))
    reply = run(run_agent(model, compose, resume=[Message.from_dict(m.to_dict()) for m in kept]))
    assert reply.text == "Yes."
    assert model.sent == [of("user", text("Search.")), of("assistant", THOUGHT, SEARCH)]
