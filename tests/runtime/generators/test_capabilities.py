"""Capabilities: shared context, tools, settings and functions, in one order, each once."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import InvalidInput, Message, capability, context, generator
from muntin.errors import InvalidType
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, memory, run, texts


def model(*replies: Any) -> ScriptedModel:
    return ScriptedModel(replies or (lambda window: "ok"))


def shown(made, input=None, **given) -> list[str]:
    given.setdefault("model", ScriptedModel(lambda window: "ok"))
    return texts(run(made.window(input, **given)))


def tells(name: str, **given: Any):
    """Return a capability that writes its name into the tag `who`."""
    return capability(name, presets={"defaults": {"context": {"who": name}}}, **given)


def who(made, **given) -> list[str]:
    """Return who wrote into the tag, in order."""
    return [line for line in shown(made, **given)[0].splitlines() if "<" not in line]


# Context.


def test_the_generators_own_context_then_capabilities_in_order_make_one_tag():
    a = capability("source-a", presets={"defaults": {"context": lambda: {"documents": "from A"}}})
    b = capability("source-b", presets={"defaults": {"context": lambda: {"documents": "from B"}}})
    made = generator(context={"documents": "from generator itself"}, uses=[a, b])
    assert shown(made) == ["<documents>\nfrom generator itself\nfrom A\nfrom B\n</documents>"]


def test_static_and_dynamic_contributions_merge_in_author_order_and_a_placeholder_keeps_its_place():
    async def late(input, ctx):
        await asyncio.sleep(0.01)
        return {"userDocs": "late", "memory": {"shortTerm": "recent"}}

    a = capability(
        "a", presets={"one": {"context": late}, "two": {"context": {"user_docs": "two"}}}
    )
    b = capability("b", presets={"p": {"context": [{"notes": "n"}, {"user-docs": "b"}]}})
    made = generator(context={"memory": None, "userDocs": "own"}, uses=[a, b])
    assert shown(made) == [
        "<memory>\n<short-term>recent</short-term>\n</memory>\n"
        "<user-docs>\nown\nlate\ntwo\nb\n</user-docs>\n"
        "<notes>\nn\n</notes>"
    ]
    assert run(made.window(model=model())).report.slots[1].detail == (
        "from generator generator, capability a, capability b"
    )


def test_a_context_may_be_what_a_capability_contributes():
    rules = context(id="rules", system=lambda i, ctx: f"Rules of {ctx.session.id}.")
    a = capability("a", presets={"p": {"context": [rules, {"tag": rules}]}})
    assert shown(generator(uses=[a]), session="s") == [
        "<tag>\nRules of s.\n</tag>",
        "Rules of s.",
    ]


def test_static_keys_are_checked_where_the_capability_is_defined():
    with pytest.raises(InvalidInput, match=r"context key 'a\.thinking' from 'capability rag'"):
        capability("rag", presets={"p": {"context": {"a": {"thinking": "x"}}}})
    with pytest.raises(InvalidInput, match=r"'\[0\].role' from 'capability rag'"):
        capability("rag", presets={"p": {"context": [{"role": "boss"}]}})
    rag = capability("rag", presets={"p": {"context": lambda: {"tool_use": "x"}}})
    with pytest.raises(InvalidInput, match="context key 'tool_use' from 'capability rag'"):
        shown(generator(uses=[rag]))


# Presets.


def test_presets_switched_off_are_gone_from_a_copy_only():
    both = capability(
        "c", presets={"alpha": {"context": {"a": "1"}}, "beta": {"context": {"b": "2"}}}
    )
    without = both.presets(alpha=False)
    assert shown(generator(uses=[without])) == ["<b>\n2\n</b>"]
    assert shown(generator(uses=[both])) == ["<a>\n1\n</a>\n<b>\n2\n</b>"]
    assert shown(generator(uses=[without.presets(alpha=True)])) == shown(generator(uses=[both]))
    assert shown(generator(uses=[both.presets(alpha=False, beta=False)])) == []


def test_an_unknown_preset_or_one_that_is_neither_on_nor_off_is_refused():
    made = capability("c", presets={"alpha": {}, "beta": {}})
    with pytest.raises(
        InvalidInput, match="capability c has no preset 'gamma'; it has: alpha, beta"
    ):
        made.presets(gamma=False)
    with pytest.raises(InvalidType, match="capability c: preset 'alpha' is True or False, not 0"):
        made.presets(alpha=0)  # type: ignore[arg-type]


# Order.


def test_dependencies_stand_before_dependents_each_once():
    base = tells("base")
    left, right = tells("left", uses=[base]), tells("right", uses=[base])
    top = tells("top", uses=[right, left])
    assert who(generator(context={"who": "own"}, uses=[top, base, left])) == [
        *("own", "base", "right", "left", "top")
    ]


def _given(uses: list[Any], ctx: Any) -> list[Any]:
    return uses


@given(st.data())
def test_any_graph_comes_out_in_an_order_that_puts_dependencies_first(data):
    made: list[Any] = []
    needs: dict[str, set[str]] = {}
    for number in range(data.draw(st.integers(1, 7))):
        uses = data.draw(st.lists(st.sampled_from(made), unique_by=id)) if made else []
        hidden = data.draw(st.booleans())
        needs[f"c{number}"] = {each.name for each in uses}
        made.append(tells(f"c{number}", uses=partial(_given, uses) if hidden else uses))
    chosen = data.draw(st.lists(st.sampled_from(made), min_size=1, unique_by=id))
    order = who(generator(uses=chosen))
    assert len(order) == len(set(order))
    for place, name in enumerate(order):
        assert needs[name] <= set(order[:place])
    assert {each.name for each in chosen} <= set(order)


def test_uses_may_be_a_function_of_ctx_alone_or_in_the_list():
    a, b = tells("a"), tells("b")

    async def later(ctx):
        return [b] if ctx.input == "both" else None

    made = generator(uses=[lambda ctx: [a, None], later])
    assert who(made, input="both") == ["a", "b"]
    assert who(made, input="one") == ["a"]
    assert who(generator(uses=lambda ctx: [a])) == ["a"]
    assert who(generator(uses=[None, a, False])) == ["a"]
    with pytest.raises(InvalidType, match="uses of generator 'g': uses must be a list"):
        who(generator(name="g", uses=lambda ctx: a))
    with pytest.raises(ZeroDivisionError) as caught:
        who(generator(name="g", uses=[lambda ctx: 1 / 0]))
    assert caught.value.__notes__ == ["raised by uses of generator 'g'"]


def test_a_cycle_is_an_error_that_shows_it():
    later: list[Any] = []
    a = tells("a", uses=lambda ctx: later)
    b = tells("b", uses=[a])
    later.append(b)
    with pytest.raises(InvalidInput, match="generator 'g': capability 'b' uses itself: b → a → b"):
        who(generator(name="g", uses=[b]))

    def forever(ctx):
        return [forever]

    with pytest.raises(InvalidInput, match="use one another more than 32 deep"):
        who(generator(uses=forever))


def test_two_capabilities_of_one_name_are_an_error_at_definition_where_they_are_known():
    words = "two different capabilities are named 'a'; both would be ctx.cap.a"
    with pytest.raises(InvalidInput, match=f"generator 'g': {words}"):
        generator(name="g", uses=[tells("a"), tells("b", uses=[tells("a")])])
    with pytest.raises(InvalidInput, match=f"capability top: {words}"):
        capability("top", uses=[tells("a"), tells("a")])
    with pytest.raises(InvalidInput, match=words):
        who(generator(uses=[tells("a"), lambda ctx: [tells("a")]]))
    with pytest.raises(
        InvalidInput, match=r"are named 'a-b' and 'a_b'; both would be ctx\.cap\.a_b"
    ):
        generator(uses=[tells("a-b"), tells("a_b")])
    a = tells("a")
    with pytest.raises(InvalidInput, match="'a' is used twice with different presets"):
        generator(uses=[a, a.presets(defaults=False)])
    assert who(generator(uses=[a, a.presets(defaults=True), tells("b", uses=[a])])) == ["a", "b"]


# Functions.


def test_functions_are_called_once_a_turn_and_dependents_see_them():
    calls: list[str] = []

    async def store(ctx):
        calls.append("store")
        await asyncio.sleep(0.01)
        return {"session": ctx.session.id}

    def workspace(ctx):
        calls.append("workspace")
        return lambda: f"files of {ctx.cap.the_store['session']}"

    base = capability("the-store", functions=store)
    top = capability("workspace", uses=[base], functions=workspace)
    worker = generator(
        name="worker", uses=[top], user=lambda i, ctx: f"Task {i}: {ctx.cap.workspace()}"
    )
    asked = model()
    app = memory(model=asked)

    async def crew(input, ctx):
        await asyncio.gather(*(ctx.run(worker, n) for n in range(3)))
        return "done"

    chat = generator(context={"crew": crew}, uses=[base], user="go")

    async def talk():
        await chat.run(app=app, session="s")
        await worker.run(9, app=app, session="s")

    run(talk())
    assert calls == ["store", "workspace"] * 2
    sent = [texts(window)[-1] for window in asked.windows]
    assert sorted(sent[:3]) == [f"Task {n}: files of s" for n in range(3)]
    assert sent[3:] == ["go", "Task 9: files of s"]


def test_what_functions_raise_passes_with_a_note_and_ctx_cap_belongs_to_generators_that_use_some():
    broken = capability("broken", functions=lambda ctx: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        shown(generator(uses=[broken]))
    assert caught.value.__notes__ == ["raised by functions of capability broken"]
    with pytest.raises(Exception, match=r"ctx\.cap is not here, in generator 'g'"):
        shown(generator(name="g", user=lambda i, ctx: ctx.cap.x))


# Tools and settings.


def search(words: str) -> str:
    """Search."""
    return f"found {words}"


def test_tools_of_a_capability_are_offered_and_run():
    rag = capability("rag", presets={"p": {"tools": [search]}, "off": {"tools": [search]}})
    asked = model(call("search", words="lamps"), "Found.")
    reply = run(generator(uses=[rag.presets(off=False)], model=asked, user="?").run())
    assert reply.text == "Found."
    assert texts(asked.windows[1])[-1] == "found lamps"
    assert [each["function"]["name"] for each in asked.windows[0].tools] == [
        "search",
        "load_result",
    ]


def test_a_tool_name_from_two_sides_is_an_error_naming_both():
    def other() -> str:
        return ""

    other.__name__ = "search"
    a = capability("a", presets={"p": {"tools": [search]}})
    b = capability("b", presets={"p": {"tools": [other]}})
    with pytest.raises(
        InvalidInput,
        match="generator 'g': tool 'search' is contributed by capability a and by capability b",
    ):
        generator(name="g", uses=[a, b])
    with pytest.raises(InvalidInput, match="by generator 'g' and by capability a"):
        generator(name="g", tools=[other], uses=[a])
    with pytest.raises(InvalidInput, match="by capability a and by capability b"):
        shown(generator(uses=[a, lambda ctx: [b]]))


def test_settings_go_from_capabilities_in_order_to_the_generators_own():
    base = capability("base", presets={"p": {"settings": {"a": 1, "b": 1, "c": 1, "d": 1}}})
    top = capability(
        "top",
        presets={"p": {"settings": {"b": 2, "c": 2}}, "q": {"settings": {"d": 2}}},
        uses=[base],
    )
    asked = model("ok")
    run(generator(uses=[top], settings={"c": 3, "d": None}, model=asked, user="?").run())
    assert asked.settings[0] == {"a": 1, "b": 2, "c": 3, "d": 2}


def test_the_order_of_uses_is_the_order_of_authors_whoever_is_slow():
    def slow(name: str, seconds: float):
        async def context() -> dict[str, str]:
            await asyncio.sleep(seconds)
            return {"who": name}

        return capability(name, presets={"p": {"context": context}})

    made = [slow("a", 0.02), slow("b", 0.0), slow("c", 0.01)]
    for order in permutations(made):
        assert who(generator(uses=list(order))) == [each.name for each in order]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "3x"}, "'3x' is no name for a capability"),
        ({"name": "a b"}, "'a b' is no name for a capability"),
        ({"name": 3}, "capability: name must be a str"),
        ({"presets": ["p"]}, "capability c: presets must map names to presets"),
        ({"presets": {"p": "x"}}, "capability c: preset 'p' must be a mapping"),
        (
            {"presets": {"p": {"prompt": "x"}}},
            "preset 'p': unknown field 'prompt'; use context, tools",
        ),
        ({"presets": {"p": {"tools": [3]}}}, "capability c: preset 'p': a tool must be"),
        ({"presets": {"p": {"settings": 3}}}, "capability c: preset 'p': settings must be"),
        ({"presets": {"p": {"context": 3}}}, "context from 'capability c': cannot use a int"),
        ({"functions": 3}, r"capability c: functions must be a function of \(ctx\)"),
        ({"functions": lambda a, b: 0}, r"capability c: functions must take \(ctx\)"),
        ({"uses": ["x"]}, r"capability c: uses\[0\] must be a capability or a function"),
    ],
)
def test_a_wrong_definition_is_refused_by_name(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        capability(**{"name": "c", **wrong})


def test_a_message_that_a_capability_gives_is_sent_as_it_is():
    shot = Message("assistant", "Like this.")
    a = capability("a", presets={"p": {"context": lambda: [shot]}})
    window = run(generator(uses=[a], user="?").window(model=model()))
    assert window.messages[0] is shot
