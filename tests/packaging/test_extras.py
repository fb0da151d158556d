"""Extras: what each promises works where only it is installed, and without it we say what to do.

`MUNTIN_EXTRAS=all` runs the same in real environments, one for each extra.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.conftest import REAL, asked_for
from tests.packaging.promises import FRAMEWORKS, PROMISES

SCRIPT = Path(__file__).with_name("promises.py")
EXTRAS = sorted(set(PROMISES) - {"all"})
# An extra that stands on another is missed where that other is there.
UNDER = {"inspector": "cli", "engine": "postgres", "mcp": "cli", "gateway": "inspector"}
# Without it nothing is measured, and nothing is wrong.
SILENT = {"otel"}


def test_every_extra_has_a_promise(built):
    assert {*PROMISES, "dev"} == set(built.metadata.metadata.get_all("Provides-Extra"))


def test_all_is_every_extra_together_but_those_of_frameworks(built):
    own = set(EXTRAS) - set(FRAMEWORKS)
    assert asked_for(built.metadata, {"all"}) == asked_for(built.metadata, own)


# Frameworks are not installed where tests run: only `MUNTIN_EXTRAS=all` has them.
@pytest.mark.parametrize("extra", PROMISES if REAL else sorted({*EXTRAS} - {*FRAMEWORKS}))
def test_an_extra_alone_is_enough_for_what_it_promises(extra, with_extra, tmp_path):
    ended = with_extra(extra).run("python", SCRIPT, extra, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(": holds\n") == len(PROMISES[extra])


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - SILENT))
def test_without_an_extra_the_error_says_what_to_install(extra, bare, with_extra, tmp_path):
    environment = with_extra(UNDER[extra]) if extra in UNDER else bare
    ended = environment.run("python", SCRIPT, extra, "--without", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == len(PROMISES[extra])
    for line in lines:
        assert f"pip install 'muntin[{extra}]'" in line
