"""How slots give together: fair shares, and the fewest texts of a joined one."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Group,
    Slots,
)
from tests.core.planning.scenes import (
    Counting,
    many,
)


@many
@given(st.data())
def test_shared_slots_get_fair_parts_in_proportion_to_their_ceilings(data: st.DataObject) -> None:
    group = Group("volatile", share=True)
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=4))
    caps = data.draw(
        st.lists(st.none() | st.integers(1, 60), min_size=len(sizes), max_size=len(sizes))
    )
    firm = data.draw(st.integers(0, 20))
    budget = data.draw(st.integers(firm + 1, 150))
    slots = Slots(budget, tokenizer=len)
    slots.add("rules", "r" * firm, required=True)
    for n, (size, cap) in enumerate(zip(sizes, caps, strict=True)):
        slots.add(f"s{n}", "x" * size, max_tokens=cap, trim_behavior="char", group=group)
    window = slots.render()
    kept = [slot.tokens_kept for slot in window.report.slots[1:]]
    room = budget - firm
    wanted = [s if c is None else min(s, c) for s, c in zip(sizes, caps, strict=True)]
    assert sum(kept) == min(room, sum(wanted))
    weights = [room if cap is None else cap for cap in caps]
    for mine, want, weight in zip(kept, wanted, weights, strict=True):
        assert mine <= want
        if mine < want:  # then nobody has more for his weight, but for the odd token
            for other, heavy in zip(kept, weights, strict=True):
                assert (other - 1) * weight <= mine * heavy or other * weight <= (mine + 1) * heavy


@many
@given(st.data())
def test_joined_texts_are_really_counted_and_as_few_as_possible_are_dropped(
    data: st.DataObject,
) -> None:
    separator = data.draw(st.sampled_from(("\n\n", " ", "")))
    counts: list[str] = []

    def count(text: str) -> int:
        counts.append(text)
        return len(text)

    tokenizer = Counting("recording", count, data.draw(st.integers(0, 2)))
    parts = data.draw(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.booleans()), max_size=9)
    )
    texts = [chr(97 + n) * size for n, (size, _, _) in enumerate(parts)]
    group = Group("system text", join=separator)
    budget = data.draw(st.integers(1, 60))
    slots = Slots(budget, tokenizer=tokenizer)
    for n, (text, (_, priority, required)) in enumerate(zip(texts, parts, strict=True)):
        slots.add(
            f"s{n}", text, role="system", priority=priority + 1, required=required, group=group
        )
    window = slots.render()

    pinned = [text for text, part in zip(texts, parts, strict=True) if part[2]]
    alone = {n: len(separator.join([*pinned, text])) for n, text in enumerate(texts)}
    space = budget - tokenizer.message_overhead
    droppable = [n for n, part in enumerate(parts) if not part[2]]
    # One that cannot fit even alone beside those that are required goes first.
    droppable.sort(key=lambda n: (alone[n] <= space, parts[n][1]))
    too_large = sum(alone[n] > space for n in droppable)
    for drops in range(len(droppable) + 1):
        gone = droppable[:drops]
        joined = separator.join(t for n, t in enumerate(texts) if n not in gone)
        expected = len(joined) + tokenizer.message_overhead if joined else 0
        if expected <= budget and (not drops or drops >= too_large):
            break
    assert [message.text for message in window.messages] == ([joined] if joined else [])
    assert window.tokens == expected == window.report.tokens
    assert window.over_budget == (expected > budget)
    kept = sum(slot.tokens_kept for slot in window.report.slots)
    assert kept + window.report.joined_tokens == expected
    several = [text for text in counts if len(set(text) - set(separator)) > 1]
    near = sum(abs(alone[n] - space) <= 20 for n in droppable) if pinned else 0
    assert len(several) <= 3 + ceil(log2(max(1, len(parts)))) + near


def test_a_slot_that_is_dropped_in_the_end_costs_those_that_share_nothing() -> None:
    group = Group("shared", share=True)
    slots = Slots(3, tokenizer=len)
    for name, text, together in (
        ("first", "a", group),
        ("long", "cd", None),  # stood when the first shares were made, and has no room in the end
        ("third", "f", None),
        ("fourth", "h", group),
    ):
        slots.add(name, text, priority=1, group=together)
    assert [message.text for message in slots.render().messages] == ["a", "f", "h"]
