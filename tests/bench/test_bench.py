"""The benchmarks stay alive: each runs in its short form, and the pages tell what was measured.

No time is asserted here, and no peer is needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from bench import __main__ as together
from bench import adapters, first_token, long_runs, recall, scale, toolboxes
from bench.cache.table import tables
from bench.headlines import HEADLINES, find
from bench.measure import Figure
from bench.memory_talks import answers
from bench.memory_words import LANGUAGES
from bench.page import pages, sections
from bench.runs.ours import POLICIES
from bench.runs.score import MODELS
from bench.runs.script import script
from bench.runs.table import places
from muntin import History, Session
from muntin.timeline.store.sql import Store
from tests.products import sample

# The others take longer, and play what is played below.
SHORT = ("compose", "prompts", "estimate", "wire", "store", "templates", "first_token")


@pytest.mark.parametrize("name", sample(together.SCRIPTS, *SHORT))
def test_every_benchmark_runs_in_its_short_form(name, tmp_path):
    out = tmp_path / "figures.json"
    program = together.ROOT / "bench" / f"{name}.py"
    subprocess.run([sys.executable, program, "--short", "--out", out], check=True, cwd=tmp_path)
    figures = [Figure.from_dict(figure) for figure in json.loads(out.read_text("utf-8"))]
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


def test_the_joined_run_keeps_what_it_does_not_measure_again(tmp_path, capfd):
    options = ["--short", "--out", str(tmp_path), "--date"]
    assert together.main([*options, "2024-06-03", "--only", "wire"]) == 0
    assert together.main([*options, "2024-06-04", "--only", "prompts"]) == 0
    results = json.loads((tmp_path / "bench" / "results.json").read_text("utf-8"))
    page = (tmp_path / "docs" / "benchmarks-all.md").read_text("utf-8")
    assert results["dates"] == {"wire": "2024-06-03", "prompts": "2024-06-04"}
    assert set(results["figures"]) == {"wire", "prompts"}
    assert "encode 1,000 messages: Anthropic" in page
    assert "Measured on 2024-06-03" in page
    assert capfd.readouterr().out.count("encode 1,000 messages: Google") == 2


def stored() -> tuple[dict[str, Any], dict[str, list[Figure]]]:
    results = json.loads((together.ROOT / "bench" / "results.json").read_text("utf-8"))
    return results, together.measured(results)


def test_the_pages_and_their_plots_are_what_the_stored_figures_give():
    results, measured = stored()
    for path, text in pages(results, measured).items():
        assert (together.ROOT / "docs" / path).read_text("utf-8") == text, path
    policies = (together.ROOT / "docs" / "design" / "cache-policies.md").read_text("utf-8")
    assert all(table in policies for table in tables(results["figures"]["caching"]))


def test_every_headline_was_measured():
    _, measured = stored()
    assert [headline.said for headline in HEADLINES if find(measured, headline) is None] == []


def test_the_page_of_headlines_has_five_plots_at_most_and_fits_on_two_screens():
    page = pages(*stored())["benchmarks.md"]
    prose = [line for line in page.splitlines() if line and not line.startswith(("|", "!"))]
    assert page.count("![") <= 5
    assert len(prose) <= 60


def test_every_policy_plays_a_long_run_and_sends_only_what_is_valid_and_fits():
    run = script(24)
    rows = list(long_runs.rows(16_000, run, peers=False))
    assert {(row.policy, row.rules) for row in rows} == {(p, r) for p in POLICIES for r in MODELS}
    for row in rows:
        assert (row.requests, row.invalid, row.over, row.refused) == (24, 0, 0, 0)
    figures = [
        figure
        for rules in MODELS
        for figure in long_runs.figures([row for row in rows if row.rules == rules])
    ]
    assert next(iter(places(figures).values())).keys() == POLICIES.keys()
    page = "\n".join(sections({"long_runs": figures}))
    assert "### A window of 16,000 tokens, openai" in page


def test_a_client_that_fits_its_requests_sends_only_what_is_valid():
    own, cut = adapters.rows("openai", 30)
    assert (own.requests, own.invalid, own.over, own.question_lost) == (30, 0, 0, 0)
    assert cut.invalid


def test_recall_finds_its_needles_and_facts_in_every_language():
    figures = list(recall.evidence(short=True))
    assert [figure for figure in figures if not figure.held] == []


def test_what_a_user_said_in_passing_is_found_among_long_answers():
    asked = list(answers(LANGUAGES[0], turns=40))
    history = History(asked[0].messages)
    found = [case.evidence in history.relevant(case.text, tokens=1_000) for case in asked]
    assert sum(found) >= 0.9 * len(asked)
    assert all(any(case.evidence in m.text for m in case.messages) for case in asked)


def test_a_store_of_many_sessions_is_one_that_muntin_reads(tmp_path):
    path = tmp_path / "crowd.db"
    scale.crowd(path, 7)
    with Store(f"sqlite:///{path}") as store:
        assert [info.id for info in store.sessions()] == [f"s-{n:07}" for n in range(7)]
        for info in store.sessions():
            assert len(list(Session(info.id, store=store).messages())) == 8


def test_toolboxes_are_replayed_without_a_changed_beginning(capsys):
    toolboxes.main([])
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    table = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}
    for name in toolboxes.MODELS:
        requests, *_, changed, _cold, _behind, missing = table[name]
        assert (requests, changed, missing) == ("72", "0 of 62", "0 of 32")
    assert table["grown, 3 a search"][3] == "30 of 62"
    assert int(table["Muntin, Chat"][1].replace(",", "")) < 2_000
