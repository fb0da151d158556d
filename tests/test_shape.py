"""The shape of the tree: knots, what is private, what is public, what tests mirror."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from importlib import import_module
from os.path import normpath
from pathlib import Path, PurePosixPath

import pytest

import muntin
from tests.docs.blocks import DOCUMENTS, name_of
from tests.paths import ROOT
from tools.tree import graph, knots, places, read

SOURCE = ROOT / "src" / "muntin"
# Folders of tests about the whole, which mirror no package.
WHOLE = {"bench", "docs", "faults", "packaging", "promises", "reliability"}
FILES = read(SOURCE)
TESTS = [
    path.relative_to(ROOT / "tests")
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
    if path.relative_to(ROOT / "tests").parts[0] not in WHOLE
]
PACKAGES = sorted(module for module, file in FILES.items() if file.is_package)

# What the library promises to export, beside `muntin.__all__`.
PROMISED = """
    Message Attachment ToolCall Input system user assistant tool Budget Slots Window Report History
    Turns Tokens Exact BudgetExceeded MuntinError
    prompt context when match generate generate_sync config set_tokenizer CacheOptions
    App Source Wake ContextEntry generator capability flow Action prompt_file Tool Stepped
    xml_tag render_tagged_context validate_tag_name normalize_tag_name RESERVED_TAG_NAMES raw
    aggregate contribute
    Session Decision SlotReport Breakpoint Frontier Pool
    MissingExtra PromptFileError TokenizerError UnknownModel
"""

# Test modules about other modules than the one they are named after, and which; `*` is each beside
# them. A row is a claim: look here for the tests of a module, and for a home of a new test.
SUBJECTS = {
    "test_interfaces.py": "composer settings",
    "test_examples.py": "",
    "test_import.py": "__main__ errors",
    "test_shape.py": "",
    "cli/test_usage.py": "error_text options terminal transcripts commands",
    "core/test_message.py": "parts",
    "core/counting/test_counter.py": "memo",
    "core/counting/test_published.py": "counter exact tools ../accepted",
    "core/caching/test_breakpoints.py": "wire_order frontier",
    "core/caching/test_prefix.py": "frontier ../digests",
    "core/planning/test_plan.py": "../../timeline/stored_plans",
    "core/planning/test_properties.py": "*",
    "core/planning/test_work.py": "planner units memory",
    "core/planning/test_worked_cases.py": (
        "planner units shrink render explain plan slot ../window ../composed"
    ),
    "fitting/test_own_tools.py": "../wire/lists ../wire/responses",
    "fitting/test_properties.py": "*",
    "fitting/test_reading.py": (
        "../wire/lists ../wire/pieces ../wire/lenient ../wire/reading ../core/forms"
    ),
    "fitting/test_valid.py": "* ../wire/requests ../wire/blocks",
    "fitting/test_writing.py": "../wire/lists",
    "fitting/test_recorder.py": "../timeline/receipts",
    "gateway/test_node.py": "server",
    "gateway/test_restart.py": "server conversations recording ../cli/gateway",
    "gateway/test_server.py": "*",
    "inspector/test_access.py": "server",
    "inspector/test_browser.py": "server data changes",
    "inspector/test_glance.py": "step_details data search changes",
    "inspector/test_large.py": "data changes search",
    "inspector/test_left_out.py": "changes data",
    "inspector/test_wording.py": "step_details data",
    "inspector/test_long_runs.py": "data server",
    "inspector/test_security.py": "server plans",
    "integrations/test_environments.py": "",
    "integrations/test_langchain.py": "messages shared",
    "integrations/test_fastapi.py": "",
    "integrations/test_pages.py": "",
    "prompts/test_adapt.py": "definition ../settings",
    "prompts/test_budget.py": "definition texts",
    "prompts/test_files.py": "liquid",
    "prompts/test_inputs.py": "contexts",
    "prompts/test_inspection.py": "definition",
    "prompts/test_plans.py": "definition generation texts",
    "providers/test_uploads.py": "sdks",
    "providers/test_keys.py": "client names sdks",
    "providers/test_long_runs.py": "client sdks",
    "providers/test_tool_names.py": "client ../wire/names ../core/accepted",
    "wire/test_cache_options.py": "chat responses",
    "wire/test_decode.py": "* ../providers/model",
    "wire/test_golden.py": "*",
    "wire/test_golden_sent.py": "*",
    "wire/test_not_carried.py": "common media",
    "wire/test_round_trip.py": "*",
    "wire/test_shared.py": (
        "* ../core/caching/wire_order ../core/caching/prefix ../core/caching/frontier"
    ),
    "wire/test_streams.py": "*",
    "wire/test_wire.py": "*",
    "runtime/engine/test_asking.py": "embedded ../entity_runner",
    "runtime/engine/test_conformance.py": "* ../inbox",
    "runtime/engine/test_overload.py": "embedded worker ../entity_runner ../../providers/overload",
    "runtime/engine/test_timers.py": (
        "../inbox ../../timeline/timers ../../timeline/store/sql/timers"
    ),
    "runtime/generators/test_plans.py": "call",
    "runtime/test_active_turn.py": "turn",
    "runtime/test_crash.py": "entity_runner recorded_run turn",
    "runtime/test_failed_turns.py": "recorded_run entity_runner ../errors ../timeline/project",
    "runtime/test_load_result.py": "recovery run_rules",
    "runtime/test_long_runs.py": "recorded_run run_rules",
    "runtime/test_prefix.py": "reports recorded_run sources generators/call",
    "simulator/test_doors.py": "run requests",
    "runtime/test_many_processes.py": "entity_runner turn_queue store_thread",
    "runtime/test_recall.py": "embedding ../timeline/recall/settings ../timeline/recall/vectors",
    "runtime/test_recall_doors.py": "recall embedding",
    "runtime/test_recall_privacy.py": "recall",
    "runtime/test_stepped_doors.py": "reports recorded_run",
    "runtime/test_strategies.py": "conversation app",
    "runtime/test_summaries.py": "next_move",
    "runtime/test_system_prompt.py": "conversation app",
    "runtime/test_turn_entries.py": "turn",
    "runtime/test_turn_write.py": "turn",
    "runtime/test_use_context.py": "sources source_slots entity_agent",
    "runtime/test_remembered.py": "../timeline/store/rows ../timeline/project ../timeline/past",
    "runtime/test_visits.py": "turn recorded_run reports store_thread",
    "simulator/test_picture.py": "result",
    "testing/test_scripted_model.py": "../testing",
    "testing/test_survives.py": "../testing",
    "timeline/store/test_conformance.py": "* sql/*",
    "timeline/store/sql/test_migration.py": "schema",
    "timeline/store/sql/test_migration_from_0_2.py": "schema",
    "timeline/store/test_memory.py": "sql/database",
    "timeline/test_files.py": "lines",
    "timeline/recall/test_excerpts.py": "choose lists",
    "timeline/recall/test_stored.py": "shelf",
    "timeline/recall/test_ranking.py": "words related dates index",
    "timeline/test_counted_once.py": "session past",
    "timeline/test_stored_plans.py": "markers",
    "timeline/test_windows.py": "session views history past",
}


def exported(module: str) -> list[str]:
    """Return what a module lists in `__all__`; adapters are read: frameworks may be missing."""
    if not module.startswith("muntin.integrations."):
        return list(getattr(import_module(module), "__all__", ()))
    (listed,) = re.findall(r"^__all__ = (\[.*\])$", FILES[module].text, re.MULTILINE)
    names: list[str] = literal_eval(listed)
    return names


def imported(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules of ours that a text imports, each with the names it takes from there."""
    for module, names in re.findall(
        r"^ *from (muntin[\w.]*) import (\([^)]*\)|.*)$", text, re.MULTILINE
    ):
        yield module, re.findall(r"(\w+)(?: as \w+)?(?=[\s,)]|$)", names.partition("#")[0])
    for module in re.findall(r"^ *import (muntin[\w.]*)", text, re.MULTILINE):
        yield module, []


