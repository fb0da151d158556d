"""Processes that pause, whose clocks are wrong, and whose message kills them."""

from __future__ import annotations

import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from muntin import user
from muntin.timeline.items import draft_of
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store
from tests.faults.checks import check_entity, check_one_at_a_time, settled, wait_until
from tests.faults.conftest import times
from tests.workers import Start


def send(store: Store, entity: str, text: str) -> None:
    store.append(entity, [draft_of(user(text), opens="inbox")])


def lines(log: Path, begin: str) -> int:
    if not log.exists():
        return 0
    return sum(line.startswith(begin) for line in log.read_text(encoding="utf-8").splitlines())


def end(process: subprocess.Popen[str]) -> None:
    """Close what the process waits for; one that does not end then is stuck."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


def test_a_process_that_was_paused_for_longer_than_its_lease_writes_nothing(
    url: str, tmp_path: Path, start: Start
) -> None:
    log = tmp_path / "log"
    with open_store(url) as store:
        for number in range(times("PAUSES", 1)):
            entity = f"e/{number}"
            send(store, entity, "hello")
            given = {"url": url, "log": str(log), "lease": 2}
            paused = start("handle", **given, takes=0.5)
            wait_until(lambda: lines(log, f"begin {entity}") == 1, "begun")  # noqa: B023
            paused.send_signal(signal.SIGSTOP)
            other = start("handle", **given)
            wait_until(lambda: settled(store, [entity]), "taken over")  # noqa: B023
            paused.send_signal(signal.SIGCONT)
            time.sleep(1.5)
            check_entity(store, entity, ["hello"])
            (turn,) = store.turns(entity)
            assert turn.attempt == 2
            send(store, entity, "again")  # and both go on
            wait_until(lambda: settled(store, [entity]), "handled")  # noqa: B023
            check_entity(store, entity, ["hello", "again"])
            end(paused)
            end(other)


@pytest.mark.parametrize("skewed", [90, -90])
def test_a_clock_that_is_wrong_runs_no_wake_twice(
    url: str, tmp_path: Path, start: Start, skewed: int
) -> None:
    """Both look to each other as if they were on another machine, so that only leases count."""
    log = tmp_path / "log"
    entities = [f"e/{number}" for number in range(times("SKEWED", 2))]
    with open_store(url) as store:
        for entity in entities:
            send(store, entity, "hello")
        given = {"url": url, "log": str(log), "takes": 2.0, "foreign": True}
        first = start("handle", **given)
        wait_until(lambda: lines(log, "begin") == len(entities), "begun")
        second = start("handle", **given, skewed=skewed)
        wait_until(lambda: settled(store, entities), "handled")
        for entity in entities:
            send(store, entity, "again")
        wait_until(lambda: settled(store, entities), "handled again")
        check_one_at_a_time(log)
        for entity in entities:
            check_entity(store, entity, ["hello", "again"])
            assert {turn.attempt for turn in store.turns(entity)} == {1}
        end(first)
        end(second)


@pytest.mark.parametrize("skewed", [3_600, -3_600])
def test_a_lease_is_what_the_server_says_whatever_the_clock_of_the_client(
    url: str, start: Start, skewed: int
) -> None:
    with open_store(url) as store:
        for session in ("s", "t"):
            send(store, session, "hello")
        before = store.take("s", "another", timedelta(seconds=60), resumable=True)
        assert before is not None
        assert before.until is not None
        wrong = start("take", url=url, skewed=skewed)
        assert wrong.stdout is not None
        assert wrong.stdout.readline() == "s None\n"  # another has it
        assert wrong.stdout.readline().startswith("t ")
        (after,) = store.turns("t")
        assert after.until is not None
        assert timedelta(0) <= after.until - before.until < timedelta(seconds=30)


def test_a_message_that_kills_its_process_is_given_up_and_holds_up_no_other(
    url: str, tmp_path: Path, start: Start
) -> None:
    log = tmp_path / "log"
    deaths = 0
    with open_store(url) as store:
        send(store, "e/bad", "poison")
        process = None
        deadline = time.monotonic() + 90
        while not store.sessions(gave_up=True):
            assert time.monotonic() < deadline, (deaths, store.turns("e/bad"))
            if process is None or process.poll() is not None:
                deaths += process is not None
                process = start("handle", url=url, log=str(log), die=True)
                send(store, "e/good", f"hello {deaths}")
            time.sleep(0.05)
        assert process is not None
        assert deaths == 5
        assert [info.id for info in store.sessions(gave_up=True)] == ["e/bad"]
        (turn,) = store.turns("e/bad")
        assert (turn.status, turn.reason, turn.tries) == ("failed", "gave_up", 5)
        (error,) = [item for item in store.read("e/bad") if item.kind == "error"]
        assert "taken 5 times" in str(error.payload)
        send(store, "e/bad", "better")
        wait_until(lambda: settled(store, ["e/bad", "e/good"]), "settled")
        last = store.turns("e/bad")[0]
        assert (last.number, last.status) == (2, "completed")
        sent = [item for item in store.read("e/good") if item.role == "user"]
        assert len(sent) == deaths + 1
        assert {turn.status for turn in store.turns("e/good")} == {"completed"}
        # By hand, when the cause is known: a new turn that names the old one.
        process.kill()
        again = Session("e/bad", store=store).try_again(1)
        assert [item.meta["again"] for item in again] == [1]
        start("handle", url=url, log=str(log))
        wait_until(lambda: settled(store, ["e/bad"]), "handled in the end")
        assert [turn.status for turn in store.turns("e/bad")] == [
            "completed",
            "completed",
            "failed",
        ]
