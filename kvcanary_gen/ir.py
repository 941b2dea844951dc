"""The resolved program: what the emitters and the interpreter read. Every name is known, every expression typed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from kvcanary_gen.expr.nodes import Const, Node, Type, Var
from kvcanary_gen.schema import Header
from kvcanary_gen.schema.code import ImpliedKind, Schedule
from kvcanary_gen.schema.data import Axis, Constant, Enum, Layout, TagFamily

# The summand of segments that have none yet.
ZERO = Const(Type.INT, 0)

STORAGE_TYPES = ("int32", "int64", "uint64", "uint8")

# Public functions beside a launcher: the torch reference, and the function that binds the launcher's arguments.
REFERENCE_SUFFIX = "_torch_reference"


def binder_name(launcher: str) -> str:
    """`launch_x` becomes `bind_x`."""
    return f"bind_{launcher.removeprefix('launch_')}"


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
    # Layout of each row. Rows of uint8 are read as 8-byte words; `words` is the tensor as kernels see it.
    record: str | None = None

    @property
    def words(self) -> TensorArg:
        if self.record is None or self.dtype != "uint8":
            return self
        last = self.shape[-1]
        assert isinstance(last.length, Const)
        name = f"{self.record.upper()}_NUM_FIELDS"
        fields = AxisLength(replace(last.length, value=last.length.value // 8, name=name), last.at_least, name)
        return replace(self, dtype="int64", shape=(*self.shape[:-1], fields))

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
    field: tuple[str, str] | None = None
    enum: str | None = None

    @property
    def static(self) -> bool:
        """Whether the value is a compile-time constant of kernels: a flag or a member of an enum."""
        return self.type is Type.BOOL or self.enum is not None

    @property
    def least(self) -> int | None:
        """The least valid value where that is 1 or more: such a scalar may divide, so validators insist on it."""
        low = self.values.low if self.values is not None else None
        return low.value if isinstance(low, Const) and low.value >= 1 else None


@dataclass(frozen=True)
class SourcesArg:
    """A list of byte sources: structs of one `bytes` tensor and integers."""

    name: str
    struct: str
    at_most: int
    doc: str
    field: tuple[str, str] | None = None


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

    Later segments win where two store to one element. `ascending` offsets are running sums of the launch before, so
    that none does.
    """

    segments: str
    count: Node
    owner: str
    within: str
    index: str
    limit: Node
    when: Node | None
    ascending: bool = False


@dataclass(frozen=True)
class SummedDomain(SegmentDomain):
    """Segments that every program sums up for itself; program 0 does all that `scan` does, and nothing else.

    The offsets are the sums of `summand` over `lane`, for which `sums` are names, and `total` is that of all. No more
    than the last of `lanes` go into one launch.
    """

    scan: KernelIR | None = None
    lane: str = ""
    sums: tuple[tuple[str, Node], ...] = ()
    summand: Node = ZERO
    total: str = ""
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True)
class ScanDomain:
    index: str
    count: Node
    when: Node | None


@dataclass(frozen=True)
class RecurrenceDomain:
    """For each owner r, for each index of its segment in order, with state carried along. Segments may share indices.

    `count` may be device data; `bound` is what the host knows of it.
    """

    segments: str
    count: Node
    bound: Node
    owner: str
    within: str
    index: str
    limit: Node
    when: Node | None


@dataclass(frozen=True)
class ChainDomain(RecurrenceDomain):
    """The part of a recurrence that is serial: the walk along each segment, which saves the states."""


@dataclass(frozen=True)
class EntriesDomain(RecurrenceDomain):
    """The part of a recurrence that is parallel: its entries, their states known."""


@dataclass(frozen=True)
class OnceDomain(RecurrenceDomain):
    """All of a recurrence in one program, a lane for each segment: for few segments and few entries."""


Domain = FlatDomain | SegmentDomain | ScanDomain | RecurrenceDomain


@dataclass(frozen=True)
class StateIR:
    name: str
    first: Node
    next: Node


@dataclass(frozen=True)
class CounterIR:
    tensor: str
    add: Node
    per: str
    always: bool


@dataclass(frozen=True)
class ReasonIR:
    """One check; `bit` is a constant of the enum."""

    bit: Const
    fails: Node


@dataclass(frozen=True)
class CheckIR:
    """Checks that share a row. `row` has a value for each field of the layout, None for that of the reasons."""

    name: str
    when: Node | None
    reasons: tuple[ReasonIR, ...]
    row: tuple[tuple[str, Node | None], ...]


