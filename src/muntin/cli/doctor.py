"""`muntin doctor`: what is installed, what works, and what to do about the rest.

Owns the checks. Shows no key, and sends nothing to any provider.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Annotated, Any, Literal

import typer

from muntin import __version__
from muntin.cli.options import store_option
from muntin.cli.terminal import console, failing, print_json, progress, safe
from muntin.core.counting.counter import as_tokenizer
from muntin.errors import InvalidInput, MissingExtra, MuntinError, StoreError
from muntin.providers.sdks import APIS, find_api
from muntin.runtime.engine.jobs import state_of
from muntin.runtime.engine.protocol import SILENT_SECONDS
from muntin.timeline.store import DEFAULT_URL, Store, open_store

# The purpose of each extra.
PURPOSES = {
    "prices": "context windows and prices by a model's name",
    "prompts": "prompts, prompt files, tools as functions",
    "cli": "this command",
    "hf": "Hugging Face tokenizers from a file",
    "tokens": "exact counts for OpenAI models",
    "postgres": "sessions in PostgreSQL",
    "engine": "wakes in workers, on any number of machines",
    "inspector": "the inspector",
    "openai": "models of OpenAI and compatible servers",
    "anthropic": "models of Anthropic",
    "google": "models of Google",
    "otel": "spans and metrics in OpenTelemetry",
    "mcp": "serving a session to an agent in another program",
    "gateway": "a server in front of a provider",
    "langchain": "agents of LangChain",
    "langgraph": "graphs of LangGraph",
    "pydantic-ai": "agents of Pydantic AI",
    "openai-agents": "agents of the OpenAI Agents SDK",
    "agent-framework": "agents of Microsoft Agent Framework",
    "litellm": "calls of LiteLLM",
    "google-adk": "agents of Google's Agent Development Kit",
    "strands": "agents of Strands",
    "haystack": "agents of Haystack",
    "llama-index": "memories and agents of LlamaIndex",
}
# `all` and `dev` consist of the others.
_BUNDLES = ("all", "dev")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# At most this many turns that were given up are listed.
_MOST_TOLD = 20

State = Literal["ok", "missing", "broken"]
_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "missing": ("-", "dim"),
    "broken": ("broken", "bold red"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `missing` was not asked for; `broken` must be repaired."""

    group: str
    name: str
    state: State
    detail: str


