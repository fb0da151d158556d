"""The benchmark of the wire stays alive. Nothing is timed here."""

from __future__ import annotations

from bench import wire


def test_the_window_is_as_large_as_the_benchmark_says() -> None:
    made = wire.window()
    assert len(made.messages) == wire.MESSAGES
    assert any(message.tool_calls for message in made.messages)


def test_every_provider_is_measured() -> None:
    rows = [*wire.encoding(repeats=1), *wire.streaming(repeats=1)]
    assert len(rows) == 2 * len(wire.MODULES)
    assert all(row.ratio > 0 for row in rows)
    assert wire.table(rows).count("\n") == 1 + len(rows)


def test_a_long_reply_is_put_together_whole() -> None:
    for name, module in wire.MODULES.items():
        assembler = module.Assembler()
        for chunk in wire.pieces(name, 50):
            assembler.feed(chunk)
        assert assembler.reply().text == "word " * 50
