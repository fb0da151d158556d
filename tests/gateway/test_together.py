"""Many conversations at once, and several gateways: each record has one conversation, in order."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import pytest

from muntin.fitting import Fitter, Recorder
from muntin.fitting.talk import LazyMessages as Spoken
from muntin.gateway.conversations import Conversations
from muntin.settings import counter_for
from muntin.timeline.store import Store, open_store
from muntin.timeline.store.sql.database import Database
from muntin.wire.lists import pieces_of
from tests.fitting.traffic import WORDS
from tests.gateway.running import receipt, running, served, soon
from tests.products import sample

BUDGET = 1_200
PAIRS = int(os.environ.get("MUNTIN_GATEWAY_PAIRS", "25"))
CONVERSATIONS = int(os.environ.get("MUNTIN_GATEWAY_CONVERSATIONS", "100"))
TALKS = int(os.environ.get("MUNTIN_GATEWAY_TALKS", "12"))
TURNS = 8


async def provider(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the last text that was said, or always alike where the model is `same`; as no
    model answers in less, take a tenth of a second."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
    asked = json.loads(body)
    await asyncio.sleep(0.1)
    last = asked["messages"][-1]["content"]
    text = "Hello!" if asked["model"] == "same" else f"Answer to {last.split(':')[0]}"
    message = {"role": "assistant", "content": text}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    answer["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    answer["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gate.db"
    server = request.getfixturevalue("server")
    return str(server.url(server.new_database()))


@pytest.fixture
def upstream() -> Iterator[str]:
    with served(provider) as url:
        yield url


_ANSWER = re.compile(r"Answer to mark-\d+ (\d+)")


class LazyMessages:
    """A client that says what it said before, the answers, and something new."""

    def __init__(self, mark: str, opening: str = "Hello", model: str = "openai/gpt-5.6") -> None:
        self.mark, self.model = mark, model
        self.said: list[dict[str, Any]] = [{"role": "user", "content": opening}]
        self.number = 0

    def ask(self, *urls: str, **headers: str) -> str:
        """Ask, take the answer, and return the session; ask the next one if nobody answers."""
        body = {"model": self.model, "messages": self.said}
        for url in [*urls] * 100:
            try:
                answer = httpx2.post(
                    f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60
                )
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        assert answer.status_code == 200, answer.text
        self.number += 1
        self.said.append(answer.json()["choices"][0]["message"])
        text = f"{self.mark} {self.number}: {WORDS * 3}"
        self.said.append({"role": "user", "content": text})
        return str(receipt(answer.headers)["session"])


class Process:
    """`muntin gateway` in a process that can be killed, always at the same address."""

    def __init__(self, upstream: str, store: str) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self._command = [sys.executable, "-m", "muntin", "gateway", "--json", "--port"]
        self._command += [str(self.port), "--upstream", upstream, "--budget", str(BUDGET)]
        self._command += ["--store", store]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["url"] == self.url

    def end(self, *, kill: bool) -> None:
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def spoken(store: Store, session: str) -> list[str]:
    return [item.message.text for item in store.read(session) if item.message is not None]


def all_sessions(store: Store) -> list[str]:
    found: list[str] = []
    while page := store.sessions(after=found[-1] if found else None, limit=500):
        found += [info.id for info in page]
    return found


def marks(texts: list[str]) -> set[str]:
    return {mark for text in texts for mark in re.findall(r"mark-\d+", text)}


def order_of(texts: list[str]) -> list[int]:
    return [int(found[1]) for text in texts if (found := re.match(r"mark-\d+ (\d+):", text))]


@pytest.mark.parametrize("model", ["same", "openai/gpt-5.6"])
def test_two_users_who_begin_alike_at_once_share_no_record(upstream, model, tmp_path):
    url = f"sqlite:///{tmp_path}/gate.db"
    with running(upstream, BUDGET, url) as gate, ThreadPoolExecutor(2) as pool:
        for number in range(PAIRS):
            pair = [LazyMessages(f"mark-{2 * number + each}", model=model) for each in range(2)]
            for _ in range(3):
                list(pool.map(lambda talk: talk.ask(gate.url), pair))
    with open_store(url) as store:
        records = [spoken(store, session) for session in all_sessions(store)]
        assert [texts for texts in records if len(marks(texts)) > 1] == []
        whole = [numbers for texts in records if (numbers := order_of(texts))]
        assert whole == [[1, 2]] * (2 * PAIRS)


def test_a_fitter_in_threads_records_no_two_lists_as_one(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/s.db") as store, ThreadPoolExecutor(2) as pool:
        fitter = Fitter(BUDGET, store=store)

        def lead(mark: str, barrier: threading.Barrier) -> None:
            said = [{"role": "user", "content": "Hello"}]
            for number in range(3):
                barrier.wait(30)
                fitter.fit(pieces_of(said))
                said = [*said, {"role": "assistant", "content": "Hello!"}]
                said.append({"role": "user", "content": f"{mark} {number}:"})

        for number in range(PAIRS):
            pair = [f"mark-{2 * number + each}" for each in range(2)]
            list(pool.map(lead, pair, [threading.Barrier(2)] * 2))
        records = [spoken(store, session) for session in all_sessions(store)]
        assert [texts for texts in records if len(marks(texts)) > 1] == []
        assert len([texts for texts in records if marks(texts)]) == 2 * PAIRS


def test_the_last_of_many_conversations_with_one_opening_costs_what_the_first_does(tmp_path):
    """Counted in the work of the store: statements, and items that are written."""
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        asked: Counter[int] = Counter()
        database: Any = store.database
        number = 0

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*given: Any, **named: Any) -> Any:
                asked[number] += 1
                return call(*given, **named)

            return counting

        database.query, database.transact = counted(database.query), counted(database.transact)
        recorder, fitter = Recorder(store), Fitter(BUDGET)
        conversations = Conversations(recorder)
        names: list[set[str]] = []
        for number in range(CONVERSATIONS):
            said = [{"role": "user", "content": "Start"}]
            names.append(set())
            for turn in range(4):
                talk = Spoken(pieces_of(said), counter_for(None, None))
                conversation = conversations.claim(talk, None, "key", None)
                fitted = fitter.fit(pieces_of(said), previous=conversation.frontier)
                sent = recorder.sent_of(
                    conversation.session,
                    talk,
                    fitted.window,
                    fitted.frontier,
                    past=conversation.past,
                    owner=conversations.owner,
                    alone=True,
                )
                assert sent is not None
                recorder.answered(sent, answer="x")
                conversations.let_go(conversation)
                names[-1].add(conversation.session)
                said = [*said, {"role": "assistant", "content": "Yes."}]
                said.append({"role": "user", "content": f"mark-{number} {turn}: go on"})
        tens = range(CONVERSATIONS)
        assert [len(each) for each in names] == [1] * CONVERSATIONS
        # Of ten each: now and then the store looks whether reports are to be forgotten.
        first, last = (median(asked[at] for at in ten) for ten in (tens[:10], tens[-10:]))
        assert last <= 1.2 * first
        assert len(all_sessions(store)) == CONVERSATIONS
        assert {info.items for info in store.sessions(limit=5_000)} == {7}


@pytest.mark.parametrize("first", [0, 1])
def test_records_that_come_late_are_in_one_session_whichever_is_first(
    upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Two gateways wait for a slow disk with the first and the second request of a conversation."""
    url, transact = f"sqlite:///{tmp_path}/gate.db", Database.transact
    free, begun = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    with running(upstream, BUDGET, url) as one, running(upstream, BUDGET, url) as two:
        databases: list[Any] = [one.store.database, two.store.database]

        def wait(self: Database, work: Any) -> Any:
            number = databases.index(self)
            begun[number].set()
            free[number].wait(30)
            return transact(self, work)

        monkeypatch.setattr(Database, "transact", wait)
        talk = LazyMessages("mark-1", opening="mark-1 0: begin")
        for number in range(2):
            talk.ask((one, two)[number].url)
            assert begun[number].wait(30)
        free[first].set()
        assert soon(lambda: all_sessions(one.store))
        free[1 - first].set()
        talk.ask(one.url)
    with open_store(url) as store:
        (session,) = all_sessions(store)
        texts = [text.split(":")[0] for text in spoken(store, session)]
    asked = [f"mark-1 {number}" for number in range(3)]
    assert texts == [text for each in asked for text in (each, f"Answer to {each}")]


