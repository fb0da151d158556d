"""The command line."""

from muntin.cli.commands import main

__all__ = ["main"]
