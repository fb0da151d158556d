"""The resolver cache: how long, how much, one call at a time, and never another tenant's text."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from muntin import CacheOptions, InvalidInput, config, context, prompt, when
from muntin.resolver_cache import ResolverCache
from muntin.settings import defaults
from tests.words import Tenant


class Clock:
    """A clock that only moves when it is told to, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Counted:
    """A resolver that counts its calls and never says the same twice."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input: Any) -> str:
        self.calls += 1
        return f"{input.org} {self.calls}"


def brand(system: Any, cache: Any = 60_000, **options: Any) -> Any:
    return context(id="brand", input=Tenant, system=system, cache=cache, **options)


def ask(p: Any, org: str = "a", **options: Any) -> str:
    text: str = p.resolve_sync({"org": org}, **options).system
    return text


def part(p: Any, org: str = "a", **options: Any) -> Any:
    shown = p.inspect_sync({"org": org}, **options)
    return next(part for part in shown.system.parts if part.source == "context:brand")


# How long


@pytest.mark.parametrize(
    ("cache", "seconds"),
    [
        (60_000, 60),
        (300_000, 300),
        (True, 300),
        (CacheOptions(ttl=2_000), 2),
        (CacheOptions(ttl=2_000, provider=False), 2),
    ],
)
def test_a_text_is_resolved_once_until_its_time_is_over(cache, seconds):
    clock, resolver = Clock(), Counted()
    p = prompt(use=[brand(resolver, cache)])
    with config.local(cache=ResolverCache(clock=clock)):
        assert ask(p) == "a 1"
        clock.now += seconds - 0.001
        assert ask(p) == "a 1"
        clock.now += 0.002
        assert ask(p) == "a 2"
        clock.now += seconds - 0.001
        assert ask(p) == "a 2"
    assert resolver.calls == 2


def test_a_hit_does_not_prolong_a_texts_time():
    clock, resolver = Clock(), Counted()
    p = prompt(use=[brand(resolver, 10_000)])
    with config.local(cache=ResolverCache(clock=clock)):
        for _ in range(4):
            ask(p)
            clock.now += 3
        assert resolver.calls == 1
        ask(p)
    assert resolver.calls == 2


def test_without_cache_every_resolve_calls():
    resolver = Counted()
    p = prompt(use=[brand(resolver, None)])
    with config.local(cache=ResolverCache()) as _:
        assert [ask(p), ask(p)] == ["a 1", "a 2"]


def test_hits_misses_and_age_are_observable():
    clock = Clock()
    cache = ResolverCache(clock=clock)
    p = prompt(use=[brand(Counted()), context(id="plain", system="x")], system="own")
    with config.local(cache=cache):
        assert part(p).cache == "miss"
        assert (cache.hits, cache.misses) == (0, 1)
        clock.now += 10
        hit = part(p)
        assert (hit.cache, hit.age) == ("hit", 10)
        assert (cache.hits, cache.misses) == (1, 1)
        shown = p.inspect_sync({"org": "a"})
    others = [part for part in shown.system.parts if part.source != "context:brand"]
    assert [(other.cache, other.age) for other in others] == [(None, None)] * 2
    assert len(cache.entries()) == 1


def test_inspect_and_resolve_share_the_cache():
    resolver = Counted()
    p = prompt(use=[brand(resolver)])
    with config.local(cache=ResolverCache()):
        assert ask(p) == "a 1"
        assert part(p).text == "a 1"
    assert resolver.calls == 1


def test_prompts_share_the_entries_of_a_context_they_share():
    resolver = Counted()
    shared = brand(resolver)
    one, two = prompt(use=[shared]), prompt(system="own", use=[context(system="x", use=[shared])])
    with config.local(cache=ResolverCache()):
        assert ask(one) == "a 1"
        assert ask(two) == "own\n\na 1\n\nx"


def test_a_context_defined_anew_in_the_same_words_finds_its_text_again():
    resolver = Counted()
    with config.local(cache=ResolverCache()):
        assert [ask(prompt(use=[brand(resolver)])) for _ in range(3)] == ["a 1"] * 3


def test_a_context_defined_anew_around_a_method_finds_its_text_again():
    class Brands:
        calls = 0

        def fetch(self) -> str:
            self.calls += 1
            return str(self.calls)

    brands = Brands()
    with config.local(cache=ResolverCache()):
        for _ in range(3):
            p = prompt(use=[context(id="b", system=brands.fetch, cache=True)])
            assert p.resolve_sync().system == "1"


def test_an_excluded_context_neither_hits_nor_misses():
    cache = ResolverCache()
    p = prompt(input=Tenant, use=[when(lambda input: input.org == "b", brand(Counted()))])
    with config.local(cache=cache):
        ask(p)
        assert (cache.hits, cache.misses) == (0, 0)
        ask(p, "b")
        assert (cache.hits, cache.misses) == (0, 1)
        assert ask(p) == ""


def test_a_dropped_text_stays_cached():
    resolver = Counted()
    p = prompt(use=[brand(resolver)])
    with config.local(cache=ResolverCache()):
        assert ask(p, token_budget=1, tokenizer=len) == ""
        assert ask(p) == "a 1"


def test_a_cached_text_is_counted_anew_by_each_tokenizer():
    resolver = Counted()
    p = prompt(use=[brand(resolver)])
    with config.local(cache=ResolverCache()):
        assert part(p, tokenizer=len).tokens == 3
        assert part(p, tokenizer=lambda text: 2 * len(text)).tokens == 6
        assert p.inspect_sync({"org": "a"}, tokenizer=lambda text: 9).total_tokens == 9
    assert resolver.calls == 1


def test_an_empty_text_is_cached_too():
    calls = []

    def nothing() -> str:
        calls.append(1)
        return ""

    p = prompt(use=[context(id="brand", system=nothing, cache=True)])
    with config.local(cache=ResolverCache()):
        assert [p.resolve_sync().system, p.resolve_sync().system] == ["", ""]
    assert len(calls) == 1


# How much


def test_the_least_recently_used_text_is_forgotten_first():
    cache = ResolverCache(max_entries=2)
    p = prompt(use=[brand(Counted())])
    with config.local(cache=cache):
        assert [ask(p, org) for org in "ab"] == ["a 1", "b 2"]
        assert ask(p, "a") == "a 1"
        assert ask(p, "c") == "c 3"
        assert len(cache.entries()) == 2
        assert ask(p, "a") == "a 1"
        assert ask(p, "b") == "b 4"
        assert len(cache.entries()) == 2


def test_a_cache_never_holds_more_than_its_bound():
    cache = ResolverCache(max_entries=10)
    p = prompt(use=[brand(Counted())])
    with config.local(cache=cache):
        for number in range(100):
            ask(p, str(number))
            assert len(cache.entries()) <= 10
        assert cache.misses == 100


def test_a_thousand_entries_is_the_default_bound():
    cache = ResolverCache()
    p = prompt(use=[brand(Counted())])

    async def fill() -> None:
        for number in range(1_001):
            await p.resolve({"org": str(number)})

    with config.local(cache=cache):
        asyncio.run(fill())
    assert len(cache.entries()) == 1_000


@pytest.mark.parametrize("bound", [-1, 1.5, "many", None])
def test_a_bound_that_is_no_size_is_an_error(bound):
    with pytest.raises(InvalidInput):
        ResolverCache(max_entries=bound)


# One call at a time


def together(p: Any, count: int = 1_000, org: str = "a") -> list[Any]:
    async def all_at_once() -> list[Any]:
        return await asyncio.gather(
            *(p.resolve({"org": org}) for _ in range(count)), return_exceptions=True
        )

    return asyncio.run(all_at_once())


class Slow:
    """A resolver that takes its time; `failures` many calls fail at the end of it."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self.failures = failures

    async def __call__(self, input: Any) -> str:
        self.calls += 1
        number = self.calls
        for _ in range(5):
            await asyncio.sleep(0)
        if number <= self.failures:
            raise KeyError(number)
        return f"{input.org} {number}"