def test_no_module_uses_what_is_private_to_another():
    assert places(FILES)["private accesses"] == []


def test_above_the_core_only_the_composer_makes_slots():
    made = [each for each in places(FILES)["composers"] if each.endswith("Slots(")]
    assert [each for each in made if not each.startswith(("core/", "composer.py"))] == []


def test_only_the_core_makes_a_counter():
    made = [each for each in places(FILES)["composers"] if each.endswith("Counter(")]
    assert [each for each in made if not each.startswith("core/")] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_lists_what_it_shows_and_shows_it(package):
    module = import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        getattr(module, name)


def test_every_folder_of_the_source_is_a_package():
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        assert (folder / "__init__.py").exists(), folder


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, *sorted((ROOT / "examples").glob("*.py"))], ids=name_of
)
def test_users_are_shown_no_import_deeper_than_a_package(document: Path):
    for module, names in imported(document.read_text(encoding="utf-8")):
        is_top = module.count(".") == 1 or module.startswith("muntin.integrations.")
        assert module in PACKAGES or (is_top and module in FILES), f"{module} is not for users"
        shown = exported(module) or names
        for name in names:
            assert module == "muntin" or name in shown, f"{module} does not show {name}"


def test_every_promised_name_is_importable_from_the_top():
    assert 45 <= len(muntin.__all__) <= 58
    for name in {*PROMISED.split(), *muntin.__all__}:
        getattr(muntin, name)


def test_no_more_than_four_modules_need_each_other():
    assert [knot for knot in knots(graph(FILES, late=False)) if len(knot) > 4] == []


def test_every_test_module_is_named_after_its_module_or_its_subject_is_known():
    modules = {Path(file.path).with_suffix("").as_posix() for file in FILES.values()}
    folders = modules | {Path(module).parent.as_posix() for module in modules}
    strange = []
    for test in TESTS:
        assert test.parent.as_posix() in folders, f"tests/{test.parent} mirrors nothing"
        mirrors = (test.parent / test.stem.removeprefix("test_")).as_posix() in modules
        if not mirrors and test.as_posix() not in SUBJECTS:
            strange.append(test.as_posix())
    assert strange == []


def test_every_module_has_a_test_module_that_is_about_it():
    assert set(SUBJECTS) <= {test.as_posix() for test in TESTS}
    about = [(test.parent / test.stem.removeprefix("test_")).as_posix() for test in TESTS]
    for test, subjects in SUBJECTS.items():
        about += [normpath(Path(test).parent / module) for module in subjects.split()]
    modules = {file.path.removesuffix(".py") for file in FILES.values() if not file.is_package}
    missing = [m for m in modules if not any(PurePosixPath("/", m).match(f"/{a}") for a in about)]
    assert sorted(missing) == []
