"""The benchmarks stay alive: each runs, is joined into one table, and measures what it says.

No time is asserted here, and no peer is needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import __main__ as together
from bench import compose, first_token, plot, scale
from bench.conversations import history
from bench.headlines import HEADLINES, find
from bench.measure import Figure, exponents, in_turns, markdown, table, times
from bench.page import pages, row
from muntin import Session
from muntin.core.counting.exact import openai_tokenizer
from muntin.timeline.store.sql import SqlStore


@pytest.mark.parametrize("name", together.SCRIPTS)
def test_every_benchmark_runs_in_its_short_form(name, tmp_path):
    out = tmp_path / "figures.json"
    script = together.ROOT / "bench" / f"{name}.py"
    subprocess.run([sys.executable, script, "--short", "--out", out], check=True, cwd=tmp_path)
    figures = [Figure.from_dict(each) for each in json.loads(out.read_text("utf-8"))]
    # One measures nothing without its peer, one without a GPU.
    nothing = name == "templates" or (name == "first_token" and bool(first_token.missing()))
    assert bool(figures) == (not nothing)
    assert len({(figure.work, figure.peer) for figure in figures}) == len(figures)
    assert all(figure.theirs > 0 for figure in figures)


def test_every_benchmark_is_in_the_joined_run():
    programs = {
        path.stem
        for path in (together.ROOT / "bench").glob("*.py")
        if "--short" in path.read_text("utf-8") and path.stem not in ("__main__", "measure")
    }
    assert programs == set(together.SCRIPTS)


def test_the_joined_run_writes_results_and_a_page_where_it_is_told(tmp_path, capfd):
    asked = ["--short", "--out", str(tmp_path), "--date"]
    assert together.main([*asked, "2024-06-03", "--only", "wire"]) == 0
    assert together.main([*asked, "2024-06-04", "--only", "prompts"]) == 0
    results = json.loads((tmp_path / "bench" / "results.json").read_text("utf-8"))
    page = (tmp_path / "docs" / "benchmarks-all.md").read_text("utf-8")
    assert "Measured on 2024-06-03" in (tmp_path / "docs" / "benchmarks.md").read_text("utf-8")
    assert results["date"] == "2024-06-03"  # of what is not measured again
    assert results["dates"] == {"wire": "2024-06-03", "prompts": "2024-06-04"}
    assert set(results["figures"]) == {"wire", "prompts"}
    assert results["environments"]["at hand"]["versions"]["muntin"]
    assert "encode 1,000 messages: Anthropic" in page
    assert "Measured on 2024-06-03" in page
    assert capfd.readouterr().out.count("encode 1,000 messages: Google") == 2


def stored() -> tuple[dict[str, Any], dict[str, list[Figure]]]:
    results = json.loads((together.ROOT / "bench" / "results.json").read_text("utf-8"))
    return results, together.measured(results)


def test_the_pages_and_their_plots_are_what_the_stored_figures_give():
    for path, text in pages(*stored()).items():
        assert (together.ROOT / "docs" / path).read_text("utf-8") == text, path


def test_every_headline_was_measured():
    _, measured = stored()
    missing = [each.said for each in HEADLINES if find(measured, each) is None]
    assert not missing


def test_the_page_of_headlines_has_five_plots_at_most_and_fits_on_two_screens():
    page = pages(*stored())["benchmarks.md"]
    prose = [line for line in page.splitlines() if line and not line.startswith(("|", "!"))]
    assert page.count("![") <= 5
    assert len(prose) <= 60


def figure(**changed: object) -> Figure:
    given = {"work": "w", "peer": "LangChain", "ours": 1.0, "theirs": 2.0}
    return Figure.from_dict({**given, **changed})


def test_a_figure_is_the_same_after_it_was_written():
    one = figure(at_most=0.3, points=[[1, 0.5], [10, 0.7]], by="slots")
    assert Figure.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert one.to_dict()["held"] is False


def test_a_lost_comparison_and_a_missed_aim_are_told():
    assert table([figure(ours=3)]).endswith("behind")
    assert table([figure(ours=3, at_most=1)]).endswith("not held, behind")
    assert table([figure(at_most=1)]).endswith("held")
    assert table([figure(ours=3, peer="Muntin, ten")]).endswith("1.5")
    assert "**behind**" in markdown(("", ""), [row(figure(ours=3))], 1)


def test_a_ratio_far_below_one_is_a_fraction():
    assert [times(ratio) for ratio in (1 / 733, 0.5, 1.25, 1_200.4, 0)] == [
        "1/733", "0.5", "1.25", "1,200", "0",
    ]  # fmt: skip


def test_what_is_measured_in_some_environments_leaves_the_others_figures():
    kept, old, new = (
        figure(work="a: cost"),
        figure(work="b: cost", peer="old"),
        figure(work="b: cost"),
    )
    assert together.gone_on([kept, old], [new]) == [kept, new]
    assert together.gone_on([], [new]) == [new]


@pytest.mark.parametrize(
    "wrong", [["--in", "muntin"], ["--short", "--only", "wire", "--in", "muntin"]]
)
def test_environments_are_chosen_for_benchmarks_that_are_named(wrong, capsys):
    with pytest.raises(SystemExit):
        together.main(wrong)
    assert "--in needs --only" in capsys.readouterr().err


def test_figures_of_several_environments_are_joined_once():
    ours, theirs = figure(peer="Muntin, ten"), figure()
    assert together.join([[ours, theirs], [ours, figure(peer="LiteLLM")]]) == [
        ours, theirs, figure(peer="LiteLLM"),
    ]  # fmt: skip


def test_works_take_turns_each_as_often_as_asked():
    order: list[str] = []
    works = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    in_turns(works, {"a": 4, "b": 2})
    assert order == ["a", "a", "b", "a", "a", "b"]


def test_an_exponent_is_found_also_behind_a_constant():
    sizes = scale.spread(1, 1_000_000, 9)
    assert exponents([(n, 3.0 * n**2) for n in sizes]) == pytest.approx((2, 2))
    whole, large = exponents([(n, 1e9 + 3.0 * n**2) for n in sizes])
    assert whole < 0.6 < 1 < large


def test_a_store_of_many_sessions_is_one_that_muntin_reads(tmp_path):
    path = tmp_path / "crowd.db"
    scale.crowd(path, 7)
    with SqlStore(f"sqlite:///{path}") as store:
        assert [info.id for info in store.sessions()] == [f"s-{n:07}" for n in range(7)]
        for info in store.sessions():
            texts = [message.text for message in Session(info.id, store=store).messages()]
            assert len(texts) == 8
            assert texts[0].startswith("0: The flight")


def test_the_plots_are_drawings():
    grown = [
        figure(by=by, unit="exponent", points=[(1, 0.1), (10, 0.2), (100, 1.0)])
        for by in ("messages", "messages", "slots")
    ]
    for drawn in (plot.peers([figure(), figure(work="v", ours=9)]), plot.growth(grown)):
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert plot.growth(grown).count("<polyline") == 3
    assert 'class="behind"' in plot.peers([figure(ours=9)])


# The work of the first benchmark is what it says, and Muntin tokenises no more than it must.


@pytest.mark.parametrize("size", [100, 1_000, 3_000])
def test_a_history_is_realistic_and_unique(size: int) -> None:
    messages = history(size)
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    texts = [message["content"] for message in messages if message["content"]]
    assert len(messages) == size
    assert messages[0]["role"] == "system"
    assert [message["role"] for message in messages].count("system") == 1
    assert len(set(calls)) == len(calls)
    assert sorted(calls) == sorted(results)
    assert len(set(texts)) == len(texts)
    assert 17 <= 100 * len(results) / size <= 23


def test_histories_of_all_sizes_end_alike() -> None:
    assert history(100)[2:] == history(1_000)[-98:]


@pytest.mark.parametrize("budget", [compose.SMALL, 32_000])
def test_only_what_can_fit_and_then_only_what_is_new_is_tokenised(budget: int) -> None:
    cold, turn = compose.asked(2_000, budget)
    assert cold.needless <= 3  # the one group that no longer fits
    assert turn.needless == 0
    assert turn.characters < cold.characters / 10


def test_a_peer_is_measured_beside_muntin() -> None:
    exact = openai_tokenizer("o200k_base")
    peer = compose.Contestant("LangChain, like", dict, lambda messages, budget: len(messages))
    found = list(compose.trimming([peer], 10_000, compose.SMALL, 1))
    assert [one.work.partition(":")[0] for one in found] == ["first call", "next turn"]
    assert [one.at_most for one in found] == [1 / 300, 1 / 3_000]
    assert found[0].note.startswith("messages kept: 10000 and ")
    assert compose.muntin(exact, remembers=True).remembers
