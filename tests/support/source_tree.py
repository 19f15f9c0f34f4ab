"""Reads the source of the packages without importing it: which module imports which, and how big things are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Import:
    """One imported name.

    `target` is the most precise module that can be told from the source: for `from a import b`, `a.b` when that is a
    module of the tree, else `a`. `when` is "load" (runs when the module is imported), "call" (inside a function) or
    "types" (under TYPE_CHECKING).
    """

    source: str
    target: str
    line: int
    when: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target} ({self.when})"


class SourceTree:
    """Every module under some `src` folders, by dotted name."""

    def __init__(self, *roots: Path) -> None:
        self.files: dict[str, Path] = {}
        for root in roots:
            for path in sorted(root.rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.files[name] = path
        self.trees = {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in self.files.items()}

    @classmethod
    def of_repository(cls) -> SourceTree:
        """The packages of this checkout."""
        return cls(*sorted(ROOT.glob("packages/*/src")))

    def imports(self) -> Iterator[Import]:
        """Every import of every module."""
        for name in self.trees:
            yield from self.imports_of(name)

    def imports_of(self, name: str) -> Iterator[Import]:
        """Imports of one module, in source order."""
        for node, when in walk_with_time(self.trees[name], "load"):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(name, alias.name, node.lineno, when)
            elif isinstance(node, ast.ImportFrom):
                base = self.base_of(name, node)
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield Import(name, inner if inner in self.files else base, node.lineno, when)

    def base_of(self, name: str, node: ast.ImportFrom) -> str:
        """The absolute module that a `from` import names."""
        if node.level == 0:
            return node.module or ""
        package = name.split(".") if self.files[name].name == "__init__.py" else name.split(".")[:-1]
        kept = package[: len(package) - node.level + 1]
        return ".".join([*kept, *([node.module] if node.module else [])])

    def load_graph(self) -> dict[str, set[str]]:
        """Module -> modules of the tree that it makes Python load.

        Importing `a.b.c` runs `a` and `a.b` first; those edges are left out: they lead to packages that hold the
        module itself, and would turn every package with a re-export into a cycle.
        """
        graph: dict[str, set[str]] = {name: set() for name in self.files}
        for item in self.imports():
            if item.when == "load" and item.target in self.files and item.target != item.source:
                graph[item.source].add(item.target)
        return graph


def walk_with_time(node: ast.AST, when: str) -> Iterator[tuple[ast.AST, str]]:
    """Every node with the time at which it runs."""
    for child in ast.iter_child_nodes(node):
        yield child, when
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for inner in child.body:
                yield inner, "types"
                yield from walk_with_time(inner, "types")
            for inner in child.orelse:
                yield inner, when
                yield from walk_with_time(inner, when)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk_with_time(child, "call" if inside and when == "load" else when)


def is_type_checking(test: ast.expr) -> bool:
    """Whether an `if` asks for TYPE_CHECKING."""
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


@dataclass(frozen=True)
class Function:
    """A function with its size in lines, decorators and docstring included."""

    module: str
    name: str
    line: int
    lines: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.name} has {self.lines} lines"


def functions(tree: SourceTree) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for module, parsed in tree.trees.items():
        for node in ast.walk(parsed):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                yield Function(module, node.name, first, (node.end_lineno or first) - first + 1)
