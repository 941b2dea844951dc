"""The resolved program: what the emitters and the interpreter read. Every name is known, every expression typed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvcanary_gen.expr.nodes import Const, Node, Type, Var
from kvcanary_gen.schema import Header
from kvcanary_gen.schema.code import ImpliedKind, Schedule
from kvcanary_gen.schema.data import Axis, Constant, Enum, Layout, TagFamily

STORAGE_TYPES = ("int32", "int64", "uint64", "uint8")


@dataclass(frozen=True)
class AxisLength:
    """Length of one tensor axis: a host expression over sizes and constants, exact or a minimum."""

    length: Node
    at_least: bool
    text: str

    @property
    def dim(self) -> str | None:
        """The size's name where the axis is that size and nothing else."""
        return self.length.name if isinstance(self.length, Var) and not self.at_least else None


@dataclass(frozen=True)
class ValueRange:
    """Valid values of an integer argument, inclusive; both ends are host expressions."""

    low: Node
    high: Node
    text: str


@dataclass(frozen=True)
class OffsetValues:
    """A tensor that holds ascending offsets of `count` segments, ending at most at `limit`."""

    count: Node
    limit: Node
    text: str


@dataclass(frozen=True)
class TensorArg:
    name: str
    dtype: str
    shape: tuple[AxisLength, ...]
    doc: str
    optional: bool = False
    outside: int = 0
    values: ValueRange | OffsetValues | None = None
    field: tuple[str, str] | None = None

    @property
    def type(self) -> Type:
        return Type.UINT if self.dtype == "uint64" else Type.INT

    @property
    def shape_text(self) -> str:
        return "[" + ", ".join(axis.text for axis in self.shape) + "]"


@dataclass(frozen=True)
class ScalarArg:
    name: str
    type: Type
    doc: str
    values: ValueRange | None = None

    @property
    def least(self) -> int | None:
        """The least valid value where that is 1 or more: such a scalar may divide, so validators insist on it."""
        low = self.values.low if self.values is not None else None
        return low.value if isinstance(low, Const) and low.value >= 1 else None


@dataclass(frozen=True)
class FunctionIR:
    name: str
    doc: str
    contract: str
    params: tuple[tuple[str, Type], ...]
    returns: Type
    lets: tuple[tuple[str, Node], ...]
    value: Node
    public: bool
    # Arguments of the calling kernel that the body reads, its callees included.
    tensors: tuple[str, ...]
    scalars: tuple[str, ...]
    dims: tuple[str, ...]
    presence: tuple[str, ...]


@dataclass(frozen=True)
class FlatDomain:
    """Each index from 0 up to `count`; `bound` is what the host knows of the count, to size the launch."""

    index: str
    count: Node
    bound: Node
    when: Node | None


@dataclass(frozen=True)
class SegmentDomain:
    """For each owner r in order, for each index i from max(0, offsets[r]) up to min(offsets[r + 1], limit).

    Later segments win where two store to one element.
    """

    segments: str
    count: Node
    owner: str
    within: str
    index: str
    limit: Node
    when: Node | None


@dataclass(frozen=True)
class ScanDomain:
    index: str
    count: Node
    when: Node | None


Domain = FlatDomain | SegmentDomain | ScanDomain


@dataclass(frozen=True)
class OffsetsIR:
    """Element r is the sum over the elements before r; it saturates at 2**63 - 1, and negative summands count as 0."""

    tensor: str
    sum: Node
    total: str
    rest: int | None


@dataclass(frozen=True)
class StoreIR:
    tensor: str
    indices: tuple[Node, ...]
    value: Node


@dataclass(frozen=True)
class KernelIR:
    name: str
    doc: str
    contract: str
    launcher: str
    inputs: tuple[TensorArg, ...]
    outputs: tuple[TensorArg, ...]
    scalars: tuple[ScalarArg, ...]
    domain: Domain
    lets: tuple[tuple[str, Node], ...]
    offsets: tuple[OffsetsIR, ...]
    stores: tuple[StoreIR, ...]
    finals: tuple[StoreIR, ...]
    schedule: Schedule
    # Where the value of each size is read off: (tensor, axis).
    dims: dict[str, tuple[str, int]]

    @property
    def tensors(self) -> dict[str, TensorArg]:
        return {arg.name: arg for arg in (*self.inputs, *self.outputs)}

    @property
    def arguments(self) -> tuple[TensorArg | ScalarArg, ...]:
        """Everything that the launcher takes, in order."""
        found: list[TensorArg | ScalarArg] = [*self.inputs, *self.outputs, *self.scalars]
        return tuple(found)


@dataclass(frozen=True)
class StructFieldIR:
    name: str
    dtype: str
    shape: tuple[AxisLength, ...]
    doc: str
    init: int | None


@dataclass(frozen=True)
class StructIR:
    name: str
    doc: str
    contract: str
    capacity: str
    fields: tuple[StructFieldIR, ...]


@dataclass(frozen=True)
class CallIR:
    """A kernel launch inside an operation; `bind` maps the kernel's argument to the operation's path."""

    kernel: KernelIR
    bind: dict[str, str]


@dataclass(frozen=True)
class OperationIR:
    name: str
    doc: str
    contract: str
    launcher: str
    structs: tuple[tuple[str, StructIR, str], ...]
    arguments: tuple[TensorArg | ScalarArg, ...]
    workspaces: tuple[TensorArg, ...]
    calls: tuple[CallIR, ...]


@dataclass(frozen=True)
class MessagePart:
    """Literal text, or a placeholder: a host expression, or one of the reserved words of an implied rule."""

    text: str
    value: Node | None = None
    reserved: bool = False


@dataclass(frozen=True)
class InvariantIR:
    id: str
    kind: ImpliedKind | Literal["rule"]
    rule: Node | None
    rule_text: str
    operations: tuple[str, ...]
    raises: str
    message: tuple[MessagePart, ...]
    named: str | None
    example: dict[str, object] = field(hash=False)
    meaning: str = ""
    cause: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Program:
    header: Header
    constants: dict[str, Constant]
    layouts: dict[str, Layout]
    enums: dict[str, Enum]
    axes: dict[str, Axis]
    tags: dict[str, TagFamily]
    structs: dict[str, StructIR]
    dim_docs: dict[str, str]
    functions: dict[str, FunctionIR]
    kernels: dict[str, KernelIR]
    operations: dict[str, OperationIR]
    invariants: tuple[InvariantIR, ...]

    def implied(self, kind: str) -> InvariantIR:
        return next(rule for rule in self.invariants if rule.kind == kind)
