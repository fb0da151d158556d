"""Stores in SQL: SQLite and PostgreSQL."""

from muntin.timeline.store.sql.store import Store

__all__ = ["Store"]
