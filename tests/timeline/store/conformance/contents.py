"""Facts about contents: a store keeps exactly what was appended, under the given id."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

from muntin.core.message import Message, assistant, system, tool, user
from muntin.core.parts import Attachment, File, Image, Other, Reasoning, Text, ToolCall
from muntin.errors import InvalidInput
from muntin.timeline.items import Draft, Item, SideWrites, Visibility, draft_of
from muntin.timeline.store import Store
from tests.timeline.store.conformance.facts import (
    ALIKE,
    HOSTILE,
    UNFIT_IDS,
    entry,
    fact,
    info_of,
    reach,
    refused,
    said,
    same,
    statuses,
)


def kept(store: Store, drafts: Sequence[Draft], session: str = "s") -> list[Item]:
    """Append drafts and return the items read, which equal what `append` returned and got."""
    returned = store.append(session, drafts)
    read = store.read(session, after=returned[0].position - 1)
    for draft, first, item in zip(drafts, returned, read, strict=True):
        for name in ("kind", "message", "payload", "run", "visibility", "transient", "meta"):
            same(getattr(item, name), getattr(draft, name), f"{name} of {draft.kind}")
        same(dict(item.tokens), dict(draft.tokens), "tokens")
        same(item, first, "read and returned")
    return read


@fact
def every_kind_is_kept_exactly(store: Store) -> None:
    """Items of every kind and messages of every make come back as they were."""
    call = ToolCall("c1", "look", '{"q":[1,"ü",null]}')
    report = Attachment("f1", "report.pdf", 12, "document", "application/pdf")
    parts = (
        Text("a", extra={"cache_control": {"type": "ephemeral"}}),
        Image("https://example.com/a.png", detail="low", width=10, height=20),
        File("f", name="a.txt"),
        File(data="data:text/plain;base64,YQ=="),
        Reasoning("so", signature="s/+=="),
        Other({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
    )
    messages = (
        *(system("s"), user("u", attachments=[report]), user(""), assistant(None)),
        *(Message("user", parts), Message("assistant", ()), tool("c1", "found")),
        Message("user", "u", name="eve", at=1.5, extra={"n": None}),
        Message.from_dict({"role": "developer", "content": "d", "name": None}),
        assistant("calling", tool_calls=[call, ToolCall("c2", "look", "not { json")]),
    )
    thought = Draft("reasoning", Message("assistant", (Reasoning("hm"),)), run=1)
    kept(store, [Draft("run", payload={"id": 7}), thought, *(draft_of(m, run=1) for m in messages)])
    kinds: Any = ("message", "run", "wake", "signal", "error")
    kept(store, [Draft(kind, payload={"type": kind, "n": 1}) for kind in kinds])
    kept(store, [Draft(kind) for kind in kinds[1:]])
    kept(store, [entry("e", "x"), Draft("context_removed", payload={"id": "e"})])


@fact
def every_field_is_kept_exactly(store: Store) -> None:
    """Visibility, transience, runs, meta and token counts come back as they were."""
    seen = [Visibility(client, history) for client in (True, False) for history in (True, False)]
    drafts = [
        Draft("message", user("x"), visibility=each, transient=transient, run=run, tokens=tokens)
        for each in seen
        for transient in (True, False)
        for run, tokens in ((None, {}), (1, {"words": 0, "o200k_base+4/x": 2**40}))
    ]
    meta: dict[str, Any] = {"sender": "it's \x00 ü", "list": [1, None, {}]}
    kept(store, [*drafts, draft_of(user("x"), meta=meta), Draft("signal", payload=1, meta=meta)])


@fact
def times_are_kept_to_the_microsecond(store: Store) -> None:
    """A given time comes back as the same moment; an item without one gets the present."""
    east = timezone(timedelta(hours=5, minutes=45))
    times = [
        datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=east),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(9999, 12, 30, 1, 2, 3, 456_789, tzinfo=UTC),
    ]
    store.append("s", [Draft("message", user("x"), time=time) for time in times])
    same([item.time for item in store.read("s")], times)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    (item,) = store.append("s", said("now"))
    same(before <= item.time <= datetime.now(UTC), True, "the present")
    same(store.read("s")[-1].time, item.time, "the present, read")


@fact
def hostile_texts_are_kept_exactly(store: Store) -> None:
    """Quotes, NULs, line ends, emoji and 5 MB come back, wherever a text may stand."""
    for text in (*HOSTILE, "5 MB \x00ü😀'" * 350_000):
        call = ToolCall(f"c{text[:99]}", f"t{text[:99]}", text)
        drafts = [
            Draft("message", user(text, attachments=[Attachment("i", text, 1, "image")])),
            Draft("message", Message("user", (Text(text), File(name=text)), name=text)),
            Draft("tool_call", assistant(text, tool_calls=[call])),
            Draft("tool_result", tool(call.id, text)),
            Draft("wake", payload=text),
            Draft("signal", payload={text: [text, {text: text}]}),
            entry("e", text),
        ]
        kept(store, drafts[:1] if len(text) > 10_000 else drafts)


@fact
def odd_payloads_are_kept_exactly(store: Store) -> None:
    """Every JSON value is a payload and comes back with its type, order and digits."""
    deep: Any = "bottom"
    for _ in range(150):
        deep = {"d": [deep]}
    payloads: list[Any] = [
        *(True, False, 0, -1, 2**63, -(2**64), 10**300, 0.1, -0.0, 1e300, 5e-324, 1.0, "", "null"),
        *([], {}, [[]], [None], {"": ""}, {"b": 1, "a": 2}, {"payload": {"message": "x"}}, deep),
        *({"message": None}, {"id": 1}, "NaN", {"__proto__": 1}, list(range(5_000))),
    ]
    items = kept(store, [Draft("wake", payload=payload) for payload in payloads])
    for item, payload in zip(items, payloads, strict=True):
        same(repr(item.payload), repr(payload), "its types and order")


@fact
def unknown_fields_are_kept_exactly(store: Store) -> None:
    """Unknown fields are kept too, even with half a character in them."""
    odd = {"x-new": {"a": [1, None, "\x00"]}, "half": "\ud83d", "\udc00": ["x\udfff\ud800y"]}
    call = ToolCall("c", "t", extra={"index": 0, **odd})
    messages = [
        Message("user", "u", extra=odd),
        Message("user", (Text("t", extra=odd), Other({"type": "new", **odd}))),
        Message("assistant", None, tool_calls=(call,)),
    ]
    kept(store, [*(draft_of(m) for m in messages), Draft("signal", payload=odd)])


@fact
def a_reader_cannot_change_what_is_kept(store: Store) -> None:
    """A change to an item or draft in memory does not change the item in the store."""
    payload = {"list": [1]}
    message = Message("user", "x", extra={"list": [1]})
    tokens = {"words": 1}
    returned = store.append("s", [Draft("wake", payload=payload, tokens=tokens), draft_of(message)])
    payload["list"].append(2)
    tokens["words"] = 2
    for items in (returned, store.read("s")):
        items[0].payload["list"].append(3)
        with suppress(TypeError):  # what cannot be changed need not be copied
            items[0].tokens["words"] = 3  # type: ignore[index]
        if items[1].message is not None and items[1].message.extra is not None:
            items[1].message.extra["list"].append(3)
    wake, said = store.read("s")
    same((wake.payload, dict(wake.tokens)), ({"list": [1]}, {"words": 1}))
    same(said.message and said.message.extra, {"list": [1]})


@fact
def sessions_are_kept_apart(store: Store) -> None:
    """Ids are compared character by character: no wildcard, case, look-alike or SQL joins two."""
    for index, id in enumerate(ALIKE):
        first_of = Draft("wake", payload=index, weight=1, opens="turn")
        store.append(id, [first_of, entry("e", id)])
    store.settle(ALIKE[0], 1, "failed")
    store.put(ALIKE[0], SideWrites(counts={1: {"words": 5}}))
    store.append(ALIKE[0], [Draft("context_removed", payload={"id": "e"})])
    for index, id in enumerate(ALIKE):
        first = index == 0
        wake = store.read(id, oldest=1)[0]
        same((wake.payload, dict(wake.tokens)), (index, {"words": 5} if first else {}), id)
        same(statuses(store, id), [(1, "failed" if first else "open")], id)
        live = [item.payload["content"] for item in store.read(id, live=True)]
        same(live, [] if first else [id], id)
        reached = reach(store, id, weight=1)
        same(reached and reached.payload, index, id)
        info = info_of(store, id)
        same(info and (info.id, info.items), (id, 3 if first else 2), id)
    store.delete(ALIKE[0])
    same(sorted(each.id for each in store.sessions()), sorted(ALIKE[1:]), "after a deletion")
    same(len(store.read(ALIKE[1])), 2, "another session after a deletion")


@fact
def unfit_session_ids_are_refused(store: Store) -> None:
    """An id that not every store can keep is refused before anything is written."""
    for id in UNFIT_IDS:
        refused(partial(store.append, id, said("x")), f"the id {id!r:.40}")
    same(store.sessions(), [])
    for id in UNFIT_IDS[:6]:
        with suppress(InvalidInput):  # reading may refuse it, or find nothing
            same(store.read(id), [], repr(id))


@fact
def unfit_entry_ids_are_refused(store: Store) -> None:
    """The id of a context entry follows the same rule."""
    for id in UNFIT_IDS:
        for kind in ("context_inserted", "context_removed"):
            payload = {"id": id, "name": "n", "content": "c"}
            refused(partial(_append, store, kind, payload), f"the entry {id!r:.40}")
    same(store.sessions(), [])


def _append(store: Store, kind: Any, payload: Any) -> None:
    store.append("s", [Draft(kind, payload=payload)])
