"""Muntin at the hooks of other frameworks: a module for each, imported by its own name.

An adapter reads the framework's items as pieces, gives them to a `Fitter`, and writes in the
framework's own types only what was shortened or added. It imports its framework; nothing else does.
"""

__all__: list[str] = []
