"""The official SDKs as one table: how each is opened, called and closed, and the names it uses.

Imports an SDK only when one of its models is asked for. Knows nothing of windows or replies.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from io import BytesIO
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from muntin.core.caching.cleared import CLEAR_AT
from muntin.core.checks import copy_json, shown
from muntin.core.model_name import ModelName
from muntin.errors import InvalidInput, InvalidType, UnknownModel, needing
from muntin.providers.overload import leave_to_caller, refuse_to_caller

Setting: TypeAlias = Callable[[Any], dict[str, Any]]

# Local servers need no key, but the SDKs do.
NO_KEY = "no-key"
# Anthropic demands `max_tokens` (https://platform.claude.com/docs/en/api/messages/create).
ANTHROPIC_MAX_TOKENS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a client is opened; None is the SDK's own default."""

    base_url: str | None = field(default=None, repr=False)  # may hold a password
    api_key: str | None = field(default=None, repr=False)
    timeout: float | None = None
    max_retries: int | None = None

    def given(self) -> dict[str, Any]:
        """Return the given options, under the names that OpenAI's and Anthropic's SDKs share."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API of one SDK.

    `wire` is the name of its wire format, `keys` and `address` are environment variables, `host` is
    the vendor's own server. `settings` maps Muntin's names to the API's; `parameters` returns the
    names that the call takes. With `config`, settings are held by a parameter of that name, whose
    value it makes.
    """

    provider: str
    sdk: str
    wire: str
    keys: tuple[str, ...]
    address: str
    host: str
    settings: Mapping[str, Setting]
    output: Callable[[Any, dict[str, Any], str], dict[str, Any]]
    open: Callable[[Any, Options], Any]
    send: Callable[[Any, dict[str, Any], bool], Awaitable[Any]]
    upload: Callable[[Any, bytes, str, str | None], Awaitable[str | None]]
    parameters: Callable[[Any], frozenset[str]]
    config: Setting | None = None
    defaults: Mapping[str, Any]

    def load(self) -> Any:
        """Import the SDK."""
        extra = self.sdk.partition(".")[0]
        with needing(
            f"models of {self.provider!r} need the {extra!r} extra: pip install 'muntin[{extra}]'"
        ):
            return import_module(self.sdk)

    def elsewhere(self, base_url: str | None) -> bool:
        """Say whether requests go to a server other than the vendor's."""
        address = base_url or os.environ.get(self.address)
        if not address:
            return False
        try:
            host = urlsplit(address).hostname
        except ValueError:
            host = None
        if not host or not address.startswith(("http://", "https://")):
            name = "base_url" if base_url else self.address
            raise InvalidInput(f"{name} must be a URL like 'http://localhost:11434/v1'")
        return not f".{host}".endswith(f".{self.host}")


def find_api(name: str, api: str | None) -> tuple[Api, str]:
    """Return the API of `provider/model`, and the model's own name."""
    named = ModelName.parse(name)
    known_providers = sorted({name for name, _ in APIS})
    before, colon, after = name.partition(":")  # as LangChain and Pydantic AI write names
    colon_meant = f"{before}/{after}" if colon and before in known_providers else None
    suggestion = colon_meant or named.suggestion
    meant = "" if suggestion is None else f"; did you mean {suggestion!r}?"
    providers = ", ".join(known_providers)
    if named.provider is None and name not in known_providers:
        meant = meant or f"; write provider/model, or 'openai/{name}' with a base_url."
        raise UnknownModel(
            f"the model name {name!r} names no provider{meant} Known are: {providers}"
        )
    provider, model = (name, "") if named.provider is None else (named.provider, named.model)
    specs = [spec for spec in APIS if spec[0] == provider]
    if not specs:
        raise UnknownModel(
            f"no provider {provider!r} is known (in the model name {name!r}); known are: "
            f"{providers}. A compatible server is 'openai/<model>' with a base_url{meant}"
        )
    if not model:
        raise UnknownModel(f"the model name {name!r} names no model; write '{provider}/<model>'")
    spec = specs[0] if api is None else (provider, api)
    if spec not in APIS:
        names = ", ".join(repr(name) for _, name in specs)
        raise InvalidInput(f"{provider!r} has no api {shown(api)}; known are: {names}")
    return APIS[spec], model


# Parameters of the window that a setting may override.
_YIELDING = {"prompt_cache_options"}


