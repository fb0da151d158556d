"""Providers: windows as the requests of each vendor, and their answers; clients that send them.

Encoding and decoding are pure functions. An SDK is imported when one of its models is asked for.
"""

from muntin.providers.assets import DirectoryAssets, WithAssets
from muntin.providers.client import Client
from muntin.providers.model import (
    Finished,
    Model,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCalled,
    ToolFinished,
    Usage,
)
from muntin.providers.names import as_model, caching_for

__all__ = [
    "Client",
    "DirectoryAssets",
    "Finished",
    "Model",
    "ReasoningDelta",
    "Reply",
    "TextDelta",
    "ToolCalled",
    "ToolFinished",
    "Usage",
    "WithAssets",
    "as_model",
    "caching_for",
]
