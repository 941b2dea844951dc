"""Reference pages, written from the same spec as the code."""

from __future__ import annotations

from kvcanary_gen.emit.docs.errors import error_pages
from kvcanary_gen.emit.docs.functions import functions_page
from kvcanary_gen.emit.docs.integrations import integration_pages
from kvcanary_gen.emit.docs.language import language_page
from kvcanary_gen.emit.docs.layouts import layouts_page
from kvcanary_gen.emit.docs.ops import op_pages
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.docs.rules import rules_page
from kvcanary_gen.emit.docs.runtime import runtime_page
from kvcanary_gen.emit.docs.selftest import selftest_pages
from kvcanary_gen.emit.docs.violations import violations_pages
from kvcanary_gen.ir import Program
from kvcanary_gen.load import Document
from kvcanary_gen.surface import surfaces


def build_docs(program: Program, document: Document) -> dict[str, str]:
    """Every page: path below `generated/` to Markdown."""
    views = surfaces(program)
    pages = {
        "README.md": _index(program),
        **op_pages(program, document, views),
        **error_pages(program, document, views),
        **violations_pages(program),
        "rules/KVG.md": rules_page(),
        "layouts.md": layouts_page(program, document),
        "functions.md": functions_page(program, document),
        "language.md": language_page(),
        **runtime_page(program),
        **selftest_pages(program),
        **integration_pages(program),
    }
    return {f"docs/{path}": text for path, text in pages.items()}


def _index(program: Program) -> str:
    return page(
        "README.md.j2",
        package=program.header.package,
        version=program.header.version,
        summary=program.header.doc,
        operations=list(program.operations.values()),
        binder=list(surfaces(program).values())[-1].binder,
        capture=program.implied("capture").id,
        kernels=[kernel for kernel in program.kernels.values() if not kernel.internal],
        invariants=program.invariants,
        errors=program.errors,
        runtime=bool(runtime_page(program)),
    )
