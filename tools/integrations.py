"""Muntin in other people's frameworks: an environment for each, with its newest release.

    python -m tools.integrations [NAME ...] [--fresh] [--only-prepare]

Frameworks cannot all be installed together, so each has an environment in `.env-integrations`, with
Muntin in it. Its tests and its page of the docs are run there. `--fresh` makes the environments
again, so that they have the newest releases of today.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".env-integrations"
# What the tests themselves need. Each framework brings a client of OpenAI; some ask for an older
# one than Muntin.
TESTS = ("pytest>=8.3", "hypothesis>=6.100", "anthropic>=2")


@dataclass(frozen=True)
class Environment:
    """What is installed together, and the adapters that are tested with it."""

    extras: tuple[str, ...]
    install: tuple[str, ...]
    """What an app has beside the framework: its clients, its stores."""
    adapters: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Tests beside those of adapters."""


ENVIRONMENTS: dict[str, Environment] = {
    "langchain": Environment(
        ("langchain", "langgraph"),
        ("langchain-openai", "langchain-anthropic", "langgraph-checkpoint-sqlite"),
        ("langchain", "langgraph"),
    ),
    "pydantic_ai": Environment(
        ("pydantic-ai",), ("pydantic-ai-slim[openai,anthropic]",), ("pydantic_ai",)
    ),
    "openai_agents": Environment(("openai-agents",), (), ("openai_agents",)),
    "agent_framework": Environment(
        ("agent-framework",), ("agent-framework-openai",), ("agent_framework",)
    ),
    # It asks for mcp once there are tools.
    "litellm": Environment(("litellm",), ("mcp",), ("litellm",)),
    # It speaks to other models than Google's through LiteLLM.
    "google_adk": Environment(("google-adk",), ("litellm", "mcp"), ("google_adk",)),
    "strands": Environment(("strands",), ("strands-agents[openai]",), ("strands",)),
    "haystack": Environment(("haystack",), (), ("haystack",)),
    # Its SimpleChatStore cannot be written with pydantic 2.14.
    "llama_index": Environment(
        ("llama-index",), ("llama-index-llms-openai", "pydantic<2.14"), ("llama_index",)
    ),
    # No adapter: the server of a page of the docs.
    "fastapi": Environment((), ("fastapi", "uvicorn"), (), also=("fastapi",)),
}


def has(module: str) -> bool:
    """Say whether a module is installed here."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is in
        return False


def python(name: str) -> Path:
    """Return the interpreter of an environment."""
    return FOLDER / name / "bin" / "python"


def wanted(name: str) -> list[str]:
    """Return what pip is asked to install."""
    given = ENVIRONMENTS[name]
    return [
        "-e",
        f".[{','.join(('tokens', 'prices', *given.extras))}]",
        *given.install,
        *TESTS,
    ]


def install(name: str, asked: Sequence[str], *, fresh: bool = False) -> bool:
    """Make an environment; False if it is there already, with all that is asked of it."""
    ready = FOLDER / name / ".ready"
    if not fresh and ready.exists() and json.loads(ready.read_text("utf-8")) == [*asked]:
        return False
    print(f"Setting up {FOLDER.name}/{name} (once) ...", file=sys.stderr)
    venv.create(FOLDER / name, with_pip=True, clear=True)
    pip(name, asked)
    ready.write_text(json.dumps([*asked]), encoding="utf-8")
    return True


def pip(name: str, asked: Sequence[str]) -> None:
    """Install something into an environment that is there."""
    command = [str(python(name)), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*command, *asked], cwd=ROOT, check=True)


def tests(name: str) -> list[str]:
    """Return what is run in an environment: the tests of its adapters, and their pages."""
    given = ENVIRONMENTS[name]
    asked = [*given.adapters, *given.also, *["pages"] * bool(given.adapters)]
    return [f"tests/integrations/test_{each}.py" for each in asked]


def run(name: str) -> bool:
    """Run the tests of an environment, and say whether all passed."""
    print(f"== {name}", file=sys.stderr)
    started = monotonic()
    command = [str(python(name)), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests(name)]
    passed = subprocess.run(command, cwd=ROOT).returncode == 0
    print(f"== {name}: {monotonic() - started:.0f} s", file=sys.stderr)
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the environments that are named, or all, and run their tests."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.integrations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    parser.add_argument("--fresh", action="store_true", help="make the environments again")
    parser.add_argument("--only-prepare", action="store_true", help="run no tests")
    given = parser.parse_args(arguments)
    names = given.names or list(ENVIRONMENTS)
    if unknown := [name for name in names if name not in ENVIRONMENTS]:
        parser.error(
            f"no environment is called {unknown[0]!r}; there are {', '.join(ENVIRONMENTS)}"
        )
    for name in names:
        install(name, wanted(name), fresh=given.fresh)
    failed = [] if given.only_prepare else [name for name in names if not run(name)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
