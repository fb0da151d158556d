"""An input of nothing is refused by name, and nothing is recorded; an attachment alone is
something."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import App, Attachment, InvalidInput, flow, generator
from muntin.runtime import Action, Ctx
from muntin.testing import MemoryStore, ScriptedModel
from tests.products import PRICED
from tests.runtime.conftest import run, texts

BLANK = ["", " ", "\n\t ", "\u00a0\u2003"]
PICTURE = Attachment("f1", "a.png", 10, "image")


class Interfaces:
    """One app with an entity, and the interfaces that take an input."""

    def __init__(self) -> None:
        self.model = ScriptedModel(lambda window: "ok", name=PRICED)
        self.app = App(MemoryStore(), model=self.model)
        self.chat = self.app.conversation("s")
        self.made = generator(name="g", prompt="p", user=lambda given: given)
        self.asked = generator(name="g", prompt="p", user=lambda given: given["text"])
        self.desk = flow("desk", actions={"ask": Action(self.made)})
        self.told = flow(
            "desk", actions={"ask": Action(self.made, user_message=lambda given: given["text"])}
        )

        @self.app.entity("e")
        async def handler(ctx: Ctx, wake: object) -> None:
            ctx.use_agent()
            await ctx.agent.run()

    async def send(self, text: str) -> None:
        await self.app.send("e/1", text)

    async def ask(self, text: str) -> None:
        await self.app.ask("e/1", text)

    async def wake(self, text: str) -> None:
        await self.app.wake("e/1", text)

    async def conversation_send(self, text: str) -> None:
        await self.chat.send(text)

    async def conversation_stream(self, text: str) -> None:
        async for _ in self.chat.stream(text):
            pass

    async def generator_run(self, text: str) -> None:
        await self.made.run(text, app=self.app, session="s")

    async def generator_stream(self, text: str) -> None:
        async for _ in self.made.stream(text, app=self.app, session="s"):
            pass

    async def generator_window(self, text: str) -> None:
        await self.made.window(text, app=self.app, session="s")

    async def generator_user(self, text: str) -> None:
        await self.asked.run({"text": text}, app=self.app, session="s")

    async def flow_run(self, text: str) -> None:
        await self.desk.run("ask", text, app=self.app, session="s")

    async def flow_stream(self, text: str) -> None:
        async for _ in self.desk.stream("ask", text, app=self.app, session="s"):
            pass

    async def flow_user_message(self, text: str) -> None:
        await self.told.run("ask", {"text": text}, app=self.app, session="s")


NAMES = {
    "send": "payload",
    "ask": "payload",
    "wake": "payload",
    "conversation_send": "text",
    "conversation_stream": "text",
    "generator_run": "generator 'g': the input",
    "generator_stream": "generator 'g': the input",
    "generator_window": "generator 'g': the input",
    "generator_user": "generator 'g': user",
    "flow_run": "action 'ask' of flow 'desk': the input",
    "flow_stream": "action 'ask' of flow 'desk': the input",
    "flow_user_message": "user_message of action 'ask' of flow 'desk'",
}


@pytest.mark.parametrize("blank", BLANK)
@pytest.mark.parametrize(("interface", "name"), NAMES.items())
def test_nothing_is_refused_by_name_and_nothing_is_recorded(interface, name, blank):
    async def work() -> None:
        interfaces = Interfaces()
        with pytest.raises(InvalidInput) as caught:
            await getattr(interfaces, interface)(blank)
        assert str(caught.value).startswith(f"{name} is blank")
        await interfaces.app.close()
        assert interfaces.model.windows == []
        assert [item.kind for item in interfaces.app.store.read("e/1")] == []
        said = [item for item in interfaces.app.store.read("s") if item.message is not None]
        assert said == []

    run(work())


@pytest.mark.parametrize("interface", NAMES)
def test_a_text_is_something(interface):
    async def work() -> None:
        interfaces = Interfaces()
        if interface == "flow_user_message":
            interfaces.told = flow(
                "desk",
                actions={
                    "ask": Action(generator(prompt="p"), user_message=lambda given: given["text"])
                },
            )
        await getattr(interfaces, interface)(" x ")
        await interfaces.app.close()

    run(work())


@pytest.mark.parametrize("blank", BLANK)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_attachment_alone_is_something(blank, streaming):
    async def work() -> None:
        interfaces = Interfaces()
        if streaming:
            async for _ in interfaces.chat.stream(blank, attachments=[PICTURE]):
                pass
        else:
            await interfaces.chat.send(blank, attachments=[PICTURE])
        (window,) = interfaces.model.windows
        assert window.messages[-1].attachments == (PICTURE,)

    run(work())


@pytest.mark.parametrize("payload", [0, False, [], {}, {"text": ""}])
def test_a_payload_that_is_no_text_is_something(payload: Any):
    async def work() -> None:
        interfaces = Interfaces()
        await interfaces.app.ask("e/1", payload)
        await interfaces.app.close()
        assert len(interfaces.model.windows) == 1

    run(work())


def test_a_worker_that_says_nothing_of_its_own_is_asked_what_the_turn_was_asked():
    async def work() -> None:
        model = ScriptedModel(["ok"], name=PRICED)
        worker = generator(model=model, prompt="p", user=lambda: "")
        desk = flow("f", actions={"do": Action(worker, user_message=lambda given: given)})
        await desk.run("do", "hello")
        assert texts(model.windows[0]) == ["p", "hello"]

    run(work())
