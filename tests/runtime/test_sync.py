"""An app from code without an event loop: the same answers, in any thread, and a clean end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace

import pytest

from muntin import App
from muntin.errors import InvalidInput, StepLimit
from muntin.providers import Finished, TextDelta
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, said, statuses


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_conversation_goes_on_over_turns_and_tool_steps_in_plain_code(store_url):
    script = [call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4), "7", "Yes."]
    model = ScriptedModel(script)
    with App(store_url, model=model).sync() as app:
        chat = app.conversation("ada", tools=[add])
        assert chat.send("Add up.").text == "7"
        assert chat.send("Sure?").text == "Yes."
        assert said(chat.session.items.all())[:2] == ["Add up.", ""]
        assert statuses(app.app, "ada") == ["completed", "completed"]
    assert [message.role for message in model.windows[-1].messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant", "user")
    ]


def test_a_stream_yields_events_and_goes_no_further_than_it_is_read():
    with App("memory:", model=ScriptedModel(["one two three"])).sync() as app:
        events = app.conversation("ada").stream("Count.")
        assert next(events) == TextDelta("one ")
        assert statuses(app.app, "ada") == ["open"]
        *_, last = events
        assert isinstance(last, Finished)
        assert statuses(app.app, "ada") == ["completed"]


def test_a_stream_that_is_closed_early_ends_its_turn():
    with App("memory:", model=ScriptedModel(["one two three", "Fine."])).sync() as app:
        chat = app.conversation("ada")
        for _ in chat.stream("Count."):
            break
        assert chat.send("Again.").text == "Fine."
        assert statuses(app.app, "ada") == ["failed", "completed"]


def test_an_error_reaches_the_caller():
    model = ScriptedModel([call("add", f"c{n}", a=1, b=1) for n in range(3)])
    with App("memory:", model=model).sync() as app:
        with pytest.raises(StepLimit):
            app.conversation("ada", tools=[add], max_steps=2).send("Loop.")
        with pytest.raises(StepLimit):
            list(app.conversation("bob", tools=[add], max_steps=1).stream("Loop."))


def test_an_agent_of_an_entity_is_asked_from_plain_code(store_url):
    script = [call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4), "Ten."]
    app = App(store_url, model=ScriptedModel(script))

    @app.entity("clerk")
    async def clerk(ctx, wake):
        ctx.use_context(source_budget=1_000, sources={"rules": lambda: "Be brief."})
        ctx.use_agent(tools=[add])
        return await ctx.agent.run()

    with app.sync() as plain:
        reply = plain.ask("clerk/1", "Add up.")
        assert reply is not None
        assert reply.text == "Ten."
        timer = plain.wake("clerk/1", "Later.", after=3_600)
        assert [waiting.id for waiting in plain.timers("clerk/1")] == [timer.id]
        assert plain.drop_timer("clerk/1", timer.id)


def test_threads_share_one_app_and_each_user_gets_their_own_answer(tmp_path):
    def answer(window):
        return f"You said {window.messages[-1].text}"

    threads_before = set(threading.enumerate())
    with App(f"sqlite:///{tmp_path / 'm.db'}", model=ScriptedModel(answer)).sync() as app:

        def talk(name: str) -> list[str]:
            chat = app.conversation(name)
            return [chat.send(f"{name} {n}").text for n in range(3)]

        names = [f"user{n}" for n in range(16)]
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(talk, names))
    assert answers == [[f"You said {name} {n}" for n in range(3)] for name in names]
    started = set(threading.enumerate()) - threads_before
    assert "muntin-sync" not in {thread.name for thread in started}


def test_a_strategy_sees_the_context_variables_of_the_caller():
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen = []

    def on_context_build(ctx):
        seen.append(tenant.get())
        return [{"role": "user", "content": ctx.input.text}]

    strategy = SimpleNamespace(on_context_build=on_context_build)
    with App("memory:", model=ScriptedModel(["a", "b"])).sync() as app:
        chat = app.conversation("ada", strategy=strategy)
        tenant.set("acme")
        chat.send("one")
        list(chat.stream("two"))
    assert seen == ["acme", "acme"]


def test_inside_an_event_loop_the_error_says_to_use_the_app_itself():
    app = App("memory:", model=ScriptedModel(["Hi."])).sync()

    async def main() -> None:
        with pytest.raises(InvalidInput, match="use the App itself"):
            app.conversation("ada").send("Hi.")
        with pytest.raises(InvalidInput, match="use the App itself"):
            next(app.conversation("ada").stream("Hi."))

    asyncio.run(main())


def test_any_coroutine_runs_on_the_apps_loop():
    async def loop_thread() -> str:
        return threading.current_thread().name

    with App("memory:", model=ScriptedModel([])).sync() as app:
        assert app.run(loop_thread()) == "muntin-sync"


def test_a_coroutine_that_exits_reaches_the_caller_and_the_app_goes_on():
    async def leave() -> None:
        raise SystemExit(3)

    with App("memory:", model=ScriptedModel(["Fine."])).sync() as app:
        with pytest.raises(SystemExit):
            app.run(leave())
        assert app.conversation("ada").send("Hi.").text == "Fine."


def test_without_with_the_first_call_starts_the_app_and_close_ends_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    app = App(url, model=ScriptedModel(["One."])).sync()
    assert app.conversation("ada").send("Hi.").text == "One."
    assert app.close() == ()
    again = App(url, model=ScriptedModel(["Two."])).sync()
    assert again.conversation("ada").send("Hi.").text == "Two."
    again.close()


@pytest.mark.parametrize("used_before", [True, False])
def test_a_worker_forked_before_the_first_use_answers_and_one_forked_after_says_why_not(
    tmp_path, used_before
):
    program = tmp_path / "fork.py"
    program.write_text(
        "import os\n"
        "from muntin import App, MuntinError\n"
        "from muntin.testing import ScriptedModel\n"
        f"app = App('sqlite:///{tmp_path}/m.db', model=ScriptedModel(lambda w: 'Hi.')).sync()\n"
        f"if {used_before}: app.conversation('a').send('x')\n"
        "child = os.fork()\n"
        "try: print(app.conversation('b' if child else 'c').send('x').text, flush=True)\n"
        "except MuntinError as error: print(error, flush=True)\n"
        "if child: os.waitpid(child, 0)\n"
        "else: os._exit(0)\n"
    )
    out = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    if used_before:
        assert "Hi." in out
        assert "first use the app after the fork" in out
    else:
        assert out == "Hi.\nHi.\n"


def test_ctrl_c_cancels_the_answer_and_its_turn_is_marked_failed(tmp_path):
    program = tmp_path / "slow.py"
    program.write_text(
        "import asyncio, signal\n"
        "from muntin import App\n"
        "from muntin.testing import ScriptedModel\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "async def slow():\n"
        "    'Wait.'\n"
        "    print('waiting', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "from muntin import ToolCall\n"
        "calls = [ToolCall('c', 'slow', '{}')]\n"
        f"with App('sqlite:///{tmp_path}/m.db', model=ScriptedModel(calls)).sync() as app:\n"
        "    app.conversation('ada', tools=[slow]).send('Go.')\n"
    )
    process = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "never retrieved" not in errors
    app = App(f"sqlite:///{Path(tmp_path)}/m.db", model=ScriptedModel([]))
    assert statuses(app, "ada") == ["failed"]
    app.sync().close()
