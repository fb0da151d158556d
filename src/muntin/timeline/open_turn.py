"""An open turn: who works on a turn of a session, for how long, what is appended, how it ends.

The one way to write into a turn, used by `Session.turn()` and by every door of the runtime. Sync:
async code calls it in a thread.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from muntin.errors import MuntinError
from muntin.timeline.items import Draft, Item, Opens, Status
from muntin.timeline.owner import done, new_owner

if TYPE_CHECKING:
    from muntin.timeline.session import ItemLike, Session

# How long a turn is taken for alive that another machine began and no longer speaks of.
LEASE = timedelta(seconds=60)


class OpenTurn:
    """A turn that is worked on; made by `Session.turn` and by the runtime.

    Without a `number` the turn begins with the first append, as `opens` says.
    """

    def __init__(
        self,
        session: Session,
        number: int | None = None,
        *,
        owner: str | None = None,
        opens: Opens = "turn",
    ) -> None:
        self.session = session
        self.number = number
        self.owner = owner or new_owner()
        self._opens = opens
        self._over = False

    def append(self, *items: ItemLike) -> list[Item]:
        """Append to the turn in one transaction, and return the items when they are durable."""
        if self._over:
            raise MuntinError("the turn is over; begin another: with session.turn()")
        drafts = [self.session.draft(item) for item in items]
        return self.write(drafts)

    def write(self, drafts: list[Draft]) -> list[Item]:
        """Append drafts that are counted already."""
        if not drafts:
            return []
        if self.number is None:
            drafts = [replace(drafts[0], opens=self._opens), *drafts[1:]]
        else:
            drafts = [replace(draft, turn=self.number) for draft in drafts]
        store = self.session.opened()
        added = store.append(self.session.id, drafts, owner=self.owner, until=_until())
        self.number = added[0].turn
        return added

    def take(self) -> bool:
        """Begin to work on a turn that waited; False while others come first."""
        store = self.session.store
        taken = store.take(self.session.id, self.owner, _until(), number=self._begun())
        return taken is not None

    def items(self) -> list[Item]:
        """Return all items of the turn."""
        number = self._begun()
        return self.session.store.read(self.session.id, first_turn=number, last_turn=number)

    def renew(self) -> bool:
        """Say that the turn is still worked on; False if somebody else has taken it over.

        For turns that take longer than a minute.
        """
        return self.session.store.renew(self.session.id, self._begun(), self.owner, _until())

    def settle(self, status: Status) -> None:
        """End the turn; nothing is written if it has not begun or belongs to somebody else."""
        self._over = True
        try:
            if self.number is not None:
                self.session.store.settle(self.session.id, self.number, status, by=self.owner)
        finally:
            self.release()

    def release(self) -> None:
        """Work no longer on the turn, and leave it as it is."""
        done(self.owner)

    def _begun(self) -> int:
        if self.number is None:
            raise MuntinError("the turn has not begun: append to it first")
        return self.number


def _until() -> datetime:
    return datetime.now(UTC) + LEASE
