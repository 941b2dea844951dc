"""Fields of a record that lie side by side, so that a device loads both at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvcanary_gen.expr.nodes import Call, Const, Load, Node, loads
from kvcanary_gen.ir import FunctionIR, TensorArg

Pair = tuple[Load, Load]


def pairs(nodes: Iterable[Node], tensors: Mapping[str, TensorArg]) -> dict[Load, Pair]:
    """Every load of which the other half of two words is loaded as well, with the pair: an even field and the next."""
    found = {load: None for node in nodes for load in loads(node) if _column(load, tensors) is not None}
    both: dict[Load, Pair] = {}
    for load in found:
        column = _column(load, tensors)
        other = next((o for o in found if _same_row(load, o) and _column(o, tensors) == (column or 0) + 1), None)
        if column is not None and column % 2 == 0 and other is not None:
            both[load] = both[other] = (load, other)
    return both


def _column(load: Load, tensors: Mapping[str, TensorArg]) -> int | None:
    """The field of a record that a load reads."""
    tensor = tensors.get(load.tensor)
    last = load.indices[-1]
    return last.value if tensor is not None and tensor.record is not None and isinstance(last, Const) else None


def _same_row(load: Load, other: Load) -> bool:
    return load.tensor == other.tensor and load.indices[:-1] == other.indices[:-1]


def paired_tensors(
    function: FunctionIR, functions: Mapping[str, FunctionIR], tensors: Mapping[str, TensorArg]
) -> list[str]:
    """Tensors of which a function, or one that it calls, loads two words at once."""
    nodes = [*(node for _, node in function.lets), function.value]
    found = {first.tensor: None for first, _ in pairs(nodes, tensors).values()}
    for part in (part for node in nodes for part in node.walk()):
        if isinstance(part, Call) and not part.builtin:
            found |= dict.fromkeys(paired_tensors(functions[part.function], functions, tensors))
    return [name for name in function.tensors if name in found]
