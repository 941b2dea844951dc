"""Finds definitions and mentions in generated Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kvcanary_gen.compare import Tree


@dataclass(frozen=True)
class Excerpt:
    """Lines of one file. `numbers` are those of the lines, which need not be neighbours."""

    file: str
    numbers: tuple[int, ...]
    lines: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Module:
    """One generated Python file."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def excerpt(self, first: int, last: int, title: str = "") -> Excerpt:
        return Excerpt(self.file, tuple(range(first, last + 1)), tuple(self.lines[first - 1 : last]), title)

    def definition(self, name: str, title: str = "") -> Excerpt | None:
        """A function, class or assignment at the top of the module, decorators and comments above it included."""
        for node in self.tree.body:
            if name in _defined(node):
                first, last = _span(node)
                while (
                    first > 1 and self.lines[first - 2].startswith("#") and not self.lines[first - 2].startswith("# -")
                ):
                    first -= 1
                return self.excerpt(first, last, title)
        return None

    def mentions(self, pattern: str, inside: tuple[str, ...] = (), title: str = "") -> Excerpt | None:
        """Lines that match, within the definitions `inside`, or in all of the module."""
        spans = [_span(node) for node in self.tree.body if not inside or _defined(node) & set(inside)]
        word = re.compile(pattern)
        numbers = [n for first, last in spans for n in range(first, last + 1) if word.search(self.lines[n - 1])]
        if not numbers:
            return None
        return Excerpt(self.file, tuple(numbers), tuple(self.lines[n - 1] for n in numbers), title)

    def raises(self, id: str) -> Iterator[Excerpt]:
        """The statements that raise an error by its id: the whole function where it is small, else the `if`."""
        for function in ast.walk(self.tree):
            if not isinstance(function, ast.FunctionDef) or not _raises(function, id):
                continue
            small = not isinstance(function.body[0], ast.If) and len(list(_all_raises(function))) == 1
            inner = [node for node in ast.walk(function) if isinstance(node, ast.If) and _raises(node, id)]
            node: ast.stmt = function if small or not inner else inner[-1]
            yield self.excerpt(*_span(node))


def modules(tree: Tree, package: str) -> dict[str, Module]:
    """Python files of the package, by their path below it."""
    prefix = f"{package}/"
    return {
        path.removeprefix(prefix): Module(path, text)
        for path, text in tree.items()
        if path.startswith(prefix) and path.endswith(".py")
    }


def _defined(node: ast.stmt) -> set[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first, node.end_lineno or node.lineno


def _all_raises(node: ast.AST) -> Iterator[ast.Raise]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Raise))


def _raises(node: ast.AST, id: str) -> bool:
    return any(
        isinstance(part, ast.Constant) and part.value == id for found in _all_raises(node) for part in ast.walk(found)
    )
