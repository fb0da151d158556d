"""The pages of frameworks, each run where nothing but what it says to install is installed.

    python -m tools.pages [NAME ...] [--fresh]

An empty environment for each page, in `.env-integrations`: the `pip install` of its first line,
with this source in the place of the released package, and then its example, against a model on this
machine. Names are those of the adapters.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import monotonic

from bench.frameworks.speak import Said, speaking
from tests.docs.blocks import blocks
from tools import integrations

PAGES = integrations.ROOT / "docs" / "howto" / "frameworks"
NAMES = tuple(name for place in integrations.ENVIRONMENTS.values() for name in place.adapters)
_INSTALL = re.compile(r"`pip install ([^`]+)`")


def page_of(name: str) -> Path:
    """Return the page of an adapter."""
    return PAGES / f"{name.replace('_', '-')}.md"


def asked(name: str) -> list[str]:
    """Return what the page of an adapter says to install, with this source as Muntin."""
    match = _INSTALL.search(page_of(name).read_text("utf-8"))
    if match is None:
        raise SystemExit(f"{page_of(name).name} does not say what to install")
    return [each.replace("muntin[", ".[") for each in shlex.split(match[1])]


def example(name: str) -> tuple[str, str]:
    """Return the code of a page, and what it prints."""
    code, printed = "", ""
    for (language, text), (behind, told) in pairwise([*blocks(page_of(name)), ("", "")]):
        if language == "python":
            code += text
            printed += told if behind == "text" else ""
    return code, printed


def run(name: str) -> str | None:
    """Run the example of a page, and return what is wrong with it, None if it prints what it
    says."""
    code, expected = example(name)
    with (
        tempfile.TemporaryDirectory() as folder,
        speaking(lambda *_: Said("Hello, world")) as server,
    ):
        file = Path(folder) / "page.py"
        file.write_text(code, encoding="utf-8")
        told = {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "OPENAI_API_BASE": f"{server.url}/v1",  # as LlamaIndex calls it
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        done = subprocess.run(
            [integrations.python(f"page-{name}"), "-I", file],  # nothing of the caller's
            cwd=folder,
            env={**os.environ, **told},
            capture_output=True,
            encoding="utf-8",
        )
    if done.returncode:
        return done.stderr[-2_000:]
    return None if done.stdout == expected else f"it printed {done.stdout!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--fresh", action="store_true", help="make the environments again")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no adapter is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    failed = []
    for name in given.names or NAMES:
        started = monotonic()
        if not integrations.install(f"page-{name}", asked(name), fresh=given.fresh):
            # The source may have changed since the environment was made.
            integrations.pip(f"page-{name}", ["--no-deps", "--force-reinstall", "."])
        wrong = run(name)
        told = "runs" if wrong is None else f"FAILS: {wrong}"
        print(f"{page_of(name).name}: {told} ({monotonic() - started:.0f} s)", flush=True)
        failed += [name] * (wrong is not None)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
