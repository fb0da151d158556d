"""Windows to look at: a bar on a terminal, lines, HTML in a notebook or as one file."""

from muntin.view.bar import bar
from muntin.view.html import html, page

__all__ = ["bar", "html", "page"]
