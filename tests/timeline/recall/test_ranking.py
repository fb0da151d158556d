"""Words, index and ranking, by literal cases: what each question finds, and with how many points.

The points are those of the method as it was measured; another number is another method.
"""

from __future__ import annotations

from datetime import date
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.timeline.recall.dates import dates_in
from muntin.timeline.recall.index import Index
from muntin.timeline.recall.phrases import asks_assistant, states_wish
from muntin.timeline.recall.ranking import MOST_WORDS, SCALE, rank, understand
from muntin.timeline.recall.related import Related, table
from muntin.timeline.recall.words import is_identifier, stem, terms, words
from tests.timeline.recall.corpus import SAID

CASES: list[tuple[str, list[tuple[int, int]]]] = [
    ("What is the name of Nora's pet?", [(0, 86), (2, 78), (16, 74), (18, 66), (1, 56), (17, 47)]),
    (
        "Where does Nora work, and what is her profession?",
        [(4, 78), (2, 64), (14, 58), (16, 48), (3, 46), (12, 42)],
    ),
    (
        "What happened to order HAT023?",
        [(16, 166), (17, 121), (15, 117), (18, 88), (14, 82), (19, 70)],
    ),
    ("Who is mia_li_3668?", [(17, 282), (18, 198), (16, 198), (19, 138), (15, 138), (20, 96)]),
    (
        "How much did the animal doctor cost?",
        [(1, 58), (39, 54), (11, 46), (2, 46), (0, 44), (27, 42)],
    ),
    (
        "What musical instrument does Tomas play?",
        [(17, 50), (19, 38), (37, 36), (27, 36), (21, 34), (15, 34)],
    ),
    ("What did Tomas do in May 2023?", [(23, 106), (1, 90), (5, 86), (3, 82), (7, 76), (39, 74)]),
    ("What happened on 2 September?", [(8, 60), (21, 54), (20, 54), (22, 47), (9, 47), (7, 42)]),
    (
        "When did the puppy hurt itself?",
        [(20, 30), (13, 25), (27, 23), (26, 23), (14, 23), (21, 21)],
    ),
    ("旅馆在哪里?", [(32, 42), (33, 29), (31, 29), (34, 20), (30, 20), (35, 14)]),
    (
        "Wann ist die Wohnung gekündigt worden?",
        [(33, 141), (34, 99), (32, 99), (35, 69), (31, 69), (36, 48)],
    ),
    ("京都で誰と会いますか", [(34, 212), (35, 148), (33, 148), (36, 104), (32, 104), (37, 72)]),
    ("2023-10-14", [(23, 314), (24, 230), (22, 230), (25, 170), (21, 170), (26, 128)]),
    ("Did they travel in March?", [(31, 76), (37, 58), (32, 53), (30, 53), (38, 51), (39, 45)]),
    ("the and of", []),
    ("", []),
]


def indexed(segment: int = 16_384, together: int = 8) -> Index:
    index = Index(segment, together)
    for name, day, text in SAID:
        index.add(text, name=name, day=day)
    return index


@pytest.mark.parametrize(("question", "found"), CASES)
def test_a_question_finds_what_bears_on_it(question, found):
    index = indexed()
    hits = islice(rank(index, understand(index, question, table())), 6)
    assert [(hit.number, round(hit.score * SCALE)) for hit in hits] == found


def test_nothing_is_counted_across_the_border_of_a_block():
    index = indexed(segment=17, together=1)  # the last of its block is the message about HAT023
    numbers = {hit.number for hit in rank(index, understand(index, "HAT023"))}
    assert 16 in numbers
    assert 15 in numbers
    assert 17 not in numbers


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from(CASES))
def test_only_what_is_within_is_found_in_the_same_order(first, end, case):
    index = indexed(segment=7, together=2)
    question = understand(index, case[0], table())
    every = [hit for hit in rank(index, question) if first <= hit.number < end]
    assert list(rank(index, question, range(first, end))) == every


def test_what_the_assistant_said_comes_behind_unless_the_question_asks_for_it():
    index = Index()
    for role in ("assistant", "user", "tool"):
        index.add("The hotel in Bergen is Solheim.", role=role)
        for _ in range(12):
            index.add("Nothing of note.", role=role)
    about = "the hotel in Bergen?"
    scores = {hit.number: hit.score for hit in rank(index, understand(index, f"Which is {about}"))}
    assert scores[13] == scores[26] == pytest.approx(1.5 * scores[0], abs=0.1)
    question = understand(index, f"What did you recommend as {about}")
    assert {hit.score for hit in rank(index, question) if hit.number in (0, 13, 26)} == {scores[0]}


def test_a_wish_that_lasts_counts_one_half_more_and_only_the_users():
    index = Index()
    for role in ("user", "tool"):
        for text in ("Answer in metric units.", "Always answer in metric units."):
            index.add(text, role=role)
            for _ in range(12):
                index.add("Nothing of note.", role=role)
    scores = {hit.number: hit.score for hit in rank(index, understand(index, "metric units"))}
    assert scores[13] == pytest.approx(1.5 * scores[0], abs=0.1)
    assert scores[39] == scores[26] == scores[0]


