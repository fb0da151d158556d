"""What is counted, how often the tokenizer is asked, and what a bad one leads to."""

import gc
from dataclasses import replace

import pytest

from muntin import (
    Attachment,
    File,
    Image,
    InvalidInput,
    Message,
    Reasoning,
    Slots,
    Text,
    TokenizerError,
    ToolCall,
    assistant,
    tool,
    user,
)
from muntin.core.counting.counter import Counter, Tokenizer, as_tokenizer
from muntin.core.counting.files import AUDIO_TOKENS, PAGE_TOKENS
from muntin.core.counting.images import ATTACHMENT_TOKENS
from muntin.core.counting.memo import FormMemo
from muntin.core.profile import Profile

LETTERS = Counter(len)  # one token a character, no overhead


class Recorder:
    """A tokenizer that remembers what it was asked."""

    name = "recorder"
    message_overhead = 3

    def __init__(self):
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


def test_a_plain_callable_is_a_tokenizer_without_overhead():
    assert LETTERS.message(user("hello")) == 5
    assert LETTERS.name == "len"


def test_a_message_costs_its_text_and_the_overhead():
    assert Counter(Recorder()).message(user("hello")) == 8
    assert Counter(Recorder()).message(Message("assistant", None)) == 3


def test_a_tool_call_counts_its_name_and_arguments_not_its_id():
    call = ToolCall("a-very-long-id", "look", '{"x":1}')
    assert LETTERS.message(assistant("ok", tool_calls=[call])) == 2 + 4 + 7


def test_a_name_counts():
    assert LETTERS.message(Message("user", "hi", name="bob")) == 5


def test_reasoning_counts_its_text_but_not_its_signature():
    parts = (Reasoning("because", signature="x" * 500), Text("yes"))
    assert LETTERS.message(Message("assistant", parts)) == 7 + 3
    hidden = {"type": "redacted_thinking", "data": "x" * 500}
    assert LETTERS.message(Message("assistant", (hidden, Text("yes")))) == 3  # type: ignore[arg-type]
    assert LETTERS.message(Message("assistant", "yes", extra={"reasoning_content": "hm"})) == 5


def test_an_attachment_counts_its_kind_its_size_and_its_file_hint():
    item = Attachment("1", "report.pdf", 9, "document")
    hint = len("File: report.pdf")
    assert LETTERS.message(user("", attachments=[item])) == PAGE_TOKENS + hint


def test_attachment_tokens_can_be_given_by_modality_or_by_a_function():
    item = Attachment("1", "a", 9, "audio")
    by_table = Counter(len, attachment_tokens={"audio": 10})
    by_function = Counter(len, attachment_tokens=lambda attachment: attachment.size)
    hint = len("File: a")
    assert by_table.message(user("", attachments=[item])) == 10 + hint
    assert by_function.message(user("", attachments=[item])) == 9 + hint


def test_images_count_by_the_vendors_rule():
    image = Image("https://x/y.png", width=1024, height=1024, detail="high")
    assert LETTERS.message(Message("user", (image,))) == 765
    claude = Slots(10_000, tokenizer=len, profile="anthropic/claude-sonnet-4-5")
    claude.add("picture", Message("user", (image,)))
    openai = Slots(10_000, tokenizer=len, profile="openai/gpt-4o")
    openai.add("picture", Message("user", (image,)))
    assert openai.render().tokens == 765
    assert claude.render().tokens != 765


def test_files_and_unknown_parts_count():
    assert LETTERS.message(Message("user", (File("f", name="a.pdf"),))) == ATTACHMENT_TOKENS[
        "document"
    ] + len("File: a.pdf")
    audio = {"type": "input_audio", "input_audio": {"data": "A" * 9_000, "format": "wav"}}
    assert LETTERS.message(Message("user", (audio,))) == AUDIO_TOKENS  # type: ignore[arg-type]
    assert LETTERS.message(Message("user", ({"type": "video_url"},))) == ATTACHMENT_TOKENS["video"]  # type: ignore[arg-type]
    odd = {"type": "odd", "x": 1}
    assert LETTERS.message(Message("user", (odd,))) == len('{"type":"odd","x":1}')  # type: ignore[arg-type]


