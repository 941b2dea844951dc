"""Judges a call by its metadata: which rule it breaks first, in the order of the spec. Never shipped.

Written apart from the emitted validators, so that a mistake in one shows against the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from kvcanary_gen.expr.nodes import Length, Node
from kvcanary_gen.ir import InvariantIR, MessagePart, Program
from kvcanary_gen.oracle.evaluate import Meta, evaluate
from kvcanary_gen.oracle.host_values import ValueJudge, kind_of, too_large
from kvcanary_gen.surface import BoundRule, CheckedTensor, LengthRule, Surface

GPUS = ("cuda", "xpu")
# Implied rules that are no validator's: see the functions below.
_ELSEWHERE = ("capacity", "backend", "interpreter", "capture", "many")
_BYTES = {"int32": 4, "int64": 8, "uint64": 8, "uint8": 1}


@dataclass(frozen=True)
class Broken:
    """The rule that a call breaks, and what must be raised for it."""

    id: str
    raises: str
    text: str


# Path to what stands there: a Meta, or the Python object itself. A struct has an entry of its own only where something
# else was passed for it.
CallMeta = Mapping[str, object]


def first_broken(program: Program, surface: Surface, call: CallMeta, *, reference: bool) -> Broken | None:
    """The first rule that `call` breaks, on the reference or on the device path.

    Rules stand in the order of the spec. Within a rule: structs, tensors that must be there in the order of the
    signature, those that may be missing, scalars. A rule that speaks of a length checks that tensor's rank first.
    """
    try:
        for stage, anchor in _stages(program, surface, call):
            _Judge(program, stage, call, reference, [] if anchor is None else [anchor]).run()
    except _Found as found:
        return found.broken
    return None


Anchor = tuple[CheckedTensor, Meta]


def _stages(program: Program, surface: Surface, call: CallMeta) -> Iterator[tuple[Surface, Anchor | None]]:
    """What is checked apart, with the tensor on whose device the others must be.

    A table is built before it is passed: its structs are checked one after the other, then whether they lie together.
    """
    if not surface.instances:
        yield surface, None
        return
    firsts: list[Anchor] = []
    for instance in surface.instances:
        stage = _part(surface, [instance])
        yield stage, None
        first = call[stage.tensors[0].path]
        assert isinstance(first, Meta)
        firsts.append((stage.tensors[0], first))
    for tensor, meta in firsts:
        if meta.device != firsts[0][1].device:
            rule, device = program.implied("device"), firsts[0][1].device
            words = {"name": tensor.path, "other": firsts[0][0].path, "want": device, "have": meta.device}
            raise _Found(broken(program, rule, rule.message, call, words))
    table = CheckedTensor(f"{surface.table}.table", "int64", (), "")
    others = [name for name, _, _ in surface.structs if name not in surface.instances]
    yield _part(surface, others, alone=False), (table, replace(firsts[0][1], dtype="int64", shape=(), strides=()))


def _part(surface: Surface, structs: list[str], *, alone: bool = True) -> Surface:
    """The surface as far as it is about some of its structs, and about its arguments unless `alone`."""

    def mine(scope: str) -> bool:
        return scope in structs or (not scope and not alone)

    return replace(
        surface,
        structs=tuple(struct for struct in surface.structs if struct[0] in structs),
        arguments=() if alone else surface.arguments,
        tensors=tuple(tensor for tensor in surface.tensors if mine(tensor.scope)),
        lengths=tuple(rule for rule in surface.lengths if mine(surface.tensor(rule.path).scope)),
        rules=() if alone else surface.rules,
        values=tuple(value for value in surface.values if mine(value[0].rpartition(".")[0])),
        instances=(),
    )


class _Found(Exception):
    def __init__(self, broken: Broken) -> None:
        self.broken = broken


@dataclass
class _Judge:
    program: Program
    surface: Surface
    call: CallMeta
    reference: bool
    metas: list[tuple[CheckedTensor, Meta]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = ValueJudge(self.program, self.surface, self.call)

    def run(self) -> None:
        for invariant in self.program.invariants:
            if invariant.kind == "rule":
                for rule in self.surface.rules:
                    if rule.invariant is invariant:
                        self._rule(rule)
            elif invariant.kind not in _ELSEWHERE:
                getattr(self, f"_{invariant.kind}")(invariant)

    def _fail(self, invariant: InvariantIR, **words: object) -> NoReturn:
        raise _Found(broken(self.program, invariant, invariant.message, self.call, words))

    # --- rules of the spec --------------------------------------------------------------------------------------

    def _rule(self, rule: BoundRule) -> None:
        nodes = [rule.rule, *(part.value for part in rule.message if part.value is not None)]
        for node in nodes:
            self._known_ranks(node)
        if not evaluate(rule.rule, self.call):
            named = rule.invariant.named
            caller = self.surface.reference if self.reference else named or self.surface.launcher
            raise _Found(broken(self.program, rule.invariant, rule.message, self.call, {"op": caller}))

    def _known_ranks(self, node: Node) -> None:
        for part in node.walk():
            meta = self.call.get(part.name) if isinstance(part, Length) else None
            if isinstance(part, Length) and isinstance(meta, Meta):
                self._one_rank(self.surface.tensor(part.name), meta)

    # --- rules that declarations imply --------------------------------------------------------------------------

    def _kind(self, invariant: InvariantIR) -> None:
        for name, struct, _ in self.surface.structs:
            if name in self.call:
                self._fail(invariant, name=name, want=f"a {struct.name}", have=kind_of(self.call[name]))
        for tensor in self._ordered():
            given = self.call[tensor.path]
            if not isinstance(given, Meta):
                self._fail(invariant, name=tensor.path, want="a torch.Tensor", have=kind_of(given))
            self.metas.append((tensor, given))
        for scalar in self.surface.scalars:
            given = self.call[scalar.name]
            if not isinstance(given, int) or isinstance(given, bool):
                self._fail(invariant, name=scalar.name, want="an int", have=kind_of(given))
        for words in self.values.kinds():
            self._fail(invariant, **words)

    def _ordered(self) -> Iterator[CheckedTensor]:
        """Tensors that must be there, then those that were given."""
        yield from (tensor for tensor in self.surface.tensors if not tensor.optional)
        yield from (t for t in self.surface.tensors if t.optional and self.call[t.path] is not None)

    def _scalar(self, invariant: InvariantIR) -> None:
        for scalar in self.surface.scalars:
            value = self.call[scalar.name]
            assert isinstance(value, int)
            if too_large(value) or (scalar.least is not None and value < scalar.least):
                want = "int64" if scalar.least is None else f"int64, at least {scalar.least}"
                self._fail(invariant, name=scalar.name, want=want, have=value)
        for words in self.values.too_large():
            self._fail(invariant, **words)

    def _dtype(self, invariant: InvariantIR) -> None:
        for tensor, meta in self.metas:
            if meta.dtype != tensor.dtype:
                want, have = f"torch.{tensor.dtype}", f"torch.{meta.dtype}"
                self._fail(invariant, name=tensor.path, want=want, have=have)

    def _rank(self, _: InvariantIR) -> None:
        for tensor, meta in self.metas:
            self._one_rank(tensor, meta)

    def _one_rank(self, tensor: CheckedTensor, meta: Meta) -> None:
        if len(meta.shape) != len(tensor.shape):
            rank = self.program.implied("rank")
            self._fail(rank, name=tensor.path, want=f"{len(tensor.shape)}-D", have=meta.shape)

    def _record(self, invariant: InvariantIR) -> None:
        """Rows of bytes hold whole words, and begin at one."""
        for tensor, meta in self.metas:
            if tensor.record is None or tensor.dtype != "uint8":
                continue
            if meta.shape[-1] % 8:
                self._fail(invariant, name=tensor.path, want="have rows of a multiple of 8 bytes", have=meta.shape[-1])
            if meta.offset % 8 and 0 not in meta.shape:
                have = f"{meta.offset % 8} bytes more"
                self._fail(invariant, name=tensor.path, want="begin at a multiple of 8 bytes", have=have)
            if meta.strides[0] % 8:
                want = "have a row stride that is a multiple of 8 bytes"
                self._fail(invariant, name=tensor.path, want=want, have=meta.strides[0])

    def _count(self, invariant: InvariantIR) -> None:
        for words in self.values.counts():
            self._fail(invariant, **words)

    def _value(self, invariant: InvariantIR) -> None:
        for words in self.values.numbers():
            self._fail(invariant, **words)

    def _bytes(self, invariant: InvariantIR) -> None:
        for words in self.values.geometry():
            self._fail(invariant, **words)

    def _length(self, invariant: InvariantIR) -> None:
        for rule in self.surface.lengths:
            meta = self.call[rule.path]
            if isinstance(meta, Meta):
                self._one_length(invariant, rule, meta.shape[rule.axis])

    def _one_length(self, invariant: InvariantIR, rule: LengthRule, have: int) -> None:
        want = evaluate(rule.want, self.call)
        if have == want or (rule.at_least and have > want):
            return
        name = f"{rule.path}.shape[{rule.axis}]" if rule.axis else rule.path
        self._fail(invariant, name=name, want=f"at least {want}" if rule.at_least else want, have=have)

    def _contiguous(self, invariant: InvariantIR) -> None:
        for tensor, meta in self.metas:
            if not meta.contiguous:
                self._fail(invariant, name=tensor.path)

    def _device(self, invariant: InvariantIR) -> None:
        first, other = self.metas[0][1], self.metas[0][0].path
        places = [(tensor.path, meta) for tensor, meta in self.metas]
        for path, meta in (*places, *self.values.tensors()):
            if meta.device != first.device:
                self._fail(invariant, name=path, other=other, want=first.device, have=meta.device)

    def _alignment(self, invariant: InvariantIR) -> None:
        for tensor, meta in self.metas:
            have = meta.offset % _BYTES[tensor.dtype]
            if have and 0 not in meta.shape:
                self._fail(invariant, name=tensor.path, want=_BYTES[tensor.dtype], have=have)


def broken(
    program: Program,
    invariant: InvariantIR,
    parts: tuple[MessagePart, ...],
    call: CallMeta,
    words: Mapping[str, object],
) -> Broken:
    """`invariant` with its message filled in."""
    text = program.header.message_prefix
    for part in parts:
        if part.reserved:
            text += str(words[part.text])
        else:
            text += part.text if part.value is None else str(evaluate(part.value, call))
    return Broken(invariant.id, invariant.raises, text)


# --- Outside of validators --------------------------------------------------------------------------------------------


def broken_dispatch(
    program: Program, *, device: str, backend: str | None, variable: str | None, interpreted: bool
) -> Broken | None:
    """What is wrong with a choice of backend: the argument counts, else the environment's variable."""
    name = "backend" if backend is not None else f"{program.header.package.upper()}_BACKEND"
    have = backend if backend is not None else variable or None
    if have not in ("triton", "reference", None):
        rule = program.implied("backend")
        return broken(program, rule, rule.message, {}, {"name": name, "have": have})
    if have == "triton" and not interpreted and device.partition(":")[0] not in GPUS:
        rule = program.implied("interpreter")
        return broken(program, rule, rule.message, {}, {"have": device})
    return None


def broken_capture(program: Program, op: str) -> Broken:
    """What a reference raises while a graph is being captured."""
    rule = program.implied("capture")
    return broken(program, rule, rule.message, {}, {"op": op})


def broken_capacity(program: Program, struct: str, have: int) -> Broken | None:
    """What `allocate` of a struct raises for a capacity."""
    rule = program.implied("capacity")
    words = {"struct": struct, "capacity": program.structs[struct].capacity, "have": have}
    return broken(program, rule, rule.message, {}, words) if have < 1 else None
