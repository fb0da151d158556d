"""The source as a tree of files: who imports whom, which knots that makes, who stands where.

Reads the files and imports none of them, so that it can look at any checkout.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

ROOT = Path(__file__).parent.parent
# When something is imported: with its module, inside of a function, or only for the type checker.
When: TypeAlias = Literal["load", "late", "types"]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What named tuples show under a name that begins with an underscore.
OF_TUPLES = ("_asdict", "_fields", "_replace")


class File(NamedTuple):
    """One source file; `imports` are (module, name, when), see `imports`."""

    path: str
    text: str
    nodes: list[ast.AST]
    imports: list[tuple[str, str, When]]
    is_package: bool


def read(package: Path) -> dict[str, File]:
    """Return the files of a package by the names of their modules."""
    files = {}
    for each in sorted(package.rglob("*.py")):
        path, text = each.relative_to(package).as_posix(), each.read_text("utf-8")
        module = f"muntin/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        tree, is_package = ast.parse(text), each.name == "__init__.py"
        files[module] = File(path, text, list(ast.walk(tree)), list(imports(tree)), is_package)
    return files


def imports(node: ast.AST, when: When = "load") -> Iterator[tuple[str, str, When]]:
    """Yield all imports (none is relative), also those inside of functions and for types alone."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            yield module, alias.name, when
    if isinstance(node, FUNCTIONS):
        when = "late"
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        when = "types"
    for child in ast.iter_child_nodes(node):
        yield from imports(child, when)


def home(files: dict[str, File], module: str, name: str) -> str | None:
    """Return the module that defines an imported name; None for packages and other libraries."""
    if f"{module}.{name}" in files:
        return home(files, f"{module}.{name}", "")
    if module not in files or not files[module].is_package:
        return module if module in files else None
    shown = [each for each in files[module].imports if each[1] == name]
    return home(files, *shown[0][:2]) if shown else None


def graph(files: dict[str, File], *, late: bool) -> dict[str, set[str]]:
    """Return which modules each module imports; packages are left out."""
    return {
        module: {
            home(files, *each[:2]) or module for each in file.imports if late or each[2] != "late"
        }
        - {module}
        for module, file in files.items()
        if not file.is_package
    }


def knots(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other by their imports, largest first."""
    reached: dict[str, set[str]] = {}
    for module in edges:
        seen, ahead = reached.setdefault(module, set()), [module]
        while ahead:
            new = edges[ahead.pop()] - seen
            seen |= new
            ahead += new
    groups = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in reached}
    return sorted((list(group) for group in groups if group), key=lambda each: (-len(each), each))


def places(files: dict[str, File]) -> dict[str, list[str]]:
    """Return where private members of other modules are used, and slots and counters made."""
    private, composers = [], []
    for file in files.values():
        taken = {name: module for module, name, _ in file.imports}
        private += [f"{file.path} {taken[name]}.{name}" for name in taken if is_private(name)]
        for node in file.nodes:
            if isinstance(node, ast.Call):
                made = ast.unparse(node.func).rpartition(".")[2]
                if made in ("Slots", "Counter") and taken.get(made) != "collections":
                    composers.append(f"{file.path}:{node.lineno} {made}(")
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                owner = ast.unparse(node.value)
                own = (f"def {node.attr}(", f"self.{node.attr}", f"    {node.attr}:")
                if owner not in ("self", "cls") and not any(text in file.text for text in own):
                    private.append(f"{file.path}:{node.lineno} {owner}.{node.attr}")
    return {"private accesses": private, "composers": composers}


def is_private(name: str) -> bool:
    """Say whether a name is meant for its own module only."""
    return name[0] == "_" and name[:2] != "__" and name not in OF_TUPLES


def layers(root: Path = ROOT) -> list[list[str]]:
    """Return the layers that docs/architecture.md draws, the lowest first."""
    page = (root / "docs" / "architecture.md").read_text("utf-8")
    drawn = page.partition("knows only the layers below:\n\n")[2].partition("\n\n")[0]
    named = [line for line in drawn.splitlines() if not line.startswith(" " * 5)]
    return [line.strip().partition("  ")[0].split(" · ") for line in reversed(named)]


def top(module: str) -> str:
    """Return the package or module directly in `muntin` that something belongs to."""
    return module.split(".")[1] if "." in module else module


def links(files: Mapping[str, File], when: When) -> set[tuple[str, str, str]]:
    """Return (module, its top, the top that it imports), for imports across tops."""
    found = set()
    for module, file in files.items():
        for source, name, at in file.imports:
            target = f"{source}.{name}" if source == "muntin" else source
            if at == when and target.startswith("muntin.") and target in files:
                found.add((module, top(module), top(target)))
    return {link for link in found if link[1] != link[2] and "." in link[0]}


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return a graph without knots, less the edges that a longer way makes needless."""

    def reach(node: str) -> set[str]:
        return set().union(*({each} | reach(each) for each in edges.get(node, ())))

    return {
        a: {b for b in ends if not any(b in reach(c) for c in ends)} for a, ends in edges.items()
    }


def print_tree(package: Path) -> None:
    """Print every source file with the first line of its docstring."""
    for file in read(package).values():
        owns = (ast.get_docstring(ast.parse(file.text)) or "").partition("\n")[0]
        print(f"{file.path:<42}{owns}")


if __name__ == "__main__":
    print_tree(ROOT / "src" / "muntin")
