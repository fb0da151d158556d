"""Adaptations for one provider, and how settings merge."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import InvalidInput, config, context, prompt
from tests.prompts.conftest import dropped, kept, look

ADAPT: dict[str, Any] = {
    "anthropic": {"append_system": "\nReturn raw JSON, no markdown fences."},
    "openai": {"prepend_prompt": "Think step by step.\n\n", "settings": {"temperature": 0.1}},
    "*": {"append_system": "\nRespond with valid JSON only."},
}


def test_an_adaptation_is_joined_by_one_blank_line_without_its_outer_newlines():
    p = prompt(system="You are a helpful assistant.", prompt="Hi", adapt=ADAPT)
    claude = look(p, provider="anthropic")
    assert claude.system.text == (
        "You are a helpful assistant.\n\nReturn raw JSON, no markdown fences."
    )
    gpt = look(p, provider="openai")
    assert gpt.system.text == "You are a helpful assistant."
    assert gpt.prompt == "Think step by step.\n\nHi"
    assert gpt.settings == {"temperature": 0.1}
    other = look(p, provider="mistral")
    assert other.system.text == "You are a helpful assistant.\n\nRespond with valid JSON only."
    assert look(p).system.text == other.system.text


@pytest.mark.parametrize(
    ("provider", "model_id", "key"),
    [
        ("a", None, "a"),
        ("a", "b/m", "a"),
        ("x", "b/m", "b"),
        (None, "b/m", "b"),
        ("x", "b/a/m", "b"),
        ("x", "y/a/m", "*"),
        ("x", "y/m", "*"),
        ("x", None, "*"),
        (None, None, "*"),
    ],
)
def test_exactly_one_entry_applies(provider, model_id, key):
    adapt = {name: {"append_system": f"for {name}"} for name in ("*", "b", "a")}
    shown = look(prompt(system="own", adapt=adapt), provider=provider, model_id=model_id)
    assert shown.system.text == f"own\n\nfor {key}"
    assert kept(shown) == ["prompt", f"adaptation:{key}"]


def test_no_entry_applies_when_none_matches():
    p = prompt(system="own", adapt={"a": {"append_system": "x"}})
    assert look(p, provider="b", model_id="c/a").system.text == "own"


def test_an_adaptation_stands_around_own_text_and_contexts_as_parts_of_its_own():
    p = prompt(
        system="own",
        use=[context(id="c", system="c")],
        prompt="ask",
        adapt={
            "a": {
                "prepend_system": "\n\nbefore\n",
                "append_system": "after\n\n",
                "prepend_prompt": "\nnow ",
                "append_prompt": " please\n",
            }
        },
    )
    shown = look(p, provider="a")
    assert shown.system.text == "before\n\nown\n\nc\n\nafter"
    assert [(part.source, part.text) for part in shown.system.parts] == [
        ("adaptation:a", "before"),
        ("prompt", "own"),
        ("context:c", "c"),
        ("adaptation:a", "after"),
    ]
    assert shown.prompt == "\nnow ask please\n"
    assert shown.prompt_tokens == len(shown.prompt)


def test_an_adaptation_is_counted_in_the_budget_and_never_dropped():
    p = prompt(
        system="own",
        use=[context(id="c", system="c" * 10)],
        adapt={"a": {"prepend_system": "b" * 10, "append_system": "d" * 10}},
    )
    assert not look(p, token_budget=15).dropped_contexts
    assert not look(p, token_budget=39, provider="a").dropped_contexts
    tight = look(p, token_budget=38, provider="a")
    assert dropped(tight) == ["context:c"]
    assert kept(tight) == ["adaptation:a", "prompt", "adaptation:a"]
    over = look(p, token_budget=26, provider="a")
    assert over.over_budget
    assert over.system.text == tight.system.text


def test_unknown_fields_of_an_adaptation_are_an_error_naming_them():
    with pytest.raises(InvalidInput, match="append_sytem"):
        prompt(system="own", adapt={"a": {"append_sytem": "x"}})
    with pytest.raises(InvalidInput, match="appendSystem"):
        prompt(system="own", adapt={"*": {"appendSystem": "x"}})


@pytest.mark.parametrize(
    ("provider", "meant"),
    [
        ("antropic", "anthropic"),
        ("OpenAI", "openai"),
        ("gogle", "google"),
        ("deepseak", "deepseek"),
    ],
)
def test_a_misspelt_provider_is_an_error_that_says_what_was_meant(provider, meant):
    with pytest.raises(InvalidInput, match=rf"adapt\['{provider}'\].* did you mean '{meant}'"):
        prompt(system="own", adapt={provider: {"append_system": "x"}})


def test_a_provider_that_only_the_user_knows_is_adapted_for():
    for provider in ("acme", "openai-eu", "mistralai", "meta-llama", "grok"):
        p = prompt(system="own", adapt={provider: {"append_system": "x"}})
        assert p.resolve_sync(provider=provider, model_id="m").system == "own\n\nx"


@pytest.mark.parametrize(
    "adapt",
    [
        ["a"],
        {"a": "text"},
        {3: {}},
        {"a": {"append_system": 3}},
        {"a": {"prepend_prompt": ["x"]}},
        {"a": {"settings": "hot"}},
    ],
)
def test_a_malformed_adaptation_is_an_error(adapt):
    with pytest.raises(InvalidInput):
        prompt(system="own", adapt=adapt)


def test_settings_merge_from_config_to_prompt_to_adaptation_to_call():
    p = prompt(
        system="own",
        settings={"b": "prompt", "c": "prompt", "d": "prompt"},
        adapt={"x": {"settings": {"c": "adapt", "d": "adapt"}}},
    )
    with config.local(settings=dict.fromkeys("abcd", "config")):
        shown = p.inspect_sync(provider="x", settings={"d": "call"})
    assert shown.settings == {"a": "config", "b": "prompt", "c": "adapt", "d": "call"}


def test_none_never_erases():
    p = prompt(
        system="own",
        settings={"a": None, "b": 0, "c": 1},
        adapt={"*": {"settings": {"b": None, "c": None}}},
    )
    with config.local(settings={"a": 3}):
        shown = p.inspect_sync(settings={"a": None, "b": None, "c": None})
    assert shown.settings == {"a": 3, "b": 0, "c": 1}


def test_settings_are_not_changed_by_a_call():
    own = {"a": 1}
    p = prompt(system="own", settings=own)
    shown = p.inspect_sync(settings={"a": 2})
    assert shown.settings == {"a": 2}
    assert own == {"a": 1}
    assert p.inspect_sync().settings == {"a": 1}


@pytest.mark.parametrize("settings", ["hot", 3, [("a", 1)], {3: 4}])
def test_settings_are_a_mapping_of_names(settings):
    with pytest.raises(InvalidInput):
        prompt(system="own", settings=settings)
    with pytest.raises(InvalidInput):
        prompt(system="own").inspect_sync(settings=settings)
