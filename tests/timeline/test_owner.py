"""Owners: a turn whose process died is found out, one whose process lives is left alone."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from muntin import user
from muntin.timeline.items import Claim, Draft, Turn
from muntin.timeline.owner import Owner, abandoned, new_owner
from muntin.timeline.session import Session

NOW = datetime(2024, 1, 1, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(seconds=1), NOW - timedelta(seconds=1)


def turn(owner, until=LATER):
    return Turn(1, "open", 1, owner, until)


@pytest.fixture(scope="module")
def dead():
    """Return the owner that a process was which has ended."""
    program = "from muntin.timeline.owner import new_owner; print(new_owner())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def elsewhere(owner):
    machine, rest = owner.split(":", 1)
    return f"another-{machine}:{rest}"


def test_no_two_owners_are_alike():
    assert len({new_owner() for _ in range(100)}) == 100


def test_an_owner_is_read_from_its_text_and_written_as_it():
    owner = Owner("a-machine", 17, "1234", "work")
    assert str(owner) == "a-machine:17:1234:work"
    assert Owner.parse(str(owner)) == owner
    mine = Owner.parse(new_owner())
    assert mine is not None
    assert mine.pid == os.getpid()


@pytest.mark.parametrize("text", ["me", "", "a:b", "a:1:b", "a:b:c:d", "a:-1:c:d", "a:1:c:d:e"])
def test_a_text_of_another_make_is_no_owner(text):
    assert Owner.parse(text) is None


def test_a_living_process_has_abandoned_its_turn_when_it_no_longer_renews_the_lease():
    assert not abandoned(turn(new_owner()), NOW)
    assert not abandoned(turn(new_owner(), None), NOW)
    assert abandoned(turn(new_owner(), EARLIER), NOW)


def test_an_owner_from_before_the_last_boot_has_abandoned_its_turn():
    machine, *rest = new_owner().split(":")
    node, boot = machine.split("-", 1)
    before = boot.replace(boot[0], "e" if boot[0] != "e" else "f")
    assert abandoned(turn(":".join([f"{node}-{before}", *rest])), NOW)
    assert not abandoned(turn(":".join([f"{node}0-{before}", *rest])), NOW)


def test_a_dead_process_has_abandoned_its_turn_at_once(dead):
    assert abandoned(turn(dead), NOW)
    assert abandoned(turn(dead, None), NOW)


def test_a_process_that_took_over_the_number_of_a_dead_one_is_not_taken_for_it():
    machine, pid, started, name = new_owner().split(":")
    assert int(pid) == os.getpid()
    assert abandoned(turn(f"{machine}:{pid}:{started}0:{name}"), NOW)


def test_another_machine_has_abandoned_its_turn_when_its_lease_is_over(dead):
    for owner in (elsewhere(new_owner()), elsewhere(dead)):
        assert not abandoned(turn(owner), NOW)
        assert abandoned(turn(owner, EARLIER), NOW)
        assert not abandoned(turn(owner, None), NOW)


def test_a_turn_without_an_owner_is_not_abandoned():
    assert not abandoned(turn(None, EARLIER), NOW)


@pytest.mark.parametrize("owner", ["me", "", "a:b", "a:b:c:d:e", ":::", "x:not a number:1:y"])
def test_an_owner_of_another_make_is_judged_by_its_lease(owner):
    assert not abandoned(turn(owner), NOW)
    assert not abandoned(turn(owner, None), NOW)
    assert abandoned(turn(owner, EARLIER), NOW)


def test_an_owner_of_another_make_on_this_machine_is_judged_by_its_lease():
    machine = new_owner().split(":")[0]
    assert not abandoned(turn(f"{machine}:not a number:1:y"), NOW)


# In a session.


def begin(store, session, owner, until):
    claim = None if owner is None else Claim(owner, None, until)
    store.append(session, [Draft("message", user("q"), opens="turn")], claim=claim)


def statuses(store, session="s"):
    return [turn.status for turn in reversed(store.turns(session))]


def test_mending_a_session_fails_the_turns_of_dead_processes_and_no_others(store, dead):
    future, past = timedelta(hours=1), timedelta(hours=-1)
    begin(store, "s", dead, future)
    begin(store, "s", new_owner(), past)
    begin(store, "s", elsewhere(dead), future)
    begin(store, "s", elsewhere(dead), past)
    begin(store, "s", None, None)
    begin(store, "other", dead, future)
    Session("s", store=store).mend()
    assert statuses(store) == ["failed", "failed", "open", "failed", "open"]
    assert statuses(store, "other") == ["open"]


def test_mending_a_session_changes_no_turn_that_is_settled(store, dead):
    begin(store, "s", dead, None)
    store.append("s", [Draft("signal", payload="x", opens="queue")], claim=Claim(dead))
    store.settle("s", 1, "completed")
    Session("s", store=store).mend()
    assert statuses(store) == ["completed", "pending"]


CRASH = """
import os, sys
from muntin import Session, user
session = Session("s", store=sys.argv[1])
with session.turn() as turn:
    turn.append(user("what I asked"))
    os._exit(9)
"""


def test_an_interrupted_turn_is_there_and_failed_at_the_next_use(tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    done = subprocess.run([sys.executable, "-c", CRASH, url])
    assert done.returncode == 9
    session = Session("s", store=url)
    assert [message.text for message in session.messages()] == ["what I asked"]
    assert statuses(session.store) == ["failed"]


def test_a_session_opened_while_a_turn_is_worked_on_leaves_it_alone(store):
    with Session("s", store=store).turn() as turn:
        turn.append(user("q"))
        Session("s", store=store)
        assert statuses(store) == ["open"]
    assert statuses(store) == ["completed"]
