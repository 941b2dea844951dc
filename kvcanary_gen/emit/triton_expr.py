"""Expressions as Triton source: vectors of int64, uint64 and bool under a mask.

Written apart from the torch emitter and the interpreter, so that a mistake in one shows against the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvcanary_gen.emit.code import Atom, Code, Operator, Prefix, Ternary, compare, invoke, method, operator
from kvcanary_gen.emit.names import (
    alignment_name,
    constant_name,
    count_name,
    cut_name,
    paired_name,
    source_arguments,
    static_name,
    table_name,
    tile_name,
)
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.writer import Writer
from kvcanary_gen.expr.fold import constant, folded
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
    loads,
)
from kvcanary_gen.expr.pairs import Pair, paired_tensors, pairs
from kvcanary_gen.ir import AxisLength, FoldIR, FunctionIR, TensorArg

TRUE = Atom("True")

# Constants of a kernel that say in which form a fold reads its sources.
FORM_NAMES = (tile_name, alignment_name, cut_name)

_TYPES = {Type.INT: "tl.int64", Type.UINT: "tl.uint64", Type.BOOL: "tl.int1"}
_INT32 = range(-(1 << 31), 1 << 31)

# Longer loads, and those with checks of their own, get a line and a name.
MAX_INLINE_LOAD = 88


def flag_name(tensor: str) -> str:
    """The compile-time flag that says whether an optional tensor was given."""
    return f"HAS_{tensor.upper()}"


def pointer_name(tensor: str) -> str:
    return f"{tensor}_ptr"


def size_name(tensor: TensorArg, axis: int) -> str:
    """Name of the runtime argument that holds an axis length."""
    dim = tensor.shape[axis].dim
    if tensor.record is not None and axis == len(tensor.shape) - 1:
        return f"{tensor.name}_words"
    return dim if dim is not None else f"{tensor.name}_len" if axis == 0 else f"{tensor.name}_len_{axis}"


def touches_memory(node: Node, functions: dict[str, FunctionIR]) -> bool:
    """Whether evaluating `node` loads anything."""
    if any(loads(node)) or any(isinstance(part, Fold) for part in node.walk()):
        return True
    return any(
        isinstance(part, Call) and not part.builtin and bool(functions[part.function].tensors) for part in node.walk()
    )


def takes_mask(function: FunctionIR) -> bool:
    """Whether a function is told its lanes: to load, or to give a block whatever tensors are missing."""
    return bool(function.tensors or function.presence)


def parameters_read(function: FunctionIR, functions: dict[str, FunctionIR]) -> set[str]:
    """Parameters that the value of a function depends on."""
    known = {name: {name} for name, _ in function.params}

    def names(node: Node) -> set[str]:
        if isinstance(node, Var):
            return known.get(node.name, set())
        children = node.children()
        if isinstance(node, Call) and not node.builtin:
            callee = functions[node.function]
            read = parameters_read(callee, functions)
            children = tuple(arg for (name, _), arg in zip(callee.params, node.args, strict=True) if name in read)
        return set().union(*map(names, children))

    for name, node in function.lets:
        known[name] = names(node)
    return names(function.value)


def combines_lanes(function: FunctionIR, functions: dict[str, FunctionIR]) -> bool:
    """Whether a function combines masks or conditions, whose operands must all be blocks or all be scalars."""
    parts = [part for node in (*dict(function.lets).values(), function.value) for part in node.walk()]
    called = {part.function for part in parts if isinstance(part, Call) and not part.builtin}
    return (
        takes_mask(function)
        or any(isinstance(part, Logic) for part in parts)
        or any(combines_lanes(functions[name], functions) for name in called)
    )


@dataclass
class Needs:
    """What emitted code reads besides its own variables; becomes its parameters."""

    pointers: dict[str, None] = field(default_factory=dict)
    sizes: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    scalars: dict[str, None] = field(default_factory=dict)
    flags: dict[str, None] = field(default_factory=dict)
    statics: dict[str, None] = field(default_factory=dict)
    folds: dict[str, None] = field(default_factory=dict)
    # Tensors of which two words load at once.
    paired: dict[str, None] = field(default_factory=dict)

    def function(self, function: FunctionIR, sizes: dict[str, tuple[str, int] | None]) -> None:
        self.pointers.update(dict.fromkeys(function.tensors))
        self.scalars.update(dict.fromkeys(function.scalars))
        self.flags.update(dict.fromkeys(function.presence))
        self.sizes.update(sizes)


@dataclass(kw_only=True)
class Block(Writer):
    """Statements being written, and the state that expressions in them share."""

    tensors: dict[str, TensorArg]
    functions: dict[str, FunctionIR]
    function_sizes: dict[str, dict[str, tuple[str, int] | None]]
    facts: Facts
    needs: Needs = field(default_factory=Needs)
    prefix: str = "device."
    # Names that hold one value for all lanes; sizes and scalars do anyway.
    uniform: set[str] = field(default_factory=set)
    folds: dict[str, FoldIR] = field(default_factory=dict)
    # Loads that come in pairs, and the names of those that have been loaded, by mask.
    pairs: dict[Load, Pair] = field(default_factory=dict)
    loaded: dict[tuple[Load, str], str] = field(default_factory=dict)
    # Lists of sources that are certainly tables.
    tables: set[str] = field(default_factory=set)

    # --- statements ---------------------------------------------------------------------------------------------

    def assign(self, name: str, node: Node, mask: Code, *, lanes: bool | None = None) -> None:
        """`name = node`, with compile-time choices as `if` statements.

        Args:
            lanes: whether the name holds a block in every case; found out if None.
        """
        lanes = not self.is_uniform(node) if lanes is None else lanes
        if isinstance(node, Select) and is_static(node.condition):
            self.text(f"if {self.static(node.condition).flat()}:")
            with self.indented():
                self.assign(name, node.then, mask, lanes=lanes)
            self.text("else:")
            with self.indented():
                self.assign(name, node.other, mask, lanes=lanes)
            return
        code = self._loading(node, mask)[0] if isinstance(node, Load) else self.typed(node, mask)
        self.write(f"{name} = ", self.spread(code, node, mask) if lanes else code)

    def spread(self, code: Code, node: Node, mask: Code) -> Code:
        """The code of a node as a block: one value for all lanes becomes one for each."""
        if mask == TRUE or not self.is_uniform(node):
            return code
        return invoke("tl.where", mask, code, "False" if node.type is Type.BOOL else "0")

    def let(self, name: str, node: Node, mask: Code) -> None:
        """Assigns a name of the spec, and remembers what is known of it."""
        self.assign(name, node, mask)
        self.facts = self.facts.with_let(name, node)
        if self.is_uniform(node):
            self.uniform.add(name)

    def lets(self, lets: Iterable[tuple[str, Node]], mask: Code) -> None:
        """Assigns names in order; two fields of one record that lie side by side together."""
        lets = list(lets)
        mine = pairs((node for _, node in lets), self.tensors)
        names = {node: name for name, node in lets}
        done: set[str] = set()
        for name, node in lets:
            pair = mine.get(node) if isinstance(node, Load) and not self.is_uniform(node) else None
            if pair is not None and name not in done and all(load in names for load in pair):
                self.load_pair(pair, [names[load] for load in pair], mask)
                done |= {names[load] for load in pair}
            if name in done:
                self.facts = self.facts.with_let(name, node)
            else:
                self.let(name, node, mask)

    def load_pair(self, pair: Pair, names: list[str], mask: Code) -> None:
        """Loads two words of a record into two names."""
        first, tensor = pair[0], self.tensors[pair[0].tensor]
        self.needs.paired[tensor.name] = None
        offset, inside = self.address(tensor, first.indices, mask)
        guard = conjunction([mask, *inside])
        call = invoke("lang.load_pair", pointer_name(tensor.name), offset or "0", guard, paired_name(tensor.name))
        self.write(f"{', '.join(names)} = ", call)
        for name, load in zip(names, pair, strict=True):
            if load.type is Type.UINT and tensor.dtype != "uint64":
                self.write(f"{name} = ", method(Atom(name), "to", "tl.uint64", bitcast="True"))

    def named(self, node: Node, mask: Code, name: str, *, lanes: bool | None = None) -> Code:
        """The value of `node` as a name or number, assigned to a new variable where it is more."""
        if isinstance(node, (Const, Var)):
            return self.value(node, mask)
        variable = self.fresh(name)
        self.assign(variable, node, mask, lanes=lanes)
        return Atom(variable)

    # --- expressions --------------------------------------------------------------------------------------------

    def static(self, node: Node) -> Code:
        """A presence test over compile-time flags."""
        if isinstance(node, Present):
            self.needs.flags[node.name] = None
            return Prefix("not", Atom(flag_name(node.name))) if node.negated else Atom(flag_name(node.name))
        if isinstance(node, (Var, Const)):
            return self._variable(node) if isinstance(node, Var) else self._constant(node)
        if isinstance(node, Compare):
            return operator(node.op, self.static(node.left), self.static(node.right))
        if isinstance(node, Logic):
            return operator(node.op, *(self.static(item) for item in node.items))
        assert isinstance(node, Unary)
        return Prefix("not", self.static(node.operand))

    def is_uniform(self, node: Node) -> bool:
        """Whether all lanes have one value of `node`, so that its code is a scalar."""
        if isinstance(node, Var):
            return node.kind in ("dim", "scalar", "static", "total") or node.name in self.uniform
        if isinstance(node, Call) and not node.builtin:
            function = self.functions[node.function]
            names = [name for name, _ in function.params]
            matter = names if takes_mask(function) else parameters_read(function, self.functions)
            return all(self.is_uniform(arg) for name, arg in zip(names, node.args, strict=True) if name in matter)
        return all(map(self.is_uniform, node.children()))

    @staticmethod
    def is_literal(node: Node) -> bool:
        """Whether the code of `node` is a number at compile time, whose type Triton derives from its size."""
        return constant(node) is not None or is_static(node)

    def typed(self, node: Node, mask: Code) -> Code:
        """Code that is certainly a tensor of the node's type, so that arithmetic on it has 64 bits."""
        code = self.value(node, mask)
        return invoke("tl.full", "[]", code, _TYPES[node.type]) if self.is_literal(node) else code

    def value(self, node: Node, mask: Code) -> Code:
        """Code of `node`; loads in it happen where `mask` holds."""
        node = folded(node)
        if isinstance(node, Const):
            return self._constant(node)
        if is_static(node):
            return self.static(node)
        if isinstance(node, Var):
            return self._variable(node)
        if isinstance(node, Load):
            return self._load(node, mask)
        if isinstance(node, Unary):
            return self._unary(node, mask)
        if isinstance(node, Binary):
            return self._binary(node, mask)
        if isinstance(node, Compare):
            left, right = self.value(node.left, mask), self.value(node.right, mask)
            return compare(node.op, left, right, constant_left=self.is_literal(node.left))
        if isinstance(node, Logic):
            return self._logic(node, mask)
        if isinstance(node, Select):
            return self._select(node, mask)
        if isinstance(node, Fold):
            return self._fold(node, mask)
        assert isinstance(node, Call), node
        return self._builtin(node, mask) if node.builtin else self._function(node, mask)

    def _constant(self, node: Const) -> Code:
        if node.name is not None:
            return Atom(f"{self.prefix}{constant_name(node.name)}")
        if node.type is Type.BOOL:
            return Atom("True" if node.value else "False")
        return Atom(f"0x{node.value:X}" if node.type is Type.UINT and node.value > 0xFFFF else str(node.value))

    def _variable(self, node: Var) -> Code:
        if node.kind == "scalar":
            self.needs.scalars[node.name] = None
        elif node.kind == "static":
            self.needs.statics[node.name] = None
            return Atom(static_name(node.name))
        elif node.kind == "dim":
            self.needs.sizes.setdefault(node.name, None)
        return Atom(node.name)

    def _load(self, node: Load, mask: Code) -> Code:
        pair = self.pairs.get(node)
        if pair is not None and not all(map(self.is_uniform, node.indices)):
            return self._paired(node, pair, mask)
        code, checked = self._loading(node, mask)
        if not checked and len(code.flat()) <= MAX_INLINE_LOAD:
            return code
        name = self.fresh(f"{node.tensor}_value")
        self.write(f"{name} = ", code)
        return Atom(name)

    def _paired(self, node: Load, pair: Pair, mask: Code) -> Code:
        """A load whose neighbour is loaded under the same mask sooner or later."""
        key = mask.flat()
        if (node, key) not in self.loaded:
            names = [self.fresh(f"{node.tensor}_{_field(load)}") for load in pair]
            self.load_pair(pair, names, mask)
            self.loaded |= {(load, key): name for load, name in zip(pair, names, strict=True)}
        return Atom(self.loaded[node, key])

    def _loading(self, node: Load, mask: Code) -> tuple[Code, bool]:
        """Code of a load, and whether it checks bounds of its own."""
        tensor = self.tensors[node.tensor]
        offset, inside = self.address(tensor, node.indices, mask)
        pointer = pointer_name(tensor.name)
        place = operator("+", pointer, offset) if offset is not None else Atom(pointer)
        # A scalar address takes no mask of lanes; it needs none, as its bounds are checked.
        guard = conjunction(inside if all(map(self.is_uniform, node.indices)) else [mask, *inside])
        loaded = (
            invoke("tl.load", place)
            if guard == TRUE
            else invoke("tl.load", place, mask=guard, other=str(tensor.outside))
        )
        code: Code = loaded if tensor.dtype in ("int64", "uint64") else method(loaded, "to", "tl.int64")
        if node.type is Type.UINT and tensor.dtype != "uint64":
            code = method(code, "to", "tl.uint64", bitcast="True")
        return code, bool(inside)

    def scalar_load(self, node: Load, condition: Code) -> Code:
        """A load of one element that happens only where a scalar condition holds."""
        offset, inside = self.address(self.tensors[node.tensor], node.indices, TRUE)
        pointer = pointer_name(node.tensor)
        place = Atom(pointer) if offset is None else operator("+", pointer, offset)
        loaded = invoke("tl.load", place, mask=conjunction([condition, *inside]), other="0")
        return method(loaded, "to", "tl.uint64", bitcast="True") if node.type is Type.UINT else loaded

    def address(self, tensor: TensorArg, indices: tuple[Node, ...], mask: Code) -> tuple[Code | None, list[Code]]:
        """Offset of an element (None for the first), and the bounds checks that its indices still need."""
        self.needs.pointers[tensor.name] = None
        offset: Code | None = None
        inside: list[Code] = []
        mixed = not all(map(self.is_uniform, indices))
        # A scalar address is read without a mask, so no condition around it says anything about its bounds.
        facts = self.facts if mixed else self.facts.without_guards()
        for axis, index in enumerate(indices):
            checks = _open_bounds(facts, index, tensor.shape[axis])
            code = self._index(index, tensor, axis, mask, bool(checks))
            for bound in checks:
                self._size(tensor, axis, bound == "<")
                limit = size_name(tensor, axis) if bound == "<" else "0"
                check = compare(bound, code, Atom(limit), constant_left=self.is_literal(index))
                inside.append(one_bit(check) if mixed and self.is_uniform(index) else check)
            if axis > 0:
                self._size(tensor, axis, True)
            row = None if offset is None else operator("*", offset, size_name(tensor, axis))
            zero = isinstance(index, Const) and index.value == 0 and index.name is None
            offset = (
                row if zero and row is not None else None if zero else code if row is None else operator("+", row, code)
            )
        return offset, inside

    def _size(self, tensor: TensorArg, axis: int, needed: bool) -> None:
        if needed:
            self.needs.sizes[size_name(tensor, axis)] = (tensor.name, axis)

    def _index(self, index: Node, tensor: TensorArg, axis: int, mask: Code, checked: bool) -> Code:
        """An index as code; named where it stands in the address and in a check."""
        if not checked and not any(isinstance(part, Select) for part in index.walk()):
            return self.value(index, mask)
        words = {1: ["index"], 2: ["row", "column"]}.get(len(tensor.shape), [])
        word = words[axis] if words else f"index_{axis}"
        return self.named(index, mask, f"{tensor.name.removeprefix('out_')}_{word}" if len(words) != 2 else word)

    def _unary(self, node: Unary, mask: Code) -> Code:
        operand = self.value(node.operand, mask)
        if node.op == "not":
            return Operator("==", (operand, Atom("0")))
        if node.op == "~":
            ones = "0xFFFFFFFFFFFFFFFF" if node.type is Type.UINT else "-1"
            return operator("^", operand, ones)
        return Operator("-", (Atom("0"), operand))

    def _binary(self, node: Binary, mask: Code) -> Code:
        # A named constant on the left would keep the result a compile-time value in the interpreter.
        named = any(isinstance(part, Const) and part.name is not None for part in node.left.walk())
        alone = named and self.is_literal(node.left) and not self.is_literal(node.right)
        left = self.typed(node.left, mask) if alone else self.value(node.left, mask)
        right = self.value(node.right, mask)
        if node.op in ("//", "%") and not self.facts.not_negative(node.left):
            name = "lang.floor_div" if node.op == "//" else "lang.floor_mod"
            # The compiler divides by what it knows; other divisors are one value for all lanes, or not.
            quick = self.is_uniform(node.right) and not self.is_literal(node.right)
            return invoke(f"{name}_by" if quick else name, left, right)
        return operator(node.op, left, right)

    def _logic(self, node: Logic, mask: Code) -> Code:
        """Blocks know & and | alone; comparisons need parentheses, which precedence adds."""
        uniform = [self.is_uniform(item) for item in node.items]
        items = [self.value(item, mask) for item in node.items]
        if any(uniform) and not all(uniform):
            items = [one_bit(item) if u else item for item, u in zip(items, uniform, strict=True)]
        return operator("&" if node.op == "and" else "|", *items)

    def _select(self, node: Select, mask: Code) -> Code:
        if is_static(node.condition):
            alike = self.is_uniform(node.then) == self.is_uniform(node.other)
            if alike and not touches_memory(node, self.functions):
                return Ternary(self.typed(node.then, mask), self.static(node.condition), self.typed(node.other, mask))
            name = self.fresh("given")
            self.assign(name, node, mask)
            return Atom(name)
        loaded = [touches_memory(branch, self.functions) for branch in (node.then, node.other)]
        condition = self.value(node.condition, mask)
        scalar = any(loaded) and mask != TRUE and self.is_uniform(node.condition)
        condition = one_bit(condition) if scalar else condition
        if any(loaded) and not isinstance(condition, Atom):
            simple = isinstance(node.condition, Compare) and len(condition.flat()) <= 24
            if not simple:
                name = self.fresh("chosen")
                self.write(f"{name} = ", condition)
                condition = Atom(name)
        if self.is_literal(node.then) and self.is_literal(node.other):
            return self._numbers(node, condition, mask)
        before = self.facts
        self.facts = before.with_guard(node.condition)
        then = self.value(node.then, conjunction([mask, condition]) if loaded[0] else mask)
        self.facts = before
        opposite: Code = Operator("==", (condition, Atom("0")))
        opposite = one_bit(opposite) if scalar else opposite
        other = self.value(node.other, conjunction([mask, opposite]) if loaded[1] else mask)
        if node.type is Type.BOOL and not self.is_uniform(node):
            branches = ((then, node.then), (other, node.other))
            then, other = (one_bit(c) if self.is_uniform(b) and not self.is_literal(b) else c for c, b in branches)
        return invoke("tl.where", condition, then, other)

    def _numbers(self, node: Select, condition: Code, mask: Code) -> Code:
        """A choice of two numbers, which Triton would give the type of the larger one."""
        values = constant(node.then), constant(node.other)
        if values == (1, 0) and node.type is Type.INT:
            return method(condition, "to", "tl.int64")
        then, other = self.value(node.then, mask), self.value(node.other, mask)
        if node.type is Type.INT and all(value in _INT32 for value in values):
            return method(invoke("tl.where", condition, then, other), "to", "tl.int64")
        return invoke("tl.where", condition, self.typed(node.then, mask), other)

    def _builtin(self, node: Call, mask: Code) -> Code:
        if node.function == "clamp":
            value, low, high = node.args
            raised = Call(Type.INT, "max", (value, low), builtin=True)
            return self.value(Call(Type.INT, "min", (raised, high), builtin=True), mask)
        args = [self.value(arg, mask) for arg in node.args]
        if node.function in ("u64", "i64"):
            if node.args[0].type is node.type:
                return args[0]
            return method(args[0], "to", f"tl.{node.type.value}", bitcast="True")
        name = {"min": "tl.minimum", "max": "tl.maximum"}[node.function]
        code = args[0]
        for arg in args[1:]:
            code = invoke(name, code, arg)
        return code

    def _function(self, node: Call, mask: Code) -> Code:
        function = self.functions[node.function]
        sizes = self.function_sizes[node.function]
        self.needs.function(function, sizes)
        mask = TRUE if all(map(self.is_uniform, node.args)) else mask
        args: list[Code | str] = []
        for arg in node.args:
            code = self.typed(arg, mask)
            # In the function, all is blocks or all is scalars.
            args.append(self.spread(code, arg, mask) if combines_lanes(function, self.functions) else code)
        if takes_mask(function):
            args.append(mask)
        args += [pointer_name(name) for name in function.tensors]
        args += [*sizes, *function.scalars]
        args += [flag_name(name) for name in function.presence]
        paired = paired_tensors(function, self.functions, self.tensors)
        self.needs.paired.update(dict.fromkeys(paired))
        args += [paired_name(name) for name in paired]
        return invoke(f"{self.prefix}{node.function}", *args)

    def _fold(self, node: Fold, mask: Code) -> Code:
        fold = self.folds[node.name]
        self.needs.folds[node.name] = None
        self.needs.statics.update(dict.fromkeys(fold.statics))
        args: list[Code | str] = [self.typed(arg, mask) for arg in node.args]
        if fold.sources in self.tables:
            args += [mask, *source_arguments(fold.sources, 0, fold.numbers, fold.table)]
            args += [*(static_name(name) for name in fold.statics), *(name(node.name) for name in FORM_NAMES)]
            return invoke(f"{self.prefix}{node.name}_of_table", *args)
        args += [mask, *source_arguments(fold.sources, fold.at_most, fold.numbers, fold.table)]
        args += [count_name(fold.sources), *([table_name(fold.sources)] if fold.table else [])]
        args += [static_name(name) for name in fold.statics]
        return invoke(f"{self.prefix}{node.name}", *args, *(name(node.name) for name in FORM_NAMES))


def _field(load: Load) -> str:
    """The field that a load reads, as in names of the spec."""
    column = load.indices[-1]
    assert isinstance(column, Const)
    return str(column.name or column.value).lower().rpartition("_field_")[2]


def one_bit(condition: Code) -> Code:
    """A condition on scalars, ready to be combined with blocks."""
    return invoke("lang.one_bit", condition)


def conjunction(conditions: list[Code]) -> Code:
    """All of them; conditions that are plainly true vanish."""
    parts: list[Code] = []
    for condition in conditions:
        inner = condition.items if isinstance(condition, Operator) and condition.op == "&" else (condition,)
        parts += [part for part in inner if part != TRUE and part not in parts]
    return operator("&", *parts) if parts else TRUE


def _open_bounds(facts: Facts, index: Node, axis: AxisLength) -> list[str]:
    """Comparisons that are not proven: '>=' with 0, '<' with the length."""
    found = [] if facts.not_negative(index) else [">="]
    return found if facts.below(index, axis) else [*found, "<"]