@dataclass(frozen=True)
class ReportIR:
    ring: str
    next: str
    checks: tuple[CheckIR, ...]
    # Of each segment before anything is stored, and of each point once all is.
    before: tuple[CheckIR, ...] = ()
    after: tuple[CheckIR, ...] = ()


@dataclass(frozen=True)
class FoldIR:
    name: str
    doc: str
    contract: str
    params: tuple[tuple[str, Type], ...]
    sources: str
    struct: str
    # The class that holds any number of sources on the device, if there is one.
    table: str
    at_most: int
    bytes_field: str
    numbers: tuple[str, ...]
    when: Node | None
    row: Node
    byte: Node
    length: Node
    start: int
    step: Node
    combine: Node
    statics: tuple[str, ...]


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
class StructFieldIR:
    name: str
    dtype: str
    shape: tuple[AxisLength, ...]
    doc: str
    init: int | None
    record: str | None = None


@dataclass(frozen=True)
class StructValueIR:
    """A field that is no plain tensor: a number, a flag, a member of an enum, raw bytes, or a list of structs."""

    name: str
    kind: Literal["int64", "bool", "enum", "bytes", "list"]
    doc: str
    # The enum, or the struct in the list.
    of: str = ""
    at_most: int | None = None
    at_least: int | None = None
    at_most_field: str | None = None
    multiple_of: int | None = None


@dataclass(frozen=True)
class StructIR:
    name: str
    doc: str
    contract: str
    # Empty where the struct is not allocated by a size.
    capacity: str
    fields: tuple[StructFieldIR, ...]
    values: tuple[StructValueIR, ...] = ()
    order: tuple[str, ...] = ()
    table: str = ""


@dataclass(frozen=True)
class EachIR:
    """A struct of which a launch takes many, as the parameter `name`.

    `fields` are a kernel's arguments that are fields of it, and `parts` its scratch of which each has a part.
    """

    name: str
    struct: StructIR
    fields: tuple[tuple[str, str], ...]
    parts: tuple[str, ...]

    @property
    def arguments(self) -> dict[str, str]:
        """Field by argument."""
        return dict(self.fields)


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
    sources: tuple[SourcesArg, ...] = ()
    internal: bool = False
    counters: tuple[CounterIR, ...] = ()
    report: ReportIR | None = None
    advances: Node | None = None
    state: tuple[StateIR, ...] = ()
    # Scratch of a recurrence: the state before each index, and behind them that before each segment.
    saved: str = ""
    segment_lets: tuple[tuple[str, Node], ...] = ()
    after_lets: tuple[tuple[str, Node], ...] = ()
    # How many entries a fused kernel's points would be: all of its segments' together.
    entries: Node | None = None
    # What a fused kernel is made of: the kernel whose points are kept, and the one that says what they are.
    made_of: tuple[str, ...] = ()
    # Set where the kernel is the variant of another that takes many of a struct.
    each: EachIR | None = None

    @property
    def tensors(self) -> dict[str, TensorArg]:
        """Tensors as the kernel sees them: records are rows of 8-byte words."""
        return {arg.name: arg.words for arg in (*self.inputs, *self.outputs)}

    @property
    def arguments(self) -> tuple[TensorArg | ScalarArg | SourcesArg, ...]:
        """Everything that the launcher takes, in order."""
        found: list[TensorArg | ScalarArg | SourcesArg] = [*self.inputs, *self.outputs, *self.sources, *self.scalars]
        return tuple(found)


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
    # The parameter that is a table of any number of its struct.
    many: str = ""
    # One launch that takes the place of all calls, where it is not given more segments than it takes.
    one_launch: CallIR | None = None
    # Where that is spelt out, what stands for the structs of the table, and how the parameter was called.
    instances: tuple[str, ...] = ()
    table: str = ""

    @property
    def launches(self) -> tuple[CallIR, ...]:
        """Everything that it may launch."""
        return self.calls if self.one_launch is None else (*self.calls, self.one_launch)


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
class ErrorIR:
    """An error of the runtime; placeholders of its message are names of variables."""

    id: str
    raises: str
    raised_by: str
    message: tuple[MessagePart, ...]
    meaning: str
    cause: str
    fix: str


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
    folds: dict[str, FoldIR]
    kernels: dict[str, KernelIR]
    operations: dict[str, OperationIR]
    invariants: tuple[InvariantIR, ...]
    errors: tuple[ErrorIR, ...] = ()

    def implied(self, kind: str) -> InvariantIR:
        return next(rule for rule in self.invariants if rule.kind == kind)
