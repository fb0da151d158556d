"""Errors of the library, in the words of the command line."""

# Words of the library for programs, and the words for a person at a terminal.
IN_FLAGS = (
    (", or pass api_key= to as_model", ""),
    ("with a base_url", "with --base-url"),
    (", or a callable (text -> int)", ""),
    ("a trimming or a function", "'stepped=0.6' or 'module:function'"),
    ("pass caching=Caching(...)", "name a model of anthropic/, openai/ or google/ with --model"),
    (" To encode the window anyway, pass strict=False.", ""),
    ("Raise the budget or shorten these.", "Raise --budget, or shorten these."),
    ("attachment_tokens", "--attachment-tokens"),
    ("no store is there; look at the address", "no store is there; name yours with --store"),
    ("give this one another id", "give this one another id with --as"),
    ("an upstream is an address", "--upstream is an address"),
)

# What Typer says of a value, in the words of a validator.
_VALUES = (
    ("Input should be a valid integer, unable to parse string as an integer", "a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "a number"),
    ("Input should be greater than or equal to", "at least"),
    ("Input should be less than or equal to", "at most"),
)


def plain_value(text: str) -> str:
    """Return an error about a value in plain words."""
    for typer_text, plain in _VALUES:
        text = text.replace(typer_text, f"this must be {plain}")
    return text


def in_flags(text: str) -> str:
    """Return an error of the library in the words of the command line."""
    for python, flags in IN_FLAGS:
        text = text.replace(python, flags)
    return text
