"""The site: Sphinx reads the Markdown of this folder, and the docstrings for the reference."""

from __future__ import annotations

import muntin

project = "Muntin"
author = "The Muntin authors"
project_copyright = author
version = release = muntin.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
nitpicky = False  # types in signatures are for reading; links and anchors in pages are checked

myst_enable_extensions = ["deflist"]
# Anchors of headings as Git hosts make them, so that one link works in both places.
myst_heading_anchors = 3

# Docstrings are plain text with `names` in single backticks.
default_role = "code"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
add_module_names = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Muntin {version}"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
