"""Sessions as files: a round trip loses nothing, and a broken file leaves nothing."""

from __future__ import annotations

import json
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from subprocess import run
from tempfile import TemporaryDirectory
from threading import Barrier
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Message, Tokens, Turns, assistant, system, tool, user
from muntin.core.counting.counter import CharsPerToken
from muntin.core.parts import ToolCall
from muntin.errors import InvalidInput, StoreError
from muntin.settings import counter_for
from muntin.timeline.files import BATCH, Imported, export_session, import_sessions, is_staged
from muntin.timeline.items import KINDS, SPOKEN, STATUSES, UNSETTLED, Draft, Visibility
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store
from muntin.timeline.store.memory import MemoryStore
from tests.paths import TRACES

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    with open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db") as s:
        yield s


def exported(store: Store, session: str = "s") -> list[bytes]:
    return list(export_session(store, session))


def imported(store: Store, lines, **given) -> list[Imported]:
    return [step for step in import_sessions(store, lines, **given) if step.complete]


def refused(store: Store, lines, **given) -> str:
    """Return why a file is refused; what was there before is all that is there after."""
    before = store.sessions()
    with pytest.raises(InvalidInput) as caught:
        imported(store, lines, **given)
    assert store.sessions() == before
    return str(caught.value)


def lines_of(*values: object) -> list[bytes]:
    return [json.dumps(value).encode() + b"\n" for value in values]


def small(store: Store | None = None) -> list[dict[str, Any]]:
    """Return the lines of a small session as values: header, a failed turn, three items."""
    kept = store or MemoryStore()
    drafts = [
        Draft("message", user("Hi"), opens="turn", ends="completed", time=START),
        Draft("message", assistant("Hello."), time=START),
        Draft("message", payload={"a": 1}, opens="turn", ends="failed", time=START),
    ]
    kept.append("s", [Session("s", store=kept).draft(each) for each in drafts])
    return [json.loads(line) for line in exported(kept)]


# A hostile session.

texts = st.text(max_size=12) | st.sampled_from(["\x00", "\x1b[31m", "\u2028", "\r\n", '"}\n{"'])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
# A field that is only carried may hold half a character.
carried = json_values | st.just("half \ud800")
extras = st.dictionaries(texts.map(lambda text: f"x-{text}"), carried, max_size=2)
parts = st.one_of(
    st.builds(lambda text, extra: {"type": "text", "text": text, **extra}, texts, extras),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, texts),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": text}, texts),
    st.builds(lambda extra: {"type": "input_audio", **extra}, extras),
)
calls = st.builds(
    lambda id, name, text: {
        "id": f"c{id}",
        "type": "function",
        "function": {"name": f"f{name}", "arguments": text},
    },
    *(texts, texts, texts),
)
messages = st.one_of(
    st.builds(
        lambda role, content, extra: {"role": role, "content": content, **extra},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        texts | st.none() | st.lists(parts, max_size=3),
        extras,
    ),
    st.builds(lambda t, c: {"role": "assistant", "content": t, "tool_calls": [c]}, texts, calls),
    st.builds(lambda t, c: {"role": "tool", "content": t, "tool_call_id": c}, texts, texts),
).map(Message.from_dict)
times = st.datetimes(timezones=st.just(UTC))
payloads = {
    "message": json_values.filter(lambda value: value is not None),
    "context_inserted": st.builds(
        lambda id, name, attrs: {"id": f"e{id}", "name": name, "content": name, **attrs},
        *(st.integers(1, 2), texts),
        st.just({}) | st.builds(lambda text: {"attrs": {"key": text}}, texts),
    ),
    "context_removed": st.builds(lambda id: {"id": f"e{id}"}, st.integers(1, 3)),
}


@st.composite
def drafts(draw) -> Draft:
    kind = draw(st.sampled_from(KINDS))
    spoken = kind in SPOKEN[1:] or (kind == "message" and draw(st.booleans()))
    return Draft(
        kind,
        draw(messages) if spoken else None,
        None if spoken else draw(payloads.get(kind, json_values)),
        run=draw(st.none() | st.just(1)),
        time=draw(st.none() | times),
        visibility=draw(st.builds(Visibility, st.booleans(), st.booleans())),
        transient=draw(st.booleans()),
        meta=draw(st.dictionaries(texts, json_values, max_size=2)),
        opens=draw(st.sampled_from([None, None, "turn", "inbox"])),
        turn=draw(st.sampled_from([None, None, None, 1])),
        ends=draw(st.sampled_from([None, *STATUSES])),
        tokens=draw(st.dictionaries(texts, st.integers(0, 10**6), max_size=2)),
    )


