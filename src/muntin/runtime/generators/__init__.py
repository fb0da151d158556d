"""Generators: declared, checked, run; and the capabilities that several generators share."""

from muntin.runtime.generators.capabilities import capability
from muntin.runtime.generators.definition import generator

__all__ = ["capability", "generator"]
