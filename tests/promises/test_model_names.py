"""A model's name is taken apart in one place, so that a route or another server changes neither
adaptation nor counting nor limits, and a name without a provider is answered with the right one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import App, Budget, Profile, UnknownModel, generate, generate_sync, generator, prompt
from muntin.agent import run_agent
from muntin.core.counting.counter import Counter
from muntin.providers.client import Client
from muntin.providers.names import as_model, caching_for, facts
from muntin.testing import ScriptedModel
from tests.cli.command import run

ADAPT = {
    "openai": {"append_system": "for OpenAI"},
    "anthropic": {"append_system": "for Claude"},
    "*": {"append_system": "for all"},
}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("openrouter/anthropic/claude-sonnet-4-5", "for Claude"),
        ("openrouter/openai/gpt-4o", "for OpenAI"),
        ("openrouter/meta/llama-3", "for all"),
        ("openai/anthropic/claude-sonnet-4-5", "for Claude"),  # a compatible server
        ("openai/gpt-4o", "for OpenAI"),
        ("gpt-4o", "for OpenAI"),
        ("claude-sonnet-4-5", "for Claude"),
        ("mine", "for all"),
    ],
)
def test_the_adaptation_is_that_of_the_model(name: str, wanted: str) -> None:
    model = ScriptedModel(["ok"], name=name)
    generate_sync(prompt(system="s", prompt="p", adapt=ADAPT), model=model)
    assert wanted in model.windows[0].messages[0].text


def test_a_client_with_a_base_url_is_adapted_by_its_model() -> None:
    name = "openai/anthropic/claude-sonnet-4-5"
    client = Client(name, base_url="http://localhost:1/v1")
    made = prompt(system="s", adapt=ADAPT).inspect_sync(
        provider=client.name.partition("/")[0], model_id=client.name.partition("/")[2]
    )
    assert "for Claude" in made.system.text


@pytest.mark.parametrize("route", ["openrouter/", "openai/"])
def test_limits_prices_and_counting_are_those_of_the_model_behind_a_route(route: str) -> None:
    behind = "anthropic/claude-sonnet-4-5"
    assert facts(route + behind) == facts(behind)
    assert Budget.for_model(route + behind) == Budget.for_model(behind)
    assert (
        Profile.for_model(route + behind).image_formula == Profile.for_model(behind).image_formula
    )
    assert Counter.of(Profile.for_model(f"{route}openai/gpt-4o")).name == "o200k_base"


def test_behind_a_route_only_a_cache_that_needs_no_marks_is_counted_on() -> None:
    assert Profile.for_model("openrouter/anthropic/claude-sonnet-4-5").caching is None
    assert caching_for("openrouter/openai/gpt-4o") is not None


def test_openrouter_is_a_provider_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-router")
    client: Any = as_model("openrouter/anthropic/claude-sonnet-4-5", timeout=5)
    opened = client._open(False)
    assert opened.api_key == "sk-router"
    assert str(opened.base_url) == "https://openrouter.ai/api/v1/"


SUGGESTED = [
    ("gpt-4o", "openai/gpt-4o"),
    ("o3-mini", "openai/o3-mini"),
    ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
    ("gemini-2.5-pro", "google/gemini-2.5-pro"),
    ("gemini/gemini-2.5-pro", "google/gemini-2.5-pro"),
]


@pytest.mark.parametrize(("name", "wanted"), SUGGESTED)
def test_a_name_without_its_provider_is_answered_with_the_right_one(name: str, wanted: str) -> None:
    interfaces: list[Any] = [
        lambda: App("memory:", model=name),
        lambda: generate_sync("hi", model=name),
        lambda: as_model(name),
        lambda: App("memory:").conversation("c", model=name),
        lambda: asyncio.run(generator(model=name, prompt="p").run("hi", app=App("memory:"))),
    ]
    for interface in interfaces:
        with pytest.raises(UnknownModel) as caught:
            interface()
        assert repr(name) in str(caught.value)
        assert f"did you mean {wanted!r}?" in str(caught.value)


def test_the_loops_say_it_too() -> None:
    interfaces: list[Any] = [
        lambda: run_agent("gpt-4o", lambda said: said),  # type: ignore[arg-type,return-value]
        lambda: generate("hi", model="gpt-4o"),
    ]
    for interface in interfaces:
        with pytest.raises(UnknownModel, match="'gpt-4o' names no provider; did you mean 'openai/"):
            asyncio.run(interface())


def test_the_command_line_says_it_too() -> None:
    for command in (("chat", "--model", "gpt-4o"), ("doctor", "--model", "gpt-4o")):
        ended = run(*command)
        assert ended.returncode != 0
        assert "openai/gpt-4o" in " ".join((ended.stdout + ended.stderr).split())


def test_a_colon_is_answered_with_a_slash() -> None:
    for name, meant in (("openai:gpt-5", "openai/gpt-5"), ("google:my-own", "google/my-own")):
        with pytest.raises(UnknownModel, match=f"names no provider; did you mean '{meant}'"):
            as_model(name)
    with pytest.raises(UnknownModel, match="write provider/model, or 'openai/llama3:8b'"):
        as_model("llama3:8b")


def test_a_name_of_no_family_says_what_to_write() -> None:
    with pytest.raises(
        UnknownModel, match=r"'llama3' names no provider; .*'openai/llama3' with a base_url"
    ):
        as_model("llama3")
