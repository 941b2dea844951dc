"""Folds over the bytes of sources in vectorised torch: one word of every row at a time."""

from __future__ import annotations

from kvcanary_gen.emit.code import Code, invoke, statement
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.torch_expr import TorchBlock
from kvcanary_gen.expr.nodes import Node, Type, Var, negated, substitute
from kvcanary_gen.ir import FoldIR, Program


def emit_fold(program: Program, fold: FoldIR) -> list[str]:
    lane = fold.params[0][0]
    taken = {*(name for name, _ in fold.params), *fold.numbers, "total", "state", "word", "source", "row", "byte"}
    taken |= {"rows", "place", "length"}
    block = TorchBlock(tensors={}, functions=program.functions, prefix="", taken=taken)
    block.text(f"total = torch.full_like({lane}, {_bits(fold.start)})")
    loop = f"for source in {fold.sources}:"
    if fold.when is not None:
        block.write("if ", block.static(negated(fold.when)), ":")
        block.text("    return total")
    block.text(loop)
    with block.indented():
        used = [n for n in fold.numbers if any(_reads(node, n) for node in (fold.row, fold.byte))]
        for name in used:
            # Numbers of the host wrap as a kernel's do.
            block.text(f"{name} = eager.scalar(source.{name}, {lane})")
        block.text(f"rows = eager.byte_rows(source.{fold.bytes_field})")
        block.write("row = ", block.tensor(fold.row))
        block.write("byte = ", block.tensor(fold.byte))
        block.text(f"state = torch.full_like({lane}, {_bits(fold.start)})")
        length = host_code(substitute(fold.length, {n: _field(n) for n in fold.numbers}))
        block.write("length = ", length)
        block.text("for place in range(0, length, 8):")
        with block.indented():
            block.text("word = eager.load_word(rows, row, byte + place, length - place)")
            block.write("state = ", block.tensor(fold.step))
        block.write("total = ", block.tensor(fold.combine))
    block.text("return total")
    params: list[Code | str] = [f"{name}: torch.Tensor" for name, _ in fold.params]
    params.append(f"{fold.sources}: Sequence[structs.{fold.struct}]")
    params += [f"{name}: {static_annotation(program, name)}" for name in fold.statics]
    head = statement("", invoke(f"def {fold.name}", *params), 0, " -> torch.Tensor:")
    return [*head, f'    """{fold.doc}"""', *block.lines]


def _field(name: str) -> Node:
    return Var(Type.INT, f"source.{name}", "dim")


def _reads(node: Node, name: str) -> bool:
    return any(isinstance(part, Var) and part.name == name for part in node.walk())


def _bits(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def static_annotation(program: Program, name: str) -> str:
    """Python type of a static scalar."""
    for kernel in program.kernels.values():
        for scalar in kernel.scalars:
            if scalar.name == name:
                return "bool" if scalar.enum is None else f"layout.{scalar.enum}"
    return "int"
