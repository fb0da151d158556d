"""Tagged context: names, trees of several authors with provenance, layout and escaping."""

from muntin.core.tags.tree import (
    RESERVED_TAG_NAMES,
    aggregate,
    contribute,
    normalize_tag_name,
    raw,
    render_tagged_context,
    validate_tag_name,
    xml_tag,
)

__all__ = [
    "RESERVED_TAG_NAMES",
    "aggregate",
    "contribute",
    "normalize_tag_name",
    "raw",
    "render_tagged_context",
    "validate_tag_name",
    "xml_tag",
]
