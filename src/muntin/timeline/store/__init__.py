"""Stores: where timelines are kept."""

from muntin.timeline.store.opening import DEFAULT_URL, open_store
from muntin.timeline.store.protocols import Archive, Leases, Store, Timelines, View

__all__ = ["DEFAULT_URL", "Archive", "Leases", "Store", "Timelines", "View", "open_store"]
