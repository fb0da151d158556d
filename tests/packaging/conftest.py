"""The built package, and environments it is installed in: nothing there comes from the source tree.

Everything is made once in a test run, without a network. An extra's environment is the bare one
and links to exactly the packages that the extra asks for. `MUNTIN_EXTRAS=all` makes a real
environment of every extra instead, with pip and a network.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REAL = os.environ.get("MUNTIN_EXTRAS") == "all"


@dataclass(frozen=True)
class Built:
    """The two files that are published."""

    wheel: Path
    sdist: Path

    @property
    def metadata(self) -> PathDistribution:
        """What the wheel says of itself."""
        name, version, *_ = self.wheel.name.split("-")
        return PathDistribution(zipfile.Path(self.wheel, f"{name}-{version}.dist-info/"))


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a folder of further packages."""

    folder: Path
    packages: Path | None = None

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in nobody's name: no keys, no settings."""
        home = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {**home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        if self.packages:
            env["PYTHONPATH"] = str(self.packages)
        program, *args = command
        return subprocess.run(
            [self.folder / "bin" / program, *args],
            capture_output=True,
            cwd=cwd,
            env=env,
            text=True,
            timeout=120,
        )


def do(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a program that must succeed."""
    ended = subprocess.run(command, capture_output=True, cwd=cwd, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder, made by whichever process of the test run comes first."""
    done = folder.with_name(f"{folder.name}.done")
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that all processes of the test run have in common."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        yield base.parent
        return
    yield base
    for large in base.glob("with-*/"):  # pytest would keep gigabytes
        shutil.rmtree(large)


@pytest.fixture(scope="session")
def built(shared: Path) -> Built:
    """The wheel and the sdist, built as `python -m build --no-isolation` builds them."""
    folder = once(
        shared / "dist", lambda out: do(sys.executable, "-m", "hatchling", "build", "-d", out)
    )
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="session")
def bare(shared: Path, built: Built) -> Environment:
    """An environment in which nothing is installed but the wheel."""

    def make(folder: Path) -> None:
        do(sys.executable, "-m", "venv", "--without-pip", folder)
        install(folder, "--no-index", "--no-deps", built.wheel)

    return Environment(once(shared / "bare", make))


@pytest.fixture
def with_extra(
    shared: Path, built: Built, bare: Environment, tmp_path: Path
) -> Callable[[str], Environment]:
    """Return the environment in which the wheel is installed with an extra."""

    def make(folder: Path, extra: str) -> None:
        do(sys.executable, "-m", "venv", "--without-pip", folder)
        install(folder, f"muntin[{extra}] @ {built.wheel.as_uri()}")
        pip(folder, "check")

    def environment(extra: str) -> Environment:
        if REAL:
            folder = shared / f"with-{extra}"
            return Environment(once(folder, lambda folder: make(folder, extra)))
        packages = tmp_path / f"packages-{extra}"
        for found in sorted(asked_for(built.metadata, {extra})):
            link(found, packages)
        return Environment(bare.folder, packages)

    return environment


def install(folder: Path, *what: str | Path) -> None:
    """Install into an environment."""
    pip(folder, "install", "--quiet", "--disable-pip-version-check", *what)


def pip(folder: Path, *command: str | Path) -> None:
    """Run pip on an environment that has none itself."""
    do(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *command)


def asked_for(package: Distribution, extras: set[str]) -> set[str]:
    """Return the names of all that a package needs with some extras, and what that needs."""
    todo = list(wanted(package, extras))
    seen = set()
    while todo:
        need = todo.pop()
        key = canonicalize_name(need.name), frozenset(need.extras)
        if key not in seen:
            seen.add(key)
            todo.extend(wanted(distribution(need.name), need.extras))
    return {name for name, _ in seen}


def wanted(package: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """Return what a package needs here, with some extras."""
    for text in package.requires or ():
        need = Requirement(text)
        if need.marker is None or any(
            need.marker.evaluate({"extra": extra}) for extra in {"", *extras}
        ):
            yield need


def link(name: str, folder: Path) -> None:
    """Link a package that is installed here into a folder."""
    for place, source in parts(name).items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(source)


@cache
def parts(name: str) -> dict[str, Path]:
    """Return where the parts of an installed package are: folders, and files in namespaces."""
    found = {}
    package = distribution(name)
    site = Path(str(package.locate_file("")))
    for file in package.files or ():
        top = file.parts[0]
        if top != ".." and top not in found:
            folder = site / top
            is_whole = folder.suffix == ".dist-info" or (folder / "__init__.py").exists()
            place = top if is_whole else str(file)
            found[place] = (site / place).resolve()
    return found
