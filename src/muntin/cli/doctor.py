"""`muntin doctor`: what is installed, what works, and what to do about the rest.

Owns the checks. Shows no key, and sends nothing to any provider.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Annotated, Any, Literal

import typer

from muntin import __version__
from muntin.cli.options import AsJson, store_option
from muntin.cli.terminal import console, failing, plain_table, print_json, progress, safe
from muntin.core.counting.counter import as_tokenizer
from muntin.core.model_facts import ModelFact, Source, facts_of
from muntin.core.model_name import ModelName
from muntin.core.profile import Profile
from muntin.errors import InvalidInput, MissingExtra, MuntinError, StoreError, UnknownModel
from muntin.providers.names import facts
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
_GAVE_UP = 20

State = Literal["ok", "missing", "broken"]
_MARKS = {"ok": ("ok", "green"), "missing": ("-", "dim"), "broken": ("broken", "bold red")}


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
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Print what is known of a model, and since when; repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is installed, what works, and what to do.

    The exit code is 1 when something is broken, or something asked for is missing.
    """
    if models:
        _print_models(models, as_json)
        return
    with progress("looking"):
        checks = [
            *_extras(extra or ()),
            *_tokenizers(),
            *_store(store),
            *_providers(model or ()),
            _browser(),
        ]
    ok = all(check.state != "broken" for check in checks)
    if as_json:
        versions = {
            "muntin": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(terse=True),
        }
        print_json({**versions, "ok": ok, "checks": list(map(asdict, checks))})
    else:
        _show(checks, ok)
    if not ok:
        raise typer.Exit(1)


# Extras.


def _extras(wanted: Iterable[str]) -> Iterator[Check]:
    needs = _needs()
    for name in wanted:
        if name not in needs:
            extras = ", ".join(sorted(needs)) or "none, for Muntin runs without being installed"
            raise InvalidInput(f"there is no extra {name!r}; known are: {extras}")
    for name in sorted(needs):
        if name in wanted or name not in _BUNDLES:
            yield _extra(name, needs, is_required=name in wanted)


def _extra(name: str, needs: dict[str, list[str]], *, is_required: bool) -> Check:
    is_missing, versions = False, []
    for package, least in _packages(name, needs):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            is_missing = True
            continue
        if _number(version) < _number(least):
            advice = f"is too old: pip install -U 'muntin[{name}]'"
            return Check("extras", name, "broken", f"{package} {version} {advice}")
        versions.append(f"{package} {version}")
    if not is_missing:
        return Check("extras", name, "ok", ", ".join(versions))
    purpose = f"for {PURPOSES[name]}: " if name in PURPOSES else ""
    state: State = "broken" if is_required else "missing"
    return Check("extras", name, state, f"{purpose}pip install 'muntin[{name}]'")


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
        requirement = _REQUIREMENT.match(line)
        assert requirement is not None  # a requirement begins with a name
        if requirement["name"] == "muntin":
            for inner in requirement["extras"].split(","):
                yield from _packages(inner.strip(), needs)
        else:
            yield requirement["name"], requirement["least"] or "0"


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
    address = re.sub(r"//[^@/]*@", "//***@", url or DEFAULT_URL)  # without a password
    try:
        with open_store(url or DEFAULT_URL, create=False) as store:
            version = getattr(store, "version", None)
            tables = "" if version is None else f"version {version} of the tables, "
            sessions = len(store.sessions(limit=1_000))
            count = f"{sessions:,}" if sessions < 1_000 else "1,000 or more"
            yield Check("store", store.name, "ok", f"{tables}sessions: {count}")
            yield from _wakes(store)
            for info in store.sessions(gave_up=True, limit=_GAVE_UP):
                for turn in reversed(store.turns(info.id, status="failed")):
                    if turn.reason != "gave_up":
                        continue
                    detail = f"turn {turn.number} was given up; try it again by hand: "
                    advice = f"{detail}muntin sessions retry {info.id} --turn {turn.number}"
                    yield Check("gave up", info.id, "broken", advice)
    except MuntinError as error:
        state: State = "missing" if url is None and isinstance(error, MissingExtra) else "broken"
        is_default = url is None and isinstance(error, StoreError)
        if is_default and not os.path.exists(DEFAULT_URL.removeprefix("sqlite:///")):
            yield Check("store", DEFAULT_URL, "missing", "not there yet; it appears when used")
        else:
            yield Check("store", address, state, str(error))


