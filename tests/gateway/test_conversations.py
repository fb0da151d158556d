"""Which conversation a request belongs to: by a name, by whom it is for, or by its opening."""

from __future__ import annotations

import time
from typing import Any

import httpx2

from muntin.fitting import Recorder
from muntin.gateway import recording
from muntin.timeline.store.sql import Store
from tests.fitting.traffic import WORDS, kept_prefix, request, talk, traffic
from tests.gateway.running import Running, receipt, running, soon
from tests.providers.servers import CHAT, Answer, serving

BUDGET = 1_200


def ask(gate: Running, messages: list[Any], key: str = "k", **more: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {key}", **more.pop("headers", {})}
    body = {**request("chat", messages), **more}
    return receipt(
        httpx2.post(f"{gate.url}/v1/chat/completions", json=body, headers=headers).headers
    )


def said_in(first: str, answers: str, count: int) -> list[Any]:
    """Return the messages of the last of so many requests of a conversation."""
    said: list[Any] = [{"role": "user", "content": first}]
    for number in range(count - 1):
        said += [
            {"role": "assistant", "content": f"{answers} {number} {WORDS * 9}"},
            {"role": "user", "content": f"{answers} again {number} {WORDS * 9}"},
        ]
    return said


def grown(gate: Running, first: str, answers: str, count: int, **more: Any) -> list[str]:
    """Lead a conversation, and return the session of each request."""
    requests = [said_in(first, answers, number + 1) for number in range(count)]
    return [ask(gate, messages, **more)["session"] for messages in requests]


def test_a_conversation_is_found_again_by_its_opening():
    with traffic(BUDGET) as (server, seen), running(server.url, BUDGET) as gate:
        assert len(set(grown(gate, "Hello", "one", 14))) == 1
        assert seen.wrong == []
        assert "one again 0" not in str(seen.bodies[-1])


def test_conversations_with_one_opening_are_told_apart():
    with traffic(BUDGET) as (server, seen), running(server.url, BUDGET) as gate:
        one = grown(gate, "Hello", "one", 12)
        other = grown(gate, "Hello", "other", 12)
        assert set(one[1:]).isdisjoint(other[1:])
        assert len(set(other[1:])) == 1
        assert ask(gate, said_in("Hello", "one", 13))["session"] == one[-1]
        assert ask(gate, said_in("Hello", "other", 13))["session"] == other[-1]
        assert seen.wrong == []


def test_keys_users_and_names_keep_conversations_apart():
    with traffic(BUDGET) as (server, _), running(server.url, BUDGET) as gate:
        same = [{"role": "user", "content": "Hello"}]
        sessions = [
            ask(gate, same)["session"],
            ask(gate, same, key="other")["session"],
            ask(gate, same, user="ann")["session"],
            ask(gate, same, user="bob")["session"],
            ask(gate, same, headers={"x-muntin-session": "chat 1"})["session"],
            ask(gate, same, metadata={"session_id": "chat 2"})["session"],
            ask(gate, same, key="other", headers={"x-muntin-session": "chat 1"})["session"],
        ]
        assert len(set(sessions)) == len(sessions)
        goes_on = [
            *same,
            {"role": "assistant", "content": "Oh."},
            {"role": "user", "content": "So?"},
        ]
        assert ask(gate, goes_on, user="ann")["session"] == sessions[2]
        assert ask(gate, same, headers={"x-muntin-session": "chat 1"})["session"] == sessions[4]
        assert sessions[4].startswith("gateway/chat 1/")
        assert not [each for each in server.received if "x-muntin-session" in each.headers]


def test_a_named_conversation_that_became_another_begins_anew_and_says_so():
    named: dict[str, Any] = {"headers": {"x-muntin-session": "mine"}}
    with traffic(BUDGET) as (server, seen), running(server.url, BUDGET) as gate:
        grown(gate, "Hello", "one", 14, **named)
        told = ask(gate, [{"role": "user", "content": f"Else {WORDS}"}], **named)
        assert "another conversation" in told["fresh"]
        assert seen.wrong == []


def test_gateways_of_two_processes_go_on_where_the_other_stood(tmp_path, monkeypatch):
    append = Store.append

    def slow(*given: Any, **named: Any) -> Any:  # a busy disk
        time.sleep(0.1)
        return append(*given, **named)

    monkeypatch.setattr(recording, "_PATIENCE", 30)
    monkeypatch.setattr(Store, "append", slow)
    url = f"sqlite:///{tmp_path}/gate.db"
    with traffic(BUDGET) as (server, seen):
        with running(server.url, BUDGET, url) as one, running(server.url, BUDGET, url) as two:
            for number, messages in enumerate(talk("chat", 14)):
                ask((one, two)[number % 2], messages)
            alternating = list(seen.bodies)
        seen.bodies.clear()
        with running(server.url, BUDGET) as alone:
            for messages in talk("chat", 14):
                ask(alone, messages)
        assert seen.bodies == alternating
        pairs = list(zip(alternating[1:], alternating, strict=False))
        assert sum(kept_prefix(*pair) for pair in pairs) / len(pairs) > 0.6


def google(gate: Running, query: str, **headers: str) -> str:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
    url = f"{gate.url}/v1beta/models/gemini-3-pro:generateContent{query}"
    session: str = receipt(httpx2.post(url, json=body, headers=headers).headers)["session"]
    return session


def test_the_caller_s_key_tells_callers_apart_wherever_it_is():
    named = {"x-muntin-session": "ann"}
    with serving(Answer(body={})) as server, running(server.url, BUDGET) as gate:
        sessions = [
            google(gate, "?key=AAA", **named),
            google(gate, "?key=BBB", **named),
            google(gate, "?alt=sse&api_key=CCC", **named),
            google(gate, "", **named, **{"x-goog-api-key": "DDD"}),
            google(gate, "", **named, **{"api-key": "EEE"}),
            google(gate, "", **named, cookie="login=FFF"),
            google(gate, "", **named, cookie="login=GGG"),
            google(gate, "", **named),
        ]
        assert len(set(sessions)) == len(sessions)
        # Who has a key is known by it: providers give their clients new cookies all the time.
        again = google(gate, "?key=AAA&alt=sse", **named, cookie="visit=7")
        assert again == sessions[0]


def test_a_request_that_was_refused_goes_on_when_it_comes_again():
    statuses = iter([200, 429, 500, 200])

    def answer(received: Any) -> Answer:
        return Answer(next(statuses), body=CHAT.body)

    said = said_in("Hello", "one", 2)
    with serving(answer) as server, running(server.url, BUDGET) as gate:
        first = ask(gate, said[:1])["session"]
        assert [ask(gate, said)["session"] for _ in range(3)] == [first] * 3
        (info,) = soon(lambda: gate.store.sessions())
        assert info.id == first


def test_an_answered_request_that_comes_again_is_another_conversation():
    with traffic(BUDGET) as (server, _), running(server.url, BUDGET) as gate:
        said = said_in("Hello", "one", 1)
        assert len({ask(gate, said)["session"] for _ in range(3)}) == 3


def test_a_request_that_cannot_be_recorded_costs_other_requests_no_record(monkeypatch):
    sent_of, odd = Recorder.sent_of, "A text that cannot be recorded"

    def refuse(self: Any, session: str, talk: Any, *given: Any, **named: Any) -> Any:
        if talk[0].text == odd:
            raise ValueError("not a value for a store")
        return sent_of(self, session, talk, *given, **named)

    monkeypatch.setattr(Recorder, "sent_of", refuse)
    with serving(Answer(body=CHAT.body)) as server, running(server.url, BUDGET) as gate:
        ask(gate, [{"role": "user", "content": odd}])
        ask(gate, [{"role": "user", "content": "Hello"}])
        assert soon(lambda: [info.items for info in gate.store.sessions()] == [2])
