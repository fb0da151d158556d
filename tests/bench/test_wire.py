"""The benchmark of the wire stays alive. Nothing is timed here."""

from __future__ import annotations

from bench import wire


def test_the_window_is_as_large_as_the_benchmark_says() -> None:
    made = wire.window()
    assert len(made.messages) == wire.MESSAGES
    assert any(message.tool_calls for message in made.messages)


def test_every_provider_is_measured() -> None:
    figures = [*wire.encoding(1), *wire.streaming(1)]
    assert len(figures) == 2 * len(wire.MODULES)
    assert all(figure.ratio > 0 for figure in figures)


def test_a_long_reply_is_put_together_whole() -> None:
    for name, module in wire.MODULES.items():
        assembler = module.Assembler()
        for chunk in wire.pieces(name, 50):
            assembler.feed(chunk)
        assert assembler.reply().text == "word " * 50
