"""The pages of the frameworks that are installed here: their examples print what they say."""

from __future__ import annotations

import pytest

from bench.frameworks.speak import Said, speaking
from tests.docs.blocks import run_page
from tests.integrations.conftest import INSTALLED
from tests.paths import ROOT

FOLDER = ROOT / "docs" / "howto" / "frameworks"


@pytest.mark.parametrize("name", INSTALLED)
def test_the_example_of_a_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with speaking(lambda api, request: Said("Hello, world")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")  # as LlamaIndex calls it
        monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
        run_page(FOLDER / f"{name.replace('_', '-')}.md", tmp_path, {})