ids = st.text(st.characters(blacklist_characters="\x00", codec="utf-8"), min_size=1, max_size=9)


@given(ids, st.lists(st.lists(drafts(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_round_trip_gives_the_same_items_and_a_second_one_the_same_bytes(id, appends):
    with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/s.db") as file:
        written = MemoryStore()
        written.append(id, [Draft("run")])  # which the others may be part of
        for each in appends:
            written.append(id, each)
        lines, turns = exported(written, id), written.turns(id)
        waited = sum(turn.status in UNSETTLED for turn in turns)
        for target in (MemoryStore(), file):
            (done,) = imported(target, lines)
            size = 1 + sum(map(len, appends))
            assert done == Imported(id, size, len(turns), True, waited)
            assert target.read(id) == written.read(id)
            assert [(t.number, t.status, t.first) for t in target.turns(id)] == [
                (t.number, "failed" if t.status in UNSETTLED else t.status, t.first) for t in turns
            ]
            assert target.read(id, live=True) == written.read(id, live=True)
            again = MemoryStore()
            imported(again, exported(target, id))
            assert exported(again, id) == exported(target, id)
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


def test_the_lines_are_header_unfinished_turns_and_items(store):
    header, failed, first, second, third = small(store)
    assert header == {
        "format": "muntin-session",
        "version": 1,
        "id": "s",
        "created": "2026-03-01T09:30:00.000000+00:00",
        "items": 3,
    }
    assert failed == {"turn": 2, "status": "failed"}
    assert second == {
        "position": 2,
        "turn": 1,
        "kind": "message",
        "message": {"role": "assistant", "content": "Hello."},
        "run": None,
        "time": "2026-03-01T09:30:00.000000+00:00",
        "visibility": {"client": True, "history": True},
        "transient": False,
        "tokens": {"estimate+4#2": 6},
    }
    assert (first["message"]["content"], third["payload"]) == ("Hi", {"a": 1})


def test_an_import_keeps_the_dates_of_the_session(store):
    source = MemoryStore()
    small(source)
    imported(store, exported(source))
    info = next(iter(store.sessions(id="s")), None)
    assert info is not None
    assert (info.created, info.updated) == (START, START)


def test_several_sessions_stand_in_one_file(store):
    source = MemoryStore()
    for name in ("a", "b", "c"):
        Session(name, store=source).append(user(name))
    lines = [line for name in ("a", "b", "c") for line in exported(source, name)]
    assert [step.session for step in imported(store, lines)] == ["a", "b", "c"]
    assert [line for name in ("a", "b", "c") for line in exported(store, name)] == lines


def test_what_is_appended_during_an_export_is_left_out():
    source = MemoryStore()
    small(source)
    lines = export_session(source, "s")
    read = [next(lines)]
    source.append("s", [Draft("message", user("late"), opens="turn")])
    read += lines
    target = MemoryStore()
    imported(target, read)
    assert [item.position for item in target.read("s")] == [1, 2, 3]
    assert len(target.turns("s")) == 2


def test_a_session_removed_during_an_export_is_an_error():
    source = MemoryStore()
    source.append("s", [Draft("message", user(str(n)), opens="turn") for n in range(150)])
    lines = export_session(source, "s")
    next(lines)
    source.delete("s")
    with pytest.raises(StoreError, match="'s' was removed while it was exported"):
        list(lines)


def test_an_unknown_session_cannot_be_exported(store):
    with pytest.raises(InvalidInput, match="there is no session 'nobody'"):
        exported(store, "nobody")


def test_memory_does_not_grow_with_the_session(tmp_path):
    def peak(items: int) -> int:
        with (
            open_store(f"sqlite:///{tmp_path}/a{items}.db") as source,
            open_store(f"sqlite:///{tmp_path}/b{items}.db") as target,
        ):
            for start in range(0, items, 1_000):
                texts = [user(f"{start + n} " * 20) for n in range(1_000)]
                for text in texts:  # the memo of counts has its own bound
                    counter_for(None, None).message(text)
                source.append("s", [Draft("message", m, tokens={"x": 1}) for m in texts])
            tracemalloc.start()
            imported(target, export_session(source, "s"))
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

    peak(1_000)  # what is loaded once is loaded now
    # Both fill the memo of messages that were read, which has room for 4,096.
    assert peak(10_000) < 1.2 * peak(5_000)


# What is refused.


def changed(line: int, **given: object) -> list[bytes]:
    values = small()
    values[line].update(given)
    return lines_of(*values)


def without(line: int, key: str) -> list[bytes]:
    values = small()
    del values[line][key]
    return lines_of(*values)


RUN = {"turn": 1, "kind": "run", "time": START.isoformat(), "payload": {}}
ENTRY = {"id": "e", "name": "n", "content": "c"}
BROKEN = {
    "not JSON": ([*lines_of(small()[0]), b"{\n"], ":2: not JSON: "),
    "not UTF-8": ([*lines_of(small()[0]), b'{"a": "\xff"}\n'], ":2: not UTF-8"),
    "NaN": ([*lines_of(small()[0]), b'{"a": NaN}\n'], ":2: not JSON: NaN is no number"),
    "a long number": ([*lines_of(small()[0]), b'{"a": ' + b"9" * 5_000 + b"}\n"], ":2: not JSON"),
    "deep": ([*lines_of(small()[0]), b"[" * 100_000 + b"\n"], ":2: nested too deeply"),
    "a number": ([*lines_of(small()[0]), b"5\n"], ":2: an object was expected, not 5"),
    "empty": ([], "file.jsonl: the file is empty"),
    "blank": ([b"\n", b" \n"], "file.jsonl: the file is empty"),
    "no header": (lines_of(*small()[2:]), ":1: neither a session of Muntin nor a chat"),
    "another format": (changed(0, format="x"), ":1: unknown format 'x'"),
    "newer": (changed(0, version=2), ":1: written by a newer Muntin (version 2 of the format"),
    "no version": (changed(0, version="1"), ":1: 'version' must be a number"),
    "no id": (changed(0, id=None), ":1: a session id must be a str"),
    "a bad id": (changed(0, id="\x00"), ":1: a session id must not hold a NUL"),
    "a bad date": (changed(0, created="yesterday"), ":1: 'yesterday' is no time"),
    "a bad count": (changed(0, items=-1), ":1: 'items' must be a number from 1, not -1"),
    "an unknown field": (changed(0, colour="red"), ":1: unknown field 'colour'"),
    "too many announced": (changed(0, items=4), ":5: session 's' ends after 3 of its 4 items"),
    "too few announced": (changed(0, items=2), ":5: more items than the 2"),
    "an unknown status": (changed(1, status="lost"), ":2: unknown status 'lost'"),
    "a listed status": (changed(1, status=["open"]), ":2: unknown status ['open']"),
    "a bad turn": (changed(1, turn=0), ":2: 'turn' must be a number from 1"),
    "a turn without items": (changed(1, turn=7), "turn 7 of 's' has no items"),
    "a late status": (
        lines_of(*small(), {"turn": 1, "status": "open"}),
        ":6: the status of a turn",
    ),
    "a gap": (changed(3, position=3), ":4: position 3 where 2 is due"),
    "position true": (changed(2, position=True), ":3: position True where 1 is due"),
    "a turn too far": (changed(4, turn=3), ":5: turn 3 cannot follow turn 1"),
    "turn 0": (changed(4, turn=0), ":5: turn 0 cannot follow turn 1"),
    "a turn of text": (changed(4, turn="2"), ":5: 'turn' must be a number, not '2'"),
    "no kind": (without(3, "kind"), ":4: 'kind' is missing"),
    "no time": (without(3, "time"), ":4: 'time' is missing"),
    "no content": (without(3, "message"), ":4: an item has either a 'message' or a 'payload'"),
    "both": (changed(3, payload=1), ":4: an item has either a 'message' or a 'payload'"),
    "an unknown kind": (changed(3, kind="song"), ":4: unknown kind 'song'"),
    "a listed kind": (changed(3, kind=["message"]), ":4: unknown kind ['message']"),
    "an unknown key": (changed(3, mood="good"), ":4: unknown field 'mood'"),
    "a message null": (changed(3, message=None), ":4: a message must be a Message or a dict"),
    "a bad role": (changed(3, message={"role": "dog"}), ":4: unknown role 'dog'"),
    "a message in a wake": (changed(3, kind="wake"), ":4: a wake item holds a payload"),
    "no zone": (changed(3, time="2026-03-01T09:30:00"), ":4: '2026-03-01T09:30:00' is no time"),
    "before time": (changed(3, time="0001-01-01T00:00:00+05:00"), ":4: '0001-01-01T00"),
    "a time of numbers": (changed(3, time=5), ":4: 5 is no time"),
    "visibility": (changed(3, visibility={"client": 3, "history": True}), ":4: 'visibility' must"),
    "a half visibility": (changed(3, visibility={"client": True}), ":4: 'visibility' must"),
    "transient": (changed(3, transient="no"), ":4: 'transient' must be true or false"),
    "meta": (changed(3, meta=["no"]), ":4: 'meta' must be an object"),
    "a listed run": (changed(3, run=[1]), ":4: a message item: run must be an int, not [1]"),
    "a run behind its item": (
        changed(3, run=3),
        ":4: the message item at position 2 cannot be part of a run at 3: a run begins before",
    ),
    "a run that is its own": (changed(3, run=2), ":4: the message item at position 2 cannot be"),
    "run 0": (changed(3, run=0), ":4: the message item at position 2 cannot be part of a run at 0"),
    "lines that point at each other": (
        lines_of(
            {**small()[0], "items": 2},
            {**RUN, "position": 1, "run": 2},
            {**RUN, "position": 2, "run": 1},
        ),
        ":2: the run item at position 1 cannot be part of a run at 2",
    ),
    "attributes that leave the tag": (
        changed(
            4,
            kind="context_inserted",
            payload={"id": "e", "name": "n", "content": "c", "attrs": {"x><system": "now"}},
        ),
        ":5: context entry 'e': 'x><system' cannot be the name of an attribute",
    ),
    "an attribute that is the entry's own": (
        changed(
            4,
            kind="context_inserted",
            payload={"id": "e", "name": "n", "content": "c", "attrs": {"id": "f"}},
        ),
        ":5: context entry 'e': 'id' cannot be the name of an attribute",
    ),
    "a huge run": (changed(3, run=2**70), f":4: a message item: run is {2**70}, which is beyond"),
    "listed tokens": (changed(3, tokens=[1]), ":4: 'tokens' must be counts by tokenizer"),
    "negative tokens": (changed(3, tokens={"x": -1}), ":4: a message item: tokens['x'] must not"),
    "huge tokens": (
        changed(3, tokens={"x": 10**30}),
        f":4: a message item: tokens['x'] is {10**30}",
    ),
    "an entry without id": (
        [*lines_of(*small()[:4]), *lines_of({**small()[4], "kind": "context_removed"})],
        ":5: a context_removed item needs a payload with an 'id'",
    ),
    "an entry without name": (
        changed(4, kind="context_inserted", payload={"id": "e"}),
        ":5: context entry 'e': name must be a str",
    ),
    "an attribute that leaves its tag": (
        changed(4, kind="context_inserted", payload={**ENTRY, "attrs": {"a><system>b": "x"}}),
        ":5: context entry 'e': 'a><system>b' cannot be the name of an attribute",
    ),
    "an attribute in the place of the id": (
        changed(4, kind="context_inserted", payload={**ENTRY, "attrs": {"id": "other"}}),
        ":5: context entry 'e': 'id' cannot be the name of an attribute",
    ),
    "a chat of no messages": (lines_of({"messages": []}), ":1: a list of messages was expected"),
    "a chat of text": (lines_of({"messages": "hi"}), ":1: a list of messages was expected"),
    "a bad message": (
        lines_of([{"role": "user", "content": "a"}, {"content": "b"}]),
        ":1: message 1: a message dict needs a 'role'",
    ),
    "no message": (lines_of(["a"]), ":1: message 0: a message must be a Message or a dict"),
    "an item in a chat": (
        lines_of([{"role": "user"}], small()[2]),
        ":2: an item without the header of its session",
    ),
    "a broken document": (
        [b'{"messages": [\n', b'  {"role": "user"},\n', b"  oops\n", b"]}\n"],
        ":3: not JSON",
    ),
    "the same chat twice": (
        lines_of({"id": "a", "messages": [{"role": "user"}]}) * 2,
        ":2: memory: already has a session 'a'; give this one another id",
    ),
}


@pytest.mark.parametrize(("lines", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_line_and_leaves_nothing(lines, why):
    said = refused(MemoryStore(), lines, source="file.jsonl")
    assert said.startswith("file.jsonl:")
    assert why in said


def test_a_file_cut_off_anywhere_is_refused(store):
    source = MemoryStore()
    small(source)
    whole = b"".join(exported(source))
    for end in range(1, len(whole) - 1):
        refused(store, whole[:end].splitlines(keepends=True))


def long_file() -> list[bytes]:
    source = MemoryStore()
    texts = [user(str(n)) for n in range(2 * BATCH + 500)]
    source.append("long", [Draft("message", text, tokens={"x": 1}) for text in texts])
    return exported(source, "long")


def test_what_was_written_in_batches_is_removed_when_a_later_line_is_wrong(store):
    lines = long_file()
    steps = import_sessions(store, [*lines[:-1], b"{"])
    for written in (BATCH, 2 * BATCH):
        assert next(steps).items == written
        (info,) = store.sessions()
        assert is_staged(info)
        assert (info.items, next(iter(store.sessions(id="long")), None)) == (
            written,
            None,
        )  # nobody sees half of it
    with pytest.raises(InvalidInput, match=f"import:{len(lines)}: not JSON"):
        next(steps)
    assert store.sessions() == []


def test_an_interrupted_import_leaves_nothing(store):
    def interrupted():
        yield from long_file()[:1_500]
        assert [info.items for info in store.sessions()] == [BATCH]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imported(store, interrupted())
    assert store.sessions() == []


def test_an_import_that_the_caller_gives_up_leaves_nothing(store):
    with closing(import_sessions(store, long_file())) as steps:
        assert next(steps) == Imported("long", BATCH, 1, False)
    assert store.sessions() == []


def test_all_sessions_of_a_broken_file_are_removed_and_no_other(store):
    store.append("mine", [Draft("message", user("Hi"))])
    good = lines_of({"id": "one", "messages": [{"role": "user", "content": "a"}]})
    assert "file:2" in refused(store, [*good, b"{\n"], source="file")
    assert [info.id for info in store.sessions()] == ["mine"]


def test_an_existing_session_is_never_touched(store):
    small(store)
    before = exported(store)
    said = refused(store, before)
    assert f"{store.name} already has a session 's'" in said
    assert exported(store) == before


def test_another_id_can_be_given(store):
    small(store)
    assert imported(store, exported(store), rename="t")[0].session == "t"
    assert exported(store, "t")[1:] == exported(store, "s")[1:]
    assert "already has a session 't'" in refused(store, exported(store), rename="t")
    assert "must not be empty" in refused(store, exported(store), rename="")


def test_one_id_does_not_name_two_sessions(store):
    lines = lines_of([{"role": "user"}], [{"role": "user"}])
    assert ":2: a second session" in refused(store, lines, rename="x")


def test_a_session_that_another_process_began_during_the_import_is_not_touched(store):
    steps = import_sessions(store, long_file())
    next(steps)
    store.append("long", [Draft("message", user("mine"), opens="turn")])
    with pytest.raises(InvalidInput, match="already has a session 'long'"):
        list(steps)
    assert [item.message.text for item in store.read("long") if item.message] == ["mine"]
    assert [info.id for info in store.sessions()] == ["long"]


# Chats.

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": "Anyone?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Bye"},
]
PRETTY = json.dumps({"messages": CHAT, "model": "gpt"}, indent=2).encode()


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (json.dumps(CHAT).encode(), ["stem"]),
        (json.dumps({"messages": CHAT}).encode(), ["stem"]),
        (json.dumps({"id": "own", "messages": CHAT}).encode() + b"\n", ["own"]),
        (json.dumps({"id": 7, "messages": CHAT}).encode(), ["7"]),
        (json.dumps({"format": "chat", "messages": CHAT}).encode(), ["stem"]),
        (PRETTY, ["stem"]),
        (b"\xef\xbb\xbf" + PRETTY, ["stem"]),
        (b"\n\n" + PRETTY.replace(b"\n", b"\r\n"), ["stem"]),
        (b"".join(lines_of({"messages": CHAT}, CHAT)), ["stem-1", "stem-2"]),
        (b"\n".join(lines_of({"messages": CHAT}, {"id": "b", "messages": CHAT})), ["stem-1", "b"]),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_chat_is_known_by_its_form(store, data, names):
    done = imported(store, data.splitlines(keepends=True), stem="stem")
    assert [step.session for step in done] == names
    for name in names:
        assert [item.message.to_dict() for item in store.read(name) if item.message] == CHAT


def test_recorded_conversations_come_back_unchanged(store):
    with TRACES.open("rb") as file:
        done = imported(store, file)
    traces = [json.loads(line) for line in TRACES.read_text(encoding="utf-8").splitlines()]
    assert [step.session for step in done] == [trace["id"] for trace in traces]
    for trace in traces:
        items = store.read(trace["id"])
        assert [item.message.to_dict() for item in items if item.message] == trace["messages"]


def test_a_chat_has_the_turns_and_counts_that_appending_it_gives(store):
    with TRACES.open("rb") as file:
        imported(store, file)
    chats = [json.loads(line) for line in TRACES.read_text(encoding="utf-8").splitlines()]
    leading = [tool("c", "x"), assistant("a"), user("b"), system("c"), user("d"), user("e")]
    chats.append({"id": "odd", "messages": [message.to_dict() for message in leading]})
    imported(store, lines_of(chats[-1]))
    for chat in chats:
        appended = Session("x", store=MemoryStore())
        appended.append(*chat["messages"])
        ours, theirs = store.read(chat["id"]), appended.items.all()
        for one, other in zip(ours, theirs, strict=True):
            assert (one.kind, one.turn, one.tokens) == (other.kind, other.turn, other.tokens)
        assert [t.status for t in store.turns(chat["id"])] == [
            t.status for t in appended.store.turns("x")
        ]


# Counts.


class Forbidden(CharsPerToken):
    """A tokenizer with the name of another that must not be asked."""

    def count(self, text: str) -> int:
        raise AssertionError(f"counted {text!r} again")


def long_session(store: Store) -> Session:
    session = Session("s", store=store, tokenizer=CharsPerToken(4))
    for number in range(40):
        session.append(user(f"{number} " * 30), assistant(f"{number} " * 50))
    session.append(Draft("message", user("seen once"), transient=True, opens="turn"))
    session.append(Draft("message", user("not seen"), visibility=Visibility(True, False)))
    return session


@pytest.mark.parametrize("claimed", [0, 10**12])
def test_counts_in_the_file_are_taken_again(store, claimed):
    written = long_session(MemoryStore())
    lines = [json.loads(line) for line in exported(written.store)]
    for each in lines:
        if "tokens" in each:
            each["tokens"] = dict.fromkeys(each["tokens"], claimed)
    imported(store, lines_of(*lines), tokenizer=CharsPerToken(4))
    # Once and for all: they are not counted again when they are read.
    read = Session("s", store=store, tokenizer=Forbidden(4))
    for limit in (Tokens(100), Tokens(700), Turns(3)):
        assert read.items.history(limit) == written.items.history(limit)
    assert [item.tokens for item in store.read("s")] == [
        item.tokens for item in written.items.all()
    ]


def test_counts_that_an_old_import_believed_are_not_used(store):
    """An older version kept what a file claimed, under names without the number of its rules."""
    store.append("s", [Draft("message", user("word " * 1_000), tokens={"estimate+4": 1})])
    session = Session("s", store=store)
    assert session.count(store.read("s")[0]) > 500
    (message,) = session.messages()
    assert session.counter.message(message) > 500


def test_windows_read_no_more_than_they_did(store):
    written = long_session(MemoryStore())
    imported(store, exported(written.store), tokenizer=CharsPerToken(4))
    for weight in range(0, 3_000, 50):
        assert next(iter(store.read("s", weight=weight, oldest=1)), None) == next(
            iter(written.store.read("s", weight=weight, oldest=1)), None
        )


def test_the_tokenizer_counts_and_no_other_counts_are_kept(store):
    written = long_session(MemoryStore())
    imported(store, exported(written.store), tokenizer="o200k_base")
    fresh = Session("t", store=store, tokenizer="o200k_base")
    (same,) = fresh.append(user("0 " * 30))
    first, *_, hidden = store.read("s")
    assert first.tokens == same.tokens
    assert hidden.tokens == {}


def test_an_item_without_counts_is_weighed_by_the_estimate(store):
    source = MemoryStore()
    source.append("s", [Draft("message", user("word " * 100), time=START) for _ in range(9)])
    imported(store, exported(source))
    assert store.read("s") == source.read("s")
    reached = next(iter(store.read("s", weight=250, oldest=1)), None)
    assert reached is not None
    assert 5 < reached.position < 9


def test_runs_entries_and_windows_are_the_same_after_a_round_trip(store):
    written = Session("s", store=MemoryStore())
    written.insert_context("prefs", name="Preferences", content="short")
    (run,) = written.append(Draft("run", opens="turn"))
    call = assistant(tool_calls=[ToolCall("c1", "f")])
    written.append(
        Draft("tool_call", call, run=run.position),
        Draft("tool_result", tool("c1", "1"), run=run.position),
    )
    written.insert_context("prefs", name="Preferences", content="long")
    written.store.append("s", [Draft("wake", payload={"at": 1}, opens="inbox")])
    imported(store, exported(written.store))
    read = Session("s", store=store)
    assert read.timeline_messages() == written.timeline_messages()
    assert read.list_context() == written.list_context()
    assert read.context_history("prefs") == written.context_history("prefs")
    assert read.messages() == written.messages()
    assert store.turns("s")[0].status == "failed"
    # What waited wakes nobody, unless that is asked for.
    assert [info.id for info in store.sessions(waiting=True)] == []
    (step,) = imported(store, exported(written.store), rename="t", wake=True)
    assert step.unsettled == 2
    assert [turn.status for turn in store.turns("t")] == ["pending", "pending", "completed"]
    assert [info.id for info in store.sessions(waiting=True)] == ["t"]


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path):
    code = """
import os, sys
from muntin.timeline.files import import_sessions
from muntin.timeline.store import open_store
steps = import_sessions(open_store(sys.argv[1]), sys.stdin.buffer)
next(steps)
print(flush=True)
os.kill(os.getpid(), 9)
"""
    url = f"sqlite:///{tmp_path}/s.db"
    run([sys.executable, "-c", code, url], input=b"".join(long_file()), check=False, timeout=60)
    with open_store(url) as store:
        assert [is_staged(info) for info in store.sessions()] == [True]
        imported(store, long_file())
        assert [(info.id, info.items) for info in store.sessions()] == [("long", 2 * BATCH + 500)]


def test_while_an_import_waits_for_its_lines_others_read_and_write(store):
    """As from a pipe that is slow, or never ends."""
    met = []

    def slow():
        for number, line in enumerate(long_file()):
            if number == BATCH + 10:
                began = monotonic()
                store.append("other", [Draft("message", user("Hi"), opens="turn")])
                met.append(len(store.read("other")))
                assert monotonic() - began < 30
            yield line

    imported(store, slow())
    assert met == [1]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
def test_of_two_imports_of_one_session_one_wins_as_a_whole(kind, tmp_path, request):
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/s.db"}.get(kind)
    if url is None:
        server = request.getfixturevalue("server")
        url = server.url(server.new_database())
    with open_store(url) as store:
        others = [json.loads(line) for line in long_file()]
        for each in others[1:]:
            each["message"]["content"] = "other"
        files = [long_file(), lines_of(*others)]
        start = Barrier(2)

        def work(lines):
            def waiting():
                for number, line in enumerate(lines):
                    if number in (1, len(lines) - 1):
                        start.wait(30)
                    yield line

            try:
                return imported(store, waiting())
            except InvalidInput as error:
                return str(error)

        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(work, files))
        errors = [each for each in results if isinstance(each, str)]
        assert len(errors) == 1
        assert "already has a session 'long'" in errors[0]
        winner = files[0 if results[1] is errors[0] or results[1] == errors[0] else 1]
        assert [info.id for info in store.sessions()] == ["long"]
        texts = [json.loads(line)["message"]["content"] for line in winner[1:]]
        assert [item.message.text for item in store.read("long") if item.message] == texts


def test_times_are_kept_to_the_microsecond_in_any_zone(store):
    lines = small()
    lines[2]["time"] = "2026-03-01T11:30:00.000001+02:00"
    imported(store, lines_of(*lines))
    assert store.read("s")[0].time == START + timedelta(microseconds=1)