def checked(store: Store, talks: list[LazyMessages]) -> set[str]:
    """Check that no question is recorded twice, out of order, or in another conversation; return
    those that are not recorded."""
    questions: Counter[str] = Counter()
    for session in all_sessions(store):
        texts = spoken(store, session)
        assert len(marks(texts)) <= 1, texts
        assert order_of(texts) == sorted(set(order_of(texts))), texts
        questions.update(text.split(":")[0] for text in texts if re.match(r"mark-\d+ \d+:", text))
        answers = [int(found[1]) for text in texts if (found := _ANSWER.fullmatch(text))]
        assert answers == sorted(set(answers)), texts
    asked = {f"{talk.mark} {number}" for talk in talks for number in range(TURNS)}
    assert {question: n for question, n in questions.items() if n > 1} == {}
    return asked - set(questions)


@pytest.mark.parametrize(
    ("url", "named", "kills"),
    sample(
        [*product(("sqlite", "postgresql"), (False, True), (0, 3))],
        ("sqlite", False, 3),
        ("sqlite", True, 0),
        ("postgresql", False, 0),
        ("postgresql", True, 3),
    ),
    indirect=["url"],
)
def test_two_gateways_record_every_message_once_and_in_order(upstream, url, named, kills):
    talks = [LazyMessages(f"mark-{n}", opening=f"mark-{n} 0: begin") for n in range(TALKS)]
    gates = [Process(upstream, url) for _ in range(2)]
    chance, done = random.Random(3), threading.Event()

    def lead(talk: LazyMessages) -> None:
        headers = {"x-muntin-session": talk.mark} if named else {}
        for turn in range(TURNS):
            talk.ask(*(gates[(turn + at) % 2].url for at in range(2)), **headers)

    def kill() -> None:
        for number in range(kills):
            if not done.wait(chance.uniform(1.0, 3.0)):
                gates[number % 2].end(kill=True)
                gates[number % 2].start()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lead, talks))
    finally:
        done.set()
        killer.join()
        for gate in gates:
            gate.end(kill=False)
    with open_store(url) as store:
        missing = checked(store, talks)
    # Who is killed before it could record a request loses it, until the next one says it again.
    assert {question for question in missing if not (kills and question.endswith(" 7"))} == set()
