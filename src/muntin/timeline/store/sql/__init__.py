"""Stores in SQL: SQLite and PostgreSQL."""

from muntin.timeline.store.sql.store import SqlStore

__all__ = ["SqlStore"]
