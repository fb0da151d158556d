"""A budget is a number of tokens, less what is reserved; models bring their own."""

import pytest

from muntin import Budget, InvalidInput, Slots, UnknownModel


def test_remaining_is_the_maximum_less_the_reservation_and_never_negative():
    assert Budget(8_000).remaining_input_tokens == 8_000
    assert Budget(8_000, reserved_tokens=500).remaining_input_tokens == 7_500
    assert Budget(100, reserved_tokens=500).remaining_input_tokens == 0


def test_a_known_model_brings_its_window_less_the_output():
    budget = Budget.for_model("anthropic/claude-sonnet-4-5", max_output_tokens=4_096)
    assert budget == Budget(200_000 - 4_096, max_output_tokens=4_096)
    assert Budget.for_model("openai/gpt-4o").max_input_tokens == 128_000
    assert Budget.for_model("gpt-4o", reserved_tokens=8).remaining_input_tokens == 127_992


def test_the_first_slash_splits_provider_and_model():
    assert Budget.for_model("openrouter/openai/gpt-4o").max_input_tokens == 128_000


@pytest.mark.parametrize("model", ["openai/no-such-model", "nobody/gpt-4o", "", "x"])
def test_an_unknown_model_is_an_error_that_says_to_pass_a_budget(model):
    with pytest.raises(UnknownModel, match=r"pass a Budget"):
        Budget.for_model(model)


def test_a_model_whose_window_is_not_known_gets_the_default():
    assert Budget.of("openai/gpt-4.1") == Budget.for_model("openai/gpt-4.1")
    assert Budget.of("openai/gpt-4.1", max_output_tokens=8).max_output_tokens == 8
    assert Budget.of("nobody/nothing") == Budget.of(None) == Budget(128_000)
    assert Budget.of("nobody/nothing", default=500) == Budget(500)


def test_an_output_as_large_as_the_window_is_refused():
    with pytest.raises(InvalidInput, match="leaves no room"):
        Budget.for_model("openai/gpt-4o", max_output_tokens=128_000)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(-1), "max_input_tokens must not be negative"),
        (lambda: Budget(1.5), "max_input_tokens must be an int"),  # type: ignore[arg-type]
        (lambda: Budget(True), "max_input_tokens must be an int"),
        (lambda: Budget(float("nan")), "max_input_tokens must be an int"),  # type: ignore[arg-type]
        (lambda: Budget("8000"), "max_input_tokens must be an int"),  # type: ignore[arg-type]
        (lambda: Budget(10, reserved_tokens=-1), "reserved_tokens must not be negative"),
        (lambda: Budget(10, max_output_tokens=-1), "max_output_tokens must not be negative"),
        (lambda: Budget.for_model(5), "a model must be a str"),  # type: ignore[arg-type]
        (lambda: Slots(-5), "max_input_tokens must not be negative"),
        (lambda: Slots(None), "a budget must be a Budget or an int"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_budget_is_a_clear_error(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_an_int_is_accepted_wherever_a_budget_is():
    assert Slots(100).budget == Budget(100)
