"""The page on the self-test, for packages that have a runtime."""

from __future__ import annotations

from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.runtime_templates import program_has_runtime
from kvcanary_gen.ir import Program


def selftest_pages(program: Program) -> dict[str, str]:
    """The page by its path; none without a runtime."""
    if not program_has_runtime(program):
        return {}
    return {"selftest.md": page("selftest.md.j2", package=program.header.package)}
