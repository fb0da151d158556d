"""Bit-sliced numbers: the scores of thousands of messages, added with a few operations on integers.

The idea, in one screen. Write the scores of a segment's messages below each other in binary:

    message      0  1  2  3            plane 0 (ones)    0b1010   messages 1 and 3
    score        4  5  0  7            plane 1 (twos)    0b1000   message 3
    in binary  100 101 000 111         plane 2 (fours)   0b1011   messages 0, 1 and 3

and read them column by column. Each column is one Python integer, a *plane*: bit `m` of plane `k`
is bit `k` of the score of message `m`. A list of planes holds all scores at once.

- The set of messages that have a word (a posting) is an integer too, with a bit for each message.
  "All of these have 5 points" is the posting in plane 0 and in plane 2, and nothing in plane 1.
- Two lists of scores are added as on paper, plane by plane with a carry (`add`). With 12 planes
  that is some sixty operations on integers, which Python does at the speed of memory, however many
  messages match.
- "A neighbour counts a little less" moves a posting by one message to either side. Shifting a large
  integer takes ten times as long as adding a plane, so the messages are dealt to four *lanes*, as
  cards to players: message `m` is bit `m // 4` of lane `m % 4`. The message behind it is the same
  bit of the next lane, and a shift is needed only from the last lane to the first (`beside`).
- The best messages are found from the highest plane down (`best`): messages with that bit set come
  before messages without it, and each half is divided again by the plane below. Nothing is sorted,
  and only the requested messages are computed.

Pure, and knows nothing of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import zip_longest
from operator import or_

# The messages of a block are dealt over this many integers.
LANES = 4


def add(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the sums of two lists of planes."""
    sums, carry = [], 0
    for x, y in zip_longest(one, other, fillvalue=0):
        either = x ^ y
        sums.append(either ^ carry)
        carry = x & y | carry & either
    if carry:
        sums.append(carry)
    return sums


def increase(planes: Sequence[int], mask: int, halvings: int) -> list[int]:
    """Return the scores; those in the mask increase by themselves, halved so many times."""
    return add(planes, [plane & mask for plane in planes[halvings:]])


def count(sets: Iterable[int]) -> list[int]:
    """Return for each message in how many of the sets it is, as planes: three sets of a plane
    become one of it and one of the next, until one is left."""
    planes, same = [], list(sets)
    while same:
        carried = []
        while len(same) > 1:
            x, y, z = same.pop(), same.pop(), same.pop() if same else 0
            either = x ^ y
            same.append(either ^ z)
            carried.append(x & y | z & either)
        planes += same
        same = carried
    return planes


def beside(lanes: Sequence[int]) -> list[int]:
    """Return the messages right before or behind one of these messages."""
    before = (lanes[-1] << 1, *lanes[:-1])
    behind = (*lanes[1:], lanes[0] >> 1)
    return list(map(or_, before, behind))


def between(first: int, end: int) -> list[int]:
    """Return the messages from number `first` to before `end`, in lanes."""
    ends = ((_before(first, lane), _before(end, lane)) for lane in range(LANES))
    return [max(0, (1 << high) - (1 << low)) for low, high in ends]


def _before(number: int, lane: int) -> int:
    """Return how many messages of a lane have a smaller number."""
    return max(0, (number - lane + LANES - 1) // LANES)


def best(planes: Sequence[int], start: int = 0, step: int = 1) -> Iterator[tuple[int, int]]:
    """Yield (-score, -number) of all messages with a score, best first, newest first among equals.

    Numbers begin at `start` and go up by `step`. Both values are negative, so that the smaller pair
    is the better one.
    """
    stack = [(reduce(or_, planes, 0), len(planes), 0)]
    while stack:
        mask, level, score = stack.pop()
        while level and mask:
            level -= 1
            high = mask & planes[level]
            if high:
                if high != mask:
                    stack.append((mask ^ high, level, score))
                mask, score = high, score | 1 << level
        while mask:
            newest = mask.bit_length() - 1
            mask ^= 1 << newest
            yield -score, -start - step * newest
