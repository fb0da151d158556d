"""All stores keep the same promises, and the suite notices one that does not."""

import json
from dataclasses import replace

import pytest

from muntin.testing import MemoryStore
from muntin.timeline.items import Pruned
from tests.timeline.store.conformance import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_store_keeps_its_promises(check, store):
    check(store)


def change(store, statement, **values):
    """Run a statement past the promises of a store."""
    store.database.transact(lambda tx: tx.run(statement, **values))


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
    def read(self, session, *, live=False, **limits):
        items = super().read(session, **limits)
        return [item for item in items if item.kind == "context_inserted"] if live else items


class PutsBesideFirst(MemoryStore):
    def append(self, session, drafts, beside=None, **given):
        if beside is not None:
            self.put(session, beside)
        return super().append(session, drafts, **given)


class LetsEveryTurnWait(MemoryStore):
    def append(self, session, drafts, **given):
        items = super().append(session, drafts, **given)
        if drafts and drafts[0].opens == "queue":
            change(
                self,
                "UPDATE muntin_turns SET status = 'pending' WHERE number = :turn",
                turn=items[-1].turn,
            )
        return items


class KeepsTheOwnerOfWhatEnds(MemoryStore):
    def append(self, session, drafts, claim=None, **given):
        items = super().append(session, drafts, claim=claim, **given)
        if claim is not None and drafts and drafts[-1].ends is not None:
            change(
                self,
                "UPDATE muntin_turns SET owner = :owner WHERE number = :turn",
                owner=claim.owner,
                turn=items[-1].turn,
            )
        return items


class NeverDeletes(MemoryStore):
    def delete(self, session):
        pass


class ReplacesCounts(MemoryStore):
    def put(self, session, beside):
        for position, tokens in beside.counts.items():
            change(
                self,
                "UPDATE muntin_items SET tokens = :tokens WHERE position = :position",
                tokens=json.dumps(tokens),
                position=position,
            )


class ForgetsThatItMayBeResumed(MemoryStore):
    def take(self, session, owner, lease, *, resumable=False, **asked):
        return super().take(session, owner, lease, **asked)


class OpensWhatIsSettled(MemoryStore):
    def append(self, session, drafts, claim=None, **given):
        for draft in drafts if claim is not None else ():
            if draft.turn is not None:
                change(
                    self,
                    "UPDATE muntin_turns SET status = 'open', owner = :owner, attempt = :attempt "
                    "WHERE number = :turn",
                    owner=claim.owner,
                    attempt=claim.attempt or 0,
                    turn=draft.turn,
                )
        return super().append(session, drafts, claim=claim, **given)


class LooksAtTheOwnerAlone(MemoryStore):
    def append(self, session, drafts, claim=None, **given):
        known = None if claim is None else replace(claim, attempt=None)
        return super().append(session, drafts, claim=known, **given)


class CountsWhatIsHandedBack(MemoryStore):
    def hand_back(self, session, turn, claim, **given):
        handed = super().hand_back(session, turn, claim, **given)
        change(self, "UPDATE muntin_turns SET returned = 0")
        return handed


class TakesContentsForOneAnother(MemoryStore):
    def content(self, session, kind, name=""):
        found = super().content(session, kind, name)
        return super().content(session, "source", name) if found is None else found


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

    def content(self, session, kind, name=""):
        return super().content(session, kind, "" if kind == "frontier" else name)


class RenamesOneByOne(MemoryStore):
    def rename(self, names):
        for session, name in names.items():
            super().rename({session: name})


class ForgetsBySession(MemoryStore):
    def prune(self, *, before=None, most=None):
        change(
            self,
            "DELETE FROM muntin_reports WHERE EXISTS (SELECT 1 FROM muntin_reports r "
            "WHERE r.session = muntin_reports.session AND r.turn > muntin_reports.turn)",
        )
        return Pruned(0, 0)


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


def test_every_check_states_its_fact():
    names = [check.__name__ for check in CHECKS]
    assert len(set(names)) == len(names) > 30
    assert all(check.__doc__ and check.__doc__.endswith(".") for check in CHECKS)
