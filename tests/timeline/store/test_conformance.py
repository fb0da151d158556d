"""All stores keep the same promises, and the suite notices one that does not."""

import subprocess
import sys
from dataclasses import replace

import pytest

from muntin.timeline.items import Pruned
from muntin.timeline.store.conformance import CHECKS, check_store
from muntin.timeline.store.memory import MemoryStore


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_store_keeps_its_promises(check, store):
    check(store)


class Shifting(MemoryStore):
    def read(self, session, **asked):
        return [
            replace(item, position=item.position - 1) for item in super().read(session, **asked)
        ]


class NewestFirst(MemoryStore):
    def read(self, session, **asked):
        return super().read(session, **asked)[::-1]


class HalfWritten(MemoryStore):
    def append(self, session, drafts, **given):
        write = super().append
        return [item for draft in drafts for item in write(session, [draft], **given)]


class IgnoresCase(MemoryStore):
    def append(self, session, drafts, **given):
        return super().append(session.lower(), drafts, **given)

    def read(self, session, **asked):
        return super().read(session.lower(), **asked)


class LosesNul(MemoryStore):
    def append(self, session, drafts, **given):
        kept = [
            replace(d, message=replace(d.message, content=d.message.content.replace("\0", "")))
            if d.message and isinstance(d.message.content, str)
            else d
            for d in drafts
        ]
        return super().append(session, kept, **given)


class ForgetsTheOwner(MemoryStore):
    def append(self, session, drafts, **given):
        return super().append(session, drafts)


class ShowsFailedTurns(MemoryStore):
    def read(self, session, settled=None, **asked):
        return super().read(session, **asked)


class KeepsReplacedEntries(MemoryStore):
    def entries(self, session, id=None):
        if id is not None:
            return super().entries(session, id)
        return [item for item in self.read(session) if item.kind == "context_inserted"]


class PutsBesideFirst(MemoryStore):
    def append(self, session, drafts, beside=None, **given):
        if beside is not None:
            self.put(session, beside)
        return super().append(session, drafts, **given)


class LetsEveryTurnWait(MemoryStore):
    def append(self, session, drafts, **given):
        items = super().append(session, drafts, **given)
        if drafts and drafts[0].opens == "queue":
            kept = self._sessions[session]
            kept.put(replace(kept.turns[-1], status="pending"))
        return items


class KeepsTheOwnerOfWhatEnds(MemoryStore):
    def append(self, session, drafts, claim=None, **given):
        items = super().append(session, drafts, claim=claim, **given)
        if claim is not None and drafts and drafts[-1].ends is not None:
            kept = self._sessions[session]
            kept.put(replace(kept.turns[items[-1].turn - 1], owner=claim.owner))
        return items


class NeverDeletes(MemoryStore):
    def delete(self, session):
        pass


class ReplacesCounts(MemoryStore):
    def count(self, session, counts):
        kept = self._sessions[session].items if session in self._sessions else []
        for position, tokens in counts.items():
            if position <= len(kept):
                kept[position - 1] = replace(kept[position - 1], tokens=tokens)


class ForgetsThatItMayBeResumed(MemoryStore):
    def take(self, session, owner, lease, *, resumable=False, **asked):
        return super().take(session, owner, lease, **asked)


class OpensWhatIsSettled(MemoryStore):
    def append(self, session, drafts, claim=None, **given):
        for draft in drafts if claim is not None else ():
            if draft.turn is not None:
                kept = self._sessions[session]
                turn = kept.turns[draft.turn - 1]
                kept.put(
                    replace(turn, status="open", owner=claim.owner, attempt=claim.attempt or 0)
                )
        return super().append(session, drafts, claim=claim, **given)


class LooksAtTheOwnerAlone(MemoryStore):
    def append(self, session, drafts, claim=None, **given):
        known = None if claim is None else replace(claim, attempt=None)
        return super().append(session, drafts, claim=known, **given)


class CountsWhatIsHandedBack(MemoryStore):
    def hand_back(self, session, turn, claim, **given):
        handed = super().hand_back(session, turn, claim, **given)
        kept = self._sessions[session]
        kept.put(replace(kept.turns[turn - 1], returned=0))
        return handed


class TakesContentsForOneAnother(MemoryStore):
    def content(self, session, key, *, kind="report"):
        found = super().content(session, key)
        return super().content(session, key, kind="source") if found is None else found


