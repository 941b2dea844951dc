"""One page for the named expressions of the spec."""

from __future__ import annotations

from kvcanary_gen.emit.docs.markdown import anchor, listing
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.excerpt import source
from kvcanary_gen.expr.inventory import called
from kvcanary_gen.ir import FunctionIR, Program
from kvcanary_gen.load import Document


def functions_page(program: Program, document: Document) -> str:
    entries = []
    for function in program.functions.values():
        entries.append(
            {
                "function": function,
                "signature": function_signature(function),
                "calls": listing([function_link(name) for name in sorted(_calls(function))]),
                "reads": (*function.tensors, *function.scalars, *function.dims),
                "source": source(document, "functions", function.name, "let", "value"),
            }
        )
    return page("functions.md.j2", entries=entries, package=program.header.package)


def function_signature(function: FunctionIR) -> str:
    params = ", ".join(f"{name}: {type_.value}" for name, type_ in function.params)
    return f"{function.name}({params}) -> {function.returns.value}"


def function_link(name: str, up: str = "") -> str:
    return f"[`{name}`]({up}{'functions.md' if up else ''}#{anchor(name)})"


def _calls(function: FunctionIR) -> set[str]:
    return called([function.value, *(node for _, node in function.lets)])
