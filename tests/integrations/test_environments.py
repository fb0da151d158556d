"""Every adapter has an extra, an environment, tests, a page and a place in the benchmark."""

from __future__ import annotations

import tomllib

import pytest

from bench.frameworks.stage import played
from muntin.fitting import Fitted, Fitter
from muntin.integrations.shared import Hook, Schemas, model_name
from muntin.wire.lists import pieces_of
from tests.integrations.conftest import FRAMEWORKS
from tests.packaging.promises import FRAMEWORKS as EXTRAS
from tests.paths import ROOT
from tools import integrations, pages

SOURCE = ROOT / "src" / "muntin" / "integrations"
EXTRA = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_adapter_has_all_that_belongs_to_it(name):
    spelled = name.replace("_", "-")
    assert (SOURCE / f"{name}.py").exists()
    assert (ROOT / "tests" / "integrations" / f"test_{name}.py").exists()
    assert (ROOT / "docs" / "howto" / "frameworks" / f"{spelled}.md").exists()
    assert (ROOT / "bench" / "frameworks" / f"{name}.py").exists()
    assert len(EXTRA[spelled]) == 1
    assert "<" not in EXTRA[spelled][0]  # only a floor
    (environment,) = [e for e in integrations.ENVIRONMENTS.values() if name in e.adapters]
    assert spelled in environment.extras
    assert f"pip install 'muntin[{spelled}]'" in (SOURCE / f"{name}.py").read_text("utf-8")


def test_the_extras_of_frameworks_are_not_in_all():
    assert {name.replace("_", "-") for name in FRAMEWORKS} == set(EXTRAS)
    assert not set(EXTRAS) & set(EXTRA["all"][0].partition("[")[2].rstrip("]").split(","))


def test_the_play_is_the_one_that_the_table_names():
    script = played()
    assert (len(script.turns), script.requests, len(script.names)) == (60, 178, 14)


def test_an_unknown_environment_is_named(capsys):
    with pytest.raises(SystemExit):
        integrations.main(["nothing"])
    assert "'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_page_says_what_to_install_and_shows_an_example_that_prints(name):
    asked = pages.asked(name)
    assert asked[0] == f".[{name.replace('_', '-')}]"
    code, printed = pages.example(name)
    assert f"muntin.integrations.{name}" in code
    assert printed.startswith("Hello, world\n")


def test_an_unknown_page_is_named(capsys):
    with pytest.raises(SystemExit):
        pages.main(["nothing"])
    assert "'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("provider", "name", "known"),
    [
        ("langchain_openai", "gpt-5", "openai/gpt-5"),
        ("google-gla", "gemini-3-pro", "google/gemini-3-pro"),
        ("anthropic", None, None),
        ("somebody", "gpt-5", None),
    ],
)
def test_the_name_of_a_model_is_taken_where_its_maker_is_known(provider, name, known):
    assert model_name(provider, name) == known


def test_schemas_are_made_once_for_as_long_as_the_tools_are_the_same():
    made: list[object] = []

    def make(tool: object) -> dict[str, str]:
        made.append(tool)
        return {"name": str(tool)}

    schemas = Schemas(make)
    tools = [object(), object()]
    assert schemas.of(tools) is schemas.of(list(tools))
    assert schemas.of(tools[:1]) == [{"name": str(tools[0])}]
    assert len(made) == 3


class Named(Hook):
    """A hook of a framework whose models are their names, and whose tools are theirs."""

    described = 0

    @staticmethod
    def schema(tool: str) -> dict[str, object]:
        Named.described += 1
        return {"type": "function", "function": {"name": tool, "parameters": {}}}

    @staticmethod
    def name_of(model: str) -> str:
        return model


@pytest.mark.parametrize(
    ("hook", "tokenizer"),
    [
        (Hook(500), "estimate"),
        (Named(500), "o200k_base"),
        (Named(Fitter(500, model="openai/gpt-4")), "cl100k_base"),
        (Named(Fitter(500), model="openai/gpt-4"), "cl100k_base"),
        (Named(Fitter(500, model="openai/gpt-4"), model="openai/gpt-5"), "o200k_base"),
    ],
)
def test_a_hook_goes_by_its_model_then_its_fitters_then_the_requests(hook, tokenizer):
    fitted = hook.fit(pieces_of([{"role": "user", "content": "Hi"}]), [], "openai/gpt-4o")
    assert fitted.window.report.tokenizer == tokenizer


def test_a_hook_tells_what_it_fitted():
    told: list[Fitted] = []
    fitted = Hook(500, on_fit=told.append).fit(pieces_of([{"role": "user", "content": "Hi"}]), [])
    assert told == [fitted]


def test_a_hook_describes_its_tools_once():
    hook, tools = Named(500), ["look"]
    Named.described = 0
    for _ in range(3):
        fitted = hook.fit(pieces_of([{"role": "user", "content": "Hi"}]), tools)
    assert Named.described == 1
    assert fitted.window.tools[0]["function"]["name"] == "look"


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_adapter_leaves_that_to_its_hook(name):
    source = (SOURCE / f"{name}.py").read_text("utf-8")
    assert "(Hook" in source
    for own in ("fitter_of(", "_fitter.fit(", "_on_fit("):
        assert own not in source
