"""The estimate: literal counts, properties over any text, and its bounds against exact counts."""

import importlib.util
import sys
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.counting.estimate import Estimate
from muntin.core.counting.exact import openai_tokenizer
from tests.paths import ROOT

BOUND = ("english", "code", "json", "chinese", "japanese", "korean")
ANY_TEXT = st.text(st.characters())  # lone surrogates, NULs and astral planes included


def _load_bench() -> ModuleType:
    path = ROOT / "bench" / "estimate.py"
    spec = importlib.util.spec_from_file_location("bench_estimate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


bench = _load_bench()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" ", 1),
        ("\n", 1),
        ("\x00", 1),
        ("\ud800", 1),
        ("hello", 1),
        ("Hello, world!", 4),
        ("The quick brown fox", 5),
        ("1234567", 3),
        ("a 12", 3),
        ("user_name", 2),
        ("CamelCase", 2),
        ("    return x", 3),
        ("-" * 60, 1),
        ('{"a": 1}', 6),
        ("你好", 2),
        ("こんにちは", 4),
        ("안녕하세요", 4),
        ("Привет", 2),
        ("😀", 3),
    ],
)
def test_counts_small_texts(text, tokens):
    assert Estimate().count(text) == tokens


def test_names_itself_and_the_overhead_of_a_message():
    assert Estimate().name == "estimate"
    assert Estimate().message_overhead == 4


@given(ANY_TEXT)
def test_counts_any_text_and_only_the_empty_one_as_nothing(text):
    count = Estimate().count(text)
    assert type(count) is int
    assert (count == 0) == (text == "")
    assert count >= 0
    assert Estimate().count(text) == count


@pytest.mark.parametrize(
    "char", [*" \n\t\r\x00a-Zz0_\"'", "é", "я", "漢", "あ", "한", "😀", "\ud800"]
)
def test_a_long_run_costs_in_proportion_to_its_length(char):
    estimate = Estimate()
    short, long = estimate.count(char * 10_000), estimate.count(char * 1_000_000)
    assert short >= 10_000 // 80
    assert 90 * short <= long <= 110 * short


def test_costs_of_a_text_grow_with_it():
    text = bench.SCRIPTS.joinpath("english.txt").read_text(encoding="utf-8")[:3000]
    counts = [Estimate().count(text[:end]) for end in range(len(text))]
    assert all(later >= earlier - 1 for earlier, later in pairwise(counts))


@pytest.mark.parametrize("kind", BOUND)
def test_stays_within_its_bounds_of_the_exact_count(kind):
    samples = bench.cut(bench.SCRIPTS.joinpath(f"{kind}.txt").read_text(encoding="utf-8"))
    tokenizer = openai_tokenizer("o200k_base")
    exact = [tokenizer.count(sample) for sample in samples]
    errors = bench.measure(Estimate().count, exact, samples)
    assert errors.samples >= 200
    assert errors.mean_absolute <= 0.10
    assert errors.undercounted < 0.05


def test_measures_errors_as_shares_of_the_exact_count():
    errors = bench.measure({"a": 8, "b": 12}.__getitem__, [10, 10], ["a", "b"])
    assert (errors.samples, errors.undercounted) == (2, 0.5)
    assert errors.mean_absolute == pytest.approx(0.2)
    assert errors.bias == pytest.approx(0.0)
