"""What is known of a model: each fact of its profile with its source, and since when it is known.

The values are in the tables of `profile`; here is where they come from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from muntin.core.profile import Profile


class Source(NamedTuple):
    """Where a fact comes from, and the day on which it came into the tables."""

    address: str
    since: str


class ModelFact(NamedTuple):
    """One fact about a model."""

    name: str
    value: Any
    source: Source


_CLAUDE = "https://platform.claude.com/docs/en"
_RECORDED = Source("recorded answers of Claude Sonnet 4.5, until August 2026", "2026-11-20")
# By the field of a profile.
SOURCES: dict[str, Source] = {
    "user_first": Source(f"{_CLAUDE}/api/messages", "2026-11-15"),
    "system_first": Source(f"{_CLAUDE}/api/messages", "2026-11-15"),
    "image_formula": Source(f"{_CLAUDE}/build-with-claude/vision", "2026-11-15"),
    "caching": Source(f"{_CLAUDE}/build-with-claude/prompt-caching", "2026-11-15"),
    "tool_loading": Source(f"{_CLAUDE}/agents-and-tools/tool-use/tool-search-tool", "2026-11-20"),
    "binds": Source(f"{_CLAUDE}/build-with-claude/extended-thinking", "2026-11-20"),
    "mid_system": Source(
        f"{_CLAUDE}/build-with-claude/mid-conversation-system-messages", "2026-11-20"
    ),
    "clear_at": Source(
        f"{_CLAUDE}/build-with-claude/mid-conversation-system-messages", "2026-11-20"
    ),
    "keeps_thoughts": Source(f"{_CLAUDE}/build-with-claude/extended-thinking", "2026-11-20"),
    "added_tokens": _RECORDED,
    "limits": Source(f"{_CLAUDE}/build-with-claude/vision", "2026-11-20"),
}
# Where another maker's page has the fact.
_ELSEWHERE: dict[tuple[str, str], Source] = {
    ("openai", "tokenizer"): Source("https://github.com/openai/tiktoken", "2026-11-15"),
    ("openai", "caching"): Source(
        "https://developers.openai.com/api/docs/guides/prompt-caching", "2026-11-15"
    ),
    ("openai", "image_formula"): Source(
        "https://developers.openai.com/api/docs/guides/images-vision", "2026-11-15"
    ),
    ("google", "caching"): Source("https://ai.google.dev/gemini-api/docs/caching", "2026-11-15"),
    ("google", "image_formula"): Source(
        "https://ai.google.dev/gemini-api/docs/tokens", "2026-11-15"
    ),
    ("google", "user_first"): Source("https://ai.google.dev/api/caching", "2026-11-15"),
    ("google", "system_first"): Source("https://ai.google.dev/api/caching", "2026-11-15"),
}


def facts_of(profile: Profile, maker: str | None) -> list[ModelFact]:
    """Return what is known of a model, fact by fact; what is not known is left out."""
    sources = {name: source for (of, name), source in _ELSEWHERE.items() if of == maker}
    if maker == "anthropic":
        sources = SOURCES
    known = [ModelFact(name, getattr(profile, name), source) for name, source in sources.items()]
    return [fact for fact in known if fact.value not in _NOTHING]


_NOTHING = (None, False, (0, 0))
