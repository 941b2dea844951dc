"""Names that functions and kernels declare one after the other, each visible to those behind it."""

from __future__ import annotations

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.nodes import Node, Var
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.names import check_name

# Of an expression whose lets are written out. Proofs about indices look through lets, so they take that long.
MAX_NODES = 1 << 18


class LetReader:
    """Reads declarations of `owner`; `scope` holds what is visible so far, `taken` says what other names are."""

    def __init__(self, context: Context, owner: str, scope: Scope, taken: dict[str, str] | None = None) -> None:
        self.context = context
        self.owner = owner
        self.scope = scope
        self.taken = taken or {}
        self.lets: list[tuple[str, Node]] = []
        self.sizes: dict[str, int] = {}

    def declare(self, name: str, mark: Mark) -> bool:
        """Whether a name can be declared here; if not, says why. No name has two meanings, one behind the other."""
        if not check_name(self.context, name, mark):
            return False
        meaning = self.taken.get(name) or self.scope.meaning(name)
        if meaning is not None:
            self.context.out.add(mark, "KVG-014", f"'{name}' is {meaning} in {self.owner} already")
        return meaning is None

    def read(self, name: str, text: LocatedStr, mark: Mark) -> None:
        """Reads `name: text`."""
        declared = self.declare(name, mark)
        node = parse_expr(text, self.scope, None, self.context.out, f"'{name}'")
        if node is not None and not self._is_bounded(name, node):
            self.context.out.add(mark, "KVG-029", f"'{name}' has more than {MAX_NODES} parts when written out")
            node = None
        # A name that has a meaning keeps it.
        self.scope = self.scope.with_let(name, node.type if node is not None and declared else None)
        if node is not None:
            self.lets.append((name, node))

    def _is_bounded(self, name: str, node: Node) -> bool:
        parts = node.walk()
        self.sizes[name] = sum(self.sizes.get(part.name, 1) if isinstance(part, Var) else 1 for part in parts)
        return self.sizes[name] <= MAX_NODES
