"""Who may ask the inspector, and that nothing asked of it writes, runs or leaks."""

from __future__ import annotations

import hashlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from muntin import Slots, user
from muntin.errors import InvalidInput
from muntin.inspector.server import check_loopback, listen, make_app, new_token
from muntin.timeline.store import Store, open_store
from muntin.timeline.store.memory import MemoryStore
from tests.inspector import hostile
from tests.inspector.conftest import inspecting, keep
from tests.inspector.sample import LONG
from tests.products import sample

WHICH: dict[str, Any] = {"session": LONG, "turn": 5}
QUESTIONS: dict[str, dict[str, Any]] = {
    "sessions": {},
    "turns": {"session": LONG},
    "window": WHICH,
    "messages": WHICH,
    "plan": {**WHICH, "budget": 3_000},
    "survival": {**WHICH, "slot": 1},
    "difference": {**WHICH, "other_turn": 4},
    "shares": {"session": LONG},
    "usage": {"session": LONG},
    "search": {"session": LONG, "query": "words"},
    "find": {"query": "words"},
}
QUESTIONED = [f"/api/{name}?{urlencode(query)}" for name, query in QUESTIONS.items()]
# That each asks for the token is tested of all.
SOME = sample(["/", "/static/app.js", *QUESTIONED])
METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get")


def paths() -> list[str]:
    """Return every path the application answers."""
    app = make_app(MemoryStore(), token="t", port=1)
    return [route.path for route in app.routes]  # type: ignore[attr-defined]


def test_every_question_of_the_api_is_in_these_tests():
    assert {path for path in paths() if path.startswith("/api/")} == {
        f"/api/{name}" for name in QUESTIONS
    }


# The token.


@pytest.mark.parametrize("path", [*paths(), *QUESTIONED])
def test_nothing_is_readable_without_the_token(inspector, path):
    for method in ("GET", "HEAD"):
        answer = inspector.request(path, method=method, cookie=False)
        assert answer.status == 401
        assert LONG.encode() not in answer.body
        assert len(answer.body) < 300
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", SOME)
@pytest.mark.parametrize(
    "wrong", ["", "x", "{token}x", "{short}", "{upper}", "{token} ; other={token}", "é", '"\\""']
)
def test_a_wrong_token_is_as_good_as_none(inspector, path, wrong):
    token = inspector.token
    given = wrong.format(token=token, short=token[:-1], upper=token.swapcase())
    if "other" in wrong:
        given = f"x; other={token}"
    cookie = f"muntin-{inspector.port}={given}".encode().decode("latin-1")
    assert inspector.request(path, Cookie=cookie).status == 401
    asked = f"/?token={quote(given)}"
    assert inspector.request(asked, cookie=False).status == 401


def test_the_token_of_another_start_is_wrong(inspector):
    with inspecting(MemoryStore()) as other:
        assert other.token != inspector.token
        answer = other.request("/", Cookie=f"muntin-{other.port}={inspector.token}")
        assert answer.status == 401


def test_tokens_are_long_and_never_the_same():
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) >= 43 for each in made)


def test_the_address_logs_in_with_a_cookie_that_no_script_and_no_other_site_has(inspector):
    answer = inspector.request(f"/?token={inspector.token}", cookie=False)
    assert answer.status == 200
    parts = answer.headers["set-cookie"].split("; ")
    assert parts[0] == inspector.cookie
    assert set(parts[1:]) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert inspector.token.encode() not in answer.body


@pytest.mark.parametrize("path", ["/static/app.js", "/api/sessions"])
def test_the_token_in_an_address_opens_the_page_and_nothing_else(inspector, path):
    answer = inspector.request(f"{path}?token={inspector.token}", cookie=False)
    assert answer.status == 401


def test_no_answer_holds_the_token(inspector):
    for path in [*paths(), *QUESTIONED]:
        answer = inspector.request(path)
        assert inspector.token.encode() not in answer.body
        assert inspector.token not in json.dumps(answer.headers)


# Names and origins.


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost.evil.example:{port}",
        "127.0.0.1.nip.io:{port}",
        "127.0.0.1",
        "127.0.0.1:{port}.evil.example",
        "127.0.0.1:1",
        "0.0.0.0:{port}",
        "[::]:{port}",
        "127.0.0.2:{port}",
        "user@127.0.0.1:{port}",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/?token={token}", "/api/sessions"])
def test_other_host_names_are_refused_even_with_the_token(inspector, host, path):
    given = host.format(port=inspector.port)
    answer = inspector.request(path.format(token=inspector.token), Host=given)
    assert answer.status in (400, 421)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"])
