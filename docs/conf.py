"""The site: Sphinx reads the Markdown of this folder."""

from __future__ import annotations

import muntin

project = "Muntin"
author = "The Muntin authors"
project_copyright = author
version = release = muntin.__version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["deflist"]
# Anchors of headings as Git hosts make them, so that one link works in both places.
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Muntin {version}"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
