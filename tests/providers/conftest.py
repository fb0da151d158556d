"""Each wire protocol, in an environment without keys of providers."""

import os
import ssl
from typing import Any

import pytest

from tests.providers.servers import PROTOCOLS


@pytest.fixture(params=list(PROTOCOLS.values()), ids=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    vendors = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")
    for name in [name for name in os.environ if name.startswith(vendors)]:
        monkeypatch.delenv(name)
    # Plain HTTP needs no certificates, and reading them is most of what opening a client costs.
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
