"""Expressions as vectorised torch: int64 tensors (hashes as the same bits), bool tensors, no masks.

Loads are total here too: `eager.load` answers for places outside. Written apart from the Triton emitter and the
interpreter, so that a mistake in one shows against the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcanary_gen.emit.code import Atom, Code, Operator, Prefix, Ternary, compare, invoke, method, operator
from kvcanary_gen.emit.writer import Writer
from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import (
    Binary,
    Call,
    Compare,
    Const,
    Fold,
    Load,
    Logic,
    Node,
    Present,
    Select,
    Type,
    Unary,
    Var,
    is_static,
)
from kvcanary_gen.ir import FoldIR, FunctionIR, TensorArg

# Longer conditions get a line and a name.
MAX_INLINE_CONDITION = 60


@dataclass(kw_only=True)
class TorchBlock(Writer):
    """Statements being written; records which arguments and sizes their expressions read.

    Sizes and constants are Python integers; everything else is a tensor. `prefix` is the module of spec functions.
    """

    tensors: dict[str, TensorArg]
    functions: dict[str, FunctionIR]
    folds: dict[str, FoldIR] = field(default_factory=dict)
    prefix: str = "functions."
    reads: dict[str, None] = field(default_factory=dict)
    sizes: dict[str, None] = field(default_factory=dict)

    def is_number(self, node: Node) -> bool:
        """Whether the code of `node` is a Python integer or bool rather than a tensor."""
        if isinstance(node, (Const, Present)):
            return True
        if isinstance(node, Var):
            return node.kind in ("dim", "static")
        if isinstance(node, (Load, Fold)) or (isinstance(node, Call) and not node.builtin):
            return False
        if isinstance(node, Select) and is_static(node.condition):
            return False
        return all(self.is_number(child) for child in node.children())

    def assign(self, name: str, node: Node) -> None:
        """`name = node`; where a missing tensor must not be read, the choice is an `if` statement."""
        if isinstance(node, Select) and is_static(node.condition):
            self.text(f"if {self.static(node.condition).flat()}:")
            with self.indented():
                self.assign(name, node.then)
            self.text("else:")
            with self.indented():
                self.assign(name, node.other)
            return
        self.write(f"{name} = ", self.tensor(node))

    def tensor(self, node: Node) -> Code:
        """Code that is certainly a tensor."""
        code = self.value(node)
        return invoke("torch.tensor", code) if self.is_number(node) else code

    def static(self, node: Node) -> Code:
        if isinstance(node, Present):
            self.reads[node.name] = None
            return Operator("is" if node.negated else "is not", (Atom(node.name), Atom("None")))
        if isinstance(node, (Var, Const)):
            return Atom(node.name) if isinstance(node, Var) else self._constant(node)
        if isinstance(node, Compare):
            return operator(node.op, self.static(node.left), self.static(node.right))
        if isinstance(node, Logic):
            return operator(node.op, *(self.static(item) for item in node.items))
        assert isinstance(node, Unary)
        return Prefix("not", self.static(node.operand))

    def value(self, node: Node) -> Code:
        if isinstance(node, Const):
            return self._constant(node)
        if is_static(node):
            return self.static(node)
        if isinstance(node, Var):
            if node.kind == "dim":
                self.sizes[node.name] = None
            elif node.kind == "scalar":
                self.reads[node.name] = None
            return Atom(node.name)
        if isinstance(node, Load):
            return self._load(node)
        if isinstance(node, Unary):
            return self._unary(node)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Compare):
            left, right = self.value(node.left), self.value(node.right)
            return compare(node.op, left, right, constant_left=constant(node.left) is not None)
        if isinstance(node, Logic):
            return operator("&" if node.op == "and" else "|", *(self.value(item) for item in node.items))
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Fold):
            fold = self.folds[node.name]
            args = [self.tensor(arg) for arg in node.args]
            return invoke(f"{self.prefix}{node.name}", *args, fold.sources, *fold.statics)
        assert isinstance(node, Call), node
        return self._builtin(node) if node.builtin else self._function(node)

    def _constant(self, node: Const) -> Code:
        if node.type is Type.BOOL:
            return Atom("True" if node.value else "False")
        if node.name is not None and node.type is Type.INT:
            return Atom(f"layout.{node.name}")
        if node.type is Type.UINT:
            # torch has no wrapping uint64 arithmetic; int64 carries the same bits.
            name = f"layout.{node.name}" if node.name is not None else f"0x{node.value:X}"
            if node.value >= 1 << 63:
                return invoke("eager.bits", name)
            return Atom(name if node.name is not None or node.value > 0xFFFF else str(node.value))
        return Atom(str(node.value))

    def _load(self, node: Load) -> Code:
        tensor = self.tensors[node.tensor]
        self.reads[node.tensor] = None
        keywords: dict[str, Code | str] = {"outside": str(tensor.outside)} if tensor.outside else {}
        return invoke("eager.load", node.tensor, *(self.value(index) for index in node.indices), **keywords)

    def _unary(self, node: Unary) -> Code:
        if node.op == "not":
            if self.is_number(node.operand):
                return Prefix("not", self.value(node.operand))
            return Prefix("~", self.value(node.operand))
        return Prefix(node.op, self.value(node.operand))

    def _binary(self, node: Binary) -> Code:
        left, right = self.value(node.left), self.value(node.right)
        if node.op == ">>":
            return invoke("eager.shift_right", left, right)
        if self.is_number(node):
            # Python's integers do not wrap by themselves. Sums of lengths need not.
            small = node.op in ("+", "-", "//", "%") and all(
                abs(part.value) < 1 << 62 for part in node.walk() if isinstance(part, Const)
            )
            return operator(node.op, left, right) if small else invoke("eager.bits", operator(node.op, left, right))
        return operator(node.op, left, right)

    def _select(self, node: Select) -> Code:
        if is_static(node.condition):
            name = self.fresh("given")
            self.assign(name, node)
            return Atom(name)
        if self.is_number(node):
            return Ternary(self.value(node.then), self.value(node.condition), self.value(node.other))
        condition = self.tensor(node.condition)
        if len(condition.flat()) > MAX_INLINE_CONDITION:
            name = self.fresh("chosen")
            self.write(f"{name} = ", condition)
            condition = Atom(name)
        return invoke("torch.where", condition, self.value(node.then), self.value(node.other))

    def _builtin(self, node: Call) -> Code:
        if node.function in ("u64", "i64"):
            return self.value(node.args[0])
        if node.function == "clamp":
            value, low, high = node.args
            if self.is_number(low) and self.is_number(high) and not self.is_number(value):
                return method(self.value(value), "clamp", self.value(low), self.value(high))
            raised = Call(Type.INT, "max", (value, low), builtin=True)
            return self._extreme("min", (raised, high))
        return self._extreme(node.function, node.args)

    def _extreme(self, name: str, args: tuple[Node, ...]) -> Code:
        """Minimum or maximum: bounds that are numbers become clamps."""
        numbers = [self.value(arg) for arg in args if self.is_number(arg)]
        tensors = [self.value(arg) for arg in args if not self.is_number(arg)]
        if not tensors:
            return invoke(name, *numbers)
        code = tensors[0]
        for other in tensors[1:]:
            code = invoke("torch.minimum" if name == "min" else "torch.maximum", code, other)
        for number in numbers:
            code = method(code, "clamp", **{"max" if name == "min" else "min": number})
        return code

    def _function(self, node: Call) -> Code:
        function = self.functions[node.function]
        context = function_context(function, self.functions)
        self.reads.update(dict.fromkeys((*context.tensors, *context.scalars)))
        self.sizes.update(dict.fromkeys(context.sizes))
        args: list[Code | str] = [self.tensor(arg) for arg in node.args]
        return invoke(f"{self.prefix}{node.function}", *args, *context.tensors, *context.scalars, *context.sizes)


@dataclass(frozen=True)
class FunctionContext:
    """What the torch form of a function takes behind its own parameters."""

    tensors: tuple[str, ...]
    scalars: tuple[str, ...]
    sizes: tuple[str, ...]


def function_context(function: FunctionIR, functions: dict[str, FunctionIR]) -> FunctionContext:
    sizes: dict[str, None] = {}
    for node in (*(node for _, node in function.lets), function.value):
        for part in node.walk():
            if isinstance(part, Var) and part.kind == "dim":
                sizes[part.name] = None
            elif isinstance(part, Call) and not part.builtin:
                sizes.update(dict.fromkeys(function_context(functions[part.function], functions).sizes))
    tensors = tuple(dict.fromkeys((*function.tensors, *function.presence)))
    return FunctionContext(tensors, function.scalars, tuple(sizes))
