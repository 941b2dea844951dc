"""Functions of the spec as Triton helpers."""

from __future__ import annotations

from kvcanary_gen.emit.code import Atom, Code, invoke, statement
from kvcanary_gen.emit.frames import docstring
from kvcanary_gen.emit.names import paired_name
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.triton_expr import TRUE, Block, flag_name, pointer_name, takes_mask
from kvcanary_gen.expr.nodes import Node, Select, is_static
from kvcanary_gen.expr.pairs import paired_tensors, pairs
from kvcanary_gen.expr.simplify import simplified_function
from kvcanary_gen.ir import FunctionIR, Program, TensorArg

Sizes = dict[str, tuple[str, int] | None]


def function_sizes(program: Program, tensors: dict[str, TensorArg]) -> dict[str, Sizes]:
    """Sizes that each function's Triton form takes, callees included; found by emitting them in order."""
    sizes: dict[str, Sizes] = {}
    for function in program.functions.values():
        sizes[function.name] = _function_block(program, function, tensors, sizes).needs.sizes
    return sizes


def _function_block(
    program: Program, function: FunctionIR, tensors: dict[str, TensorArg], sizes: dict[str, Sizes]
) -> Block:
    function = simplified_function(function, tensors)
    facts = Facts(program.functions, {})
    taken = {name for name, _ in (*function.params, *function.lets)} | {*function.scalars, *function.dims, "mask"}
    block = Block(
        tensors=tensors, functions=program.functions, function_sizes=sizes, facts=facts, prefix="", taken=taken
    )
    mask = Atom("mask") if takes_mask(function) else TRUE
    block.pairs = pairs([*(node for _, node in function.lets), function.value], tensors)
    for name, node in function.lets:
        block.let(name, node, mask)
    _return(block, function.value, mask)
    return block


def _return(block: Block, node: Node, mask: Code) -> None:
    if isinstance(node, Select) and is_static(node.condition):
        block.text(f"if {block.static(node.condition).flat()}:")
        with block.indented():
            _return(block, node.then, mask)
        # Triton types both returns of one block alike, so the other stands in a branch of its own.
        block.text("else:")
        with block.indented():
            _return(block, node.other, mask)
        return
    # A constant is a block like the results of other branches.
    block.write("return ", block.spread(block.typed(node, mask), node, mask))


def emit_function(
    program: Program, function: FunctionIR, tensors: dict[str, TensorArg], sizes: dict[str, Sizes]
) -> list[str]:
    """A spec function as a Triton helper. Functions that load take the mask under which they do."""
    block = _function_block(program, function, tensors, sizes)
    params = [name for name, _ in function.params]
    if takes_mask(function):
        params.append("mask")
    params += [pointer_name(name) for name in function.tensors]
    params += [*block.needs.sizes, *function.scalars]
    flags = [f"{flag_name(name)}: tl.constexpr" for name in function.presence]
    paired = paired_tensors(simplified_function(function, tensors), program.functions, tensors)
    flags += [f"{paired_name(name)}: tl.constexpr" for name in paired]
    head = statement("", invoke(f"def {function.name}", *params, *flags), 0, ":")
    return ["@triton.jit", *head, docstring(function.doc, 4), *block.lines]
