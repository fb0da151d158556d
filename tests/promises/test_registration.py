"""What can never work as a source is refused when it is registered, by name and at once."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import InvalidInput, Source, context, user
from muntin.runtime.ctx import Ctx
from muntin.runtime.sources import check_sources
from muntin.testing import ScriptedModel
from tests.products import PRICED
from tests.runtime.conftest import memory, run, texts, wakes


def registered(sources: Any, budget: int = 1_000) -> Any:
    """Register sources in a handler, and return the window of its run."""
    model = ScriptedModel(["ok"], name=PRICED)

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=budget, sources=sources)
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(memory(), handler, "wake"))
    return model.windows[0]


def test_the_mapping_form_of_a_source_is_a_source():
    window = registered(
        {
            "docs": {"content": lambda: "D" * 200, "max": 120, "cache": "stable"},
            "end": {"content": "first last", "max": 4, "keep": "tail", "timeout": 1},
        }
    )
    assert window.report["docs"].tier == "stable"
    assert window.report["docs"].cap == 120
    assert texts(window)[-2:] == ["last", "wake"]


def test_a_message_is_not_the_mapping_form():
    assert texts(registered({"note": {"role": "user", "content": "noted"}})) == ["noted", "wake"]


@pytest.mark.parametrize("key", ["mx", "Max", "role", "budget", 3])
def test_an_unknown_key_is_an_error_that_names_source_and_key(key):
    with pytest.raises(InvalidInput, match=f"(?s)source 'docs'.*{key!r}"):
        check_sources(100, {"fine": "text", "docs": {"content": "x", "max": 5, key: 1}})


def test_the_mapping_form_needs_content():
    with pytest.raises(InvalidInput, match=r"(?s)source 'docs'.*'content'"):
        check_sources(100, {"docs": {"max": 5}})


@pytest.mark.parametrize("options", [{"max": 0}, {"cache": "daily"}, {"cache": "stable"}])
def test_the_options_of_the_mapping_form_are_checked_like_those_of_a_source(options):
    with pytest.raises(InvalidInput, match="source 'docs'"):
        check_sources(100, {"docs": {"content": "x", **options}})


@pytest.mark.parametrize("name", ["system", "input", "run", "entries"])
def test_the_windows_own_names_are_refused(name):
    with pytest.raises(InvalidInput, match=f"source {name!r}"):
        check_sources(100, {name: Source("x")})


async def fetch() -> str:
    return "text"


@pytest.mark.parametrize(
    "content",
    [5, 1.5, True, b"bytes", bytearray(b"x"), object(), {"a", "b"}, [1, 2], ["text"], "\ud800"],
)
@pytest.mark.parametrize("form", [lambda c: c, Source, lambda c: {"content": c}])
def test_content_that_can_never_be_read_is_refused(content, form):
    with pytest.raises(InvalidInput, match="source 'docs'"):
        check_sources(100, {"docs": form(content)})


def test_a_coroutine_is_not_the_function_that_makes_it():
    made = fetch()
    with pytest.raises(InvalidInput, match=r"(?s)source 'docs'.*coroutine"):
        check_sources(100, {"docs": Source(made)})
    made.close()


@pytest.mark.parametrize(
    "content", ["text", "", None, [], [user("x")], user("x"), fetch, context(system="x")]
)
def test_content_that_can_be_read_is_taken(content):
    check_sources(100, {"docs": Source(content), "same": content})


def test_a_refusal_comes_at_once_and_leaves_the_sources_before_in_force():
    model = ScriptedModel(["ok"], name=PRICED)

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=100, sources={"a": "first"})
        for wrong in ({"a": 5}, {"input": "x"}, {"a": {"content": "x", "size": 1}}):
            with pytest.raises(InvalidInput):
                ctx.use_context(source_budget=100, sources=wrong)
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(memory(), handler, "wake"))
    assert texts(model.windows[0]) == ["first", "wake"]


@pytest.mark.parametrize("tag", ["", "a b", "system", "<b>", "1st"])
def test_a_wrong_tag_is_refused(tag):
    with pytest.raises(InvalidInput, match="source 'docs'"):
        check_sources(100, {"docs": Source("x", tag=tag)})
