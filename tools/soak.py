"""The long tests: more examples, more kills, every framework. What came out is a table.

    python -m tools.soak [NAME ...] [--examples N] [--jobs N] [--write]

Runs each part in a process of its own, two at once, and goes on when one fails. What a part printed
is in `.env-soak/NAME.log`; the newest result of each part is kept beside it. `--write` puts the
table of them into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".env-soak"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- soak -->", "<!-- end of soak -->"
EXAMPLES = 500
_SUMMARY = re.compile(r"^=* ?(\d+ (?:passed|failed|skipped|error)[^\n]*) in [\d.]+s", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One long test: what it does in words, and the command that does it."""

    what: str
    command: Sequence[str]
    settings: Mapping[str, object] = field(default_factory=dict)
    before: Sequence[str] = ()
    """A command that prepares it."""


def suite(what: str, paths: str, workers: int = 0, **settings: object) -> Part:
    """Return a part that runs tests, with settings in the environment."""
    args = ("-n", str(workers), "--dist", "worksteal") if workers else ("-n", "0")
    return Part(what, ("-m", "pytest", "-rP", *args, *paths.split()), settings)


def parts(examples: int) -> dict[str, Part]:
    """Return all parts by their names, those that end soon first."""
    kills = "tests/faults/test_engine_kills.py tests/faults/test_timers_kills.py"
    turns = "tests/faults/test_attempts.py tests/faults/test_subruns.py"
    newest = ROOT / ".env-engine"
    pip = ("pip", "install", "--quiet", "--disable-pip-version-check")
    node = Path(os.environ.get("MUNTIN_NODE", Path.home() / ".cache" / "muntin-node"))
    return {
        "huge": suite(
            "one tool result of 200,000,000 characters",
            "tests/promises/test_strange_results.py -k huge",
            MUNTIN_HUGE=200_000_000,
        ),
        "loop": suite(
            "an agent is killed at 200 random moments of a run, and goes on",
            "tests/agent/test_loop.py",
            MUNTIN_KILLS=200,
        ),
        "processes": suite(
            "200 entities, 20 messages each, 4 processes, two of them killed",
            "tests/runtime/test_many_processes.py",
            MUNTIN_ENTITIES="200x20x4",
        ),
        "stores": suite(
            "stores: 50 kills of writers; 8 writers with 2,000 items each",
            "tests/reliability",
            MUNTIN_KILLS=50,
            MUNTIN_WRITERS="8x2000",
        ),
        "faults": suite(
            "the table below, with 10 restarts, 20 entities, 5 pauses, 10 wrong clocks, 50 forks, "
            "100,000 jobs that wait",
            "tests/faults --deselect " + " --deselect ".join((*kills.split(), *turns.split())),
            MUNTIN_FAULTS_RESTARTS=10,
            MUNTIN_FAULTS_ENTITIES=20,
            MUNTIN_FAULTS_PAUSES=5,
            MUNTIN_FAULTS_SKEWED=10,
            MUNTIN_FAULTS_FORKS=50,
            MUNTIN_FAULTS_WAITING=100_000,
        ),
        "engines": suite(
            "each engine, 50 kills, restarts, pauses; 3,000 timers with 20 kills",
            kills,
            MUNTIN_FAULTS=1,
        ),
        "turns": suite(
            "five agents of 150 steps beside a message that ends its process; a run of 60 steps "
            "killed every 2.5 s, on each engine; 50 deploys and 20 kills with runs inside of runs",
            turns,
            2,
            MUNTIN_FAULTS=1,
        ),
        "load": suite(
            "ten minutes of everything on each store, with kills and restarts, checked by SQL",
            "tests/faults/test_load.py",
            MUNTIN_FAULTS_LOAD=600,
        ),
        "newest": Part(
            "engines with the newest procrastinate, previews too",
            ("-m", "pytest", "-n", "0", "tests/runtime/engine", *kills.split()),
            {"PYTHONPATH": newest},
            (*pip, "--upgrade", "--pre", "--no-deps", "--target", str(newest), "procrastinate<4"),
        ),
        "gateway": suite(
            "the gateway: 16,000 odd bodies, 100 pairs that begin alike, 1,000 conversations with "
            "one opening, 60 over two gateways, 24 clients before a locked store",
            "tests/gateway",
            MUNTIN_GATEWAY_BODIES=16_000,
            MUNTIN_GATEWAY_PAIRS=100,
            MUNTIN_GATEWAY_CONVERSATIONS=1_000,
            MUNTIN_GATEWAY_TALKS=60,
            MUNTIN_GATEWAY_LOCKED=30,
        ),
        "node": Part(
            "OpenAI's client for Node through the gateway",
            ("-m", "pytest", "-n", "0", "-rs", "tests/gateway/test_node.py"),
            before=("npm", "install", "--silent", "--prefix", str(node), "openai"),
        ),
        "extras": suite(
            "each extra alone in an empty environment",
            "tests/packaging",
            MUNTIN_EXTRAS="all",
        ),
        "frameworks": Part(
            "the newest release of each framework", ("-m", "tools.integrations", "--fresh")
        ),
        "pages": Part(
            "each framework's page, where only what it says is installed",
            ("-m", "tools.pages", "--fresh"),
        ),
        "wire": suite(
            f"requests and answers of each provider, {examples // 2:,} random ones a property",
            "tests/wire/test_wire.py tests/wire/test_decode.py",
            2,
            MUNTIN_EXAMPLES=examples // 2,
            MUNTIN_SOAK=1,
        ),
        "windows": suite(
            f"windows of stored timelines, {examples // 7:,} random ones a property",
            "tests/timeline/test_windows.py",
            2,
            MUNTIN_EXAMPLES=examples // 7,
        ),
        "promises": suite(
            f"promises in every interface and model, {examples:,} random windows a property",
            "tests/promises tests/runtime tests/bench tests/inspector tests/test_telemetry.py",
            2,
            MUNTIN_EXAMPLES=examples,
            MUNTIN_SOAK=1,
        ),
        "planner": suite(
            f"properties of the planner, {examples:,} random windows a property",
            "tests/core",
            2,
            MUNTIN_EXAMPLES=examples,
        ),
    }