def test_the_names_of_this_machine_are_answered(inspector, host):
    assert inspector.request("/", Host=host.format(port=inspector.port)).status == 200


def raw(port: int, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(text.encode("latin-1"))
        found = b""
        while piece := connection.recv(65_536):
            found += piece
        return found


def test_a_request_with_two_hosts_or_none_is_refused(inspector):
    good, end = f"Host: 127.0.0.1:{inspector.port}\r\n", "Connection: close\r\n\r\n"
    cookie = f"Cookie: {inspector.cookie}\r\n"
    for lines in ("", good + "Host: evil.example\r\n"):
        answer = raw(inspector.port, f"GET / HTTP/1.1\r\n{lines}{cookie}{end}")
        assert answer.split()[1] in (b"400", b"421")
    answer = raw(
        inspector.port, f"GET http://evil.example/api/sessions HTTP/1.1\r\n{good}{cookie}{end}"
    )
    assert answer.split()[1] != b"200" or LONG.encode() not in answer


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:1",
        "http://127.0.0.1",
        "http://localhost:{port}.evil.example",
        "null",
        "file://",
    ],
)
@pytest.mark.parametrize("path", SOME)
def test_other_origins_are_refused_even_with_the_token(inspector, origin, path):
    answer = inspector.request(path, Origin=origin.format(port=inspector.port))
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_pages_own_origin_is_answered(inspector):
    own = f"http://127.0.0.1:{inspector.port}"
    assert inspector.request("/api/sessions", Origin=own).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_page_loads_is_refused_but_a_link_may_be_followed(inspector, site):
    headers = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
    for path in ("/", "/static/app.js", "/api/sessions"):
        assert inspector.request(path, **headers).status == 403
    headers["Sec_Fetch_Mode"] = "navigate"
    assert inspector.request("/api/sessions", **headers).status == 403
    link = f"/?token={inspector.token}"
    assert inspector.request(link, cookie=False, **headers).status == 200


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.10", "10.0.0.1", "example.com", "", "127.0.0.1.evil"]
)
def test_it_listens_on_this_machine_only(host):
    with pytest.raises(InvalidInput, match="this machine only"):
        listen(host, 0)


def test_loopback_addresses_are_taken():
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        check_loopback(host)
    with listen(port=0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


# Reading only.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", SOME)
def test_every_method_but_reading_is_refused(inspector, method, path):
    answer = inspector.request(path, method=method)
    assert answer.status in (400, 405)  # 400: no method at all
    if answer.status == 405:
        assert answer.headers["allow"] == "GET, HEAD"


def test_head_is_answered_like_get_without_the_body(inspector):
    for path in ("/", *QUESTIONED):
        answer = inspector.request(path, method="HEAD")
        assert (answer.status, answer.body) == (200, b"")


class OnlyReading:
    """A store that has nothing but what the inspector may ask."""

    def __init__(self, store: Store) -> None:
        names = ("sessions", "turns", "reports", "content", "read")
        for name in names:
            setattr(self, name, getattr(store, name))
        self.name = store.name


def test_the_inspector_asks_a_store_for_nothing_but_reading(sample_url):
    with open_store(sample_url, create=False) as store:
        only: Store = OnlyReading(store)  # type: ignore[assignment]
        with inspecting(only) as running:
            for path in QUESTIONED:
                assert running.request(path).status == 200


def test_the_file_of_a_store_is_the_same_before_and_after(inspector, sample_url):
    def state() -> list[str]:
        file = Path(sample_url.removeprefix("sqlite:///"))
        both = [file, file.with_name(f"{file.name}-wal")]
        return [hashlib.sha256(each.read_bytes()).hexdigest() for each in both if each.exists()]

    before = state()
    for path in QUESTIONED:
        assert inspector.request(path).status == 200
    assert state() == before


# Paths.


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/../../errors.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/%2e%2e%2f%2e%2e%2ferrors.py",
        "/static/..%5cserver.py",
        "/static/....//server.py",
        "/static/%252e%252e/server.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/app.js%00.css",
        "/static/app.js/",
        "/static/",
        "/static",
        "/api/",
        "/api",
        "//etc/passwd",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/server.py",
        "/static/__init__.py",
        "/favicon.ico",
        "/docs",
        "/openapi.json",
    ],
)
def test_no_path_leads_to_a_file_that_is_not_the_pages(inspector, path):
    answer = inspector.request(path)
    assert answer.status in (400, 404)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


@pytest.mark.parametrize(
    "session",
    ["../../etc/passwd", "..%2f..%2fetc", "'; DROP TABLE items; --", "x" * 501, "\x00", ""],
)
def test_a_session_id_is_never_a_path_nor_a_statement(inspector, session):
    for name in ("turns", "window", "messages", "shares"):
        query = urlencode({"session": session, "turn": 1})
        answer = inspector.request(f"/api/{name}?{query}")
        assert answer.status in (200, 400)
        assert answer.status == 400 or answer.json["windows"] == []
    assert LONG in {each["id"] for each in inspector.ask("sessions")["sessions"]}