def test_a_thousand_concurrent_resolves_of_a_cold_context_call_its_resolver_once():
    resolver = Slow()
    cache = ResolverCache()
    with config.local(cache=cache):
        resolved = together(prompt(use=[brand(resolver)]))
    assert {each.system for each in resolved} == {"a 1"}
    assert resolver.calls == 1
    assert cache.hits + cache.misses == 1_000
    assert cache.misses >= 1


def test_different_inputs_do_not_wait_for_each_other():
    order = []
    gate = asyncio.Event()

    async def resolver(input: Tenant) -> str:
        if input.org == "slow":
            await gate.wait()
        order.append(input.org)
        gate.set()
        return input.org

    p = prompt(use=[brand(resolver)])

    async def both() -> None:
        slow = asyncio.create_task(p.resolve({"org": "slow"}))
        await asyncio.sleep(0)
        await asyncio.wait_for(p.resolve({"org": "fast"}), 60)
        await asyncio.wait_for(slow, 60)

    with config.local(cache=ResolverCache()):
        asyncio.run(both())
    assert order == ["fast", "slow"]


def test_a_failure_reaches_all_who_wait_and_is_not_cached():
    resolver = Slow(failures=1)
    p = prompt(use=[brand(resolver)])
    cache = ResolverCache()
    with config.local(cache=cache):
        failed = together(p)
        assert {type(error) for error in failed} == {KeyError}
        assert {error.args for error in failed} == {(1,)}
        assert resolver.calls == 1
        assert len(cache.entries()) == 0
        assert ask(p) == "a 2"


