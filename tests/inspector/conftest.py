"""A running inspector, a client that can send anything, and a browser."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import pytest

from muntin import Message, Slots, assistant, user
from muntin.core.window import Window
from muntin.inspector.plans import Plans
from muntin.inspector.server import address_of, listen, make_server, new_token
from muntin.timeline.receipts import report_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store
from tests import products
from tests.inspector import sample

T = TypeVar("T")

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
INSTALL = "sudo apt-get install -y chromium && pip install 'playwright>=1.50'"
# Quiet, and without the parts that need what a test machine has not.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Inspector:
    """A running inspector, and how to ask it."""

    port: int
    token: str
    address: str
    store: Any = field(repr=False)

    @property
    def cookie(self) -> str:
        return f"muntin-{self.port}={self.token}"

    def request(
        self, path: str, *, method: str = "GET", cookie: bool = True, **headers: str
    ) -> Answer:
        """Send a request exactly as it is given, and return the answer."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given.setdefault("Host", f"127.0.0.1:{self.port}")
        if cookie:
            given.setdefault("Cookie", self.cookie)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def ask(self, question: str, **query: Any) -> Any:
        """Ask the API something that must be answered."""
        answer = self.request(f"/api/{question}?{urlencode(query)}")
        assert answer.status == 200, answer.body[:500]
        return answer.json

    def link(self, session: str, rest: str = "") -> str:
        return f"{self.address}#/{quote(session, safe='')}{rest}"


@contextmanager
def inspecting(store: Store) -> Iterator[Inspector]:
    listening, token = listen(port=0), new_token()
    server = make_server(store, listening, token)
    server.config.timeout_graceful_shutdown = 30  # a page may ask to the last, of a slow machine
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        address = address_of(listening, token)
        yield Inspector(listening.getsockname()[1], token, address, store)
    finally:
        server.should_exit = True
        thread.join(timeout=40)
        listening.close()


def keep(store: Store, session: str, slots: Slots, *, step: int = 1) -> Window:
    """Keep the window of some slots as a new turn of a session."""
    (item,) = Session(session, store=store).append(user("asked"))
    window = slots.render()
    store.put(session, report_of(window, item.turn, step, 1_000_000))
    return window


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def past(count: int, size: int = 40) -> list[Message]:
    return [
        each
        for n in range(count)
        for each in (user(f"q{n} " + "x" * size), assistant(f"a{n} " + "y" * size))
    ]


def declare(budget: int, history: list[Message], docs: str = "d" * 100) -> Slots:
    slots = Slots(budget, tokenizer="chars/4")
    slots.add("system", "You are brief.", priority=9)
    slots.add("docs", docs, role="system", priority=2)
    slots.add("history", history, priority=1)
    slots.add("input", "what now?", priority=8)
    return slots


def apart(work: Callable[[], T]) -> T:
    """Do something in a thread of its own: Playwright may have an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.fixture(scope="session")
def sample_url(tmp_path_factory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('inspector') / 'sample.db'}"
    return apart(lambda: sample.build(url))


@pytest.fixture
def plans(sample_url):
    with open_store(sample_url, create=False) as store:
        yield Plans(store)


@pytest.fixture(scope="session")
def inspector(sample_url) -> Iterator[Inspector]:
    """The inspector of a realistic store."""
    with open_store(sample_url, create=False) as store, inspecting(store) as running:
        yield running


def missing(what: str) -> None:
    """Report browser tests as not run; where they are required, fail."""
    text = f"browser tests not run, {what}: {INSTALL}"
    if os.environ.get("CI") or os.environ.get("MUNTIN_REQUIRE_BROWSER"):
        pytest.fail(text)
    pytest.skip(text)


# No longer than the module: while it is there, its event loop runs, and no other can.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        missing("there is no Chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("there is no Playwright")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


# That both are readable is tested of the rules and of the colours.
@pytest.fixture(params=products.sample(["light", "dark"], "light"))
def scheme(request) -> str:
    return str(request.param)


@pytest.fixture
def problems() -> list[str]:
    """What went wrong in the page; a test takes out what it expects."""
    return []


@pytest.fixture
def page(browser, problems) -> Iterator[Any]:
    """A page in which every error, and every request to elsewhere, fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    opened = context.new_page()
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda told: problems.append(told.text) if told.type in ("error", "warning") else None,
    )
    opened.on("dialog", lambda dialog: (problems.append("a dialog"), dialog.dismiss()))
    opened.on(
        "request",
        lambda asked: (
            None
            if asked.url.startswith(("http://127.0.0.1:", "file:"))
            else problems.append(asked.url)
        ),
    )
    yield opened
    context.close()
    # The server of a test is gone before its page.
    assert [each for each in problems if "ERR_CONNECTION" not in each] == []


def until(page: Any, expression: str, argument: Any = None, *, within: float = 60) -> None:
    """Wait until something is true in the page; its policy allows no waiting inside of it."""
    deadline = time.monotonic() + within
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(50)


def picture(page: Any, name: str) -> None:
    """Keep a screenshot as an artefact."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")
