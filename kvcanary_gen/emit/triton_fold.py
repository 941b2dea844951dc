"""Folds over the bytes of sources as Triton helpers.

A step reads a tile of TILE neighbouring words for every lane, so that a warp's loads are coalesced, and splits it in
registers; no lane walks its row alone. One helper hashes one source, given by its pointer and its geometry; the other
takes the sources in order. A table of pointers would be a second form of the latter.
"""

from __future__ import annotations

from kvcanary_gen.emit.code import Atom, Code, invoke, statement
from kvcanary_gen.emit.names import count_name, ragged_name, source_arguments, source_parts, static_name
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.triton_expr import TRUE, Block
from kvcanary_gen.expr.nodes import Node, Type, Var, is_static, substitute
from kvcanary_gen.ir import FoldIR, Program

# Words of one tile.
TILE = 8


def emit_fold(program: Program, fold: FoldIR) -> list[list[str]]:
    """The two helpers of a fold."""
    return [_of_source(program, fold), _of_all(program, fold)]


def _block(program: Program, fold: FoldIR) -> Block:
    params = [name for name, _ in fold.params]
    taken = {*params, *fold.numbers, "mask", "state", "word", "total", "tile", "row", "first", "count"}
    return Block(
        tensors={},
        functions=program.functions,
        function_sizes={name: {} for name in program.functions},
        facts=Facts({}, {}),
        prefix="",
        taken=taken,
    )


def _constexprs(names: list[str]) -> list[str]:
    return [f"{name}: tl.constexpr" for name in names]


def _of_source(program: Program, fold: FoldIR) -> list[str]:
    block = _block(program, fold)
    lane = fold.params[0][0]
    numbers = source_parts(fold.numbers)
    statics = [static_name(name) for name in fold.statics]
    block.text("# The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.")
    for name in numbers:
        block.text(f"{name} = {name}.to(tl.int64) + 0")
    block.write("row = ", block.value(fold.row, TRUE))
    block.write("first = ", block.value(fold.byte, TRUE))
    _assign_static(block, "length", fold.length)
    block.text("inside = mask & (row >= 0) & (row < rows)")
    block.text("start = row * row_stride")
    block.text(f"state = tl.full({lane}.shape, {fold.start}, tl.uint64)")
    block.text("byte = tl.zeros([], tl.int64)")
    block.text("while byte < length:")
    with block.indented():
        block.text("tile = lang.load_words(tensor_ptr, start, first + byte, row_bytes, inside, TILE, RAGGED)")
        block.text("if TILE == 2:")
        with block.indented():
            block.text("word_0, word_1 = tl.split(tile)")
            for word in range(2):
                _step(block, fold, word, always=word == 0)
        block.text("else:")
        with block.indented():
            names = ", ".join(f"word_{word}" for word in range(TILE))
            block.text(f"{names} = lang.split_words(tile)")
            for word in range(TILE):
                _step(block, fold, word, always=word == 0)
        block.text("byte += 8 * TILE")
    block.text("return state")
    params = [lane, "mask", "tensor_ptr", *numbers]
    head = invoke(f"def {fold.name}_of_source", *params, *_constexprs(["TILE", "RAGGED", *statics]))
    return ["@triton.jit", *statement("", head, 0, ":"), '    """One source\'s part, word by word."""', *block.lines]


def _assign_static(block: Block, name: str, node: Node) -> None:
    block.assign(name, node, TRUE)


def _step(block: Block, fold: FoldIR, word: int, *, always: bool) -> None:
    """The next state; words of the tile past the length leave it as it is."""
    stepped = block.value(substitute(fold.step, {"word": Var(Type.UINT, f"word_{word}", "param")}), TRUE)
    if always:
        block.write("state = ", stepped)
    else:
        block.write("state = ", invoke("tl.where", f"byte + {8 * word} < length", stepped, "state"))


def _of_all(program: Program, fold: FoldIR) -> list[str]:
    block = _block(program, fold)
    lane = fold.params[0][0]
    count, ragged = count_name(fold.sources), ragged_name(fold.sources)
    statics = [static_name(name) for name in fold.statics]
    block.text(f"total = tl.full({lane}.shape, {fold.start}, tl.uint64)")
    guard: Code = Atom("True")
    if fold.when is not None:
        assert is_static(fold.when)
        guard = block.static(fold.when)
    if guard != TRUE:
        block.write("if ", guard, ":")
        block.indent += 4
    for place in range(fold.at_most):
        block.text(f"if {count} > {place}:")
        with block.indented():
            mine = [f"{fold.sources}_{part}_{place}" for part in ["ptr", *source_parts(fold.numbers)]]
            call = invoke(f"{fold.name}_of_source", lane, "mask", *mine, "TILE", ragged, *statics)
            block.write("state = ", call)
            block.write("total = ", block.value(fold.combine, TRUE))
    if guard != TRUE:
        block.indent -= 4
    block.text("return total")
    params = [lane, "mask", *source_arguments(fold.sources, fold.at_most, fold.numbers)]
    head = invoke(f"def {fold.name}", *params, *_constexprs([count, ragged, *statics, "TILE"]))
    return ["@triton.jit", *statement("", head, 0, ":"), f'    """{fold.doc}"""', *block.lines]
