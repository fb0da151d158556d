"""Toolboxes: tools as context. A catalogue with a search index, and what requests say of it.

Pure, on the standard library alone.
"""

from muntin.core.toolboxes.offer import ToolSearch

__all__ = ["ToolSearch"]