def run(name: str, part: Part) -> dict[str, object]:
    """Run a part, and return what is to be told of it."""
    print(f"{name}: {part.what} ...", flush=True)
    began, settings = monotonic(), {key: str(value) for key, value in part.settings.items()}
    log = FOLDER / f"{name}.log"
    with log.open("w", encoding="utf-8") as output:
        if part.before and (part.before[0] == "pip" or shutil.which(part.before[0])):
            before = [sys.executable, "-m"] if part.before[0] == "pip" else []
            subprocess.run([*before, *part.before], stdout=output, stderr=output, check=False)
        done = subprocess.run(
            [sys.executable, *part.command],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return {
        "what": part.what,
        "came": summed(log.read_text("utf-8", errors="replace")),
        "ok": done.returncode == 0,
        "seconds": round(monotonic() - began),
        "date": date.today().isoformat(),
    }


def summed(printed: str) -> str:
    """Return how many tests passed and failed, or how many pages ran, of what was printed."""
    told: Counter[str] = Counter()
    for summary in _SUMMARY.findall(printed):
        for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", summary):
            told[word] += int(number)
    for word in re.findall(r"^\S+\.md: (runs|FAILS)", printed, re.MULTILINE):
        told["pages run" if word == "runs" else "pages fail"] += 1
    return ", ".join(f"{number:,} {word}" for word, number in told.items()) or "nothing ran"


def table(results: Mapping[str, Mapping[str, object]]) -> str:
    """Return results as a table."""
    lines = [
        f"{os.cpu_count()} cores, CPython {platform.python_version()}. `make soak` makes this "
        "table again; `python -m tools.soak NAME` runs one part.",
        "",
        "| part | what | came out | took | when |",
        "|---|---|---|--:|---|",
    ]
    for name, each in results.items():
        seconds = each["seconds"]
        assert isinstance(seconds, int)
        came = each["came"] if each["ok"] else f"**failed**: {each['came']}"
        took = f"{seconds // 60}:{seconds % 60:02}"
        lines.append(f"| `{name}` | {each['what']} | {came} | {took} | {each['date']} |")
    return "\n".join(lines)


def written(page: str, made: str) -> str:
    """Return a page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main() -> int:
    """Run what was asked for, and print the table of all results there are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts to run, else all")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="random windows a property")
    parser.add_argument("--jobs", type=int, default=2, help="parts that run at once")
    parser.add_argument("--write", action="store_true", help="write the table into the docs")
    options = parser.parse_args()
    known = parts(options.examples)
    if wrong := [name for name in options.names if name not in known]:
        parser.error(f"there is no part {wrong[0]}; there are {', '.join(known)}")
    FOLDER.mkdir(exist_ok=True)
    kept = FOLDER / "results.json"
    results = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    failed = False
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        named = {pool.submit(run, name, known[name]): name for name in options.names or known}
        for done in as_completed(named):
            name, result = named[done], done.result()
            print(f"{name}: {result['came']} after {result['seconds']} s", flush=True)
            failed = failed or not result["ok"]
            results[name] = result
            kept.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    made = table({each: results[each] for each in known if each in results})
    print(f"\n{made}")
    if options.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), made), "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