def with_settings(
    api: Api, client: Any, sdk: Any, request: dict[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the request with the settings in it, under the names of the SDK.

    A setting that the SDK does not take, or that the request has already, is an error.
    """
    arranged: dict[str, Any] = {}
    for name, value in settings.items():
        if value is None or name in ("output_schema", "output_name"):
            continue
        if api.config is None and name != "timeout":  # Google's SDK checks its own values
            copy_json(value, f"settings: {name!r}")
        for parameter, setting in api.settings.get(name, lambda v, n=name: {n: v})(value).items():
            if parameter in arranged:
                raise InvalidInput(f"settings: {name!r} is given twice, as {parameter!r} too")
            arranged[parameter] = setting
    if settings.get("output_schema") is not None:
        output_name = settings.get("output_name") or "output"
        for parameter, setting in api.output(sdk, settings["output_schema"], output_name).items():
            before = arranged.get(parameter)
            arranged[parameter] = {**before, **setting} if isinstance(before, Mapping) else setting
    held = request if api.config is None else request.get("config", {})
    unknown = arranged.keys() - api.parameters(client)
    fixed = held.keys() - _YIELDING
    reserved = arranged.keys() & (fixed | {"model", "stream"})
    if unknown or reserved:
        name = min(unknown or reserved)
        why = "takes no such parameter" if unknown else "has it from the window already"
        raise InvalidInput(
            f"settings: {name!r} cannot be set, the {api.provider} call {why}; remove it"
        )
    merged = {**api.defaults, **held, **arranged}
    return merged if api.config is None else {**request, "config": api.config(merged)}


def _named(parameter: str) -> Setting:
    return lambda value: {parameter: value}


def _stops(value: Any) -> dict[str, Any]:
    if not isinstance(value, str | list | tuple):
        raise InvalidType(f"settings: 'stop' must be a str or a list of them, not {shown(value)}")
    return {"stop_sequences": [value] if isinstance(value, str) else list(value)}


def _signature(method: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters)


# --- OpenAI: https://platform.openai.com/docs/api-reference/chat/create and .../responses/create


def _open_openai(sdk: Any, options: Options) -> Any:
    return sdk.AsyncOpenAI(**options.given(), http_client=_http(sdk))


def _http(sdk: Any) -> Any:
    return sdk.DefaultAsyncHttpxClient(event_hooks={"response": [leave_to_caller]})


def _open_openrouter(sdk: Any, options: Options) -> Any:
    # Otherwise the SDK would look for OpenAI's own key and address.
    key = options.api_key or os.environ.get("OPENROUTER_API_KEY")
    if not key:
        raise ValueError("no key")
    address = options.base_url or os.environ.get("OPENROUTER_BASE_URL")
    address = address or "https://openrouter.ai/api/v1"
    return _open_openai(sdk, replace(options, api_key=key, base_url=address))


async def close(opened: Any) -> None:
    """Close a client, or a stream: the SDKs use different names for it."""
    if hasattr(opened, "aio"):  # Google's client has a second one inside
        await close(opened.aio)
        opened.close()
    else:
        await (getattr(opened, "aclose", None) or opened.close)()


async def _send_chat(client: Any, request: dict[str, Any], stream: bool) -> Any:
    if stream:
        # Without this option a stream tells no usage.
        request = {"stream_options": {"include_usage": True}, **request, "stream": True}
    return await client.chat.completions.create(**request)


async def _send_responses(client: Any, request: dict[str, Any], stream: bool) -> Any:
    return await client.responses.create(**request, stream=stream)


def _json_schema(schema: dict[str, Any], name: str) -> dict[str, Any]:
    closed = strict_schema(schema)
    return {
        "type": "json_schema",
        "name": name,
        "schema": schema if closed is None else closed,
        "strict": closed is not None,
    }


def _output_chat(sdk: Any, schema: dict[str, Any], name: str) -> dict[str, Any]:
    response_format = _json_schema(schema, name)
    return {
        "response_format": {"type": response_format.pop("type"), "json_schema": response_format}
    }


def _output_responses(sdk: Any, schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {"text": {"format": _json_schema(schema, name)}}


# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
_NOT_STRICT = frozenset({"allOf", "oneOf", "not", "if", "dependentRequired", "patternProperties"})


def strict_schema(schema: Any) -> Any:
    """Return the schema as strict mode wants it, or None if that mode cannot express it.

    Every object is closed and every property required, so defaults have no meaning there.
    """
    if isinstance(schema, list):
        items = [strict_schema(item) for item in schema]
        return None if None in items else items
    if not isinstance(schema, dict):
        return schema
    if _NOT_STRICT & schema.keys() or schema.get("additionalProperties"):
        return None
    if schema.get("type") == "object" and "properties" not in schema:
        return None
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            strict[key] = {
                name: strict_schema(property_schema) for name, property_schema in value.items()
            }
            if None in strict[key].values():
                return None
        elif key in ("anyOf", "items"):
            strict[key] = strict_schema(value)
            if strict[key] is None:
                return None
        elif key != "default":
            strict[key] = value
    if "properties" in strict:
        strict |= {"required": list(strict["properties"]), "additionalProperties": False}
    return strict


# --- Anthropic: https://platform.claude.com/docs/en/api/messages/create


def _open_anthropic(sdk: Any, options: Options) -> Any:
    client = sdk.AsyncAnthropic(**options.given(), http_client=_http(sdk))
    if not (client.api_key or client.auth_token or client.credentials):
        raise ValueError("no key")  # this SDK would raise only when it sends
    return client


async def _send_anthropic(client: Any, request: dict[str, Any], stream: bool) -> Any:
    # By default the SDK refuses long answers that are not streamed; with a timeout, here its own
    # default, it tries.
    timeout = {} if stream else {"timeout": client.timeout}
    if any(CLEAR_AT in message for message in request["messages"]):
        headers = {
            name.lower(): value for name, value in (request.get("extra_headers") or {}).items()
        }
        betas = filter(None, (headers.get("anthropic-beta"), _CLEAR_AT_BETA))
        request = {**request, "extra_headers": {**headers, "anthropic-beta": ",".join(betas)}}
    return await client.messages.create(**timeout | request, stream=stream)


# Texts for one turn are in beta:
# https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
_CLEAR_AT_BETA = "mid-conversation-system-clear-at-2026-08-21"


def _output_anthropic(sdk: Any, schema: dict[str, Any], name: str) -> dict[str, Any]:
    # https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    form = {"type": "json_schema", "schema": sdk.transform_schema(schema)}
    return {"output_config": {"format": form}}


# --- Google: https://ai.google.dev/api/generate-content


def _open_google(sdk: Any, options: Options) -> Any:
    hooks = {"response": [refuse_to_caller, _remember]}
    http: dict[str, Any] = {"async_client_args": {"event_hooks": hooks}}
    if options.base_url is not None:
        http["base_url"] = options.base_url
    if options.timeout is not None:
        http["timeout"] = _milliseconds(options.timeout)
    if options.max_retries is not None:
        http["retry_options"] = {"attempts": options.max_retries + 1}
    return sdk.Client(api_key=options.api_key, http_options=http)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1_000))


async def _send_google(client: Any, request: dict[str, Any], stream: bool) -> Any:
    if stream:
        return _google_stream(await client.aio.models.generate_content_stream(**request))
    return await client.aio.models.generate_content(**request)


# The HTTP responses behind a stream: if a stream is left early, Google's SDK leaves them open
# until the garbage collector runs.
_responses: ContextVar[list[Any] | None] = ContextVar("responses", default=None)


async def _remember(response: Any) -> None:
    seen = _responses.get()
    if seen is not None:
        seen.append(response)


async def _google_stream(chunks: Any) -> AsyncIterator[Any]:
    seen: list[Any] = []
    try:
        more = True
        while more:
            # Set only while the SDK works, so that no other code sees it.
            token = _responses.set(seen)
            try:
                chunk = await anext(chunks, None)
            finally:
                _responses.reset(token)
            more = chunk is not None
            if more:
                yield chunk
    finally:
        await close(chunks)
        for response in seen:
            await response.aclose()


def _google_config(settings: dict[str, Any]) -> Any:
    try:
        return import_module("google.genai.types").GenerateContentConfig(**settings)
    except ValueError as error:
        # Without the values: a header may hold a key.
        errors: list[Any] = getattr(error, "errors", lambda **_: [])(include_input=False)
        why = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in errors[:3]
        )
        raise InvalidInput(f"settings: Google's SDK does not take them: {why}") from None


def _google_parameters(client: Any) -> frozenset[str]:
    fields = import_module("google.genai.types").GenerateContentConfig.model_fields
    return frozenset(fields) | {field.alias for field in fields.values() if field.alias}


def _output_google(sdk: Any, schema: dict[str, Any], name: str) -> dict[str, Any]:
    # https://ai.google.dev/gemini-api/docs/structured-output
    return {"response_mime_type": "application/json", "response_json_schema": schema}


# --- Uploads: each function returns the id that the wire format writes, or None if the provider
# takes such a file only inline, or not at all.


async def _upload_chat(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload a document: Chat Completions takes other media only inline.

    https://platform.openai.com/docs/guides/pdf-files
    """
    if (mime or "").partition("/")[0] in ("image", "audio", "video"):
        return None
    return str((await client.files.create(file=(name, data, mime), purpose="user_data")).id)


async def _upload_responses(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload a document or an image: https://platform.openai.com/docs/api-reference/files/create"""
    if (mime or "").startswith("image/"):
        return str((await client.files.create(file=(name, data, mime), purpose="vision")).id)
    return await _upload_chat(client, data, name, mime)


async def _upload_anthropic(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload a file that a content block can refer to.

    https://platform.claude.com/docs/en/build-with-claude/files
    """
    if not (mime or "").startswith("image/") and mime not in ("application/pdf", "text/plain"):
        return None
    return str((await client.files.upload(file=(name, data, mime))).id)


async def _upload_google(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload any file whose type is known, and wait until it can be used.

    https://ai.google.dev/gemini-api/docs/files. Vertex AI has no such files.
    """
    if mime is None or client.vertexai:
        return None
    config = {"display_name": name, "mime_type": mime}
    file = await client.aio.files.upload(file=BytesIO(data), config=config)
    while file.state is not None and file.state.name == "PROCESSING":
        await asyncio.sleep(1)
        file = await client.aio.files.get(name=file.name)
    return str(file.uri)


async def _upload_nothing(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Return None: compatible servers take files inline, if at all."""
    return None


CHAT = Api(
    provider="openai",
    sdk="openai",
    wire="chat",
    keys=("OPENAI_API_KEY",),
    address="OPENAI_BASE_URL",
    host="openai.com",
    settings=dict.fromkeys(("max_tokens", "max_output_tokens"), _named("max_completion_tokens")),
    output=_output_chat,
    open=_open_openai,
    send=_send_chat,
    upload=_upload_chat,
    parameters=lambda client: _signature(client.chat.completions.create),
    defaults={},
)
# Ollama and others know only the older name (https://docs.ollama.com/api/openai-compatibility);
# OpenAI's own newer models refuse it.
COMPATIBLE = replace(
    CHAT, settings={"max_output_tokens": _named("max_tokens")}, upload=_upload_nothing
)

# The first API listed for a provider is its default.
APIS: dict[tuple[str, str], Api] = {
    ("openai", "chat"): CHAT,
    ("openai", "responses"): replace(
        CHAT,
        wire="responses",
        settings={"max_tokens": _named("max_output_tokens")},
        output=_output_responses,
        send=_send_responses,
        upload=_upload_responses,
        parameters=lambda client: _signature(client.responses.create),
    ),
    ("anthropic", "messages"): Api(
        provider="anthropic",
        sdk="anthropic",
        wire="anthropic",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        address="ANTHROPIC_BASE_URL",
        host="anthropic.com",
        settings={"max_output_tokens": _named("max_tokens"), "stop": _stops},
        output=_output_anthropic,
        open=_open_anthropic,
        send=_send_anthropic,
        upload=_upload_anthropic,
        parameters=lambda client: _signature(client.messages.create),
        defaults={"max_tokens": ANTHROPIC_MAX_TOKENS},
    ),
    # https://openrouter.ai/docs/quickstart: OpenAI's language, names such as anthropic/claude-...
    ("openrouter", "chat"): replace(
        COMPATIBLE,
        provider="openrouter",
        keys=("OPENROUTER_API_KEY",),
        address="OPENROUTER_BASE_URL",
        host="openrouter.ai",
        open=_open_openrouter,
    ),
    ("google", "generate_content"): Api(
        provider="google",
        sdk="google.genai",
        wire="google",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        address="GOOGLE_GEMINI_BASE_URL",
        host="googleapis.com",
        settings={
            "max_tokens": _named("max_output_tokens"),
            "stop": _stops,
            "timeout": lambda value: {"http_options": {"timeout": _milliseconds(value)}},
        },
        output=_output_google,
        open=_open_google,
        send=_send_google,
        upload=_upload_google,
        parameters=_google_parameters,
        config=_google_config,
        defaults={},
    ),
}
