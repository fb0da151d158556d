"""The durable past: items, turns, sessions, entries, windows on the past, and the stores."""

from muntin.timeline.entries import ContextEntry
from muntin.timeline.files import Imported, export_session, import_sessions
from muntin.timeline.history import History, Tokens, Turns
from muntin.timeline.items import Draft, Item, Record, SessionInfo, Turn, Visibility
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store
from muntin.timeline.turn import OpenTurn
from muntin.timeline.views import Items

__all__ = [
    "ContextEntry",
    "Draft",
    "History",
    "Imported",
    "Item",
    "Items",
    "OpenTurn",
    "Record",
    "Session",
    "SessionInfo",
    "Store",
    "Tokens",
    "Turn",
    "Turns",
    "Visibility",
    "export_session",
    "import_sessions",
    "open_store",
]
