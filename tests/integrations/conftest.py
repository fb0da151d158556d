"""The tests of an adapter run where its framework is installed: `make integrations`."""

from __future__ import annotations

import os

import pytest

from tools.integrations import has

# What each adapter imports.
FRAMEWORKS = {
    "agent_framework": "agent_framework",
    "langchain": "langchain",
    "langgraph": "langgraph",
    "litellm": "litellm",
    "google_adk": "google.adk",
    "strands": "strands",
    "haystack": "haystack",
    "llama_index": "llama_index.core",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
}
INSTALLED = [name for name, module in FRAMEWORKS.items() if has(module)]
collect_ignore = [f"test_{name}.py" for name in FRAMEWORKS if name not in INSTALLED]
collect_ignore += [] if INSTALLED else ["test_pages.py"]
collect_ignore += [] if has("fastapi") else ["test_fastapi.py"]
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The script, played in one process with the framework of the module."""
    from tests.integrations.contract import play

    name = request.module.__name__.rpartition("test_")[2]
    return play(name, tmp_path_factory.mktemp(name))