@failing()
def doctor(
    store: Annotated[
        str | None, store_option("A store that must be reachable: a file or an address.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A model that must be usable; repeatable."),
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An extra that must be installed; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is installed, what works, and what to do.

    The exit code is 1 when something is broken, or something asked for is missing.
    """
    with progress("looking"):
        checks = [
            *_extras(extra or ()),
            *_tokenizers(),
            *_store(store),
            *_providers(model or ()),
            _browser(),
        ]
    fine = all(check.state != "broken" for check in checks)
    if as_json:
        found = [asdict(check) for check in checks]
        print_json({**_versions(), "ok": fine, "checks": found})
    else:
        _show(checks, fine)
    if not fine:
        raise typer.Exit(1)


def _versions() -> dict[str, str]:
    return {
        "muntin": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }


# Extras.


def _extras(wanted: Iterable[str]) -> Iterator[Check]:
    needs = _needs()
    for name in wanted:
        if name not in needs:
            known = ", ".join(sorted(needs)) or "none, for Muntin runs without being installed"
            raise InvalidInput(f"there is no extra {name!r}; known are: {known}")
    for name in sorted(needs):
        if name in wanted or name not in _BUNDLES:
            yield _extra(name, needs, asked=name in wanted)


def _extra(name: str, needs: dict[str, list[str]], *, asked: bool) -> Check:
    lacking, found = [], []
    for package, least in _packages(name, needs):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            lacking.append(package)
            continue
        if _number(version) < _number(least):
            return Check(
                "extras",
                name,
                "broken",
                f"{package} {version} is too old: pip install -U 'muntin[{name}]'",
            )
        found.append(f"{package} {version}")
    if not lacking:
        return Check("extras", name, "ok", ", ".join(found))
    what = f"for {PURPOSES[name]}: " if name in PURPOSES else ""
    state: State = "broken" if asked else "missing"
    return Check("extras", name, state, f"{what}pip install 'muntin[{name}]'")


# The form of a package's metadata: `typer>=0.16; extra == "cli"`, `muntin[prompts]; extra == …`.
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^]]*)\])?\s*(?:>=\s*(?P<least>[\w.]+))?"
)
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def _needs() -> dict[str, list[str]]:
    """Return the requirements of each extra, by the metadata of the installed package."""
    try:
        package = metadata.distribution("muntin")
    except metadata.PackageNotFoundError:
        return {}
    needs: dict[str, list[str]] = {
        name: [] for name in package.metadata.get_all("Provides-Extra") or ()
    }
    for line in package.requires or ():
        requirement, _, marker = line.partition(";")
        for name in _EXTRA.findall(marker):
            needs[name].append(requirement.strip())
    return needs


def _packages(extra: str, needs: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the packages of an extra and of the extras within it, with their least versions."""
    for line in needs[extra]:
        found = _REQUIREMENT.match(line)
        assert found is not None  # a requirement begins with a name
        if found["name"] == "muntin":
            for inner in found["extras"].split(","):
                yield from _packages(inner.strip(), needs)
        else:
            yield found["name"], found["least"] or "0"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


# Tokenizers, the store, providers, the browser.


def _tokenizers() -> Iterator[Check]:
    for name in ("estimate", "chars/4", "o200k_base", "cl100k_base"):
        try:
            as_tokenizer(name).count("one two three")
        except MissingExtra as error:
            yield Check("tokenizers", name, "missing", str(error))
        except MuntinError as error:
            yield Check("tokenizers", name, "broken", str(error))
        else:
            yield Check("tokenizers", name, "ok", "offline")


def _store(url: str | None) -> Iterator[Check]:
    """Open the named store, or look whether the default store exists."""
    asked = url is not None
    try:
        with open_store(url or DEFAULT_URL, create=False) as store:
            version = _schema(store)
            more = store.sessions(limit=1_000)
            count = f"{len(more):,}" if len(more) < 1_000 else "1,000 or more"
            yield Check("store", store.name, "ok", f"{version}sessions: {count}")
            yield from _wakes(store)
            for session, turn in store.gave_up(limit=_MOST_TOLD):
                detail = f"turn {turn} was given up; try it again by hand: "
                yield Check("gave up", session, "broken", f"{detail}Session.try_again({turn})")
    except StoreError as error:
        usual = not asked and not os.path.exists(DEFAULT_URL.removeprefix("sqlite:///"))
        if usual:
            yield Check("store", DEFAULT_URL, "missing", "not there yet; it appears when used")
        else:
            yield Check("store", _address(url), "broken", str(error))
    except MissingExtra as error:
        yield Check("store", _address(url), "broken" if asked else "missing", str(error))
    except MuntinError as error:
        yield Check("store", _address(url), "broken", str(error))


def _wakes(store: Store) -> Iterator[Check]:
    """Say how much waits, runs and failed, since when, and which workers live."""
    state = state_of(store)
    since = "" if state.since is None else f", the oldest since {_ago(state.since)}"
    failed = f", failed for good: {state.failed:,}" if state.failed else ""
    said = f"waiting: {state.waiting:,}{since}; running: {state.running:,}{failed}"
    yield Check("wakes", "turns", "ok", said)
    for worker in state.workers:
        heard = f"heard {_ago(worker.heard)}, running {worker.running:,}"
        alive = datetime.now(UTC) - worker.heard < timedelta(seconds=SILENT_SECONDS)
        yield Check("wakes", worker.name, "ok" if alive else "missing", heard)


def _ago(time: datetime) -> str:
    seconds = max(0, round((datetime.now(UTC) - time).total_seconds()))
    return f"{timedelta(seconds=seconds)} ago"


def _address(url: str | None) -> str:
    """Return an address without a possible password."""
    return re.sub(r"//[^@/]*@", "//***@", url or DEFAULT_URL)


def _schema(store: Any) -> str:
    version = getattr(store, "version", None)
    return "" if version is None else f"version {version} of the tables, "


def _providers(models: Iterable[str]) -> Iterator[Check]:
    """Look for keys in the environment, and check the models that were asked for."""
    seen = {api.provider: api for api in APIS.values()}
    for api in seen.values():
        held = [name for name in api.keys if os.environ.get(name)]
        elsewhere = f"; {api.address} leads elsewhere" if os.environ.get(api.address) else ""
        said = f"{held[0]} is set" if held else f"{api.keys[0]} is not set"
        yield Check("keys", api.provider, "ok" if held else "missing", said + elsewhere)
    for name in models:
        yield _model(name)


def _model(name: str) -> Check:
    try:
        api, _ = find_api(name, None)
        api.load()
        keyless = not any(os.environ.get(each) for each in api.keys)
        if keyless and not api.elsewhere(None):
            return Check("models", name, "broken", f"no key: set {api.keys[0]}")
    except MuntinError as error:
        return Check("models", name, "broken", str(error))
    return Check("models", name, "ok", "can be asked (nothing was sent)")


def _browser() -> Check:
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found:
        return Check("tests", "chromium", "ok", found)
    return Check("tests", "chromium", "missing", "for the browser tests: apt-get install chromium")


def _show(checks: list[Check], fine: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    versions = _versions()
    out = console()
    out.print(safe(f"muntin {versions['muntin']}, Python {versions['python']}"), style="bold")
    out.print(safe(versions["platform"]))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    group = None
    for check in checks:
        if check.group != group:
            group = check.group
            table.add_row(Text(f"\n{group}", "bold"))
        mark, style = _MARKS[check.state]
        table.add_row(Text(f"  {mark}", style), safe(check.name), safe(check.detail))
    out.print(table)
    out.print("\nall fine" if fine else "\nsomething is broken; see above")
