"""The lease of a turn that plain code works on is renewed, however long that takes."""

import threading
import time
from datetime import timedelta

from muntin import Session, assistant, user
from muntin.timeline.renewing import Renewer
from tests.timeline.words import Words


def test_a_lease_is_renewed_while_plain_code_works_on_its_turn(store, monkeypatch):
    monkeypatch.setattr("muntin.timeline.turn.LEASE", timedelta(seconds=1))
    monkeypatch.setattr("muntin.timeline.session._renewer", Renewer(0.1))
    session = Session("s", store=store, tokenizer=Words())
    with session.turn() as turn:
        turn.append(user("a?"))
        time.sleep(2)
        Session("s", store=store).mend()
        turn.append(assistant("a!"))
    assert [t.status for t in store.turns("s")] == ["completed"]


def test_a_renewer_with_nothing_to_renew_has_no_thread():
    renewer = Renewer(0.05)

    class Turn:
        number: int = 1
        renewed = 0

        def renew(self):
            self.renewed += 1
            return True

    others = set(threading.enumerate())  # of turns that other tests left open
    for _ in range(2):
        turn = Turn()
        renewer.add(turn)
        while not turn.renewed:
            time.sleep(0.01)
        renewer.remove(turn)
        deadline = time.monotonic() + 10
        while any(each.name == "muntin-leases" for each in {*threading.enumerate()} - others):
            assert time.monotonic() < deadline
            time.sleep(0.01)
