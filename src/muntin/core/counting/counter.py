"""Counting: the Tokenizer protocol, and what a text, a message or a tool costs.

Every count goes through a `Counter`, which asks the tokenizer once per text and remembers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable
from weakref import WeakKeyDictionary

from muntin.core.checks import check_size, compact_json, shown
from muntin.core.counting.files import data_of, file_tokens, held_file, is_text
from muntin.core.counting.images import ATTACHMENT_TOKENS, image_tokens
from muntin.core.counting.law import PLAIN, Law, Size
from muntin.core.counting.memo import FormMemo
from muntin.core.counting.sizes import size_of, size_of_url
from muntin.core.counting.tools import name_forms, tools_tokens
from muntin.core.message import NO_RESULT, Message, answered, counted, has_thought
from muntin.core.model_name import ModelName
from muntin.core.parts import MODALITIES, Attachment, File, Image, Other, Part, Reasoning, Text
from muntin.core.schemas import NO_SCHEMAS, Schemas
from muntin.core.tool_marks import CALL, is_boxed
from muntin.core.usage import AnswerTokens
from muntin.errors import InvalidInput, InvalidType, MissingExtra, TokenizerError

if TYPE_CHECKING:
    from muntin.core.profile import Profile

# Part of the key of a count that has more in it than content and calls.
_BESIDE = "/beside+"

# Raised when a rule of counting changes: older counts, and counts in files, are not used.
COUNTING = 2
# A report of an answer is not believed beyond four times its count and so many tokens.
_FEW = 256
# What only the provider can read: it is not a part of the prompt's text.
_SEALED = frozenset({"encrypted_content", "signature", "fingerprint", "thought_signature"})
# A conversation that OpenAI compacted, until its size is reported (recorded: 285).
_COMPACTION = 300


@runtime_checkable
class Tokenizer(Protocol):
    """Anything that counts the tokens of a text.

    `message_overhead` is what one message costs beside its text (roles, keys, separators),
    `name_overhead` what the name of a message costs beside its text, `answer_overhead` what a
    request costs beside its messages and tools: the frame of the answer. A tokenizer without
    such an attribute costs 0.
    """

    @property
    def name(self) -> str:
        """Its name in reports and errors."""

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`."""


