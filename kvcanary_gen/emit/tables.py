"""The module of tables that hold many of a struct: what is checked of each, and how its row is laid out."""

from __future__ import annotations

from kvcanary_gen.emit.code import invoke, statement
from kvcanary_gen.emit.frames import render, speaks_of
from kvcanary_gen.emit.host import ValidatorEmitter
from kvcanary_gen.emit.names import snake
from kvcanary_gen.ir import Program, StructIR
from kvcanary_gen.many import Column, columns, singular, tabled
from kvcanary_gen.surface import CheckedTensor, Surface

# Programs on the second axis of a launch.
MOST = 65535


def plural(struct: StructIR) -> str:
    """What many of a struct are called: its last word, in the plural."""
    return f"{snake(struct.name).rpartition('_')[2]}s"


def emit_tables(program: Program, implied: dict[str, dict[str, str]]) -> str:
    structs = [_struct(program, struct) for struct in tabled(program)]
    text = "\n".join(line for struct in structs for line in (*struct["check"], struct["annotations"]))  # type: ignore[misc]
    top = [name for name in ("errors", "layout", "structs") if name != "layout" or speaks_of(text, "layout")]
    listed = list(dict.fromkeys(f"sources.{name}" for struct in structs for _, _, name in struct["lists"]))  # type: ignore[attr-defined]
    return render("tables.py.j2", structs=structs, top=top, sources=listed, most=MOST, **implied)


def _struct(program: Program, struct: StructIR) -> dict[str, object]:
    one = singular(plural(struct))
    lists = [
        (v.name, program.structs[v.of].name, program.structs[v.of].table) for v in struct.values if v.kind == "list"
    ]
    alike = [
        (v.name, f"layout.{v.of}" if v.kind == "enum" else "bool") for v in struct.values if v.kind in ("enum", "bool")
    ]
    return {
        "name": struct.name,
        "snake": snake(struct.name),
        "table": struct.table,
        "many": plural(struct),
        "one": one,
        "lists": lists,
        "alike": alike,
        "annotations": " ".join(type_ for _, type_ in alike),
        "tensors": [field.name for field in struct.fields],
        "records": [field.name for field in struct.fields if field.record is not None],
        "columns": len(columns(struct)),
        "getitem": statement(
            "",
            invoke("def __getitem__", "self", "place: int | slice"),
            4,
            f" -> structs.{struct.name} | tuple[structs.{struct.name}, ...]:",
        ),
        "row": [f"{_word(struct, one, column)}," for column in columns(struct)],
        "check": _check(program, struct, one),
    }


def _word(struct: StructIR, one: str, column: Column) -> str:
    """A word of a struct's row."""
    path = f"{one}.{column.field}"
    if column.part == "count":
        return f"len({path})"
    if column.part == "value":
        return path
    field = next((field for field in struct.fields if field.name == column.field), None)
    if column.part == "address":
        return f"{path}.data_ptr()" if field is not None else f"_address({column.field}_table, first_of_{column.field})"
    assert field is not None
    words = field.record is not None and field.dtype == "uint8" and column.axis == len(field.shape) - 1
    return f"{path}.shape[{column.axis}]{' // 8' if words else ''}"


def _check(program: Program, struct: StructIR, one: str) -> list[str]:
    """Checks of one struct, as where it is taken alone."""
    tensors = tuple(
        CheckedTensor(f"{one}.{f.name}", f.dtype, f.shape, f.doc, scope=one, record=f.record) for f in struct.fields
    )
    dims: dict[str, tuple[str, int]] = {}
    for tensor in tensors:
        for axis, length in enumerate(tensor.shape):
            if length.dim is not None:
                dims.setdefault(f"{one}.{length.dim}", (tensor.path, axis))
    values = tuple((f"{one}.{value.name}", value) for value in struct.values)
    whole = ((one, struct, ""),)
    surface = Surface.of_struct(struct, whole, tensors, dims, values)
    return _StructValidator(program, surface, one=one).emit()


class _StructValidator(ValidatorEmitter):
    """Checks of a struct that messages call by its `path`."""

    def __init__(self, program: Program, surface: Surface, *, one: str) -> None:
        super().__init__(program, surface)
        self.one = one

    def named(self, path: str) -> str:
        rest = path.removeprefix(self.one)
        return f'f"{{path}}{rest}"' if rest else "path"
