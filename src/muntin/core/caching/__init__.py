"""Caching: what a provider's cache may find again of a request, and where it is asked to cache.

The order on the wire, the digests of what was sent, what two requests share, and breakpoints. It
decides nothing about what a window shows.
"""

from muntin.core.caching.frontier import Frontier

__all__ = ["Frontier"]
