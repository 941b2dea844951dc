"""Expression text to Python's syntax tree, with an error on the character that causes it.

Names are ASCII, and there are no texts and comments, so these are refused before Python's parser sees them.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import NoReturn

from kvcanary_gen.diagnostics import Diagnostics, Mark
from kvcanary_gen.located import LocatedStr

MAX_DEPTH = 60

_FOREIGN = re.compile(r"[^A-Za-z0-9_ \t\n.,()\[\]{}+\-*/%&|^~<>=!@:]")
_ASSIGNMENT = re.compile(r"(?:^|[^=<>!:])=(?!=)")
_CLOSING = {"(": ")", "[": "]", "{": "}"}

_CONSTRUCTS: dict[type[ast.AST], str] = {
    ast.Tuple: "a list of values",
    ast.List: "a list",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.Lambda: "a lambda",
    ast.NamedExpr: "':='",
    ast.Starred: "'*' before a value",
    ast.Slice: "a slice",
    ast.Attribute: "an attribute",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Pow: "'**'",
    ast.Div: "'/'",
    ast.MatMult: "'@'",
    ast.In: "'in'",
    ast.NotIn: "'not in'",
    ast.Is: "'is'",
    ast.IsNot: "'is not'",
}


class Failed(Exception):
    """This part has no meaning; the reason is recorded already."""


def construct(node: ast.AST) -> str:
    """What a part of Python that is no part of the language is called."""
    return _CONSTRUCTS.get(type(node), type(node).__name__)


class ExprText:
    """One expression's text, and the places in it."""

    def __init__(self, text: LocatedStr, out: Diagnostics) -> None:
        self.text = text
        self.out = out
        # Line breaks mean nothing here, and Python's parser must not see leading blanks.
        self.flat = str(text).replace("\n", " ").lstrip()
        self.shift = len(text) - len(self.flat)

    def mark(self, offset: int) -> Mark:
        return self.text.mark_at(self.shift + offset)

    def fail(self, where: ast.AST | int, rule: str, message: str) -> NoReturn:
        """Records an error on a part of the tree, or a character of `flat`."""
        offset = where if isinstance(where, int) else getattr(where, "col_offset", 0)
        self.out.add(self.mark(offset), rule, message)
        raise Failed

    def between(self, left: ast.expr, right: ast.expr) -> int:
        """Offset of the operator between two operands."""
        start = left.end_col_offset or 0
        gap = self.flat[start : right.col_offset]
        return start + len(gap) - len(gap.lstrip(" \t)"))

    def parse(self) -> ast.expr:
        foreign = _FOREIGN.search(self.flat)
        if foreign is not None:
            what = "text" if foreign.group() in "'\"`" else f"'{foreign.group()}'"
            self.fail(foreign.start(), "KVG-020", f"{what} is not part of an expression")
        self._check_brackets()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(self.flat, mode="eval").body
        except SyntaxError as error:
            offset = min(max(0, (error.offset or 1) - 1), len(self.flat))
            # Python's advice is for programs.
            self.fail(offset, "KVG-020", f"not an expression: {str(error.msg).split('. ')[0]}")
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            self.fail(0, "KVG-020", f"not an expression: {error or type(error).__name__}")
        self._check_depth(tree)
        return tree

    def _check_depth(self, tree: ast.expr) -> None:
        """Everything behind this may recurse."""
        level: list[ast.expr] = [tree]
        depth = 1
        while level and depth <= MAX_DEPTH:
            level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
            depth += 1
        if level:
            self.fail(level[0], "KVG-020", f"expression nests deeper than {MAX_DEPTH} levels")

    def _check_brackets(self) -> None:
        """Python's parser reports some of these at other places, depending on its version."""
        opened: list[int] = []
        for offset, character in enumerate(self.flat):
            if character in _CLOSING:
                opened.append(offset)
            elif character in _CLOSING.values():
                if not opened or _CLOSING[self.flat[opened[-1]]] != character:
                    self.fail(offset, "KVG-020", f"'{character}' closes nothing")
                opened.pop()
            elif character == "=" and not opened and _ASSIGNMENT.match(self.flat, offset - 1 if offset else 0):
                self.fail(offset, "KVG-020", "'=' assigns; '==' compares")
        if opened:
            self.fail(opened[-1], "KVG-020", f"'{self.flat[opened[-1]]}' is never closed")
