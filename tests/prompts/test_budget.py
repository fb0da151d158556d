"""The budget of a prompt: what is dropped, in which order, and what never is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import BudgetExceeded, InvalidInput, context, prompt
from muntin.core.counting.counter import Counter
from tests.prompts.conftest import dropped, excluded, kept, look, say, schema


def test_the_lowest_priority_goes_first_and_the_rest_keep_their_order():
    critical = context(id="critical", priority=100, system="c" * 10)
    examples = context(id="examples", priority=20, system="e" * 10)
    guidelines = context(id="guidelines", priority=50, system="g" * 10)
    p = prompt(use=[critical, examples, guidelines], system="o" * 10)
    assert dropped(look(p, token_budget=46)) == []
    assert dropped(look(p, token_budget=45)) == ["context:examples"]
    assert look(p, token_budget=45).system.text == "\n\n".join(c * 10 for c in "ocg")
    assert dropped(look(p, token_budget=33)) == ["context:examples", "context:guidelines"]
    assert not look(p, token_budget=22).over_budget
    tight = look(p, token_budget=21)
    assert tight.over_budget
    assert tight.system.text == "\n\n".join(c * 10 for c in "oc")


def test_without_a_budget_nothing_is_dropped():
    p = prompt(use=[context(system="x" * 10_000)], system="own")
    shown = look(p)
    assert shown.token_budget is None
    assert not shown.over_budget
    assert not shown.dropped_contexts
    assert shown.total_tokens == 10_005


def test_equal_priorities_drop_the_earlier_declared_first():
    p = prompt(use=[context(id=c, system=c * 10) for c in "abc"])
    assert dropped(look(p, token_budget=33)) == ["context:a"]
    assert dropped(look(p, token_budget=10)) == ["context:a", "context:b"]


@pytest.mark.parametrize("pin", [{"priority": 100}, {"priority": 1_000}, {"required": True}])
def test_a_pinned_context_outlives_every_other(pin):
    pinned = context(id="pinned", system="p" * 50, **pin)
    other = context(id="other", priority=99, system="x")
    shown = look(prompt(use=[pinned, other], system="own"), token_budget=0)
    assert kept(shown) == ["prompt", "context:pinned"]
    assert dropped(shown) == ["context:other"]
    assert shown.over_budget


@pytest.mark.parametrize("priority", [0, -5])
def test_a_priority_of_zero_or_less_is_no_protection(priority):
    p = prompt(use=[context(id=c, priority=priority, system=c * 10) for c in "abc"])
    assert kept(look(p, token_budget=22)) == ["context:b", "context:c"]
    assert kept(look(p, token_budget=10)) == ["context:c"]


def test_inspect_and_resolve_agree_about_a_budget_of_nothing():
    for p in (prompt(use=[context(system="x")]), prompt(use=[context(system="x")], prompt="ask")):
        resolved = p.resolve_sync(tokenizer=len, token_budget=0)
        assert resolved.window.over_budget == look(p, token_budget=0).over_budget


def test_a_nested_context_is_dropped_by_its_own_priority():
    inner = context(id="inner", priority=90, system="i" * 10)
    owner = context(id="owner", priority=10, system="o" * 10, use=[inner])
    assert kept(look(prompt(use=[owner]), token_budget=10)) == ["context:inner"]


def test_the_joined_text_is_counted_with_its_separators():
    p = prompt(use=[context(id=c, system=c * 10) for c in "abc"], system="o" * 10)
    for budget in range(50):
        shown = look(p, token_budget=budget)
        assert shown.total_tokens == len(shown.system.text)
        assert shown.over_budget == (shown.total_tokens > budget)
    assert not look(p, token_budget=46).dropped_contexts
    assert look(p, token_budget=45).dropped_contexts


def test_the_total_is_the_number_compared_with_the_budget_whatever_the_overhead():
    class Heavy:
        name = "heavy"
        message_overhead = 7

        def count(self, text: str) -> int:
            return len(text)

    p = prompt(use=[context(system="x" * 10)], system="own")
    total = look(p, tokenizer=Heavy()).total_tokens
    assert not look(p, tokenizer=Heavy(), token_budget=total).dropped_contexts
    assert look(p, tokenizer=Heavy(), token_budget=total - 1).dropped_contexts


def test_a_dropped_context_says_what_was_lost_and_why():
    p = prompt(
        use=[
            context(id="a", priority=7, system="a" * 30),
            context(system="b" * 20, priority=3),
            context(id="c", system="c"),
        ]
    )
    shown = look(p, token_budget=10)
    first, second = sorted(shown.dropped_contexts, key=lambda each: each.rank)
    assert (first.source, first.text, first.tokens) == ("context[1]", "b" * 20, 20)
    assert (first.priority, first.reason, first.rank) == (3, "over_budget", 1)
    assert (second.source, second.text, second.tokens) == ("context:a", "a" * 30, 30)
    assert (second.priority, second.reason, second.rank) == (7, "over_budget", 2)


def test_the_tokens_of_a_text_far_too_long_are_exact():
    shown = look(prompt(use=[context(system="x" * 100_000)], system="own"), token_budget=10)
    assert [each.tokens for each in shown.dropped_contexts] == [100_000]


def test_what_cannot_be_dropped_and_does_not_fit_is_never_encoded():
    p = prompt(use=[context(id="r", required=True, system="r" * 20)], system="own", prompt="q")
    shown = look(p, token_budget=24)
    assert shown.over_budget
    resolved = p.resolve_sync(tokenizer=len, token_budget=24)
    assert resolved.window.over_budget
    with pytest.raises(BudgetExceeded) as caught:
        resolved.window.openai()
    assert caught.value.needed - caught.value.available == 1
    assert p.resolve_sync(tokenizer=len, token_budget=25).window.openai()["messages"]


def test_own_text_alone_may_be_over_budget():
    shown = look(prompt(system="own text", use=[context(id="x", system="x")]), token_budget=3)
    assert shown.over_budget
    assert shown.system.text == "own text"
    assert dropped(shown) == ["context:x"]


def test_the_budget_covers_neither_prompt_nor_tools():
    p = prompt(
        system="own",
        use=[context(id="x", system="x" * 10, tools=[schema("t")])],
        prompt="p" * 1_000,
        tools=[schema("u")],
    )
    shown = look(p, token_budget=15)
    assert not shown.over_budget
    assert not shown.dropped_contexts
    assert shown.total_tokens == 15
    assert shown.prompt == "p" * 1_000
    assert shown.prompt_tokens == 1_000
    assert shown.tool_tokens == Counter(len).tools([schema("t"), schema("u")])
    resolved = p.resolve_sync(tokenizer=len, token_budget=15)
    assert not resolved.window.over_budget
    assert resolved.window.openai()["messages"][1]["content"] == "p" * 1_000


def test_a_dropped_context_was_resolved():
    calls: list[Any] = []
    look(prompt(use=[context(system=lambda: say(calls, 1, "x" * 9))]), token_budget=1)
    assert calls == [1]


@pytest.mark.parametrize("budget", [-1, 1.5, "many", float("nan"), True])
def test_a_budget_that_is_no_size_is_an_error(budget):
    with pytest.raises(InvalidInput):
        look(prompt(system="x"), token_budget=budget)


class Pieces:
    """Counts as a real tokenizer would, the whole not being the sum of its parts; and remembers."""

    name = "pieces"
    message_overhead = 0

    def __init__(self, per_token: int) -> None:
        self.per_token = per_token
        self.seen: list[str] = []

    def count(self, text: str) -> int:
        self.seen.append(text)
        return -(-len(text) // self.per_token)


DECLARED = st.lists(
    st.tuples(
        st.text("ab", min_size=0, max_size=12),
        st.sampled_from([-1, 0, 10, 20, 50, 50, 50, 99, 100, 120]),
        st.booleans(),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=14,
)


@given(DECLARED, st.text("o", max_size=8), st.integers(1, 120), st.integers(1, 4))
def test_the_least_protected_go_until_the_rest_fits_by_its_parts(declared, own, budget, per_token):
    uses = [
        context(
            id=str(i),
            system=text,
            priority=priority,
            required=required and i % 3 == 0,
            when=lambda included=included: included,
        )
        for i, (text, priority, required, included) in enumerate(declared)
    ]
    tokenizer = Pieces(per_token)
    p = prompt(use=uses, system=own)
    shown = p.inspect_sync(tokenizer=tokenizer, token_budget=budget)

    active = [i for i, (text, _, _, included) in enumerate(declared) if text and included]
    pinned = {i for i in active if declared[i][1] >= 100 or (declared[i][2] and i % 3 == 0)}

    def joined_text(kept: set[int]) -> str:
        texts = [own, *(declared[i][0] for i in active if i in kept)]
        return "\n\n".join(text for text in texts if text)

    def tokens(text: str) -> int:
        return Pieces(per_token).count(text)

    def by_parts(kept: set[int]) -> int:
        texts = [text for text in (own, *(declared[i][0] for i in kept)) if text]
        return sum(map(tokens, texts)) + max(0, len(texts) - 1) * tokens("\n\n")

    # What cannot fit even alone beside the pinned takes nobody with it.
    others = sorted({*active} - pinned, key=lambda i: (declared[i][1], i))
    able = [i for i in others if by_parts({*pinned, i}) <= budget]
    lefts = [{*pinned, *able[n:]} for n in range(len(able) + 1)]
    left = next((each for each in lefts if by_parts(each) <= budget), pinned)
    if tokens(joined_text(set(active))) <= budget:  # counted as it is, if that is enough
        left = set(active)
    gone = [i for i in others if i not in left]
    assert dropped(shown) == [f"context:{i}" for i in gone]
    assert sorted(each.rank for each in shown.dropped_contexts) == list(range(1, len(gone) + 1))
    assert shown.system.text == joined_text(left)
    assert shown.total_tokens == tokens(joined_text(left))
    assert shown.over_budget == (shown.total_tokens > budget)
    own_source = ["prompt"] if own else []
    assert kept(shown) == own_source + [f"context:{i}" for i in active if i not in gone]
    assert all(f"context:{i}" in kept(shown) for i in pinned)
    assert set(excluded(shown)) == {
        f"context:{i}" for i, (_, _, _, included) in enumerate(declared) if not included
    }

    joined = {text for text in tokenizer.seen if text.strip("\n") and "\n\n" in text}
    assert joined <= {joined_text(set(active)), joined_text(left)}

    resolved = p.resolve_sync(tokenizer=tokenizer, token_budget=budget)
    assert resolved.system == shown.system.text
    assert resolved.window.over_budget == shown.over_budget


@given(st.integers(1, 200), st.data())
def test_joined_text_is_counted_at_most_twice(n, data):
    priorities = data.draw(st.lists(st.integers(0, 99), min_size=n, max_size=n))
    budget = data.draw(st.integers(0, 8 * n + 10))
    tokenizer = Pieces(1)
    p = prompt(
        use=[context(system=f"{i:06}", priority=priority) for i, priority in enumerate(priorities)],
        system="own",
    )
    p.resolve_sync(tokenizer=tokenizer, token_budget=budget)
    joined = [text for text in tokenizer.seen if text.startswith("own\n\n")]
    assert len(joined) <= 2


def test_a_second_resolve_counts_nothing():
    tokenizer = Pieces(1)
    p = prompt(use=[context(system=f"{i:06}") for i in range(50)], system="own")
    p.resolve_sync(tokenizer=tokenizer, token_budget=240)
    asked = len(tokenizer.seen)
    p.resolve_sync(tokenizer=tokenizer, token_budget=240)
    assert len(tokenizer.seen) == asked
