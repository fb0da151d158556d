"""How one slot is made smaller: markers in their room, texts between characters."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Cut,
    Slots,
)
from tests.core.planning.scenes import (
    TOKENIZERS,
    Scene,
    by_slot,
    many,
    may_exceed,
    recount,
    scenes,
)


@many
@given(scenes(limits=True), st.sampled_from(("[cut]", "[{0.messages} messages cut]", "")))
def test_a_marker_belongs_to_its_slot_and_never_pushes_it_over(scene: Scene, line: str) -> None:
    cuts: list[Cut] = []

    def marker(cut: Cut) -> str:
        cuts.append(cut)
        return line.format(cut)

    plain = scene.window()
    scene.adds = [(n, c, {**options, "marker": marker}) for n, c, options in scene.adds]
    window = scene.window()
    report = window.report
    assert window.over_budget or window.tokens <= scene.budget
    assert plain.over_budget or not window.over_budget
    wire = report.tools_tokens + report.lead_tokens
    assert sum(slot.tokens_kept for slot in report.slots) + wire == window.tokens
    messages = recount(
        window.messages, TOKENIZERS[scene.tokenizer], user_first="profile" in scene.options
    )
    assert messages + report.tools_tokens == window.tokens
    for slot in report.slots:
        if slot.cap is not None and slot.tokens_kept > slot.cap:
            assert may_exceed(scene, slot)
        if slot.status in ("kept", "empty"):
            left = [m for i, messages in by_slot(window) if i == slot.index for m in messages]
            assert not any(line and line[:4] in message.text for message in left)
    assert all(cut.messages or cut.characters for cut in cuts)


CLUSTERS = (
    "a",
    " ",
    "é",
    "e\u0301",
    "o\u0302\u0323",
    "👨\u200d👩\u200d👧",
    "🇩🇪",
    "🇯🇵",
    "👍🏽",
    "1\ufe0f\u20e3",
    "ก\u0e49",
    "\r\n",
    "각",
    "\u1100\u1161\u11a8",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "日",
)


@many
@given(
    st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=12),
    st.integers(0, 40),
    st.sampled_from(("head", "tail")),
    st.sampled_from(("x", "y")),
)
def test_a_cut_never_splits_what_a_person_sees_as_one_character(
    clusters: list[str], budget: int, keep: Any, name: str
) -> None:
    slots = Slots(budget, tokenizer=len)
    slots.add(name, "".join(clusters), trim_behavior="char", keep=keep)
    window = slots.render()
    pieces = range(len(clusters) + 1)
    legal = ["".join(clusters[:n] if keep == "head" else clusters[n:]) for n in pieces]
    text = "".join(message.text for message in window.messages)
    assert text in legal
    if not window.over_budget:
        assert len(text) == max(len(t) for t in legal if len(t) <= budget)
