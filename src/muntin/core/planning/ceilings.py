"""Ceilings: what a provider takes of images, bytes and messages in one request.

Images leave by whole messages, the oldest first, many at once: between two such moves nothing in
front of the newest message changes. Pure functions of the composed messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from muntin.core.counting.counter import Counter
from muntin.core.counting.images import image_size
from muntin.core.message import Message
from muntin.core.parts import File, Image, Other
from muntin.core.planning.slot import Slot
from muntin.core.profile import RequestLimits

# So many images, and this part of the bytes, leave at once.
_STEP = 2


class Pictures(NamedTuple):
    """What a message holds beside texts: images by their longest sides, and bytes of contents."""

    sides: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What ceilings made of the messages of a window.

    `replaced` are messages without images, by their places. They have `tokens` fewer. `detail` says
    what left; `over` names the limit that what must stay exceeds.
    """

    replaced: dict[int, Message]
    tokens: int = 0
    detail: str | None = None
    over: str | None = None


NO_CEILING = Ceiling({})


def keep_to_limits(
    messages: Sequence[Message], slots: Sequence[Slot], limits: RequestLimits, counter: Counter
) -> Ceiling:
    """Return which messages lose their images so that a request is within the limits."""
    held: dict[int, Pictures] = {}
    for n, message in enumerate(messages):
        if message.attachments or message.content.__class__ is tuple:  # most are texts
            pictures = pictures_of(message)
            if pictures is not None:
                held[n] = pictures
    texts = sum([len(message.text) for message in messages])
    if 4 * texts > limits.bytes:  # most windows are far below
        texts = sum(map(_text_bytes, messages))
    if len(messages) > limits.messages:
        return Ceiling({}, over=f"{limits.messages:,} messages, it has {len(messages):,}")
    if not held:
        return NO_CEILING if texts <= limits.bytes else Ceiling({}, over=_bytes(limits, texts))
    newest = max(held)
    free = [n for n in held if n != newest and not _must_stay(slots[n])]
    count, most = sum([len(of.sides) for of in held.values()]), limits.images
    large = any(side > limits.side_of_many for of in held.values() for side in of.sides)
    if large and count > limits.many:
        most = limits.many
    leave_images = _steps(count - most, max(1, most // _STEP))
    size = texts + sum([of.bytes for of in held.values()])
    leave_bytes = _steps(size - limits.bytes, limits.bytes // (2 * _STEP))
    gone: list[int] = []
    for n in free:
        is_too_large = any(side > limits.side for side in held[n].sides)
        if leave_images <= 0 and leave_bytes <= 0 and not is_too_large:
            continue
        gone.append(n)
        leave_images -= len(held[n].sides)
        leave_bytes -= held[n].bytes
    stays = {n: of for n, of in held.items() if n not in gone}
    return _cut(messages, gone, held, counter, _over(stays, texts, limits))


def _over(stays: dict[int, Pictures], texts: int, limits: RequestLimits) -> str | None:
    """Name the limit that what stays exceeds."""
    sides = [side for of in stays.values() for side in of.sides]
    size = texts + sum([of.bytes for of in stays.values()])
    largest = max(sides, default=0)
    if largest > limits.side:
        return f"{limits.side:,} pixels a side of an image, one has {largest:,}"
    if len(sides) > limits.images:
        return f"{limits.images:,} images, {len(sides):,} must stay"
    if len(sides) > limits.many and largest > limits.side_of_many:
        return (
            f"{limits.side_of_many:,} pixels a side where there are more than {limits.many} "
            f"images; {len(sides):,} must stay, one with {largest:,} pixels"
        )
    return _bytes(limits, size) if size > limits.bytes else None


def _bytes(limits: RequestLimits, size: int) -> str:
    return f"{limits.bytes:,} bytes, what must stay has about {size:,}"


def _cut(
    messages: Sequence[Message],
    gone: Sequence[int],
    held: dict[int, Pictures],
    counter: Counter,
    over: str | None,
) -> Ceiling:
    replaced, tokens, images = {}, 0, 0
    for n in gone:
        message, count = messages[n], max(1, len(held[n].sides))
        line = f"[{count} image{'s' * (count > 1)} left out]"
        text = f"{message.text}\n{line}" if message.text else line
        replaced[n] = shorter = replace(message, content=text, attachments=())
        tokens += max(0, counter.message(message) - counter.message(shorter))
        images += count
    detail = f"{images:,} images left: the provider takes no more in one request" if gone else None
    return Ceiling(replaced, tokens, detail, over)


def pictures_of(message: Message) -> Pictures | None:
    """Return the images and files of a message; None if it has texts alone."""
    parts = [*_parts(message)]
    if not parts:
        return None
    return Pictures(tuple(side for side, _ in parts if side), sum([size for _, size in parts]))


def _parts(message: Message) -> Iterator[tuple[int, int]]:
    """Yield for each image or file its longest side, 0 for a file, and its bytes in a request."""
    for part in message.content if isinstance(message.content, tuple) else ():
        if isinstance(part, Image):
            yield max(part.width or 0, part.height or 0, *image_size(part.url)), len(part.url)
        elif isinstance(part, File) and part.data:
            yield 0, len(part.data)
        elif isinstance(part, Other):
            source = part.data.get("source")
            data = source.get("data") if isinstance(source, dict) else None
            if part.data["type"] == "image" and isinstance(source, dict):
                url = f"data:;base64,{data}" if isinstance(data, str) else ""
                yield max(1, *image_size(url)), len(url)
            elif isinstance(data, str):
                yield 0, len(data)
    for file in message.attachments:
        if file.modality == "image":
            yield 1, file.size * 4 // 3


def _text_bytes(message: Message) -> int:
    size = len(message.text) if message.text.isascii() else len(message.text.encode())
    return size + sum([len(call.arguments) for call in message.tool_calls])


def _must_stay(slot: Slot) -> bool:
    return slot.kind == "input" or slot.required


def _steps(over: int, step: int) -> int:
    """Return how much leaves if so much is over a limit: whole steps."""
    return 0 if over <= 0 else -(-over // max(1, step)) * max(1, step)