def test_a_shared_failure_names_its_context_once():
    with config.local(cache=ResolverCache()):
        failed = together(prompt(use=[brand(Slow(failures=1))]), 50)
    assert "context:brand" in failed[0].__notes__[0]
    assert {len(error.__notes__) for error in failed} == {1}


def test_a_failing_plain_function_is_not_cached():
    calls = []

    def resolver(input: Tenant) -> str:
        calls.append(input.org)
        if len(calls) == 1:
            raise KeyError("first")
        return "second"

    p = prompt(use=[brand(resolver)])
    with config.local(cache=ResolverCache()):
        with pytest.raises(KeyError):
            ask(p)
        assert ask(p) == "second"


def test_a_text_that_is_none_is_not_cached():
    answers: list[Any] = [3, "text"]
    p = prompt(use=[brand(lambda input: answers.pop(0))])
    with config.local(cache=ResolverCache()):
        with pytest.raises(InvalidInput, match="brand"):
            ask(p)
        assert ask(p) == "text"


def test_an_expired_text_is_replaced_by_one_call():
    clock, resolver = Clock(), Slow()
    p = prompt(use=[brand(resolver, 1_000)])
    with config.local(cache=ResolverCache(clock=clock)):
        together(p, 10)
        clock.now += 2
        assert {each.system for each in together(p, 100)} == {"a 2"}
    assert resolver.calls == 2


