"""What each extra promises, to be run where the package is installed: `promises.py EXTRA`.

With `--without` every promise of the extra must fail, and say what to install. It imports only
the standard library and Muntin, and nothing here may leave this machine.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from muntin import App, Budget, Session, Slots, Window, user
from muntin.agent.tools import tool_schema
from muntin.core.counting.exact import hf_tokenizer, openai_tokenizer
from muntin.errors import MissingExtra, StoreError
from muntin.prompts.files import prompt_file
from muntin.providers.client import Client
from muntin.providers.names import context_window
from muntin.timeline.store import open_store

sys.path.append(str(Path(__file__).parents[2]))

from tests.providers.servers import PROTOCOLS, Answer, serving

MUNTIN = Path(sys.executable).with_name("muntin")
PROMPT = "---\nname: chat\n---\n<system>You work for {{ input.shop }}.</system>\n"
WORDS: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "window": 1}, "unk_token": "[UNK]"},
}


def stay_here(event: str, args: tuple[Any, ...]) -> None:
    """Refuse to leave this machine."""
    if event in ("socket.connect", "socket.getaddrinfo"):
        host = args[0] if event.endswith("info") else args[1]
        host = host[0] if isinstance(host, tuple) else host
        if host not in ("127.0.0.1", b"127.0.0.1", "localhost") and "/" not in str(host):
            raise ConnectionError(f"{event}: {args}")


def command(*args: str) -> str:
    """Return what the installed command prints."""
    ended = subprocess.run([MUNTIN, *args], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise MissingExtra(ended.stderr)
    return ended.stdout


def window() -> Window:
    """Return a small window."""
    slots = Slots(1_000)
    slots.add("input", "Greet the world.")
    return slots.render()


# The promises.


def limits_of_models() -> None:
    assert context_window("openai/gpt-4o") == 128_000
    assert Budget.for_model("openai/gpt-4o") == Budget(128_000)


def prompt_files() -> None:
    Path("chat.md").write_text(PROMPT)
    assert prompt_file("chat.md").render({"shop": "a shop"}).system == "You work for a shop."


def functions_as_tools() -> None:
    def find_orders(numbers: list[int]) -> str:
        """Find orders."""
        return str(numbers)

    parameters = tool_schema(find_orders)["function"]["parameters"]
    assert parameters["properties"]["numbers"]["items"]["type"] == "integer"


def counts_from_a_file() -> None:
    Path("tokenizer.json").write_text(json.dumps(WORDS))
    assert hf_tokenizer("tokenizer.json").count("a window window") == 3


def exact_counts() -> None:
    assert openai_tokenizer("o200k_base").count("Hello, world!") == 4
    assert openai_tokenizer("cl100k_base").count("Hello, world!") == 4


def sessions_in_a_file() -> None:
    with open_store("sqlite:///kept.db") as store:
        Session("ada", store=store).append(user("Remember me."))
    with open_store("sqlite:///kept.db") as store:
        (item,) = Session("ada", store=store).items.all()
    assert item.message == user("Remember me.")


def sessions_on_a_server() -> None:
    refused = ""
    try:
        open_store("postgresql://nobody@127.0.0.1:1/nothing")
    except StoreError as error:
        refused = str(error)
    assert "127.0.0.1:1" in refused, refused


def wakes_in_workers() -> None:
    app = App("postgresql://nobody@127.0.0.1:1/nothing", engine="procrastinate")
    refused = ""
    try:
        asyncio.run(app.resume())
    except StoreError as error:
        refused = str(error)
    assert "127.0.0.1:1" in refused, refused


def model_of(name: str) -> Callable[[], None]:
    """Return the promise that a model answers which speaks one of the protocols."""

    def promise() -> None:
        protocol = PROTOCOLS[name]
        with serving(Answer(body=protocol.body)) as server:
            model = Client(
                protocol.model,
                api=protocol.api,
                base_url=server.url + protocol.base,
                api_key="none",
                max_retries=0,
            )
            assert model.complete_sync(window()).text == "Hello, world"
        assert "Greet the world." in str(server.received[0].body)

    promise.__name__ = name
    return promise


def commands() -> None:
    assert command("--version").startswith("muntin 0.")
    assert "tokens" in command("demo")
    assert json.loads(command("doctor", "--extra", "cli", "--json"))["ok"] is True


def command_with_prompts_sessions_and_counts() -> None:
    Path("chat.md").write_text(PROMPT)
    assert "You work for a shop." in command("render", "chat.md", "--input", "shop=a shop")
    assert "o200k_base" in command("count", "chat.md", "--model", "openai/gpt-4o")
    sessions_in_a_file()
    assert "ada" in command("sessions", "list", "--store", "sqlite:///kept.db")


def the_inspector() -> None:
    with open_store("sqlite:///kept.db") as store:
        Session("ada", store=store).append(user("Remember me."))
    asked = [str(MUNTIN), "inspect", "--store", "sqlite:///kept.db", "--port", "0", "--json"]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        line = run.stdout.readline()
        if not line:
            raise MissingExtra(run.stderr.read())
        with urlopen(json.loads(line)["url"]) as answer:
            page = answer.read().decode()
        run.terminate()
    assert "<script" in page


def calls_that_are_told_of() -> None:
    import opentelemetry.metrics
    import opentelemetry.trace

    from muntin.testing import MemoryStore, ScriptedModel

    seen: list[str] = []

    class Tracer(opentelemetry.trace.NoOpTracer):
        def start_span(self, name: str, *args: Any, **options: Any) -> Any:
            seen.append(name)
            return super().start_span(name, *args, **options)

    class Provider(opentelemetry.trace.TracerProvider):
        def get_tracer(self, *args: Any, **options: Any) -> Any:
            return Tracer()

    opentelemetry.trace.set_tracer_provider(Provider())
    model = ScriptedModel(["Hello."], name="openai/gpt-4o")
    asyncio.run(App(MemoryStore()).conversation("c", model=model).send("Hi"))
    assert [name for name in seen if "store" not in name] == [
        "turn",
        "step",
        "compose_context gpt-4o",
        "chat gpt-4o",
    ]


def a_session_for_another_agent() -> None:
    from muntin.mcp import mcp_server

    with open_store("sqlite:///kept.db") as store:
        Session("ada", store=store).append(user("Remember me."))
        assert mcp_server(store, "ada").name == "muntin"


def adapter(name: str) -> Callable[[], None]:
    """Return the promise that an adapter is there with its framework."""

    def promise() -> None:
        assert import_module(f"muntin.integrations.{name}").__all__

    promise.__name__ = name
    return promise


# Extras that bring a framework, which `all` does not.
FRAMEWORKS = (
    "agent-framework",
    "google-adk",
    "haystack",
    "langchain",
    "langgraph",
    "litellm",
    "llama-index",
    "openai-agents",
    "pydantic-ai",
    "strands",
)


def a_server_before_a_provider() -> None:
    from muntin.gateway.server import check_installed

    check_installed()


PROMISES: dict[str, tuple[Callable[[], None], ...]] = {
    "prices": (limits_of_models,),
    "prompts": (prompt_files, functions_as_tools),
    "cli": (commands, command_with_prompts_sessions_and_counts),
    "hf": (counts_from_a_file,),
    "tokens": (exact_counts,),
    "postgres": (sessions_on_a_server,),
    "engine": (wakes_in_workers,),
    "openai": (model_of("chat"), model_of("responses")),
    "anthropic": (model_of("messages"),),
    "google": (model_of("generate_content"),),
    "inspector": (the_inspector,),
    "otel": (calls_that_are_told_of,),
    "mcp": (a_session_for_another_agent,),
    "gateway": (a_server_before_a_provider,),
}
PROMISES["all"] = tuple(promise for promises in PROMISES.values() for promise in promises)
PROMISES |= {name: (adapter(name.replace("-", "_")),) for name in FRAMEWORKS}


def holds(promise: Callable[[], None]) -> str:
    """Run a promise."""
    promise()
    return "holds"


def without(promise: Callable[[], None]) -> str:
    """Return the error of a promise whose extra is not there."""
    try:
        promise()
    except MissingExtra as error:
        return str(error).strip()
    raise AssertionError(f"{promise.__name__} needs nothing")


def main(extra: str, *options: str) -> None:
    """Run what an extra promises, each in an empty folder."""
    sys.addaudithook(stay_here)
    run = without if "--without" in options else holds
    for promise in PROMISES[extra]:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            print(promise.__name__, run(promise), sep=": ", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
