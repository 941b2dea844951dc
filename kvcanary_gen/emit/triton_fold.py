"""Folds over the bytes of sources as Triton helpers.

A step reads a tile of neighbouring words for every lane, so that a warp's loads are coalesced, and splits it in
registers; no lane walks its row alone. Four tiles are on their way at once: memory answers long pieces of a row faster
than short ones. Helpers hash a tile, a source given by its pointer and its geometry, and all sources in order, which
are arguments of the kernel or, any number of them, rows of a table on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvcanary_gen.emit.code import Code, invoke, statement
from kvcanary_gen.emit.names import count_name, source_arguments, source_parts, static_name, table_name
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.emit.triton_expr import FORM_NAMES, TRUE, Block
from kvcanary_gen.expr.nodes import Type, Var, is_static, substitute
from kvcanary_gen.ir import FoldIR, Program

# Words of the largest tile, and how many tiles are read at once.
TILE, TILES = 8, 4
_FORM = ("TILE", "ALIGNMENT", "CUT")


def emit_fold(program: Program, fold: FoldIR) -> list[list[str]]:
    """The helpers of a fold."""
    table = [_of_table(program, fold)] if fold.table else []
    return [
        _of_tile(program, fold),
        _of_last_tile(program, fold),
        _first_tile(program, fold),
        _of_source(program, fold),
        *table,
        _of_all(program, fold),
    ]


def fold_constants(fold: FoldIR) -> list[str]:
    """Compile-time constants of a kernel that say in which form a fold reads its sources."""
    return [name(fold.name) for name in FORM_NAMES]


def source_constants(fold: FoldIR) -> list[str]:
    """Compile-time constants of a kernel that say how the sources arrive."""
    return [count_name(fold.sources), *([table_name(fold.sources)] if fold.table else [])]


def _block(program: Program, fold: FoldIR) -> Block:
    params = [name for name, _ in fold.params]
    taken = {*params, *fold.numbers, "mask", "state", "word", "total", "tile", "row", "first", "stop", "count", "place"}
    return Block(
        tensors={},
        functions=program.functions,
        function_sizes={name: {} for name in program.functions},
        facts=Facts({}, {}),
        prefix="",
        taken=taken,
        uniform=set(fold.numbers),
    )


def _function(name: str, params: list[str], constants: list[str], doc: str, block: Block) -> list[str]:
    head = invoke(f"def {name}", *params, *(f"{constant}: tl.constexpr" for constant in constants))
    return ["@triton.jit", *statement("", head, 0, ":"), f'    """{doc}"""', *block.lines]


def _of_tile(program: Program, fold: FoldIR) -> list[str]:
    block = _block(program, fold)
    names = [f"word_{word}" for word in range(TILE)]
    block.text(f"{', '.join(names)} = lang.split_words(tile)")
    for name in names:
        block.write("state = ", _stepped(block, fold, name))
    block.text("return state")
    return _function(f"{fold.name}_of_tile", ["state", "tile"], [], "A whole tile, word by word.", block)


def _stepped(block: Block, fold: FoldIR, word: str) -> Code:
    return block.value(substitute(fold.step, {"word": Var(Type.UINT, word, "param")}), TRUE)


def _of_last_tile(program: Program, fold: FoldIR) -> list[str]:
    """Words past the length leave the state as it is."""
    block = _block(program, fold)
    for size in (2, 4, TILE):
        block.text(f"{'if' if size == 2 else 'elif'} TILE == {size}:" if size < TILE else "else:")
        with block.indented():
            names = [f"word_{word}" for word in range(size)]
            split = {2: "tl.split", 4: "lang.split_four", TILE: "lang.split_words"}[size]
            block.text(f"{', '.join(names)} = {split}(tile)")
            for word, name in enumerate(names):
                stepped = _stepped(block, fold, name)
                if word == 0:
                    block.write("state = ", stepped)
                else:
                    block.write("state = ", invoke("tl.where", f"left > {8 * word}", stepped, "state"))
    block.text("return state")
    doc = "A tile of which `left` bytes are a slot's, one at least."
    return _function(f"{fold.name}_of_last_tile", ["state", "tile", "left"], ["TILE"], doc, block)


def _place(block: Block, fold: FoldIR) -> None:
    """Where in a source the bytes of each lane lie."""
    block.text("# The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.")
    for name in source_parts(fold.numbers):
        block.text(f"{name} = {name}.to(tl.int64) + 0")
    block.write("row = ", block.value(fold.row, TRUE))
    block.write("first = ", block.value(fold.byte, TRUE))
    block.assign("length", fold.length, TRUE)
    block.text("stop = tl.minimum(row_bytes, first + length)")
    block.text("inside = mask & (row >= 0) & (row < rows)")
    block.text("if CUT == 2:")
    with block.indented():
        block.text("# Where a row is left behind, sums with its places may wrap and seem to lie inside.")
        block.text("inside = inside & (first < row_bytes)")
    block.text("start = row * row_stride")


def _first_tile(program: Program, fold: FoldIR) -> list[str]:
    block = _block(program, fold)
    _place(block, fold)
    block.write("tile = ", invoke("lang.load_tile", "tensor_ptr", "start", "first", "stop", "inside", *_FORM))
    block.text("return tile, length")
    doc = "The first tile of a source, and how many bytes a slot has there."
    return _source_function(fold, f"{fold.name}_first_tile", doc, block)


def _source_function(fold: FoldIR, name: str, doc: str, block: Block) -> list[str]:
    params = [fold.params[0][0], "mask", "tensor_ptr", *source_parts(fold.numbers)]
    return _function(name, params, [*_statics(fold), *_FORM], doc, block)


def _of_source(program: Program, fold: FoldIR) -> list[str]:
    block = _block(program, fold)
    _place(block, fold)
    block.text(f"state = tl.full({fold.params[0][0]}.shape, {fold.start}, tl.uint64)")
    block.text("byte = tl.zeros([], tl.int64)")
    block.text(f"if TILE == {TILE} and ALIGNMENT >= 8 and CUT < 2:")
    with block.indented():
        _long_loop(block, fold)
    block.text("while byte < length:")
    with block.indented():
        load = invoke("lang.load_tile", "tensor_ptr", "start", "first + byte", "stop", "inside", *_FORM)
        block.write("tile = ", load)
        block.text(f"state = {fold.name}_of_last_tile(state, tile, length - byte, TILE)")
        block.text("byte += 8 * TILE")
    block.text("return state")
    return _source_function(fold, f"{fold.name}_of_source", "One source's part.", block)


def _long_loop(block: Block, fold: FoldIR) -> None:
    """Several tiles on their way at once."""
    block.text(f"while byte + {8 * TILE * TILES} <= length:")
    with block.indented():
        for number in range(TILES):
            at = "first + byte" + (f" + {8 * TILE * number}" if number else "")
            load = invoke("lang.load_tile", "tensor_ptr", "start", at, "stop", "inside", "TILE", "ALIGNMENT", "0")
            block.write(f"tile_{number} = ", load)
        for number in range(TILES):
            block.text(f"state = {fold.name}_of_tile(state, tile_{number})")
        block.text(f"byte += {8 * TILE * TILES}")


def _of_all(program: Program, fold: FoldIR) -> list[str]:
    block = _block(program, fold)
    lane = fold.params[0][0]
    block.text(f"total = tl.full({lane}.shape, {fold.start}, tl.uint64)")
    with _guarded(block, fold):
        if fold.table:
            block.text(f"if {table_name(fold.sources)}:")
            with block.indented():
                args = [lane, "mask", *source_arguments(fold.sources, 0, fold.numbers, fold.table)]
                block.write("total = ", invoke(f"{fold.name}_of_table", *args, *_statics(fold), *_FORM))
        block.text(f"if TILE < {TILE}:")
        with block.indented():
            _of_first_tiles(block, fold)
        block.text("else:")
        with block.indented():
            for place in range(fold.at_most):
                block.text(f"if {count_name(fold.sources)} > {place}:")
                with block.indented():
                    _combine(block, fold, _listed(fold, place))
    block.text("return total")
    params = [lane, "mask", *source_arguments(fold.sources, fold.at_most, fold.numbers, fold.table)]
    return _function(fold.name, params, [*source_constants(fold), *_statics(fold), *_FORM], fold.doc, block)


def _statics(fold: FoldIR) -> list[str]:
    return [static_name(name) for name in fold.statics]


@contextmanager
def _guarded(block: Block, fold: FoldIR) -> Iterator[None]:
    """Statements that run where anything is folded at all."""
    guard: Code = TRUE
    if fold.when is not None:
        assert is_static(fold.when)
        guard = block.static(fold.when)
    if guard == TRUE:
        yield
        return
    block.write("if ", guard, ":")
    with block.indented():
        yield


def _listed(fold: FoldIR, place: int) -> list[str]:
    """Kernel arguments of one source."""
    return [f"{fold.sources}_{part}_{place}" for part in ["ptr", *source_parts(fold.numbers)]]


def _of_first_tiles(block: Block, fold: FoldIR) -> None:
    lane, statics = fold.params[0][0], _statics(fold)
    block.text("# A tile has all bytes of a slot; those of all sources are on their way at once.")
    for place in range(fold.at_most):
        block.text(f"if {count_name(fold.sources)} > {place}:")
        with block.indented():
            load = invoke(f"{fold.name}_first_tile", lane, "mask", *_listed(fold, place), *statics, *_FORM)
            block.write(f"tile_{place}, length_{place} = ", load)
    for place in range(fold.at_most):
        block.text(f"if {count_name(fold.sources)} > {place}:")
        with block.indented():
            block.text(f"state = tl.full({lane}.shape, {fold.start}, tl.uint64)")
            block.text(f"state = {fold.name}_of_last_tile(state, tile_{place}, length_{place}, TILE)")
            block.write("total = ", block.value(fold.combine, TRUE))


def _combine(block: Block, fold: FoldIR, parts: list[str]) -> None:
    of_source = f"{fold.name}_of_source"
    block.write("state = ", invoke(of_source, fold.params[0][0], "mask", *parts, *_statics(fold), *_FORM))
    block.write("total = ", block.value(fold.combine, TRUE))


def _of_table(program: Program, fold: FoldIR) -> list[str]:
    """The sources of a table on the device, one row each: address, geometry, numbers."""
    block = _block(program, fold)
    lane = fold.params[0][0]
    parts = ["address", *source_parts(fold.numbers)]
    block.text(f"total = tl.full({lane}.shape, {fold.start}, tl.uint64)")
    with _guarded(block, fold):
        block.text("place = tl.zeros([], tl.int64)")
        block.text(f"while place < {fold.sources}_table_len:")
        with block.indented():
            block.text(f"entry_ptr = {fold.sources}_table_ptr + {len(parts)} * place")
            block.text("tensor_ptr = tl.load(entry_ptr).to(tl.pointer_type(tl.uint8))")
            loads = [f"tl.load(entry_ptr + {column})" for column in range(1, len(parts))]
            _combine(block, fold, ["tensor_ptr", *loads])
            block.text("place += 1")
    block.text("return total")
    params = [lane, "mask", *source_arguments(fold.sources, 0, fold.numbers, fold.table)]
    doc = "The same of sources that are all rows of a table."
    return _function(f"{fold.name}_of_table", params, [*_statics(fold), *_FORM], doc, block)