TokenizerLike: TypeAlias = Tokenizer | Callable[[str], int] | str
AttachmentTokens: TypeAlias = Mapping[str, int] | Callable[[Attachment], int]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CharsPerToken:
    """The old rough estimate: a fixed number of characters a token, rounded up."""

    characters: int = 4
    message_overhead: int = 0

    @property
    def name(self) -> str:
        """`chars/4`: the name by which it is asked for."""
        return f"chars/{self.characters}"

    def count(self, text: str) -> int:
        """Return the number of characters divided, rounded up."""
        return -(-len(text) // self.characters)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _FunctionTokenizer:
    """A plain callable as a tokenizer."""

    count: Callable[[str], int]
    message_overhead: int = 0

    @property
    def name(self) -> str:
        return str(getattr(self.count, "__name__", None) or repr(self.count))


def as_tokenizer(value: TokenizerLike | None) -> Tokenizer:
    """Return the tokenizer that `value` stands for.

    A Tokenizer is itself; a callable `str -> int` has no overhead; a name is `"estimate"` (also
    for None), `"chars/4"` (or any other number of characters), `"o200k_base"`, `"cl100k_base"`,
    or a model: OpenAI models count exactly, all others by the estimate.

    Counts are remembered for as long as the tokenizer lives, a method's for as long as its
    object. A lambda written at the call is new every time, and remembers nothing: give it a name
    outside of the loop.
    """
    if value is None or isinstance(value, str):
        return _tokenizer_by_name("estimate" if value is None else value)
    if hasattr(value, "name") and callable(getattr(value, "count", None)):
        return cast("Tokenizer", value)
    if callable(value):
        return _FunctionTokenizer(value)
    raise InvalidType(
        f"a tokenizer must be a name, a callable (text -> int) or an object with "
        f"count(text) and name, not {shown(value)}"
    )


@cache  # one object a name, so that all its users share one memo
def _tokenizer_by_name(name: str) -> Tokenizer:
    from muntin.core.counting.estimate import Estimate
    from muntin.core.counting.exact import encoding_for_model, openai_tokenizer

    if name == "estimate":
        return Estimate()
    if name.startswith("chars/"):
        number = name.removeprefix("chars/")
        # Nine digits: Python refuses to read numbers of thousands.
        if not (number.isascii() and number.isdecimal() and len(number) < 10 and int(number)):
            raise InvalidInput(
                f"unknown tokenizer {shown(name)}; after 'chars/' comes a number such as 4"
            )
        return CharsPerToken(int(number))
    if name.startswith(("o200k", "cl100k")):
        return openai_tokenizer(name)
    encoding = encoding_for_model(name)
    if encoding is not None:
        return openai_tokenizer(encoding)
    if ModelName.parse(name).provider is not None:
        return _tokenizer_by_name("estimate")
    raise InvalidInput(
        f"unknown tokenizer {shown(name)}; use 'estimate', 'chars/4', 'o200k_base', 'cl100k_base', "
        "a model such as 'openai/gpt-4o', or a callable (text -> int)"
    )


# By tokenizer, by function (a bound method is a new object each time it is asked for), and by what
# the memo is of: counts of texts, or forms of messages, whose images a formula counts.
_memos: WeakKeyDictionary[object, dict[object, FormMemo]] = WeakKeyDictionary()


def _memo_for(tokenizer: Tokenizer, contents: str) -> FormMemo:
    """Return a memo that all counters of this tokenizer share, for as long as it lives."""
    owner: Any = tokenizer.count if isinstance(tokenizer, _FunctionTokenizer) else tokenizer
    function = None
    if isinstance(owner, MethodType):
        owner, function = owner.__self__, owner.__func__
    memo = FormMemo()
    try:
        return _memos.setdefault(owner, {}).setdefault((function, contents), memo)
    except TypeError:  # not hashable, or takes no weak references
        return memo


class Counter:
    """Counts texts, messages and tools with one tokenizer, each text once."""

    __slots__ = (
        "_attachment_tokens",
        "_counts",
        "_image_formula",
        "_media_key",
        "_no_result",
        "_notes",
        "_tools",
        "answer",
        "forms",
        "law",
        "name",
        "name_overhead",
        "overhead",
        "text_key",
        "tokenizer",
    )

    def __init__(
        self,
        tokenizer: TokenizerLike | None = None,
        *,
        attachment_tokens: AttachmentTokens | None = None,
        image_formula: str = "openai-tiles",
    ) -> None:
        self.tokenizer = as_tokenizer(tokenizer)
        self.name = self.tokenizer.name
        self.overhead = self._overhead("message_overhead")
        self.name_overhead = self._overhead("name_overhead")
        self.answer = self._overhead("answer_overhead")
        self._attachment_tokens = check_attachment_tokens(attachment_tokens)
        self._image_formula = image_formula
        # How the tokens of a request by the provider follow from those counted here.
        self.law = PLAIN
        self._counts = _memo_for(self.tokenizer, "texts")
        # The shorter forms of messages with their tokens. Attachments that the caller counts, by a
        # rule that may change, are in no shared memo.
        is_shared = attachment_tokens is None
        self.forms = _memo_for(self.tokenizer, image_formula) if is_shared else FormMemo()
        # The keys of stored counts, for messages of text and for others: all that a count depends
        # on. None for a plain function, whose name says nothing, and where the caller counts
        # attachments.
        self.text_key: str | None = None
        self._media_key: str | None = None
        if not isinstance(self.tokenizer, _FunctionTokenizer):
            self.text_key = f"{self.name}+{self.overhead}#{COUNTING}"
            if attachment_tokens is None:
                self._media_key = f"{self.text_key}/{image_formula}/sealed"
        # Whether messages note their counts. Not with a tokenizer object or function of the caller:
        # another one may have the same name.
        self._notes = tokenizer is None or tokenizer.__class__ is str
        # The tokens of the result that the wire adds to a lone call; None until first needed.
        self._no_result: int | None = None
        # The schemas counted last, and their tokens: all windows of a turn offer the same tools.
        self._tools = NO_SCHEMAS, 0

    def _overhead(self, attribute: str) -> int:
        value = getattr(self.tokenizer, attribute, 0)
        if type(value) is not int or value < 0:
            check_size(value, f"{attribute} of tokenizer {self.name!r}")
        return int(value)

    @classmethod
    def of(
        cls,
        profile: Profile | None,
        *,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
    ) -> Counter:
        """Return how a window is counted for a model: exactly where its vocabulary is known.

        A tokenizer that is given wins. Without a profile, or without the package that reads the
        vocabulary, the estimate counts.
        """
        if profile is None:
            return cls(tokenizer, attachment_tokens=attachment_tokens)
        if tokenizer is None:
            try:
                as_tokenizer(tokenizer := profile.tokenizer)
            except MissingExtra:
                tokenizer = None
        counter = cls(
            tokenizer, attachment_tokens=attachment_tokens, image_formula=profile.image_formula
        )
        # A tokenizer that counts no frames of requests counts texts alone.
        first = profile.added_tokens if counter.answer else (0, 0)
        counter.law = Law(first, keeps_thoughts=profile.keeps_thoughts)
        return counter

    def with_law(self, law: Law) -> Counter:
        """Return the counter of a model of which more is known."""
        if law == self.law:
            return self
        return self._copied(law=law)

    def with_form(self, schema: Mapping[str, Any] | None) -> Counter:
        """Return the counter of requests for an answer of a given form: its schema is sent along,
        and counts as a part of the answer's frame."""
        return self.with_form_tokens(self.form(schema))

    def with_form_tokens(self, tokens: int) -> Counter:
        """Do the same as `with_form` for a schema that has so many tokens."""
        return self._copied(answer=self.answer + tokens) if tokens else self

    def _copied(self, **changes: Any) -> Counter:
        copy = object.__new__(Counter)
        for name in Counter.__slots__:
            setattr(copy, name, changes.get(name, getattr(self, name)))
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the memo, which all counters of a tokenizer share.
        state = (self.tokenizer, self._attachment_tokens or None, self._image_formula)
        return _restored, (*state, self.answer, self._notes, self.law)

    def text(self, text: str) -> int:
        """Count a text."""
        tokens: int | None = self._counts.get(text)
        if tokens is None:
            tokens = self.text_once(text)
            self._counts.put(text, tokens, len(text))
        return tokens

    def text_once(self, text: str) -> int:
        """Count a text that will not come back, such as a trial cut, without remembering it."""
        try:
            answer: object = self.tokenizer.count(text)
        except Exception as error:
            raise TokenizerError(
                f"tokenizer {self.name!r} raised {type(error).__name__} "
                f"on a text of {len(text)} characters: {error}"
            ) from error
        if type(answer) is not int:
            try:
                if isinstance(answer, bool):
                    raise TypeError
                answer = operator.index(answer)  # type: ignore[arg-type]
            except TypeError:
                raise TokenizerError(
                    f"tokenizer {self.name!r} returned {shown(answer)} for a text of {len(text)} "
                    "characters; it must return an integer"
                ) from None
        if answer < 0:
            raise TokenizerError(
                f"tokenizer {self.name!r} returned {answer} for a text of {len(text)} "
                "characters; a count cannot be negative"
            )
        return answer

    def message(self, message: Message) -> int:
        """Count a message: its text, calls, parts and attachments, and the overhead. An answer has
        as many tokens as the provider reported."""
        if message.answer_tokens is not None:
            return self._answer(message, message.answer_tokens)
        return self.plain(message)

    def size(self, messages: Iterable[Message], tokens: int, has_tools: bool) -> Size:
        """Return the size of a request of `tokens` tokens that holds these messages."""
        if not any(message.answer_tokens for message in messages):
            return Size(tokens, 0, has_tools)
        answers = counted_as = 0
        for message in messages:
            if message.answer_tokens is not None:
                size = self._answer(message, message.answer_tokens)
                counted_as += size
                answers += round(size * self.law.factor)
        return Size(max(0, tokens - counted_as), answers, has_tools)

    def shortened(self, message: Message, shorter: Message) -> Message:
        """Return a shorter form of an answer: the reasoning that led to it counts as before."""
        known = message.answer_tokens
        if known is None or not known.reasoning:
            return shorter
        visible = round(self.law.factor * self.plain(shorter, thoughts=False))
        return answered(shorter, known._replace(output=known.reasoning + visible))

    def _answer(self, message: Message, known: AnswerTokens) -> int:
        """Count an answer whose tokens the provider reported. Its reasoning counts if it is sent
        back and read again: in the tool loop that it began, and later by some models."""
        plain = self.plain(message)
        is_sent = has_thought(message)
        is_read = is_sent and (known.in_run or self.law.keeps_thoughts)
        if is_sent and not is_read and not known.reasoning:  # a part of it, nobody knows how large
            return self.plain(message, thoughts=False)
        if known.reasoning and is_sent:
            plain = self.plain(message, thoughts=False)
        visible = self.law.ours(max(0, known.output - known.reasoning))
        if not (is_read and not known.reasoning):
            visible = min(visible, 4 * plain + _FEW)
        return max(plain // 2, visible) + (self.law.ours(known.reasoning) if is_read else 0)

    def plain(self, message: Message, *, thoughts: bool = True) -> int:
        """Count a message by its content, whatever was reported of it."""
        stored = message.known_tokens if thoughts else None
        if stored is not None and (stored[0] == self.text_key or stored[0] == self.key(message)):
            return stored[1]
        content = message.content
        tokens = self.overhead
        try:
            if isinstance(content, str):
                tokens += self.text(content)
            else:
                tokens += sum(
                    self._part(part)
                    for part in content or ()
                    if thoughts or not isinstance(part, Reasoning)
                )
            for call in message.tool_calls:
                # A tool may be sent under another name: the longest is counted.
                tokens += max(map(self.text, name_forms(call.name))) + self.text(call.arguments)
                if call.extra and is_boxed(call):  # it may be sent as a call of `call_tool`
                    tokens += self.text(f'{CALL}{{"name":"","arguments":}}')
            tokens += sum(map(self._attachment, message.attachments))
            if message.name:
                tokens += self.text(message.name) + self.name_overhead
            if message.extra and thoughts:
                tokens += self._extra(message, message.extra)
        except TokenizerError as error:
            at = "" if message.at is None else f" at {message.at:g}"
            located = TokenizerError(f"{error}; it is in a message of role {message.role!r}{at}")
            located.culprit = message
            raise located from error
        if stored is None and thoughts and self._notes and (key := self.key(message)) is not None:
            counted(message, key, tokens)
        return tokens

    def key(self, message: Message | None = None) -> str | None:
        """Return the key under which the count of a message, or of a text, may be kept."""
        besides = message is not None and bool(message.name or message.extra)
        if message is None or not (
            message.attachments or besides or isinstance(message.content, tuple)
        ):
            return self.text_key
        content = message.content if isinstance(message.content, tuple) else ()
        plain = not message.attachments and all(isinstance(p, Text | Reasoning) for p in content)
        key = self.text_key if plain else self._media_key
        return f"{key}{_BESIDE}{self.name_overhead}" if key and besides else key

    def missing_result(self) -> int:
        """Count the fixed result that the wire adds for a call without one."""
        if self._no_result is None:
            self._no_result = self.overhead + self.text(NO_RESULT)
        return self._no_result

    def tools(self, tools: Iterable[Mapping[str, Any]]) -> int:
        """Count tool schemas as compact JSON with sorted keys, plus one overhead each; or by
        OpenAI's formula, where it is known and gives more."""
        tools_counted, total = self._tools
        if tools_counted is tools:
            return total
        schemas = (tools if isinstance(tools, Schemas) else Schemas(tools)).in_prompt
        total = self.overhead * len(schemas)
        for number, text in enumerate(schemas.texts):
            try:
                total += self.text(text)
            except TokenizerError as error:
                raise TokenizerError(f"{error}; it is the schema of tools[{number}]") from error
        overhead = getattr(self.tokenizer, "function_overhead", None)
        if overhead is not None and schemas:
            total = max(total, tools_tokens(schemas, self.text, overhead))
        self._tools = schemas, total
        return total

    def form(self, schema: Mapping[str, Any] | None) -> int:
        """Count the schema of a structured answer, which is sent like a tool's."""
        return 0 if schema is None else self.overhead + self.text(compact_json(schema))

    def beside(self, tools: Iterable[Mapping[str, Any]]) -> int:
        """Count what a request costs beside its messages: tools, the frame of the answer, and what
        the provider always adds."""
        tokens = self.tools(tools) + self.answer
        return tokens + self.law.first[bool(getattr(tools, "in_prompt", tools))]

    def _extra(self, message: Message, extra: Mapping[str, Any]) -> int:
        """Count the fields that Chat Completions servers put beside the content and take back:
        reasoning, a refusal or, in an older form, a call."""
        texts = [extra.get(field) for field in ("reasoning_content", "reasoning", "refusal")]
        details = extra.get("reasoning_details")
        for detail in details if isinstance(details, list | tuple) else ():
            if isinstance(detail, Mapping):  # encrypted payloads and signatures are not counted
                texts += [detail.get("text"), detail.get("summary")]
        called = extra.get("function_call")
        if isinstance(called, Mapping):
            texts += [called.get("name"), called.get("arguments")]
        if message.role == "tool" and extra.get("is_error") and not message.text.strip():
            texts.append(NO_RESULT)  # a failed result is never sent empty
        return sum(self.text(text) for text in texts if isinstance(text, str))

    def _part(self, part: Part) -> int:
        if isinstance(part, Text | Reasoning):
            # A signature or encrypted payload is not prompt text: it is not counted.
            return self.text(part.text)
        if isinstance(part, Image):
            size = (part.width, part.height)
            if part.width is None or part.height is None:
                size = size_of_url(part.url) or size
            return image_tokens(*size, detail=part.detail or "auto", formula=self._image_formula)
        if isinstance(part, File):
            hint = self.text(file_hint(part.name)) if part.name else 0
            if not part.data:
                return ATTACHMENT_TOKENS["document"] + hint
            url = part.data if part.data[:5].lower() == "data:" else f"data:;base64,{part.data}"
            return self._data(url, part.name) + hint
        return self._other(part)

    def _data(self, url: str, name: str | None = None) -> int:
        """Count what a data URL holds: a text file as text."""
        content = data_of(url)
        if content is None:
            return file_tokens("document", len(url), name=name)
        mime, data = content
        kind = mime.partition("/")[0]
        if kind == "image" and (size := size_of(data)) is not None:
            return image_tokens(*size, formula=self._image_formula)
        modality = kind if kind in MODALITIES else "document"
        tokens = file_tokens(
            modality, len(data), name=name, mime_type=mime or None, formula=self._image_formula
        )
        if modality == "document" and (is_text(mime) or not mime) and tokens:
            with suppress(UnicodeDecodeError):
                return self.text(data.decode())
        return tokens

    def _other(self, part: Other) -> int:
        held = held_file(part.data)
        if held is not None:
            text, url, name = held
            hint = self.text(file_hint(name)) if name else 0
            return hint + (self.text(text) if text is not None else self._data(url or "", name))
        kind = part.data["type"]
        for modality in MODALITIES:
            if modality in kind:  # "video_url", "input_image", "document"
                return ATTACHMENT_TOKENS[modality]
        if kind in ("file_data", "input_file", "container_upload"):
            return ATTACHMENT_TOKENS["document"]
        if kind == "redacted_thinking":
            return 0
        if kind == "compaction" and "encrypted_content" in part.data:
            return _COMPACTION
        if not _SEALED.isdisjoint(part.data):
            return self.text(compact_json({k: v for k, v in part.data.items() if k not in _SEALED}))
        return self.text(compact_json(part.data))

    def _attachment(self, item: Attachment) -> int:
        override = self._attachment_tokens
        if callable(override):
            try:
                answer = override(item)
            except Exception as error:
                error.add_note(f"raised by attachment_tokens for attachment {item.name!r}")
                raise
            tokens = check_size(answer, f"attachment_tokens for {item.name!r}")
        elif item.modality in override:
            tokens = override[item.modality]
        else:
            tokens = file_tokens(
                item.modality,
                item.size,
                name=item.name,
                mime_type=item.mime_type,
                formula=self._image_formula,
            )
        return tokens + self.text(file_hint(item.name))


def _restored(
    tokenizer: Tokenizer,
    attachment_tokens: AttachmentTokens | None,
    formula: str,
    answer: int,
    notes: bool,
    law: Law,
) -> Counter:
    """Return a counter that was pickled."""
    counter = Counter(tokenizer, attachment_tokens=attachment_tokens, image_formula=formula)
    return counter._copied(answer=answer, _notes=notes, law=law)


def file_hint(name: str) -> str:
    """Return the line that tells the model the name of a file: always one line."""
    return f"File: {' '.join(name.splitlines())}"


def check_attachment_tokens(
    tokens_of: AttachmentTokens | None,
) -> Mapping[str, int] | Callable[[Attachment], int]:
    """Return the checked override of the formulas for attachments: by modality, or a function."""
    if tokens_of is None:
        return {}
    if callable(tokens_of):
        return tokens_of
    if not isinstance(tokens_of, Mapping):
        raise InvalidType(
            "attachment_tokens must map a modality to tokens, or be a callable, not "
            f"{shown(tokens_of)}"
        )
    for modality, tokens in tokens_of.items():
        if modality not in MODALITIES:
            raise InvalidInput(
                f"attachment_tokens: unknown modality {shown(modality)}; "
                f"use {', '.join(MODALITIES)}"
            )
        check_size(tokens, f"attachment_tokens[{modality!r}]")
    return dict(tokens_of)
