"""The page of errors: every class is on it, with a message that was really raised."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from muntin import (
    App,
    Message,
    Slots,
    ToolCall,
    assistant,
    errors,
    generate_sync,
    prompt_file,
)
from muntin.core.counting.exact import hf_tokenizer
from muntin.providers.assets import DirectoryAssets
from muntin.providers.names import as_model
from muntin.testing import ScriptedModel
from muntin.timeline.items import Claim, Draft, SideWrites
from muntin.timeline.store import open_store
from tests.docs.blocks import matches
from tests.paths import ROOT
from tests.providers.servers import Answer, serving

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
SECTIONS: dict[str, str] = dict(SECTION.findall(PAGE))
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.MuntinError)
}


class City(BaseModel):
    """A form of answers."""

    people: int


class Failing:
    """A strategy that fails."""

    def on_context_build(self, ctx: Any) -> None:
        raise KeyError("customer")


def slots(**options: Any) -> Slots:
    made = Slots(10, tokenizer=options.pop("tokenizer", None))
    made.add("rules", "Never promise a refund, whatever the user says to you.", **options)
    return made


def ask(model: Any, **options: Any) -> None:
    generate_sync("How many people live in Bonn?", model=model, **options)


def ask_server(status: int, body: object, **headers: str) -> None:
    with serving(Answer(status, body, headers=headers)) as server:
        model = as_model(
            "openai/gpt-5.2", base_url=f"{server.url}/v1", api_key="not-a-key", max_retries=0
        )
        ask(model)


def refusal(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def wrong_door() -> None:
    app = App("memory:", model=ScriptedModel([]))

    @app.entity("horton")
    async def horton(ctx: Any, wake: Any) -> None:
        ctx.slots.add("system", "You are Horton.")

    asyncio.run(app.ask("horton/1", "Hello?"))


def broken_file() -> None:
    Path("chat.md").write_text("---\nname: chat\n---\nHello {{ input.name \n", encoding="utf-8")
    prompt_file("chat.md")


def without_extra() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)
        hf_tokenizer("tokenizer.json")


def late_recorder() -> None:
    store = open_store("memory:")
    store.append("ada", [Draft("message", Message("user", "Hi"))])
    store.put("ada", SideWrites(seen={("recorder_steps", ""): "[1,{}]"}))


def lost_turn() -> None:
    store = open_store("memory:")
    store.append("ada", [Draft("message", assistant("Hi."), opens="turn")], claim=Claim("a"))
    store.append("ada", [Draft("message", assistant("Hi."), turn=1)], claim=Claim("b"))


def failing_strategy() -> None:
    app = App("memory:", model=ScriptedModel(["Hello."]))
    asyncio.run(app.conversation("ada", strategy=Failing()).send("Hi!"))


def late_write() -> None:
    app = App("memory:", model=ScriptedModel([]))
    left: list[Any] = []

    @app.entity("horton")
    async def horton(ctx: Any, wake: Any) -> None:
        left.append(ctx)

    asyncio.run(app.ask("horton/1", "Hello?"))
    left[0].insert_context("late", name="Late", content="too late")


def asks_itself() -> None:
    app = App("memory:", model=ScriptedModel([]))

    @app.entity("horton")
    async def horton(ctx: Any, wake: Any) -> None:
        await app.ask("horton/1", "Who am I?")

    asyncio.run(app.ask("horton/1", "Hello?"))


def slow_handler() -> None:
    app = App("memory:", model=ScriptedModel([]))

    @app.entity("horton", timeout=0.1)
    async def horton(ctx: Any, wake: Any) -> None:
        await asyncio.sleep(5)

    asyncio.run(app.ask("horton/1", "Hello?"))


def too_much() -> None:
    app = App("memory:", model=ScriptedModel([]))

    @app.entity("support", max_pending=1)
    async def support(ctx: Any, wake: Any) -> None:
        await asyncio.sleep(5)

    async def send() -> None:
        try:
            await asyncio.gather(*(app.send("support/1", "Hello?") for _ in range(3)))
        finally:
            await app.close(0.01)

    asyncio.run(send())


def endless_run() -> None:
    def look() -> str:
        """Look."""
        return "nothing"

    ask(ScriptedModel(lambda window: ToolCall("c1", "look", "{}")), tools=[look], max_steps=2)


def dear_request() -> None:
    model = ScriptedModel(["Hello."], name="openai/gpt-5.2")
    app = App("memory:", model=model, max_cost=0.001)
    asyncio.run(app.conversation("ada").send("Read this. " * 1_000))


PROVOKED: dict[str, Callable[[], object]] = {
    "MuntinError": wrong_door,
    "InvalidInput": lambda: slots(max_ratio=3),
    "InvalidType": lambda: Slots("many"),  # type: ignore[arg-type]
    "NeedsConversation": lambda: Message.from_dict(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
                {"type": "text", "text": "And tomorrow?"},
            ],
        }
    ),
    "UnknownModel": lambda: as_model("mistral/large"),
    "PromptFileError": broken_file,
    "TokenizerError": lambda: slots(tokenizer=lambda text: -1).render(),
    "MissingExtra": without_extra,
    "StoreError": lambda: open_store("sqlite:///no-such-folder/chat.db"),
    "TurnLost": lost_turn,
    "Overtaken": late_recorder,
    "TurnEnded": late_write,
    "Deadlock": asks_itself,
    "Overloaded": too_much,
    "TimedOut": slow_handler,
    "BudgetExceeded": lambda: slots(required=True).render().openai(),
    "StrategyError": failing_strategy,
    "CostLimit": dear_request,
    "StepLimit": endless_run,
    "OutputInvalid": lambda: ask(ScriptedModel(["Many.", "I said: many."]), output=City),
    "UnknownAsset": lambda: DirectoryAssets("assets").read("0" * 64),
    "AuthenticationFailed": lambda: ask_server(401, refusal("Incorrect API key provided.")),
    "RequestRefused": lambda: ask_server(404, refusal("The model `gpt-5.2` does not exist.")),
    "ContextTooLong": lambda: ask_server(
        400, refusal("Your input exceeds the context window.", "context_length_exceeded")
    ),
    "RateLimited": lambda: ask_server(429, refusal("Rate limit reached."), retry_after="20"),
    "ProviderUnavailable": lambda: ask_server(503, refusal("The server is overloaded.")),
    "BadResponse": lambda: ask_server(200, "<html>Welcome to the proxy</html>"),
}


def shown(name: str) -> list[str]:
    found = re.search(r"^```text\n(.*?)^```$", SECTIONS[name], re.MULTILINE | re.DOTALL)
    assert found, f"no message is shown for {name}"
    return found[1].splitlines()


def test_every_class_is_on_the_page_and_nothing_else():
    assert set(SECTIONS) == set(CLASSES)


@pytest.mark.parametrize("name", PROVOKED)
def test_the_message_on_the_page_is_the_one_that_is_raised(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CLASSES[name]) as raised:
        PROVOKED[name]()
    assert type(raised.value) is CLASSES[name]
    assert matches(str(raised.value).splitlines(), shown(name)), str(raised.value)


@pytest.mark.parametrize("name", CLASSES)
def test_every_section_says_what_to_do(name):
    assert "**What to do.**" in SECTIONS[name]


def test_what_is_not_provoked_is_only_the_root_of_the_providers():
    assert set(CLASSES) - set(PROVOKED) == {"ProviderError"}
