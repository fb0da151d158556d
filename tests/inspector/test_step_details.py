"""What came of each window: the answer, its bill, the calls in words, repeats, claim and report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from muntin import Tool, user
from muntin.core.parts import ToolCall
from muntin.core.window import Window
from muntin.errors import ProviderError
from muntin.fitting import Fitter
from muntin.inspector.data import turns, window
from muntin.inspector.plans import Plans
from muntin.inspector.search import search_sessions
from muntin.inspector.step_details import call_words
from muntin.providers.model import Reply, Usage
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore
from muntin.wire.lists import pieces_of
from tests.fitting.talks import growing
from tests.fitting.test_client import client_of
from tests.fitting.traffic import request, traffic
from tests.gateway.running import running, soon
from tests.inspector.conftest import apart

CLAUDE = "anthropic/claude-sonnet-4-5"


class Billed(ScriptedModel):
    """Says that its input was so many tokens more than was counted, with nothing from a cache."""

    more = 0

    async def complete(self, window: Window, **given: Any) -> Reply:
        reply = await super().complete(window, **given)
        usage = Usage(window.tokens + self.more, 12)
        return Reply(reply.message, usage=usage, finish_reason=reply.finish_reason)


def look(n: int) -> str:
    """Look at a page."""
    return "".join(f"line {line} of page {n}.\n" for line in range(40 * n * n))


def cut_off(n: int) -> str:
    """Look at a page, as far as is allowed."""
    return "word " * 4_000


def broken(n: int) -> str:
    """Fail."""
    raise ValueError("no such page")


def call(number: int, name: str, **given: Any) -> ToolCall:
    return ToolCall(f"call_{number}", name, json.dumps(given))


def live(answers: list[Any], *questions: str, more: int = 0, budget: int = 12_000) -> MemoryStore:
    """Have an App live a conversation in a store."""
    store = MemoryStore()
    model = Billed(answers, name=CLAUDE, budget=budget)
    model.more = more

    async def main() -> None:
        async with App(store, model=model) as app:
            tools: list[Callable[..., str] | Tool] = [look, broken]
            chat = app.conversation("s", tools=[*tools, Tool(cut_off, max_result_tokens=100)])
            for question in questions or ("Look, please.",):
                try:
                    await chat.send(question)
                except ProviderError:
                    continue

    apart(lambda: asyncio.run(main()))
    return store


def rows(store: MemoryStore) -> list[dict[str, Any]]:
    return list(turns(Plans(store), "s")["windows"])


def test_a_row_says_the_call_and_what_it_brought():
    answers = [call(1, "look", n=1), call(2, "look", n=6), call(3, "broken", n=2), "Seen."]
    store = live(answers)
    small, large, failed, last = rows(store)
    items = [item for item in store.read("s") if item.kind == "tool_result"]
    sizes = [next(iter(item.tokens.values())) for item in items]
    assert small["did"] == [f"look(n=1) → {sizes[0]:,} tokens"]
    (told,) = large["did"]
    begin, _, kept = told.partition(", cut to ")
    assert begin == f"look(n=6) → {sizes[1]:,} tokens"
    # What the next window has more than the one before is the call and what it shows of the result.
    calls = [item for item in store.read("s") if item.kind == "tool_call"]
    grown = failed["tokens"] - large["tokens"] - next(iter(calls[1].tokens.values()))
    assert int(kept.replace(",", "")) == grown < sizes[1]
    assert failed["did"][0].startswith("broken(n=2) → Error: tool 'broken' failed")
    assert (last["did"], last["said"]) == ([], "Seen.")


def test_a_row_says_that_a_tool_was_cut_by_its_own_limit():
    (row, _) = rows(live([call(1, "cut_off", n=1), "Seen."]))
    assert row["did"][0].startswith("cut_off(n=1) → ")
    assert row["did"][0].endswith("cut by its own limit from 20,000 characters")


def test_a_step_that_repeats_the_one_before_is_flagged():
    again = ToolCall("call_9", "look", '{ "n" : 1 }')
    said = "I have looked at every page that there is, and found nothing of note."
    answers = [call(1, "look", n=1), again, call(3, "look", n=2), said, said, "Yes.", "Yes."]
    told = [row["repeats"] for row in rows(live(answers, "Look.", "Well?", "And?", "So?"))]
    same = ["makes the same calls as the step before", "says the same as the step before"]
    assert told == [None, same[0], None, None, same[1], None, None]


def test_a_step_is_told_alike_whichever_turns_are_asked_for():
    said = "I have looked at every page that there is, and found nothing of note."
    store = live([call(1, "look", n=1), said, said, "Yes."], "Look.", "Well?", "So?")
    whole = turns(Plans(store), "s")["windows"]
    for turn in (1, 2, 3):
        part = turns(Plans(store), "s", first=turn)["windows"]
        assert part == [each for each in whole if each["turn"] >= turn]


def test_calls_are_written_as_one_would():
    assert call_words(ToolCall("1", "look", '{"n": 3, "at": "x"}')) == 'look(n=3, at="x")'
    assert call_words(ToolCall("1", "look", "no json")) == "look(no json)"
    assert call_words(ToolCall("1", "look", "[1]")) == "look([1])"
    long = call_words(ToolCall("1", "look", json.dumps({"text": "x" * 9_000})))
    assert len(long) < 140


def test_the_answer_its_usage_and_its_cost_are_under_the_window():
    store = live([call(1, "look", n=1), "Seen."], "Look.", more=1)
    first, second = (window(Plans(store), "s", 1, step) for step in (1, 2))
    assert first["answer"]["text"]["text"] == ""
    assert first["answer"]["calls"][0]["words"].startswith("look(n=1) → ")
    assert second["answer"]["text"]["text"] == "Seen."
    tokens = second["report"]["tokens"]
    assert second["usage"] == {
        "input": tokens + 1,
        "output": 12,
        "cache_read": 0,
        "cache_write": 0,
    }
    assert second["cost"] == pytest.approx(((tokens + 1) * 3 + 12 * 15) / 1e6)


def test_claim_and_report_stand_side_by_side_with_a_sentence_where_they_differ():
    near = window(Plans(live(["Yes."], "Well?", more=20)), "s", 1)["claim"]
    assert near["reported"]["input"] == near["input"] + 20
    assert near["differs"] == []
    (sentence,) = window(Plans(live(["Yes."], "Well?", more=900)), "s", 1)["claim"]["differs"]
    assert sentence.startswith("The provider counted 900 tokens more than Muntin")
    long = "As we agreed, be thorough. " * 400
    store = live(["Yes.", "Yes, too."], long, long)
    claim = window(Plans(store), "s", 2)["claim"]
    assert claim["shared"] > 1_024
    assert claim["reported"]["read"] == 0
    assert claim["differs"] == [
        f"The provider read 0 of {claim['reported']['input']:,} tokens from its cache: "
        f"{claim['shared']:,} that are shared with the request before were not read."
    ]


def test_a_window_that_was_never_answered_has_no_answer():
    store = live(
        [call(1, "look", n=1), ProviderError("scripted", CLAUDE, None, "away"), "Here."],
        "Look.",
        "Again.",
    )
    told = [(row["turn"], row["did"], row["said"]) for row in rows(store)]
    assert told[0][1]
    assert told[1] == (1, [], "")
    assert told[2] == (2, [], "Here.")
    assert window(Plans(store), "s", 1, 2)["answer"] is None
    assert window(Plans(store), "s", 2)["answer"]["text"]["text"] == "Here."


def test_what_fit_recorded_shows_like_any_other():
    store = MemoryStore()
    fitter = Fitter(2_000, model="openai/gpt-4o", store=store)
    for talk in growing(3):
        fitter.fit(pieces_of(talk), conversation="c")
    told = turns(Plans(store), "c")["windows"]
    said = [item.message for item in store.read("c") if item.message is not None]
    calls = [message.tool_calls[0] for message in said if message.tool_calls]
    did = [row["did"][0] for row in told if row["did"]]
    assert len(did) == len(calls) > 3
    for row, made in zip(did, calls, strict=True):
        assert row.startswith(f"{call_words(made)} → ")
    answers = [message for message in said if message.role == "assistant"]
    assert sum(bool(row["did"] or row["said"]) for row in told) == len(answers)


def test_what_a_gateway_recorded_shows_like_any_other():
    with traffic(1_200) as (server, _), running(server.url, 1_200) as gate:
        client = client_of("chat", gate.url)
        messages = [{"role": "user", "content": "A question through the gateway"}]
        client.chat.completions.create(**request("chat", messages))
        soon(lambda: gate.store.sessions() and gate.store.reports(gate.store.sessions()[0].id))
        session = gate.store.sessions()[0].id
        (row,) = turns(Plans(gate.store), session)["windows"]
        told = window(Plans(gate.store), session, row["turn"], row["step"])
        answer = next(item for item in gate.store.read(session) if item.role == "assistant")
    assert answer.message is not None
    assert told["answer"]["text"]["text"] == answer.message.text
    assert told["usage"]["input"] == answer.meta["usage"]["input"]


def test_all_sessions_are_searched_and_a_long_search_goes_on_where_it_stopped(monkeypatch):
    store = MemoryStore()
    for number in range(6):
        session = Session(f"s{number}", store=store)
        session.append(user(f"My locker is QX77{number}."), user("Nothing else."))
    plans = Plans(store)
    told = search_sessions(plans, "Which locker is QX773?")
    assert told["next"] is None
    assert {hit["session"] for hit in told["found"]} == {f"s{n}" for n in range(6)}
    best = next(hit for hit in told["found"] if hit["session"] == "s3")
    assert "QX773" in best["text"]
    assert best["turn"] == 1
    monkeypatch.setattr("muntin.inspector.search.SECONDS", 0.0)
    seen, offset = [], 0
    while offset is not None:
        part = search_sessions(plans, "locker", offset)
        seen += [hit["session"] for hit in part["found"]]
        offset = part["next"]
    assert sorted(seen) == [f"s{n}" for n in range(6)]
    assert search_sessions(plans, "")["found"] == []