def test_tool_schemas_count_as_compact_json():
    schema = {"name": "f", "b": 1}
    assert LETTERS.tools([schema]) == len('{"b":1,"name":"f"}')
    slots = Slots(100, tokenizer=len, tools=[schema])
    slots.add("x", "hello")
    window = slots.render()
    assert window.tokens == 5 + 18
    assert window.report.tools_tokens == 18


def test_one_text_is_tokenised_once_across_turns():
    recorder = Recorder()
    history = [user(f"message {number}") for number in range(20)]
    for _turn in range(3):
        slots = Slots(1_000, tokenizer=recorder)
        slots.add("history", history)
        slots.render()
        history.append(user(f"new {len(history)}"))
    assert len(recorder.asked) == len(set(recorder.asked)) == 22


def test_every_shipped_tokenizer_keeps_its_memo_between_uses():
    for name in ("estimate", "chars/4", "o200k_base", "cl100k_base"):
        first = Counter(name)._counts
        gc.collect()
        assert Counter(name)._counts is first


def test_the_memo_is_bounded():
    memo = FormMemo(limit=10_000)
    for number in range(1_000):
        memo.put(f"{number:0100}", number, 100)
    found = [memo.get(f"{number:0100}") for number in range(1_000)]
    assert 0 < sum(each is not None for each in found) < 10_000 // 100


def test_a_forgotten_text_is_counted_again_and_a_recent_one_is_not():
    recorder = Recorder()
    counter = Counter(recorder)
    counter._counts = FormMemo(limit=2_000)
    for number in range(30):
        counter.text("always here")
        counter.text(f"{number:0100}")
    assert recorder.asked.count("always here") == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("estimate", "estimate"),
        ("chars/4", "chars/4"),
        ("o200k", "o200k_base"),
        ("cl100k_base", "cl100k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("anthropic/claude-sonnet-4-5", "estimate"),
        (None, "estimate"),
    ],
)
def test_a_tokenizer_can_be_named(name, expected):
    assert as_tokenizer(name).name == expected
    assert isinstance(as_tokenizer(name), Tokenizer)


def test_chars_by_four_rounds_up():
    assert [as_tokenizer("chars/4").count("x" * n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def raising(text: str) -> int:
    raise RuntimeError("no vocabulary")


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        (raising, "tokenizer 'raising' raised RuntimeError on a text of 5 characters"),
        (lambda text: -1, "returned -1 for a text of 5 characters; a count cannot be negative"),
        (lambda text: 1.5, "returned 1.5"),
        (lambda text: float("nan"), "returned nan"),
        (lambda text: None, "returned None"),
        (lambda text: True, "returned True"),
        (lambda text: "3", "returned '3'"),
    ],
)
def test_a_tokenizer_that_raises_or_lies_is_a_clear_error(tokenizer, words):
    slots = Slots(100, tokenizer=tokenizer)
    slots.add("x", "hello")
    with pytest.raises(TokenizerError, match=words):
        slots.render()