@pytest.mark.parametrize(
    "query",
    [
        {"turn": "-1"},
        {"turn": "1e9"},
        {"turn": "९"},
        {"turn": "9" * 50},
        {"turn": "NaN"},
        {"turn": "5", "step": "x"},
        {"turn": "5", "budget": "-5"},
        {"turn": "5", "budget": "999999999999"},
        {"turn": "5", "slot": "99", "other_turn": "x"},
        {},
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_a_sentence(inspector, query):
    for name in ("plan", "survival", "difference"):
        answer = inspector.request(f"/api/{name}?{urlencode({'session': LONG, **query})}")
        assert answer.status == 400
        assert 10 < len(answer.json["error"]) < 500
        assert b"Traceback" not in answer.body


# Headers.


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/sessions", "/nowhere"])
@pytest.mark.parametrize("cookie", [True, False])
def test_every_answer_forbids_what_the_page_does_not_need(inspector, path, cookie):
    headers = inspector.request(path, cookie=cookie).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    for kind in ("script-src", "style-src", "img-src", "connect-src"):
        assert policy[kind] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers


def test_the_page_loads_nothing_from_elsewhere_and_has_no_script_of_its_own(inspector):
    body = inspector.request("/").body.decode()
    assert "http://" not in body
    assert "https://" not in body
    assert "style=" not in body
    assert body.count("<script") == body.count('<script type="module" src="static/app.js">') == 1


# Content.


def test_hostile_content_is_answered_as_json_and_nothing_else():
    store = MemoryStore()
    hostile.fill(store)
    with inspecting(store) as running:
        session = hostile.SESSION
        assert running.ask("sessions")["sessions"][0]["id"] == session
        for turn in (1, 2, 3):
            which = {"session": session, "turn": turn}
            for name, more in (
                ("window", {}),
                ("messages", {}),
                ("plan", {"budget": 4_000}),
                ("survival", {"slot": 0}),
                ("difference", {"other_turn": 1}),
            ):
                answer = running.request(f"/api/{name}?{urlencode({**which, **more})}")
                assert answer.status == 200
                assert answer.headers["content-type"] == "application/json"
                assert answer.body.isascii()


@pytest.mark.parametrize("trim", ["message", "char"])
def test_a_message_of_50_megabytes_is_served_bounded_with_a_note(trim):
    store = MemoryStore()
    slots = Slots(8_000, tokenizer="chars/4")
    slots.add("system", "Be brief.")
    slots.add("document", "<b>lorem</b> " * 4_000_000, trim_behavior=trim, keep="head")
    slots.add("history", [user("hello"), user("<i>" * 17_000_000)], priority=1, trim_behavior=trim)
    slots.add("input", "what does it say?")
    kept = keep(store, "big", slots)
    with inspecting(store) as running:
        which = {"session": "big", "turn": 1}
        told = running.request(f"/api/window?{urlencode(which)}")
        assert len(told.body) < 20_000
        assert told.json["report"] == json.loads(json.dumps(kept.report.to_dict()))
        lines = running.request(f"/api/messages?{urlencode(which)}")
        assert len(lines.body) < 200_000
        hidden = [p["hidden"] for line in lines.json["lines"] for p in line["pieces"]]
        assert max(hidden) > 50_000_000
        more = running.request(f"/api/messages?{urlencode({**which, 'longest': 10**9})}")
        assert len(more.body) < 3_000_000
        refused = running.request(f"/api/plan?{urlencode({**which, 'budget': 9_000})}")
        assert refused.status == 400
        assert "too long to be planned again" in refused.json["error"]
        assert running.ask("turns", session="big")["windows"][0]["tokens"] == kept.tokens


def test_200_clients_at_once_all_get_their_own_answer(inspector):
    single = {path: inspector.request(path).body for path in QUESTIONED}

    def client(number: int) -> bool:
        path = QUESTIONED[number % len(QUESTIONED)]
        if number % 10 == 9:
            return bool(inspector.request(path, cookie=False).status == 401)
        answer = inspector.request(path)
        return bool(answer.status == 200 and answer.body == single[path])

    with ThreadPoolExecutor(200) as pool:
        assert all(pool.map(client, range(400)))


def test_a_socket_that_wants_to_be_a_websocket_is_not_one(inspector):
    answer = inspector.request(
        "/", Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Key="x", cookie=False
    )
    assert answer.status == 401