class LooksForNamesInThePlan(MemoryStore):
    def put(self, session, beside):
        plan = beside.record.plan if beside.record else ""
        super().put(session, replace(beside, names={*beside.names, *plan.split('"')}))


class ForgetsWhatIsNotNew(MemoryStore):
    def put(self, session, beside):
        super().put(session, replace(beside, names=beside.contents))


class HasOneLine(MemoryStore):
    def put(self, session, beside):
        super().put(session, replace(beside, notes={("frontier", ""): max(beside.notes.values())}))

    def note(self, session, kind, name=""):
        return super().note(session, "frontier", "")


class RenamesOneByOne(MemoryStore):
    def rename(self, names):
        for session, name in names.items():
            super().rename({session: name})


class ForgetsBySession(MemoryStore):
    def prune(self, *, before=None, most=None):
        done = [kept.forget(max(kept.reports)) for kept in self._sessions.values() if kept.reports]
        return Pruned(sum(done), 0)


BROKEN = {
    RenamesOneByOne: "sessions_get_other_ids_together_or_not_at_all",
    ForgetsBySession: "reports_are_forgotten_by_age_and_by_size_over_the_whole_store",
    Shifting: "positions_count_up_from_one",
    NewestFirst: "a_page_is_the_oldest_or_newest_between_two_positions",
    HalfWritten: "a_refused_append_leaves_nothing",
    IgnoresCase: "sessions_are_kept_apart",
    LosesNul: "hostile_texts_are_kept_exactly",
    ForgetsTheOwner: "a_turn_has_an_owner_and_a_lease",
    ShowsFailedTurns: "settled_leaves_out_what_failed",
    KeepsReplacedEntries: "an_entry_lives_until_replaced_or_removed",
    NeverDeletes: "a_deleted_session_is_gone",
    ReplacesCounts: "counts_are_added_to_items",
    ForgetsThatItMayBeResumed: "a_resumable_turn_is_taken_up_again",
    TakesContentsForOneAnother: "sources_are_kept_apart_from_contents_of_reports",
    LooksForNamesInThePlan: "contents_are_kept_while_a_report_names_them",
    ForgetsWhatIsNotNew: "contents_are_kept_while_a_report_names_them",
    HasOneLine: "the_frontier_of_each_line_is_kept",
    PutsBesideFirst: "what_is_put_with_an_append_is_put_with_it_or_not_at_all",
    LetsEveryTurnWait: "a_turn_that_need_not_wait_is_its_owners_at_once",
    OpensWhatIsSettled: "a_settled_turn_is_never_opened_again",
    LooksAtTheOwnerAlone: "each_take_is_an_attempt_and_an_old_one_is_refused",
    CountsWhatIsHandedBack: "a_turn_handed_back_is_taken_again_and_was_no_try",
    KeepsTheOwnerOfWhatEnds: "an_append_may_end_its_turn",
}


@pytest.mark.parametrize(
    ("broken", "fact"),
    BROKEN.items(),
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_store_that_breaks_a_promise_fails_the_check_of_that_promise(broken, fact):
    (check,) = [check for check in CHECKS if check.__name__ == fact]
    with pytest.raises(AssertionError):
        check(broken())


def test_check_store_passes_a_good_store_and_gives_each_check_a_fresh_one():
    made = []

    def make():
        made.append(MemoryStore())
        return made[-1]

    check_store(make)
    assert len(made) == len(CHECKS)


def test_check_store_says_which_facts_are_untrue():
    with pytest.raises(AssertionError) as failed:
        check_store(NeverDeletes)
    text = str(failed.value)
    assert text.startswith(f"4 of {len(CHECKS)} facts about stores are untrue of this one:")
    assert "a_deleted_session_is_gone: Nothing of a deleted session is left" in text
    assert "sessions_are_kept_apart" in text
    assert "positions_count_up_from_one" not in text


def test_every_check_states_its_fact():
    names = [check.__name__ for check in CHECKS]
    assert len(set(names)) == len(names) > 30
    assert all(check.__doc__ and check.__doc__.endswith(".") for check in CHECKS)


def test_the_suite_needs_neither_pytest_nor_a_database():
    program = (
        "import sys; import muntin.timeline.store.conformance; "
        "print([m for m in ('pytest', 'hypothesis', 'sqlite3', 'psycopg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