def _wakes(store: Store) -> Iterator[Check]:
    """Say how much waits, runs and failed, since when, and which workers live."""
    state = state_of(store)
    now = datetime.now(UTC)

    def ago(time: datetime) -> str:
        return f"{timedelta(seconds=max(0, round((now - time).total_seconds())))} ago"

    since = "" if state.since is None else f", the oldest since {ago(state.since)}"
    failed = f", failed for good: {state.failed:,}" if state.failed else ""
    turns = f"waiting: {state.waiting:,}{since}; running: {state.running:,}{failed}"
    yield Check("wakes", "turns", "ok", turns)
    for worker in state.workers:
        is_alive = now - worker.heard < timedelta(seconds=SILENT_SECONDS)
        detail = f"heard {ago(worker.heard)}, running {worker.running:,}"
        yield Check("wakes", worker.name, "ok" if is_alive else "missing", detail)


def _providers(models: Iterable[str]) -> Iterator[Check]:
    """Look for keys in the environment, and check the models that were asked for."""
    for api in {api.provider: api for api in APIS.values()}.values():
        keys = [name for name in api.keys if os.environ.get(name)]
        elsewhere = f"; {api.address} leads elsewhere" if os.environ.get(api.address) else ""
        detail = f"{keys[0]} is set" if keys else f"{api.keys[0]} is not set"
        yield Check("keys", api.provider, "ok" if keys else "missing", detail + elsewhere)
    for name in models:
        try:
            api, _ = find_api(name, None)
            api.load()
        except MuntinError as error:
            yield Check("models", name, "broken", str(error))
            continue
        if any(map(os.environ.get, api.keys)) or api.elsewhere(None):
            yield Check("models", name, "ok", "can be asked (nothing was sent)")
        else:
            yield Check("models", name, "broken", f"no key: set {api.keys[0]}")


def _browser() -> Check:
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path:
        return Check("tests", "chromium", "ok", path)
    return Check("tests", "chromium", "missing", "for the browser tests: apt-get install chromium")


def _show(checks: list[Check], ok: bool) -> None:
    from rich.text import Text

    out = console()
    python = platform.python_version()
    out.print(safe(f"muntin {__version__}, Python {python}"), style="bold")
    out.print(safe(platform.platform(terse=True)))
    table = plain_table(header=False)
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
    out.print("\nall fine" if ok else "\nsomething is broken; see above")


def _print_models(names: Iterable[str], as_json: bool) -> None:
    """Print the facts about models, each with its source and its date."""
    known = {name: _known_of(name) for name in names}
    if as_json:
        rows = {
            name: [
                {"fact": fact.name, "value": _plain(fact.value), **fact.source._asdict()}
                for fact in found
            ]
            for name, found in known.items()
        }
        print_json({"models": rows})
        return
    for name, found in known.items():
        table = plain_table()
        for title in (safe(name), "value", "source", "since"):
            table.add_column(title)
        for fact in found:
            value = _plain(fact.value)
            if isinstance(value, dict):
                value = ", ".join(f"{key} {part}" for key, part in value.items())
            table.add_row(fact.name, safe(str(value)), safe(fact.source.address), fact.source.since)
        if not found:
            table.add_row("nothing is known")
        console().print(table)


def _known_of(name: str) -> list[ModelFact]:
    """Return the facts of a model's profile, its window and its prices."""
    profile = Profile.of(name)
    if profile is None:
        raise InvalidInput(
            f"the provider of model {name!r} is not known; write provider/model, as in "
            "'openai/gpt-4o'"
        )
    named = ModelName.parse(profile.name)
    found = facts_of(profile, named.maker)
    try:
        listing = asdict(facts(profile.name))
    except (MissingExtra, UnknownModel):
        return found
    version = metadata.version("genai-prices")
    source = Source(f"genai-prices {version}", "the release of the package")
    prices = {key: str(value) for key, value in listing.items() if value is not None}
    return [*found, ModelFact("window and prices", prices, source)]


def _plain(value: object) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
