"""Shared by the checks: how a fact is stated and compared, and hostile values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Barrier, Thread
from types import ModuleType
from typing import Any, TypeAlias

from muntin.core.message import user
from muntin.errors import InvalidInput
from muntin.timeline.items import MAX_ID, Draft, Item, SessionInfo
from muntin.timeline.store import Store

Check: TypeAlias = Callable[[Store], None]

_checks: list[Check] = []

HOSTILE = (
    "'; DROP TABLE muntin_items; --",
    "quotes \" ' ` and \\ and \\u0000 and \\n written out",
    "%s %(name)s %% {} {0} :name ? $1 @x",
    "a NUL \x00 and \x01\x1b\x7f\x85",
    "lines\nof\r\nall\rsorts\u2028and\u2029more\v\f",
    "👩‍👩‍👧 \U0010ffff \uffff \ufeff \u202eright to left",
    "e\u0301 is not \u00e9",
    " spaces at both ends\t",
    "",
)
# Neighbours that a careless comparison takes for one another.
ALIKE = (
    *("a", "A", "a ", " a", "á", "a\u0301", "а", "ａ", "a%", "a_", "a*", "ab", "%", "_"),
    *("a' OR '1'='1", "a'; --", 'a"', "a\\", "a\n", "0", "00", "1", "1.0", "null", "ß", "ss", "SS"),
    *("İ", "i", "I", "ı", "😀", "\uffff", "a/b", "a/../b", "z" * MAX_ID, "🎈" * MAX_ID),
)
UNFIT_IDS: tuple[Any, ...] = (
    *("", "a\x00b", "\x00", "half \ud83d", "\udc80", "a" * (MAX_ID + 1)),
    *(None, 1, b"a"),
)


def fact(check: Check) -> Check:
    """Mark a function as a check; its docstring is the fact."""
    _checks.append(check)
    return check


def facts_of(module: ModuleType) -> list[Check]:
    """Return the checks of a module in the order in which they stand there."""
    return [check for check in _checks if check.__module__ == module.__name__]


def same(got: object, wanted: object, of: str = "") -> None:
    """Fail unless both are equal, showing them."""
    if got != wanted:
        raise AssertionError(f"{of + ': ' if of else ''}got {short(got)}, wanted {short(wanted)}")


def short(value: object) -> str:
    """Return a value as a failure shows it: in ASCII, and not long."""
    text = ascii(value)
    return text if len(text) <= 600 else f"{text[:300]} … {text[-300:]} ({len(text):,} characters)"


def refused(call: Callable[[], object], what: str) -> None:
    """Fail unless the call is refused as invalid, with a reason."""
    try:
        call()
    except InvalidInput as error:
        if not str(error):
            raise AssertionError(f"{what} was refused without a word") from error
    else:
        raise AssertionError(f"{what} was not refused")


def said(*texts: str, **given: Any) -> list[Draft]:
    """Return user messages to append."""
    return [Draft("message", user(text), **given) for text in texts]


def texts(items: Iterable[Item]) -> list[str]:
    """Return the texts of items."""
    return [item.message.text if item.message else "" for item in items]


def positions(items: Iterable[Item]) -> list[int]:
    """Return the positions of items."""
    return [item.position for item in items]


def statuses(store: Store, session: str = "s") -> list[tuple[int, str]]:
    """Return the numbers and statuses of all turns, the oldest first."""
    return [(turn.number, turn.status) for turn in reversed(store.turns(session))]


def entry(id: str, content: str = "") -> Draft:
    """Return an item that inserts a context entry."""
    return Draft("context_inserted", payload={"id": id, "name": "n", "content": content})


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Run all works in threads of their own, all at once; raise the first error."""
    ready, errors = Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], None]) -> None:
        try:
            ready.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def info_of(store: Store, id: str) -> SessionInfo | None:
    """Return what the store knows about a session, None if it is not there."""
    return next(iter(store.sessions(id=id)), None)


def ids(infos: Iterable[SessionInfo]) -> list[str]:
    """Return the ids of sessions."""
    return [info.id for info in infos]


def reach(store: Store, session: str, weight: int) -> Item | None:
    """Return the oldest item that the newest items of this weight reach back to."""
    return next(iter(store.read(session, weight=weight, oldest=1)), None)
