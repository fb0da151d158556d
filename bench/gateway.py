"""The gateway: what it adds to a request, beside the provider itself and a plain proxy.

    python bench/gateway.py [--short] [--out FILE]

A provider that answers at once, a proxy that only passes bytes on, and the gateway, each in a
process of its own, on the same server and the same HTTP client. Conversations with tools grow by a
turn a request around 200 messages, which do not fit; each request goes all three ways, in turns.
What the gateway does meanwhile for the record is in its figures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx2
import uvicorn

from bench.measure import Figure, run
from muntin.gateway.server import listen
from muntin.gateway.upstream import Upstream, pass_back

BUDGET = 8_000
# So many requests of each conversation are measured.
ROUNDS = 10
WORDS = "The quick brown fox jumps over the lazy dog and runs. "
ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
)


async def provider(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


class Proxy:
    """Passes everything on, with the gateway's own means and nothing else."""

    def __init__(self, url: str) -> None:
        self._upstream = Upstream(url, seconds=60)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one request on."""
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
        response = await self._upstream.open(
            scope["method"], scope["raw_path"], scope["headers"], body
        )
        try:
            await pass_back(response, send, [], lambda _: None, _nothing)
        finally:
            await response.aclose()


async def _nothing() -> None:
    """Have nothing to wait for."""


def serve(kind: str, url: str = "") -> None:
    """Be a process of the benchmark."""
    app: Any = provider if kind == "provider" else Proxy(url)
    with listen("127.0.0.1", 0) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(
            app, log_level="error", lifespan="off", access_log=False, http="h11"
        )
        uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def process(*command: str) -> Iterator[str]:
    """Run a process that first says where it listens."""
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        try:
            assert started.stdout is not None
            yield started.stdout.readline().strip()
        finally:
            started.kill()


def requests(messages: int, count: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield requests of about so many messages: those of a conversation grow by a turn.

    Each comes with whether it is the first of its conversation.
    """
    for conversation in range(-(-count // ROUNDS)):
        said: list[dict[str, Any]] = [{"role": "system", "content": "You are brief. " * 20}]
        turns = messages // 4 - ROUNDS // 2
        for number in range(turns + ROUNDS):
            said += turn(conversation, number)
            if number >= turns:
                yield number == turns, {"model": "gpt-4o", "messages": said[:-1]}


def turn(conversation: int, number: int) -> list[dict[str, Any]]:
    """Return the messages of a turn, the last of them the answer to the results."""
    function = {"name": "look", "arguments": f'{{"page": {number}}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "user", "content": f"Question {conversation}.{number}: {WORDS}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {WORDS * 20}"},
        {"role": "assistant", "content": f"Answer {number}: {WORDS * 3}"},
    ]


def seconds(client: httpx2.Client, url: str, body: dict[str, Any]) -> float:
    """Send a request, and return how long it took."""
    began = time.perf_counter()
    client.post(f"{url}/v1/chat/completions", json=body).raise_for_status()
    return time.perf_counter() - began


def _more(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Say how much longer the same requests took."""
    added = [1000 * (one - other) for one, other in zip(ours, theirs, strict=True)]
    last = quantiles(added, n=20)[-1]
    return f"{median(added):.1f} ms more at the median, {last:.1f} ms at the 95th percentile"


def measure(short: bool) -> Iterator[Figure]:
    """Measure the gateway beside the proxy."""
    here = str(Path(__file__))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        client = stack.enter_context(httpx2.Client(timeout=60))
        upstream = stack.enter_context(process(here, "--serve", "provider"))
        proxy = stack.enter_context(process(here, "--serve", "proxy", upstream))
        gateway = stack.enter_context(
            process(
                *("-m", "muntin", "gateway", "--port", "0", "--upstream", upstream),
                *("--budget", str(BUDGET), "--store", f"sqlite:///{folder}/gate.db"),
            )
        )
        for messages in (50, 200) if short else (50, 200, 1_000):
            urls = {"direct": upstream, "a plain proxy": proxy, "gateway": gateway}
            took: dict[str, list[float]] = {name: [] for name in urls}
            for first, body in requests(messages, 10 if short else 100):
                each = {name: seconds(client, url, body) for name, url in urls.items()}
                for name in () if first else urls:
                    took[name].append(each[name])
            for peer in ("direct", "a plain proxy"):
                yield Figure(
                    work=f"a request of {messages} messages, through the gateway",
                    peer=peer,
                    ours=median(took["gateway"]),
                    theirs=median(took[peer]),
                    note=_more(took["gateway"], took[peer]),
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        run(__doc__, measure)