def test_a_longer_message_loses_a_level_for_each_class_of_length():
    sizes = (6, 7, 13, 21, 33, 51, 81, 131, 201, 321)
    index = Index()
    for size in sizes:
        index.add(" ".join(["zeppelin", *(f"w{size}x{n}" for n in range(size - 1))][:size]))
        for _ in range(12):
            index.add("Nothing of note.")
    question = understand(index, "zeppelin")
    scores = {hit.number: hit.score for hit in rank(index, question)}
    of_sizes = [scores[13 * place] for place in range(len(sizes))]
    assert of_sizes == pytest.approx([of_sizes[0] * 0.7 ** (n / 3) for n in range(10)], abs=0.2)


@pytest.mark.parametrize(
    ("question", "frames"),
    [
        ("Which kinds of zeppelin were mentioned?", "kinds mentioned"),
        ("Welche Sorten Zeppelin haben wir besprochen?", "welche sorten besprochen"),
        ("Quels types de zeppelin avons-nous mentionnés?", "quels types mentionnés"),
        ("¿Qué tipos de zeppelin hemos mencionado?", "qué tipos hemos mencionado"),
    ],
)
def test_words_that_only_frame_a_question_count_a_quarter(question, frames):
    weights = understand(indexed(), question).weights
    for frame in terms(frames):
        assert weights[frame] == pytest.approx(weights["zeppeli"] / 4)


@pytest.mark.parametrize(
    ("wish", "question", "plain"),
    [
        ("From now on call me Ada.", "What did you suggest?", "The train leaves at nine."),
        ("Antworte immer auf Deutsch.", "Was hast du empfohlen?", "Der Zug fährt um neun."),
        ("Réponds toujours en français.", "Qu'est-ce que tu as dit ?", "Le train part à neuf."),
        ("Prefiero respuestas cortas.", "¿Qué me recomendaste?", "El tren sale a las nueve."),
        ("请始终用中文回答。", "你推荐了哪家旅馆?", "火车九点出发。"),
        ("いつも日本語で答えてください。", "あなたは何と言いましたか", "電車は九時に出ます。"),
    ],
)
def test_wishes_and_questions_to_the_assistant_are_known_in_six_languages(wish, question, plain):
    assert states_wish(wish)
    assert asks_assistant(question)
    for text in (plain, "Поезд отходит в девять."):
        assert not states_wish(text)
        assert not asks_assistant(text)


def test_identifiers_are_read_whole_and_in_parts_and_dense_scripts_in_bigrams():
    text = "mia_li_3668 HAT023 2024-05-20 children's de-stress Straße the 旅行の本 café"
    assert " ".join(words(text)) == (
        "miali3668 mia li 3668 hat023 20240520 2024 05 20 children destress de stress strasse "
        "旅行 行の の本 cafe"
    )
    assert [each for each in ("hat023", "3668", "77120934", "oslo") if is_identifier(each)] == [
        "hat023",
        "77120934",
    ]


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        ("running", "run"),
        ("stopped", "stop"),
        ("cities", "city"),
        ("classes", "class"),
        ("buses", "bus"),
        ("agree", "agr"),
        ("stress", "stress"),
        ("filled", "fill"),
        ("used", "used"),
        ("children", "childre"),
        ("hat023", "hat023"),
    ],
)
def test_a_word_is_shortened_to_its_stem(word, stemmed):
    assert stem(word) == stemmed


@given(st.text(max_size=300))
def test_every_text_has_terms_without_white_space(text):
    for term in terms(text):
        assert term
        assert not any(each.isspace() for each in term)


def test_related_words_are_known_by_their_codes():
    near = table().near("hospital")
    assert [(round(alike, 3), term) for alike, term in near[:5]] == [
        (1.0, "hospita"),
        (0.669, "hospita"),
        (0.559, "hospita"),
        (0.43, "clinic"),
        (0.421, "md"),
    ]
    assert table().near("qzx") == ()
    with pytest.raises(ValueError, match="no table of words"):
        Related(b"something else altogether")


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("on 8 May 2023", [(date(2023, 5, 8), 0)]),
        ("May 8th, 2023", [(date(2023, 5, 8), 0)]),
        ("in March", [(date(2022, 3, 1), 30), (date(2023, 3, 1), 30)]),
        ("in 2023", [(date(2023, 1, 1), 364)]),
        ("it may march on", []),
        ("nothing", []),
    ],
)
def test_the_dates_of_a_question(text, days):
    found = [(first.toordinal(), first.toordinal() + more) for first, more in days]
    assert list(dates_in(text, range(2022, 2024))) == found


def test_of_a_question_of_many_words_the_rarest_count():
    index = indexed()
    question = understand(index, " ".join(f"word{n}" for n in range(5_000)) + " cello", table())
    assert len(question.words) == MOST_WORDS
    assert "cello" in question.weights  # it was said, and the others never were
    index.add(" ".join(f"word{n}" for n in range(5_000)) + " cello")
    asked = " ".join(f"word{n}" for n in range(99)) + " cello"
    assert "cello" in understand(index, asked, table(), len(index) - 1).weights


def test_days_do_not_go_back():
    index = Index()
    for day in (date(2024, 5, 2), date(2024, 5, 1), None, date(2024, 5, 3)):
        index.add("x", day=day)
    assert [date.fromordinal(each).day for each in index.days] == [2, 2, 2, 3]
