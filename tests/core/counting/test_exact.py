"""Exact counts: true to tiktoken and to OpenAI's vocabularies, offline, linear, never raising."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import string
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from muntin.core.counting import exact
from muntin.core.counting.exact import encoding_for_model, hf_tokenizer, openai_tokenizer
from muntin.errors import InvalidInput, TokenizerError
from tests.paths import DATA

O200K = openai_tokenizer("o200k_base")
CL100K = openai_tokenizer("cl100k_base")

# (text, o200k_base, cl100k_base), counted by tiktoken 0.14 with its own patterns and vocabularies.
GOLDEN = json.loads(DATA.joinpath("token_counts.json").read_text("utf-8"))

BLANKS = " \t\v\f\x85\xa0\u1680\u2003\u2028\u3000"


@pytest.mark.parametrize(("tokenizer", "column"), [(O200K, 1), (CL100K, 2)])
def test_counts_are_those_of_tiktoken(tokenizer: exact.ExactTokenizer, column: int) -> None:
    assert [(row[0], tokenizer.count(row[0])) for row in GOLDEN] == [
        (row[0], row[column]) for row in GOLDEN
    ]


def test_known_counts() -> None:
    # "antidisestablishmentarianism" and the birthday wish are the cookbook's own examples.
    texts = ["", "tiktoken is great!", "antidisestablishmentarianism", "お誕生日おめでとう"]
    assert [O200K.count(text) for text in texts] == [0, 6, 6, 8]
    assert [CL100K.count(text) for text in texts] == [0, 6, 6, 9]


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        # https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py
        ("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
        ("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
    ],
)
def test_the_vocabulary_is_openais_byte_for_byte(name: str, sha256: str) -> None:
    lines = (
        base64.b64encode(token) + b" %d\n" % rank
        for rank, token in enumerate(exact._vocabulary(name))
    )
    assert hashlib.sha256(b"".join(lines)).hexdigest() == sha256


@pytest.mark.parametrize("tokenizer", [O200K, CL100K])
@pytest.mark.parametrize(
    "text", ["<|endoftext|>", "<|im_start|>", "<|fim_prefix|>", "a<|endofprompt|>b", "<|return|>"]
)
def test_special_tokens_are_ordinary_text(tokenizer: exact.ExactTokenizer, text: str) -> None:
    assert tokenizer.count(text) > 2


def test_a_lone_surrogate_counts_as_the_replacement_character() -> None:
    assert O200K.count("a\ud800b") == O200K.count("a\ufffdb")


@given(st.text())
def test_any_text_has_a_count_between_its_extremes(text: str) -> None:
    size = len(text.encode())
    for tokenizer in (O200K, CL100K):
        # No token is longer than 128 bytes, none is shorter than one.
        assert -(-size // 128) <= tokenizer.count(text) <= size


@given(
    st.lists(
        st.one_of(
            st.text(BLANKS, min_size=1, max_size=9),
            st.text("\r\n", min_size=1, max_size=3),
            st.sampled_from(["a", "Zé", "1", ".", "/", "'s", "中", "\x1c", "\u200b", "🙂"]),
        )
    ).map("".join)
)
def test_cutting_at_long_blanks_changes_no_count(text: str) -> None:
    whole = [O200K.count(text), CL100K.count(text)]
    with pytest.MonkeyPatch.context() as patch:
        short = exact._LONG_BLANKS.pattern.replace(str(exact._LONG_RUN), "2")
        patch.setattr(exact, "_LONG_RUN", 2)
        patch.setattr(exact, "_LONG_BLANKS", re.compile(short))
        assert "".join(exact._pieces(text)) == text
        assert [O200K.count(text), CL100K.count(text)] == whole


@pytest.mark.parametrize("tokenizer", [O200K, CL100K])
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # A million blanks end tiktoken's own regex in a panic; 128 of them are one token.
        (" " * 1_280_000, 10_000),
        (" " * 1_280_001 + "x", 10_001),
        ("x\n" + " " * 1_280_001 + "x", 10_003),
    ],
)
def test_a_million_blanks_are_counted(
    tokenizer: exact.ExactTokenizer, text: str, tokens: int
) -> None:
    assert tokenizer.count(text) == tokens


@pytest.mark.parametrize("tokenizer", [O200K, CL100K])
@pytest.mark.parametrize(
    "run",
    [
        lambda n: "a" * n,
        lambda n: " " * n,
        lambda n: " " * n + "x",
        lambda n: "\n" * n,
        lambda n: "=" * n,
        lambda n: "7" * n,
        lambda n: "中" * (n // 2),
        lambda n: "".join(Random(n).choices(string.ascii_lowercase, k=n)),
    ],
    ids=["a", "blank", "blank-x", "newline", "equals", "digit", "cjk", "letters"],
)
def test_one_long_run_takes_linear_time(
    tokenizer: exact.ExactTokenizer, run: Callable[[int], str]
) -> None:
    small, large = (min(_seconds(tokenizer, run(n)) for _ in range(3)) for n in (20_000, 160_000))
    # Eight times the text: n log n measures 8 to 19, the latter on a busy machine; n squared is 64.
    assert large < 24 * small


def _seconds(tokenizer: exact.ExactTokenizer, text: str) -> float:
    """The processor time of one count, which a busy machine stretches less than the clock."""
    start = time.thread_time()
    tokenizer.count(text)
    # Some clocks tick too coarsely for a small text.
    return max(time.thread_time() - start, 0.001)


def test_a_tokenizer_is_loaded_once_and_names_itself() -> None:
    assert openai_tokenizer("o200k") is O200K
    assert openai_tokenizer("cl100k") is CL100K
    assert (O200K.name, O200K.message_overhead) == ("o200k_base", 4)
    assert weakref.ref(O200K)() is O200K  # counters remember by tokenizer, weakly
    assert repr(CL100K) == "ExactTokenizer(name='cl100k_base', message_overhead=4)"


def test_an_unknown_encoding_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"'p50k'.*o200k_base, cl100k_base"):
        openai_tokenizer("p50k")


def test_a_failing_tokenizer_raises_a_tokenizer_error() -> None:
    with pytest.raises(TokenizerError, match="o200k_base"):
        O200K.count(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("GPT-4.1-nano", "o200k_base"),
        ("gpt-4.5-preview", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5.6-sol", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-pro", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("openai/gpt-oss-20b", "o200k_base"),
        ("openrouter/openai/gpt-4o", "o200k_base"),
        ("ft:gpt-4o:acme::abc123", "o200k_base"),
        ("openai/ft:gpt-4o-mini-2024-07-18:acme", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("azure/gpt-35-turbo", "cl100k_base"),
        ("gpt-6-astra", None),  # tiktoken does not name its encoding
        ("gpt-4x", None),
        ("o11", None),
        ("claude-opus-5", None),
        ("", None),
    ],
)
def test_encoding_for_model(model: str, encoding: str | None) -> None:
    assert encoding_for_model(model) == encoding


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (model, name)
        for model, name in tiktoken.model.MODEL_TO_ENCODING.items()
        if model.startswith(("gpt-3", "gpt-4", "gpt-5", "o1", "o3", "o4"))
    ],
)
def test_encoding_for_model_agrees_with_tiktoken(model: str, name: str) -> None:
    assert encoding_for_model(model) == name


def test_nothing_is_imported_early_nor_ever_downloaded(tmp_path: Path) -> None:
    _run(
        f"""
        import os, socket, sys
        os.environ["TIKTOKEN_CACHE_DIR"] = {str(tmp_path)!r}
        def refuse(*args, **kwargs): raise AssertionError("a connection was opened")
        socket.socket = socket.create_connection = refuse
        from muntin.core.counting.exact import openai_tokenizer
        assert not {{"tiktoken", "tokenizers"}} & set(sys.modules)
        assert openai_tokenizer("o200k").count("hello world") == 2
        assert openai_tokenizer("cl100k").count("hello world") == 2
        assert "requests" not in sys.modules
        """
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("tiktoken", "openai_tokenizer('o200k')", "muntin[tokens]"),
        ("tokenizers", "hf_tokenizer('x.json')", "muntin[hf]"),
    ],
)
def test_a_missing_package_names_its_extra(package: str, call: str, extra: str) -> None:
    _run(
        f"""
        import sys
        sys.modules[{package!r}] = None
        from muntin.core.counting.exact import hf_tokenizer, openai_tokenizer
        from muntin.errors import MissingExtra
        try:
            {call}
        except MissingExtra as error:
            assert "pip install '{extra}'" in str(error), error
        else:
            raise AssertionError("nothing raised")
        """
    )


def _run(code: str) -> None:
    lines = "\n".join(line[8:] for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tokenizer_json(tmp_path: Path) -> Path:
    """A word tokenizer that, left alone, would frame, cut and pad what it encodes."""
    vocabulary = {"[UNK]": 0, "[BOS]": 1, "[PAD]": 2, "hello": 3, "world": 4}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 1)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4, pad_id=2, pad_token="[PAD]")
    path = tmp_path / "tiny-model" / "tokenizer.json"
    path.parent.mkdir()
    tokenizer.save(str(path))
    return path


def test_a_hugging_face_file_counts_the_text_alone(tokenizer_json: Path) -> None:
    tokenizer = hf_tokenizer(tokenizer_json)
    assert (tokenizer.name, tokenizer.message_overhead) == ("tiny-model", 5)
    assert [tokenizer.count(text) for text in ("", "hello", "hello world " * 50)] == [0, 1, 100]


def test_a_hugging_face_file_may_have_a_name_of_its_own(tokenizer_json: Path) -> None:
    named = tokenizer_json.rename(tokenizer_json.with_name("qwen3.json"))
    assert hf_tokenizer(str(named)).name == "qwen3"


def test_a_lone_surrogate_is_a_tokenizer_error_in_a_hugging_face_tokenizer(
    tokenizer_json: Path,
) -> None:
    with pytest.raises(TokenizerError, match="tiny-model"):
        hf_tokenizer(tokenizer_json).count("a\ud800b")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no tokenizer file at .*nowhere\.json"):
        hf_tokenizer(tmp_path / "nowhere.json")
    with pytest.raises(InvalidInput, match="no tokenizer file at"):
        hf_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"version": "1.0"}'])
def test_a_malformed_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=r"not a tokenizer\.json: .*broken\.json"):
        hf_tokenizer(path)


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_a_very_long_text_is_counted_in_parts_with_the_same_count(name, monkeypatch):
    text = " a word's end, Größe 42 naïve  two\n three (four five) 東京 six_seven "
    text += " i'm I'M it'll 1234 x"
    texts = [text[n:] + text * 20 + text[:n] for n in range(len(text))]
    counted = [openai_tokenizer(name).count(each) for each in texts]
    monkeypatch.setattr(exact, "_PART", 37)
    assert len(list(exact._parts(texts[0]))) > 20
    assert [openai_tokenizer(name).count(each) for each in texts] == counted
