"""How many programs a launch has: arithmetic on sizes and scalars, without a look at device data."""

from __future__ import annotations

from kvcanary_gen.emit.code import Atom, Code, Ternary, invoke, operator, statement
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.expr.nodes import Node, Var, names_of
from kvcanary_gen.expr.schedule import kernel_schedule, offsets_suffice
from kvcanary_gen.ir import ChainDomain, FlatDomain, KernelIR, ScanDomain, SegmentDomain, SummedDomain

# Programs that a segment kernel launches at least, so that few long segments still fill a GPU.
MIN_PROGRAMS = 2048


def axis_length(kernel: KernelIR, tensor: str, axis: int) -> Code:
    """Length of a tensor's axis, 0 where the tensor is missing; of scratch for many structs, that of a part."""
    length: Code = Atom(f"{tensor}.shape[{axis}]")
    if kernel.each is not None and tensor in kernel.each.parts and axis == 0:
        length = operator("//", length, invoke("len", kernel.each.name))
    present = operator("is not", tensor, "None")
    return Ternary(length, present, Atom("0")) if kernel.tensors[tensor].optional else length


class Grid:
    """How many programs a kernel has, and the sizes that this depends on."""

    def __init__(self, kernel: KernelIR) -> None:
        self.kernel = kernel
        self.sizes: list[str] = []
        self.lines(0, "1")
        # Something is counted at every launch, so there must be a program.
        self.always = any(counter.always for counter in kernel.counters)

    def lines(self, indent: int, block: str) -> list[str]:
        """Statements that set `programs`, and `lanes` where segments get several."""
        kernel, domain = self.kernel, self.kernel.domain
        if isinstance(domain, ScanDomain):
            return [f"{' ' * indent}programs = 1"]
        if isinstance(domain, ChainDomain):
            return statement("programs = ", self._number(domain.bound), indent)
        if isinstance(domain, SegmentDomain) and kernel_schedule(kernel, domain) != "by_index":
            return self._by_segment(domain, block, indent)
        bound = domain.bound if isinstance(domain, FlatDomain) else domain.limit
        blocks = invoke("dispatch.cdiv", self._reach(bound, domain.index), block)
        # The first program of those that sum up for themselves has no block.
        programs = operator("+", "1", blocks) if isinstance(domain, SummedDomain) else blocks
        return statement("programs = ", programs, indent)

    def _number(self, node: Node) -> Code:
        self.sizes += sorted(names_of(node, "dim"))
        return host_code(node)

    def _reach(self, bound: Node, index: str) -> Code:
        """Indices to visit: a scalar may be larger than any tensor that is stored to."""
        code = self._number(bound)
        if not names_of(bound, "scalar") or not self.kernel.stores:
            return code
        lengths = [
            f"{store.tensor}.shape[{axis}]"
            for store in self.kernel.stores
            for axis, place in enumerate(store.indices)
            if isinstance(place, Var) and place.name == index
        ]
        longest = invoke("max", *lengths) if len(lengths) > 1 else Atom(lengths[0])
        return invoke("min", code, longest)

    def _by_segment(self, domain: SegmentDomain, block: str, indent: int) -> list[str]:
        count, limit = self._number(domain.count), self._number(domain.limit)
        if not offsets_suffice(self.kernel, domain):
            count = invoke("min", count, operator("-", f"{domain.segments}.shape[0]", "1"))
        spread = operator("//", str(MIN_PROGRAMS), invoke("max", "1", count))
        lanes = invoke("max", "1", invoke("min", invoke("dispatch.cdiv", limit, block), spread))
        return [
            f"{' ' * indent}# Few segments get several programs each, so that they still fill the device.",
            *statement("lanes = ", lanes, indent),
            *statement("programs = ", operator("*", count, "lanes"), indent),
        ]