def test_the_tokenizers_own_error_is_the_cause():
    with pytest.raises(TokenizerError) as caught:
        Counter(raising).text("hello")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_integers_of_other_libraries_are_integers():
    class Int:
        def __index__(self) -> int:
            return 7

    assert Counter(lambda text: Int()).text("x") == 7  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Counter("gpt-99"), None),
        (lambda: Counter("nonsense"), "unknown tokenizer 'nonsense'"),
        (lambda: Counter(5), "a tokenizer must be a name"),  # type: ignore[arg-type]
        (lambda: Counter(len, attachment_tokens={"smell": 1}), "unknown modality 'smell'"),
        (lambda: Counter(len, attachment_tokens={"audio": -1}), r"attachment_tokens\['audio'\]"),
        (lambda: Counter(len, attachment_tokens=5), "attachment_tokens must map"),  # type: ignore[arg-type]
        (
            lambda: Counter(len, attachment_tokens=lambda a: -3).message(
                user("", attachments=[Attachment("1", "a.mp3", 1, "audio")])
            ),
            "attachment_tokens for 'a.mp3' must not be negative",
        ),
    ],
)
def test_a_bad_tokenizer_or_option_is_named(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_pending_call_counts_the_result_that_the_wire_will_add():
    call = assistant("", tool_calls=[ToolCall("c", "f", "{}")])
    slots = Slots(100, tokenizer=len)
    slots.add("history", [call])
    assert slots.render().tokens == len("f") + len("{}") + len("(no result was recorded)")
    slots = Slots(100, tokenizer=len)
    slots.add("history", [call, tool("c", "done")])
    assert slots.render().tokens == len("f") + len("{}") + len("done")


class Vocabulary:
    """An object whose methods count."""

    def __init__(self):
        self.asked = 0

    def letters(self, text: str) -> int:
        self.asked += 1
        return len(text)

    def double(self, text: str) -> int:
        return 2 * len(text)


def test_a_bound_method_keeps_its_memo_for_as_long_as_its_object():
    vocabulary = Vocabulary()
    for _ in range(3):
        assert Counter(vocabulary.letters).text("hello") == 5
        assert Counter(vocabulary.double).text("hello") == 10
    assert vocabulary.asked == 1
    assert Counter(Vocabulary().letters)._counts is not Counter(vocabulary.letters)._counts


@pytest.mark.parametrize(
    ("model", "name", "user_first"),
    [
        ("gpt-4o", "openai/gpt-4o", False),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5", True),
        ("gemini-2.5-pro", "google/gemini-2.5-pro", True),
    ],
)
def test_the_provider_of_a_known_model_may_be_left_out(model, name, user_first):
    profile = Profile.for_model(model)
    assert profile == Profile.for_model(name)
    assert (profile.name, profile.tokenizer, profile.user_first) == (name, name, user_first)


@pytest.mark.parametrize("model", ["", "llama-3"])
def test_a_model_of_an_unknown_provider_is_refused(model):
    with pytest.raises(InvalidInput, match=f"model '{model}' is not known; write provider/model"):
        Slots(10, profile=model)


def test_any_number_of_characters_may_be_a_token():
    assert as_tokenizer("chars/3").name == "chars/3"
    assert [as_tokenizer("chars/3").count("x" * n) for n in (0, 3, 4)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["", "chars/", "chars/0", "chars/-4", "chars/x", "chars/²"])
def test_a_misspelt_tokenizer_is_refused(name):
    with pytest.raises(InvalidInput, match=f"unknown tokenizer '{name}'"):
        as_tokenizer(name)


def test_an_error_of_attachment_tokens_names_the_attachment():
    counter = Counter(len, attachment_tokens=lambda item: 1 // 0)
    with pytest.raises(ZeroDivisionError) as caught:
        counter.message(user("", attachments=[Attachment("1", "a.png", 1, "image")]))
    assert caught.value.__notes__ == ["raised by attachment_tokens for attachment 'a.png'"]


class Named:
    """A tokenizer with the name of another."""

    name = "named"

    def __init__(self, each: int) -> None:
        self.each = each

    def count(self, text: str) -> int:
        return self.each


@pytest.mark.parametrize(
    "message",
    [
        user("Hello there"),
        assistant(tool_calls=[ToolCall("a", "look", "{}")]),
        Message("user", (Text("Hello"), Image("https://example.com/a.png", width=80, height=80))),
        Message("user", "Hello", name="ada"),
        Message("assistant", "Hi", extra={"reasoning_content": "They greet."}),
    ],
)
def test_a_message_notes_its_count_for_the_counter_that_made_it_and_no_other(message):
    by_name = [Counter("estimate"), Counter("chars/4"), Counter("chars/2")]
    tiles = Counter("estimate", image_formula="anthropic")
    expected = [counter.message(replace(message)) for counter in (*by_name, tiles)]
    for _ in range(2):
        assert [counter.message(message) for counter in (*by_name, tiles)] == expected
    assert message.known_tokens is not None


def test_a_tokenizer_that_is_given_is_trusted_by_no_name():
    message = user("Hello")
    assert [Counter(Named(each)).message(message) for each in (1, 2, 1)] == [1, 2, 1]
    assert message.known_tokens is None
    own = Counter("estimate", attachment_tokens={"image": 5})
    held = user("Look", attachments=(Attachment("i", "a.png", 9, "image"),))
    assert own.message(held) == own.message(held)
    assert held.known_tokens is None
