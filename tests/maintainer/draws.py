"""Arguments drawn from declarations: sizes, scalars, tensors, and what may be missing.

A friendly draw keeps to the declared values. A hostile one mixes in whatever fits the dtype, since device data is
never trusted; sizes, rules and divisors hold in both, because validators refuse anything else.
"""

from __future__ import annotations

import math
import random

from kvcanary_gen.expr.nodes import Binary, Call, Compare, Const, Length, Logic, Node, Present, Select, Unary, Var
from kvcanary_gen.ir import OffsetValues, ScalarArg, TensorArg, ValueRange
from kvcanary_gen.oracle.values import Array, Value, Values, wrap
from kvcanary_gen.surface import CheckedTensor, Surface

_LIMITS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}
_LIMITS |= {"uint64": (0, (1 << 64) - 1), "uint8": (0, 255)}
_WILD = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 62) + 5, (1 << 63) - 1)
_ATTEMPTS = 400


class Drawer:
    """Draws calls of one public function."""

    def __init__(self, surface: Surface, seed: int) -> None:
        self.surface = surface
        self.random = random.Random(f"{surface.name} {seed}")

    def draw(self, *, hostile: bool = False, sizes: dict[str, int] | None = None) -> Values:
        """Values by path; structs stand as 'struct.field'."""
        for _ in range(_ATTEMPTS):
            values = self._attempt(hostile, sizes or {})
            if all(host_value(rule.rule, values) for rule in self.surface.rules):
                return values
        raise AssertionError(f"no valid call of {self.surface.name} in {_ATTEMPTS} draws")

    def _attempt(self, hostile: bool, fixed: dict[str, int]) -> Values:
        surface, rng = self.surface, self.random
        top = rng.choice((1, 2, 5, 12, 40))
        sizes = {name: fixed.get(name, rng.randint(0, top)) for name in surface.dims}
        values: Values = {}
        for scalar in surface.scalars:
            values[scalar.name] = self._scalar(scalar, sizes, hostile)
        shapes = {t.path: self._shape(t, sizes) for t in surface.tensors}
        for tensor in surface.tensors:
            values[tensor.path] = self._blank(tensor, shapes[tensor.path])
        self._obey_equalities(values)
        known = {**sizes, **{n: v for n, v in values.items() if isinstance(v, int)}}
        for tensor in surface.tensors:
            values[tensor.path] = self._fill(tensor, shapes[tensor.path], known, hostile)
        return values

    def _obey_equalities(self, values: Values) -> None:
        """A rule `scalar == something` would hardly ever hold by chance."""
        for rule in self.surface.rules:
            node = rule.rule
            if isinstance(node, Compare) and node.op == "==" and isinstance(node.left, Var) and node.left.name in values:
                values[node.left.name] = host_value(node.right, values)

    def _shape(self, tensor: CheckedTensor, sizes: dict[str, int]) -> tuple[int, ...]:
        prefix = f"{tensor.scope}." if tensor.scope else ""
        scoped: Values = {n.removeprefix(prefix): s for n, s in sizes.items() if n.startswith(prefix)}
        return tuple(
            host_value(axis.length, scoped) + (self.random.choice((0, 0, 3)) if axis.at_least else 0)
            for axis in tensor.shape
        )

    def _blank(self, tensor: CheckedTensor, shape: tuple[int, ...]) -> Array:
        return Array(tensor.dtype, shape, [0] * math.prod(shape))

    def _scalar(self, scalar: ScalarArg, sizes: dict[str, int], hostile: bool) -> int:
        low, high = self._range(scalar, dict(sizes))
        if hostile and self.random.random() < 0.4:
            positive = isinstance(scalar.values, ValueRange) and isinstance(scalar.values.low, Const) and low >= 1
            return max(self.random.choice(_WILD), low if positive else _WILD[0])
        return self.random.randint(low, max(low, high))

    def _range(self, argument: ScalarArg | TensorArg | None, known: dict[str, int]) -> tuple[int, int]:
        values = argument.values if argument is not None else None
        if not isinstance(values, ValueRange):
            return -3, 40
        # A bound may speak of another scalar; where that has no value yet, any small one will do.
        context: Values = {**dict.fromkeys(_names(values.low) | _names(values.high), 8), **known}
        return host_value(values.low, context), host_value(values.high, context)

    def _fill(self, tensor: CheckedTensor, shape: tuple[int, ...], known: dict[str, int], hostile: bool) -> Value:
        if tensor.optional and not tensor.workspace and self.random.random() < 0.4:
            return None
        count, (floor, top) = math.prod(shape), _LIMITS[tensor.dtype]
        argument = tensor.argument
        if tensor.output:
            # What a kernel must leave alone is told by contents that it would hardly write.
            return Array(tensor.dtype, shape, [wrap(-7777 - i % 3, tensor.dtype) for i in range(count)])
        if argument is not None and isinstance(argument.values, OffsetValues):
            return self._offsets(tensor, argument.values, count, known, hostile)
        low, high = self._range(argument, known)
        data = [self.random.randint(max(floor, low), max(floor, low, min(top, high))) for _ in range(count)]
        if hostile:
            wild = (*_WILD, high + 1, low - 1, floor, top)
            data = [wrap(self.random.choice(wild), tensor.dtype) if self.random.random() < 0.3 else x for x in data]
        return Array(tensor.dtype, shape, data)

    def _offsets(
        self, tensor: CheckedTensor, values: OffsetValues, count: int, known: dict[str, int], hostile: bool
    ) -> Array:
        context: Values = {**dict.fromkeys(_names(values.limit), 8), **known}
        limit = max(0, host_value(values.limit, context))
        data = sorted(self.random.randint(0, limit) for _ in range(count))
        if hostile:
            wild = (-(1 << 63), -1, limit + 1, (1 << 63) - 1)
            self.random.shuffle(data)
            data = [self.random.choice(wild) if self.random.random() < 0.2 else x for x in data]
        elif data and self.random.random() < 0.7:
            data[0] = 0
        return Array(tensor.dtype, (count,), data)


def _names(node: Node) -> set[str]:
    return {part.name for part in node.walk() if isinstance(part, Var)}


_ARITHMETIC = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}
_COMPARE = {"==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}


def host_value(node: Node, values: Values) -> int:
    """A host expression over drawn values; booleans are 0 and 1."""
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Length):
        tensor = values[node.name]
        return tensor.shape[node.axis] if isinstance(tensor, Array) else 0
    if isinstance(node, Present):
        return int((values[node.name] is None) == node.negated)
    if isinstance(node, Var):
        value = values[node.name]
        assert isinstance(value, int), node.name
        return value
    parts = [host_value(child, values) for child in node.children()]
    if isinstance(node, (Binary, Compare)):
        return int((_ARITHMETIC | _COMPARE)[node.op](*parts))
    if isinstance(node, Logic):
        return int(all(parts) if node.op == "and" else any(parts))
    if isinstance(node, Select):
        return parts[1] if parts[0] else parts[2]
    if isinstance(node, Unary):
        return int(not parts[0]) if node.op == "not" else -parts[0]
    assert isinstance(node, Call), node
    return min(max(parts[0], parts[1]), parts[2]) if node.function == "clamp" else {"min": min, "max": max}[node.function](parts)