@pytest.mark.parametrize("victim", [0, 1, 5])
def test_one_who_is_cancelled_takes_nobody_with_him(victim, recwarn):
    p = prompt(use=[brand(Slow())])

    async def one_gives_up() -> list[Any]:
        tasks = [asyncio.create_task(p.resolve({"org": "a"})) for _ in range(6)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[victim].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    with config.local(cache=ResolverCache()):
        results = asyncio.run(one_gives_up())
    assert isinstance(results.pop(victim), asyncio.CancelledError)
    assert {result.system for result in results} <= {"a 1", "a 2"}
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


@pytest.mark.parametrize("failures", [0, 1])
def test_one_who_gave_up_waiting_leaves_no_complaint_behind(failures):
    p = prompt(use=[brand(Slow(failures))])
    complaints: list[Any] = []

    async def all_give_up() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, why: complaints.append(why))
        tasks = [asyncio.create_task(p.resolve({"org": "a"})) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks[1:] if failures else tasks[::-1]:
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        del tasks
        gc.collect()
        await asyncio.sleep(0)

    with config.local(cache=ResolverCache()):
        asyncio.run(all_give_up())
    gc.collect()
    assert complaints == []


def test_a_loop_that_ended_in_the_middle_does_not_block_the_next():
    started = []

    async def resolver(input: Tenant) -> str:
        started.append(1)
        if len(started) == 1:
            await asyncio.sleep(3_600)
        return "text"

    p = prompt(use=[brand(resolver)])

    async def impatient(seconds: float) -> str:
        text: str = (await asyncio.wait_for(p.resolve({"org": "a"}), seconds)).system
        return text

    with config.local(cache=ResolverCache()):
        with pytest.raises(TimeoutError):
            asyncio.run(impatient(0.01))
        assert asyncio.run(impatient(5)) == "text"


def test_threads_with_loops_of_their_own_share_a_cache():
    resolver = Slow()
    p = prompt(use=[brand(resolver)])
    cache = ResolverCache()
    gate = threading.Barrier(8)
    seen: list[Any] = []

    def work() -> None:
        gate.wait()
        with config.local(cache=cache):
            for _ in range(20):
                try:
                    seen.append(ask(p))
                except BaseException as error:
                    seen.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 160
    assert all(isinstance(each, str) and each.startswith("a ") for each in seen), seen
    assert len(cache.entries()) == 1


def test_a_resolver_may_resolve_another_cached_prompt():
    inner = prompt(use=[brand(Slow())])

    async def outer(input: Tenant) -> str:
        return "outer " + (await inner.resolve({"org": input.org})).system

    p = prompt(use=[context(id="outer", input=Tenant, system=outer, cache=True)])
    with config.local(cache=ResolverCache()):
        assert {each.system for each in together(p, 20)} == {"outer a 1"}


# Whose text


def test_each_input_has_a_text_of_its_own():
    p = prompt(use=[brand(Counted())])
    with config.local(cache=ResolverCache()):
        assert [ask(p, org) for org in "abab"] == ["a 1", "b 2", "a 1", "b 2"]


def test_only_declared_fields_reach_the_key():
    class Question(BaseModel):
        question: str

    resolver = Counted()
    p = prompt(input=Question, system=lambda input: input.question, use=[brand(resolver)])
    with config.local(cache=ResolverCache()):
        for number in range(5):
            shown = p.resolve_sync({"org": "a", "question": str(number)})
            # What a cache keeps stands before what changes.
            assert shown.system == f"a 1\n\n{number}"
    assert resolver.calls == 1


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


def _plain() -> str:
    return TENANT.get()


async def _later() -> str:
    await asyncio.sleep(0)
    return TENANT.get()


@pytest.mark.parametrize("resolver", [_plain, _later, lambda: _later()])
@pytest.mark.parametrize("sync", [True, False])
def test_a_context_variable_of_one_request_does_not_reach_the_text_of_another(resolver, sync):
    made = context(id="brand", system=resolver, cache=60_000)
    asked = prompt(prompt="hi", use=[made])

    def text_of(tenant: str) -> str | None:
        TENANT.set(tenant)
        if sync and resolver is _plain:
            return asked.resolve_sync().system
        return asyncio.run(asked.resolve()).system

    with config.local(cache=ResolverCache()):
        assert [copy_context().run(text_of, each) for each in ("a", "b")] == ["nobody", "nobody"]


def test_a_cached_resolver_leaves_the_callers_variables_as_they_are():
    def spoil() -> str:
        TENANT.set("spoilt")
        return "text"

    def asks() -> str:
        TENANT.set("a")
        prompt(prompt="hi", use=[context(id="brand", system=spoil, cache=60_000)]).resolve_sync()
        return TENANT.get()

    with config.local(cache=ResolverCache()):
        assert copy_context().run(asks) == "a"


def test_a_cached_resolver_does_not_see_the_settings_of_one_task():
    def shows() -> str:
        return str(defaults().settings)

    asked = prompt(prompt="hi", use=[context(id="brand", system=shows, cache=60_000)])
    with config.local(cache=ResolverCache(), settings={"extra_headers": {"x": "secret"}}):
        assert "secret" not in (asked.resolve_sync().system or "")


def test_a_cached_resolver_that_takes_ctx_is_an_error():
    for cache in (True, 1_000, CacheOptions(ttl=1_000)):
        with pytest.raises(InvalidInput, match="ctx"):
            brand(lambda input, ctx: "x", cache)


def test_a_cached_resolver_of_the_merged_input_is_an_error():
    with pytest.raises(InvalidInput):
        context(id="x", system=lambda input: "x", cache=True)
    fixed = context(id="x", system=lambda: "fixed", cache=True)
    with config.local(cache=ResolverCache()):
        assert prompt(use=[fixed]).resolve_sync().system == "fixed"


@pytest.mark.parametrize("cache", [1_000, True, CacheOptions(ttl=1_000)])
def test_a_ttl_without_an_id_is_an_error(cache):
    with pytest.raises(InvalidInput, match="id"):
        context(system=lambda: "x", cache=cache)


@pytest.mark.parametrize("cache", [-1, 1.5, "5m", float("nan"), [1], {"ttl": 3}])
def test_a_cache_option_that_is_no_time_is_an_error(cache):
    with pytest.raises(InvalidInput):
        context(id="x", system=lambda: "x", cache=cache)


@pytest.mark.parametrize("ttl", [-1, 1.5, "5m", float("nan"), True])
def test_a_ttl_that_is_no_time_is_an_error(ttl):
    with pytest.raises(InvalidInput, match="ttl"):
        CacheOptions(ttl=ttl)


def test_contexts_with_equal_ids_but_different_definitions_do_not_share():
    class Other(BaseModel):
        org: str
        more: str = ""

    first, second = Counted(), Counted()
    second.calls = 10
    one = prompt(use=[brand(first)])
    two = prompt(use=[brand(second)])
    three = prompt(use=[context(id="brand", input=Other, system=first, cache=60_000)])
    with config.local(cache=ResolverCache()):
        assert [ask(one), ask(two), ask(three)] == ["a 1", "a 11", "a 2"]
        assert [ask(one), ask(two), ask(three)] == ["a 1", "a 11", "a 2"]


def test_a_context_never_gets_a_text_older_than_its_own_time():
    clock, resolver = Clock(), Counted()
    long, short = prompt(use=[brand(resolver, 3_600_000)]), prompt(use=[brand(resolver, 1_000)])
    with config.local(cache=ResolverCache(clock=clock)):
        assert ask(long) == "a 1"
        clock.now += 60
        assert ask(short) == "a 2"


def test_a_resolver_that_cannot_be_hashed_is_cached_or_refused_but_never_a_raw_error():
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> str:
            return "odd"

    try:
        p = prompt(use=[context(id="odd", system=Odd(), cache=True)])
    except InvalidInput:
        return
    with config.local(cache=ResolverCache()):
        assert p.resolve_sync().system == "odd"


def test_closures_of_one_function_do_not_share():
    def of(tenant: str) -> Any:
        return prompt(use=[context(id="t", system=lambda: tenant, cache=True)])

    with config.local(cache=ResolverCache()):
        assert [of(name).resolve_sync().system for name in "abc"] == ["a", "b", "c"]


def test_defaults_of_one_function_do_not_share():
    with config.local(cache=ResolverCache()):
        prompts = [
            prompt(use=[context(id="t", system=lambda name=name: name, cache=True)])
            for name in "abc"
        ]
        assert [p.resolve_sync().system for p in prompts] == ["a", "b", "c"]


def test_methods_of_different_objects_do_not_share():
    class Bound:
        def __init__(self, name: str) -> None:
            self.name = name

        def text(self) -> str:
            return self.name

    with config.local(cache=ResolverCache()):
        for name in ("a", "b", "c"):
            p = prompt(use=[context(id="t", system=Bound(name).text, cache=True)])
            assert p.resolve_sync().system == name


def test_an_address_used_again_does_not_bring_back_a_dead_ones_text():
    def of(number: int) -> str:
        p = prompt(use=[context(id="t", system=lambda: str(number), cache=True)])
        text: str = p.resolve_sync().system
        return text

    with config.local(cache=ResolverCache()):
        for number in range(200):
            assert of(number) == str(number)
            gc.collect(0)


class Anything(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    value: Any


def described(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


def said(values: list[Any], model: type[BaseModel] = Anything, say: Any = None) -> list[str]:
    """Resolve one cached context for each value in turn, all with one cache."""
    say = say or (lambda input: described(input.value))
    p = prompt(use=[context(id="any", input=model, system=say, cache=True)])
    with config.local(cache=ResolverCache()):
        return [p.resolve_sync({"value": value}).system for value in values]


@pytest.mark.parametrize(
    "values",
    [
        [1, True, 1.0, "1"],
        [0, False, 0.0, ""],
        ["a", b"a"],
        [[1, 2], (1, 2), [True, 2], "[1, 2]"],
        [{"a": 1}, {"a": True}, {"a": "1"}, {1: "a"}, {"1": "a"}],
        [{"a": [1]}, {"a": (1,)}],
        [["a", "b"], ["a,b"], ["a', 'b"]],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    ],
)
def test_values_that_only_look_alike_have_texts_of_their_own(values):
    assert said(values) == [described(value) for value in values]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(0.5, 2) | st.text("a1", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a1"), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(JSON, max_size=6))
def test_no_value_is_ever_answered_with_anothers_text(values):
    twice = values + values
    assert said(twice) == [described(value) for value in twice]


def test_one_moment_on_two_clocks_has_two_texts():
    moment = datetime(2024, 6, 3, 12, tzinfo=UTC)
    values = [moment, moment.astimezone(timezone(timedelta(hours=2)))]
    assert values[0] == values[1]
    assert said(values) == [described(value) for value in values]


def test_a_secret_is_part_of_the_key():
    class Login(BaseModel):
        value: SecretStr

    texts = said(["one", "two"], Login, lambda input: input.value.get_secret_value())
    assert texts == ["one", "two"]


def test_fields_left_out_of_dumps_and_reprs_are_part_of_the_key():
    class Hidden(BaseModel):
        value: str = Field(exclude=True, repr=False)

    assert said(["one", "two"], Hidden, lambda input: input.value) == ["one", "two"]


def test_a_subclass_is_told_from_its_base():
    class Base(BaseModel):
        name: str

    class Sub(Base):
        secret: str

    class Holder(BaseModel):
        value: Base

    values = [Sub(name="n", secret="one"), Sub(name="n", secret="two"), Base(name="n")]
    texts = said(values, Holder, lambda input: repr(input.value))
    assert texts == [repr(value) for value in values]


def test_objects_with_one_repr_are_told_apart():
    class Opaque:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return "Opaque"

    texts = said([Opaque("one"), Opaque("two")], Anything, lambda input: input.value.name)
    assert texts == ["one", "two"]


def test_objects_that_change_are_not_answered_with_their_old_text():
    box = ["one"]
    p = prompt(
        use=[context(id="a", input=Anything, system=lambda input: input.value[0], cache=True)]
    )
    with config.local(cache=ResolverCache()):
        assert p.resolve_sync({"value": box}).system == "one"
        box[0] = "two"
        assert p.resolve_sync({"value": box}).system == "two"


def test_fields_that_a_model_merely_allows_do_not_leak_through_the_cache():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        org: str

    def resolver(input: Any) -> str:
        return f"{input.org} {getattr(input, 'user', None)}"

    p = prompt(use=[context(id="open", input=Open, system=resolver, cache=True)])
    with config.local(cache=ResolverCache()):
        texts = [p.resolve_sync({"org": "a", "user": name}).system for name in ("ann", "bob")]
    assert texts in (["a None", "a None"], ["a ann", "a bob"])


def test_caches_do_not_share():
    p = prompt(use=[brand(Counted())])
    with config.local(cache=ResolverCache()):
        assert ask(p) == "a 1"
    with config.local(cache=ResolverCache()):
        assert ask(p) == "a 2"


PROCESS_DEFAULT = """
from muntin import config, context, prompt
from muntin.resolver_cache import ResolverCache
from tests.words import Tenant

calls = []
p = prompt(use=[context(id="x", system=lambda: calls.append(1) or "x", cache=True)])
p.resolve_sync(); p.resolve_sync()
assert len(calls) == 1
mine = ResolverCache()
config(cache=mine)
p.resolve_sync(); p.resolve_sync()
assert len(calls) == 2
assert (mine.hits, mine.misses) == (1, 1)
print("done")
"""


def test_the_process_has_a_cache_of_its_own_until_it_is_given_one():
    run = subprocess.run(
        [sys.executable, "-c", PROCESS_DEFAULT], capture_output=True, text=True, check=False
    )
    assert run.stdout == "done\n", run.stderr


@pytest.mark.parametrize("deep", ["cyclic", "nested"])
def test_an_input_too_deep_for_a_key_is_an_error_naming_the_context(deep):
    class Anything(BaseModel):
        value: Any

    value: list[Any] = []
    if deep == "cyclic":
        value.append(value)
    for _ in range(5_000 if deep == "nested" else 0):
        value = [value]
    p = prompt(use=[context(id="c", input=Anything, cache=True, system=lambda input: "x")])
    with pytest.raises(InvalidInput, match="context:c cannot be cached"):
        p.resolve_sync({"value": value})


def test_a_time_to_live_beyond_all_clocks_is_an_error_naming_the_context():
    with pytest.raises(InvalidInput, match="context 'c': cache must be at most"):
        context(id="c", system=lambda: "x", cache=10**400)
    with pytest.raises(InvalidInput, match=r"CacheOptions\.ttl must be at most"):
        CacheOptions(ttl=10**400)


# Providers.


BRAND = "Speak plainly, and never promise what was not promised to you. " * 300


@pytest.mark.parametrize(
    ("cache", "provider", "marked"),
    [
        (300_000, "anthropic", True),
        (True, "anthropic", True),
        (CacheOptions(ttl=1_000, provider=False), "anthropic", False),
        (None, "anthropic", False),
        (300_000, "openai", False),  # caches by itself
        (300_000, None, True),  # the name says whose model it is
    ],
)
def test_a_cached_context_is_marked_for_the_provider_to_cache(cache, provider, marked):
    brand = context(id="brand", system=lambda: BRAND, cache=cache)
    greeting = prompt(system="You greet.", prompt="Hello.", use=[brand])
    made = greeting.resolve_sync(provider=provider, model_id="claude-sonnet-4-5")
    request = made.window.anthropic()
    blocks = [block for block in request["system"] if "cache_control" in block]
    assert bool(blocks) is marked
    assert "cache_control" not in str(request["messages"])


def test_a_mark_changes_neither_the_text_nor_the_budget():
    plain = context(id="brand", system=lambda: BRAND)
    cached = context(id="brand", system=lambda: BRAND, cache=1_000)
    for budget in (None, 100, 10_000):
        windows = [
            prompt(messages=[{"role": "assistant", "content": "Hm?"}], use=[c])
            .resolve_sync(provider="anthropic", model_id="claude-sonnet-4-5", token_budget=budget)
            .window
            for c in (plain, cached)
        ]
        assert windows[0].messages == windows[1].messages
