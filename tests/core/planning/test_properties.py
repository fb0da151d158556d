"""What holds for every window, whatever goes in: properties over larger random inputs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from muntin import (
    Input,
    Message,
    Reasoning,
)
from tests.core.planning.scenes import (
    STEADY,
    TOKENIZERS,
    Scene,
    by_slot,
    many,
    may_exceed,
    number,
    recount,
    scenes,
)


@many
@given(scenes())
def test_a_window_is_within_its_budget_or_says_that_it_is_not(scene: Scene) -> None:
    window = scene.window()
    assert window.over_budget == window.report.over_budget
    assert window.over_budget or window.tokens <= scene.budget
    if window.over_budget and scene.budget:
        assert window.tokens > scene.budget


@many
@given(scenes())
def test_only_what_may_not_be_dropped_is_left_in_a_window_over_budget(scene: Scene) -> None:
    window = scene.window()
    assume(window.over_budget)
    calm = all(
        # Slots of which nothing is in the window have no say.
        not options.get("priority") or report.status in ("empty", "dropped")
        for report, (_, _, options) in zip(
            sorted(window.report.slots, key=lambda report: report.index), scene.adds, strict=True
        )
    )
    callers = {
        call.id: (origin, number(message))
        for message, origin in zip(window.messages, window.origins, strict=True)
        for call in message.tool_calls
    }
    firm, left = set(), set()
    for message, origin in zip(window.messages, window.origins, strict=True):
        assert origin is not None
        name, content, options = scene.adds[origin]
        group = callers.get(message.tool_call_id or "", (origin, number(message)))
        left.add(group)
        is_input = name == "input" or isinstance(content, Input)
        if options.get("required") or is_input or (calm and message.role == "system"):
            firm.add(group)
    assert left == firm


@many
@given(scenes())
def test_a_required_slot_loses_nothing_unless_its_characters_have_a_ceiling(scene: Scene) -> None:
    window = scene.window()
    left = dict(by_slot(window))
    called: set[str] = set()
    for report in window.report.slots:  # in window order
        options = scene.adds[report.index][2]
        capped = bool({"max_tokens", "max_ratio"} & options.keys())
        firm = options.get("required") and not (capped and options["trim_behavior"] == "char")
        sendable = False
        for message in scene.given(report.index):
            calls = {call.id for call in message.tool_calls}
            called |= calls
            result = message.tool_call_id
            if result is None and not (message.text or calls or message.attachments):
                continue  # nothing to lose
            if result is not None and result not in called:
                continue  # an orphan
            sendable = True
            if firm:
                assert message in left[report.index]
        if options.get("required") and sendable:
            assert report.status != "dropped"


@many
@given(scenes())
def test_messages_keep_their_order_and_lose_only_an_end_of_their_text(scene: Scene) -> None:
    window = scene.window()
    places = [report.index for report in window.report.slots]
    origins = [origin for origin in window.origins if origin is not None]
    assert [places.index(origin) for origin in origins] == sorted(
        places.index(origin) for origin in origins
    )
    for index, messages in by_slot(window):
        originals = scene.given(index)
        keep = scene.adds[index][2].get("keep", "tail")
        if len(originals) > 1:
            assert all(a < b for a, b in pairwise(map(number, messages)))
        for message in messages:
            (original,) = (m for m in originals if number(m) == number(message))
            if message == original:
                continue
            assert replace(message, content=None) == replace(original, content=None)
            end = original.text.startswith if keep == "head" else original.text.endswith
            assert end(message.text)
            assert len(message.text) < len(original.text)
            assert reasoning(message) == reasoning(original)


def reasoning(message: Message) -> list[Reasoning]:
    parts = message.content if isinstance(message.content, tuple) else ()
    return [part for part in parts if isinstance(part, Reasoning)]


@many
@given(scenes())
def test_tool_groups_are_whole_and_no_result_stands_without_its_call(scene: Scene) -> None:
    window = scene.window()
    called: set[str] = set()
    for message in window.messages:
        called |= {call.id for call in message.tool_calls}
        assert message.tool_call_id is None or message.tool_call_id in called
    sent = {message.tool_call_id for message in window.messages}
    seen: set[str] = set()
    for report in window.report.slots:
        for message in scene.given(report.index):
            seen |= {call.id for call in message.tool_calls}
            if message.tool_call_id in called and message.tool_call_id in seen:
                assert message.tool_call_id in sent


@many
@given(scenes())
def test_the_same_slots_give_the_same_window_however_often(scene: Scene) -> None:
    slots = scene.slots()
    first, second, fresh = slots.render(), slots.render(), scene.window()
    assert first == second == fresh
    assert first.report == second.report == fresh.report
    assert first.report.to_dict() == fresh.report.to_dict()
    assert str(first.report) == str(fresh.report)


@many
@given(scenes())
def test_the_report_adds_up_to_what_is_sent(scene: Scene) -> None:
    window = scene.window()
    report = window.report
    parts = sum(slot.tokens_kept for slot in report.slots)
    wire = report.tools_tokens + report.joined_tokens + report.lead_tokens
    assert parts + wire == report.tokens == window.tokens
    tokenizer = TOKENIZERS[scene.tokenizer]
    messages = recount(window.messages, tokenizer, user_first="profile" in scene.options)
    assert messages + report.tools_tokens == window.tokens
    for slot in report.slots:
        assert sum(d.tokens_kept for d in slot.decisions) == slot.tokens_kept
        assert sum(d.tokens_asked for d in slot.decisions) == slot.tokens_asked
        assert sum(d.count for d in slot.decisions) == slot.messages_asked
        assert slot.messages_kept == window.origins.count(slot.index)


@many
@given(scenes())
def test_the_report_says_for_every_message_what_became_of_it(scene: Scene) -> None:
    window = scene.window()
    for slot in window.report.slots:
        covered = sorted(d.first for d in slot.decisions)
        assert len(set(covered)) == len(covered)
        for decision in slot.decisions:
            assert decision.status in ("kept", "trimmed", "dropped", "empty")
            if decision.status == "kept":
                assert decision.reason in (None, "over_cap")
            elif decision.status != "empty":
                assert decision.reason is not None
            assert decision.fits_with is None or decision.fits_with > 0
            if decision.status == "kept":
                assert decision.tokens_kept == decision.tokens_asked
            if decision.status in ("dropped", "empty"):
                assert decision.tokens_kept == 0
        statuses = {decision.status for decision in slot.decisions} - {"empty"}
        if slot.status == "kept":
            assert statuses == {"kept"}
        if slot.status == "dropped":
            assert statuses == {"dropped"}
        if slot.status == "empty":
            assert not statuses


@many
@given(scenes())
def test_nothing_that_was_given_is_changed(scene: Scene) -> None:
    before = deepcopy(scene.adds)
    window = scene.window()
    str(window.report)
    assert scene.adds == before
    for (_, content, _), (_, old, _) in zip(scene.adds, before, strict=True):
        assert type(content) is type(old)


@many
@given(scenes(limits=False, tokenizers=STEADY), st.integers(1, 40))
def test_with_a_larger_budget_the_slot_that_goes_last_never_keeps_less(
    scene: Scene, more: int
) -> None:
    # A slot that goes before others may: one of them may have found room for more.
    _, content, options = scene.adds[-1]
    scene.adds[-1] = ("last", content, {**options, "priority": 9, "position": 9, "tier": None})
    scene.adds = [a for a in scene.adds if a[0] != "input" and not isinstance(a[1], Input)]
    assume(scene.adds[-1:] and scene.adds[-1][0] == "last" and not _tied(scene))
    small, large = scene.window(), scene.window(scene.budget + more)
    assume(not small.over_budget and not large.over_budget)
    lengths = {
        (origin, number(message)): len(message.text)
        for message, origin in zip(large.messages, large.origins, strict=True)
    }
    for message, origin in zip(small.messages, small.origins, strict=True):
        if origin == len(scene.adds) - 1:
            assert len(message.text) <= lengths[origin, number(message)]


def _tied(scene: Scene) -> bool:
    """Say whether tool groups reach into several slots."""
    owners: dict[str, set[int]] = {}
    for index in range(len(scene.adds)):
        for message in scene.given(index):
            for call_id in (*(c.id for c in message.tool_calls), message.tool_call_id or ""):
                owners.setdefault(call_id, set()).add(index)
    return any(len(places) > 1 for call_id, places in owners.items() if call_id)


@many
@given(scenes())
def test_no_slot_is_larger_than_its_ceiling_but_what_may_not_vanish(scene: Scene) -> None:
    for slot in scene.window().report.slots:
        if slot.cap is not None and slot.tokens_kept > slot.cap:
            assert may_exceed(scene, slot)
