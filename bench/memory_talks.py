"""Long conversations of a user and an assistant, written for the benchmark of recall.

In four languages, each with labelled evidence. `answers`: twenty topics in 400 turns; in each the
user mentions a fact in passing, and the assistant's long answers repeat the words in which it is
asked for later. Every other fact stands in the turn after the one that has these words. `wishes`:
what the user wants for good, stated early; the late questions to which it applies share no word
with it. `updates`: facts that change twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.memory_words import LANGUAGES, Language, Update
from muntin import Message, assistant, user

TURNS = 400
# How often the values of a fact that changes are told.
VALUES = 3


class Question(NamedTuple):
    """A question of a kind, what a window must hold to answer it, and what would mislead alone."""

    kind: str
    language: str
    messages: Sequence[Message]
    text: str
    evidence: str
    outdated: Sequence[str] = ()


def questions(turns: int = TURNS) -> Iterator[Question]:
    """Yield the questions of all conversations."""
    for language in LANGUAGES:
        yield from answers(language, turns)
        yield from wishes(language, turns)
        yield from updates(language, turns)


def _answer(chance: random.Random, language: Language, subject: Sequence[str], asked: str) -> str:
    """Return a long answer that repeats the words of a topic, and of the question about it."""
    count = chance.randint(7, 14)
    sentences = [chance.choice(language.sentences) for _ in range(count)]
    texts = [language.echo.format(asked.strip("?？¿ "))]
    for number, sentence in enumerate(sentences):
        one, other = chance.sample(list(subject), 2)
        texts.append(sentence.format(one, other, number + 2))
    return language.joint.join(texts)


def _small(chance: random.Random, language: Language, subject: Sequence[str]) -> str:
    return chance.choice(language.requests).format(*chance.sample(list(subject), 2))


def answers(language: Language, turns: int) -> Iterator[Question]:
    """A user who mentions a fact in passing, and an assistant who speaks at length of the topic."""
    chance = random.Random(11)
    messages: list[Message] = []
    of_topic = turns // len(language.topics)
    for at, topic in enumerate(language.topics):
        place = chance.randrange(of_topic - 1)
        for number in range(of_topic):
            text = _small(chance, language, topic.subject)
            if at % 2 and number == place:
                text = language.considers.format(topic.question)
            elif at % 2 and number == place + 1:
                text = language.settles.format(topic.evidence)
            elif number == place:
                text = f"{topic.fact} {text}"
            messages.append(user(text))
            messages.append(assistant(_answer(chance, language, topic.subject, topic.question)))
    for topic in language.topics:
        yield Question("answers", language.name, messages, topic.question, topic.evidence)


def wishes(language: Language, turns: int) -> Iterator[Question]:
    """A user who states wishes within the first tenth, and asks where they apply at the end."""
    chance = random.Random(12)
    messages: list[Message] = []
    places = sorted(chance.sample(range(turns // 10), len(language.wishes)))
    stated = dict(zip(places, language.wishes, strict=True))
    for number in range(turns):
        topic = chance.choice(language.topics)
        wish = stated.get(number)
        text = _small(chance, language, topic.subject) if wish is None else wish.text
        answer = _answer(chance, language, topic.subject, text)
        messages += [user(text), assistant(language.agreed if wish else answer)]
    for wish in language.wishes:
        yield Question("wishes", language.name, messages, wish.question, wish.text)


def updates(language: Language, turns: int) -> Iterator[Question]:
    """A user whose facts change twice, and who asks for them at the end."""
    chance = random.Random(13)
    messages: list[Message] = []
    stated: dict[int, tuple[Update, str]] = {}
    places = chance.sample(range(turns - 20), VALUES * len(language.updates))
    for number, update in enumerate(language.updates):
        when = sorted(places[VALUES * number : VALUES * (number + 1)])
        stated.update({at: (update, value) for at, value in zip(when, update.values, strict=True)})
    for number in range(turns):
        topic = chance.choice(language.topics)
        text = _small(chance, language, topic.subject)
        asked = topic.question
        if number in stated:
            update, value = stated[number]
            text, asked = update.text.format(value), update.question
        messages += [user(text), assistant(_answer(chance, language, topic.subject, asked))]
    for update in language.updates:
        *old, new = (update.text.format(value) for value in update.values)
        yield Question("updates", language.name, messages, update.question, new, old)
