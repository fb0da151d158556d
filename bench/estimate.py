"""How far the offline estimate is from the exact token count, and what both cost in time.

    python bench/estimate.py [--short] [--out FILE] [--table]

Every file in `tests/data/scripts` is one kind of text; none of them was used to fit the estimate.
`--table` prints the Markdown table of docs/tokens.md instead: two vocabularies, bias and speed.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.compose import Plain, texts_of
from bench.conversations import history
from bench.measure import Figure, beside, options, publish
from muntin import Message
from muntin.core.counting.counter import Counter
from muntin.core.counting.estimate import Estimate
from muntin.core.counting.exact import ExactTokenizer, openai_encoding, openai_tokenizer

SCRIPTS = Path(__file__).parent.parent / "tests" / "data" / "scripts"
BOUND = ("english", "code", "json", "chinese", "japanese", "korean")
ENCODINGS = ("o200k_base", "cl100k_base")
SAMPLES = 200

Count = Callable[[str], int]


@dataclass(frozen=True)
class Errors:
    """How a counter did on a set of samples: shares of the exact count, 0.1 being 10 %."""

    samples: int
    mean_absolute: float
    bias: float
    undercounted: float
    """The share of samples counted more than 10 % too low."""


def cut(text: str, samples: int = SAMPLES) -> list[str]:
    """Cut a text into so many samples of 200 to 2000 characters, always the same ones."""
    rng = random.Random(0)
    lengths = [rng.randint(200, 2000) for _ in range(samples)]
    starts = [rng.randrange(len(text) - length + 1) for length in lengths]
    return [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def measure(count: Count, exact: Sequence[int], samples: Sequence[str]) -> Errors:
    """Measure a counter on samples whose exact counts are known."""
    errors = [count(sample) / true - 1 for sample, true in zip(samples, exact, strict=True)]
    return Errors(
        samples=len(errors),
        mean_absolute=sum(map(abs, errors)) / len(errors),
        bias=sum(errors) / len(errors),
        undercounted=sum(error < -0.1 for error in errors) / len(errors),
    )


def megabytes_per_second(text: str) -> float:
    """How fast the estimate counts a text, best of five."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        Estimate().count(text)
        seconds.append(time.perf_counter() - start)
    return len(text.encode()) / min(seconds) / 1e6


def report(path: Path) -> dict[str, object]:
    """Measure the estimate and the rule of four characters a token on one file."""
    text = path.read_text(encoding="utf-8")
    samples = cut(text)
    row: dict[str, object] = {"text": path.stem, "megabytes_per_second": megabytes_per_second(text)}
    for encoding in ENCODINGS:
        tokenizer = openai_tokenizer(encoding)
        exact = [tokenizer.count(sample) for sample in samples]
        row[encoding] = asdict(measure(Estimate().count, exact, samples))
        row[f"{encoding}/4"] = asdict(measure(lambda sample: len(sample) // 4, exact, samples))
    return row


def table(rows: Sequence[dict[str, object]]) -> str:
    """Render the measurement as a Markdown table; the bound kinds of text are in bold."""
    lines = [
        "| Text | Samples | o200k error | bias | under | cl100k error | bias | under "
        "| chars/4 error (o200k) | under | MB/s |",
        "| --- |" + " ---: |" * 10,
    ]
    for row in rows:
        name = f"**{row['text']}**" if row["text"] in BOUND else str(row["text"])
        new, old, four = (Errors(**row[key]) for key in (*ENCODINGS, "o200k_base/4"))  # type: ignore[arg-type]
        cells = [name, str(new.samples)]
        for errors in (new, old):
            cells += [f"{errors.mean_absolute:.1%}", f"{errors.bias:+.1%}"]
            cells += [f"{errors.undercounted:.1%}"]
        cells += [f"{four.mean_absolute:.1%}", f"{four.undercounted:.1%}"]
        cells += [f"{row['megabytes_per_second']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def paths() -> list[Path]:
    """Return the files, the bound kinds of text first."""
    return sorted(
        SCRIPTS.glob("*.txt"),
        key=lambda path: (BOUND.index(path.stem) if path.stem in BOUND else len(BOUND), path.stem),
    )


def figures(short: bool) -> Iterator[Figure]:
    """State the mean errors beside those of four characters a token, and the time of counting."""
    tokenizer = openai_tokenizer("o200k_base")
    for path in paths():
        text = path.read_text(encoding="utf-8")
        samples = cut(text, 20 if short else SAMPLES)
        exact = [tokenizer.count(sample) for sample in samples]
        ours = measure(Estimate().count, exact, samples)
        four = measure(lambda sample: len(sample) // 4, exact, samples)
        yield Figure(
            work=f"mean error of the estimate: {path.stem}",
            peer="four characters a token",
            ours=ours.mean_absolute,
            theirs=four.mean_absolute,
            unit="share",
            at_most=1 if path.stem in BOUND else None,
            note=f"bias {ours.bias:+.1%}; {ours.undercounted:.1%} counted over 10 % too low",
        )
    text = SCRIPTS.joinpath("english.txt").read_text(encoding="utf-8")
    works = partial(Estimate().count, text), partial(tokenizer.count, text)
    rounds = 2 if short else 20
    work, peer = f"estimate {len(text):,} characters", "tiktoken, counting them"
    yield beside(work, peer, *works, rounds, clock=process_time)
    yield from counting(100 if short else 2_000, rounds)


def counting(size: int, rounds: int) -> Iterator[Figure]:
    """Compare counting recorded messages for the first time with tiktoken, encoding their texts."""
    messages = [Message.from_dict(message) for message in history(size, "recorded")]
    texts = [text for message in messages for text in texts_of(message) if text]
    for name in ENCODINGS:
        exact, encode = openai_tokenizer(name), openai_encoding(name).encode_ordinary

        def ours(exact: ExactTokenizer = exact) -> int:
            return sum(map(Counter(Plain(exact)).message, messages))  # which remembers nothing yet

        def theirs(encode: Callable[[str], list[int]] = encode) -> int:
            return sum(len(encode(text)) for text in texts)

        work = f"count {size:,} recorded messages exactly, first pass, {name}"
        yield beside(
            work, "tiktoken, encoding their texts", ours, theirs, rounds, clock=process_time
        )


def main() -> None:
    """Measure every file and print the result."""
    parser = options(__doc__)
    parser.add_argument("--table", action="store_true", help="print the table of docs/tokens.md")
    arguments = parser.parse_args()
    if arguments.table:
        print(table([report(path) for path in paths()]))
    else:
        publish(figures(arguments.short), arguments.out)


if __name__ == "__main__":
    main()
