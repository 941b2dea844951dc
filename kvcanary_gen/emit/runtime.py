"""The runtime around the kernels: every template below `templates/runtime` becomes a module of `<package>.runtime`."""

from __future__ import annotations

import ast
import string
from typing import Any

from kvcanary_gen.emit.code import Atom, invoke, statement
from kvcanary_gen.emit.frames import environment, render
from kvcanary_gen.emit.host import ValidatorEmitter, python_string
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.emit.imports import import_line
from kvcanary_gen.emit.literals import call_text, strings_text
from kvcanary_gen.emit.report_values import report_values
from kvcanary_gen.emit.runtime_names import extras, planned
from kvcanary_gen.emit.runtime_templates import FOLDER, SUFFIX, program_has_runtime, templates
from kvcanary_gen.emit.settings import settings
from kvcanary_gen.emit.violations import reported_layout
from kvcanary_gen.expr.nodes import Length
from kvcanary_gen.ir import ErrorIR, Program
from kvcanary_gen.surface import surfaces, workspace_lengths


def emit_runtime(program: Program) -> dict[str, str]:
    """Modules by path below the package; none where nothing is reported."""
    if not program_has_runtime(program):
        return {}
    values = _values(program)
    files = {}
    for name in templates():
        text = environment().get_template(name).render(**values).rstrip("\n") + "\n"
        files[name.removesuffix(SUFFIX)] = text
    files[f"{FOLDER}__init__.py"] = _init(files)
    files["__main__.py"] = render(
        "main.py.j2", package=program.header.package, commands=_commands(files), strings_text=strings_text
    )
    return dict(sorted(files.items()))


def _commands(files: dict[str, str]) -> list[str]:
    """Names of the subcommands: modules of the folder `commands`."""
    folder = f"{FOLDER}commands/"
    names = [path.removeprefix(folder).removesuffix(".py") for path in files if path.startswith(folder)]
    return sorted(name for name in names if name != "__init__")


def public_names(text: str) -> list[str]:
    """What a module lists in `__all__`; nothing where it has none."""
    for part in ast.parse(text).body:
        if isinstance(part, ast.Assign) and [t.id for t in part.targets if isinstance(t, ast.Name)] == ["__all__"]:
            return [str(name) for name in ast.literal_eval(part.value)]
    return []


def _init(files: dict[str, str]) -> str:
    """Re-exports what the modules directly in the folder list as public."""
    lines, exported = [], []
    for path, text in sorted(files.items()):
        module = path.removeprefix(FOLDER).removesuffix(".py")
        # Folders below, and integrations, are imported by those who use them.
        names = [] if "/" in module or module.startswith("__") else public_names(text)
        if names:
            lines.append(import_line(f".{module}", names))
            exported += names
    doc = '"""What stands around the kernels: everything that an engine attaches, and reports that people read."""'
    listed = [f"    {python_string(name)}," for name in sorted(exported)]
    return "\n".join([doc, "", "from __future__ import annotations", "", *lines, "", "__all__ = [", *listed, "]", ""])


def _values(program: Program) -> dict[str, Any]:
    """What templates can use."""
    emitter = ValidatorEmitter(program, next(iter(surfaces(program).values())))
    errors = {error.id: error for error in program.errors}

    def message(id_: str) -> str:
        """The message of an error as a literal; its placeholders are variables in scope."""
        return emitter.message(errors[id_], errors[id_].message, _words(errors[id_]))

    def raises(id_: str, indent: int = 4, cause: str = "") -> str:
        """A raise statement; `cause` is what follows `from`."""
        lines = emitter.raising(errors[id_], message(id_), indent)
        return "\n".join(lines) + (f" from {cause}" if cause else "")

    return {
        "program": program,
        "package": program.header.package,
        "python_string": python_string,
        "call_text": call_text,
        "strings_text": strings_text,
        "message": message,
        "write_workspaces": _workspaces(program, "canary_write"),
        "plan_calls": _plan_calls(program),
        "extras": extras(program),
        "plan_imports": _plan_imports(program),
        "settings": settings(tuple(program.enums["RealKvHashMode"].members)),
        "raises": raises,
        "tag_axes": [f for _, f, _, _ in string.Formatter().parse(next(iter(program.tags.values())).name) if f],
        **report_values(program, reported_layout(program)),
    }


def _plan_calls(program: Program) -> list[str]:
    """Launches of the kernels that plan a forward."""
    operation = program.operations["canary_plan"]
    calls = [invoke(call.kernel.launcher, **planned(operation, call)) for call in operation.calls]
    return ["\n".join(statement("", call, 8)) for call in calls]


def _plan_imports(program: Program) -> list[str]:
    kernels = [call.kernel for call in program.operations["canary_plan"].calls]
    return sorted(import_line(f"..ops.{kernel.name}", [kernel.launcher]) for kernel in kernels)


def _workspaces(program: Program, operation: str) -> dict[str, str]:
    """How each workspace of an operation is allocated for the largest batch."""
    surface = surfaces(program)[operation]

    def most(length: Length) -> Atom:
        """Plans are as long as the largest batch has requests; other tensors have an element for each new token."""
        (field,) = [tensor for tensor in surface.tensors if tensor.path == length.name]
        more = "" if "+" not in field.shape[length.axis].text else " + 1"
        return Atom(f"max_requests{more}" if "." in length.name else "max_tokens")

    found = {}
    for workspace in surface.workspaces:
        shape = ", ".join(host_code(node, most).flat() for node in workspace_lengths(surface, workspace))
        allocation = invoke("torch.empty", f"[{shape}]", dtype=f"torch.{workspace.dtype}", device="device")
        found[workspace.name] = "\n".join(statement("return ", allocation, 4))
    return found


def _words(error: ErrorIR) -> dict[str, str]:
    return {part.text: part.text for part in error.message if part.reserved}
