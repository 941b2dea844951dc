"""How many programs a launch has: arithmetic on sizes and scalars, without a look at device data."""

from __future__ import annotations

from kvcanary_gen.emit.code import Atom, Code, Ternary, invoke, operator, statement
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.triton_segments import offsets_suffice
from kvcanary_gen.expr.nodes import Node, Var, names_of
from kvcanary_gen.expr.schedule import kernel_schedule
from kvcanary_gen.ir import KernelIR, RecurrenceDomain, ScanDomain, SegmentDomain

# Programs that a segment kernel launches at least, so that few long segments still fill a GPU.
MIN_PROGRAMS = 2048
# Programs of a recurrence at most, beyond one for each segment.
MAX_WALKERS = 128


def axis_length(kernel: KernelIR, tensor: str, axis: int) -> Code:
    """Length of a tensor's axis, 0 where the tensor is missing."""
    length = Atom(f"{tensor}.shape[{axis}]")
    present = operator("is not", tensor, "None")
    return Ternary(length, present, Atom("0")) if kernel.tensors[tensor].optional else length


class Grid:
    """Statements that set `programs`, and `lanes` where segments get several; and the sizes that they read."""

    def __init__(self, kernel: KernelIR) -> None:
        self.kernel = kernel
        self.sizes: list[str] = []
        self.lines = self._lines()

    def _lines(self) -> list[str]:
        kernel, domain = self.kernel, self.kernel.domain
        block = str(kernel.schedule.block)
        if isinstance(domain, ScanDomain):
            return ["    programs = 1"]
        if isinstance(domain, RecurrenceDomain):
            lines = self._by_recurrence(domain, block)
        elif isinstance(domain, SegmentDomain) and kernel_schedule(kernel, domain) != "by_index":
            lines = self._by_segment(domain, block)
        else:
            bound = domain.limit if isinstance(domain, SegmentDomain) else domain.bound
            lines = statement("programs = ", invoke("triton.cdiv", self._reach(bound, domain.index), block), 4)
        if any(counter.always for counter in kernel.counters):
            return [*lines, "    programs = max(1, programs)  # one at least counts the launch"]
        return [*lines, "    if programs <= 0:", "        return"]

    def _number(self, node: Node) -> Code:
        self.sizes += sorted(names_of(node, "dim"))
        return host_code(node)

    def _reach(self, bound: Node, index: str) -> Code:
        """Indices to visit: a scalar may be larger than any tensor that is stored to."""
        code = self._number(bound)
        if not names_of(bound, "scalar"):
            return code
        lengths = [
            f"{store.tensor}.shape[{axis}]"
            for store in self.kernel.stores
            for axis, place in enumerate(store.indices)
            if isinstance(place, Var) and place.name == index
        ]
        longest = invoke("max", *lengths) if len(lengths) > 1 else Atom(lengths[0])
        return invoke("min", code, longest)

    def _by_recurrence(self, domain: RecurrenceDomain, block: str) -> list[str]:
        count, limit = self._number(domain.bound), self._number(domain.limit)
        note = "every one of them walks the whole chain"
        return _shared(count, limit, block, MAX_WALKERS, f"Few segments get several programs each; {note}.")

    def _by_segment(self, domain: SegmentDomain, block: str) -> list[str]:
        count, limit = self._number(domain.count), self._number(domain.limit)
        if not offsets_suffice(self.kernel, domain):
            count = invoke("min", count, operator("-", f"{domain.segments}.shape[0]", "1"))
        note = "Few segments get several programs each, so that they still fill the device."
        return _shared(count, limit, block, MIN_PROGRAMS, note)


def _shared(count: Code, limit: Code, block: str, programs: int, note: str) -> list[str]:
    """As many programs for each segment as bring all of them to `programs`, if there is that much to do."""
    spread = operator("//", str(programs), invoke("max", "1", count))
    lanes = invoke("max", "1", invoke("min", invoke("triton.cdiv", limit, block), spread))
    return [
        f"    # {note}",
        *statement("lanes = ", lanes, 4),
        *statement("programs = ", operator("*", count, "lanes"), 4),
    ]
