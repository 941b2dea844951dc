"""Pages on the engines that the canary knows how to attach to."""

from __future__ import annotations

from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.runtime_templates import program_has_runtime
from kvcanary_gen.ir import Program


def integration_pages(program: Program) -> dict[str, str]:
    """The pages by path; none without a runtime."""
    if not program_has_runtime(program):
        return {}
    return {"transformers.md": page("transformers.md.j2", package=program.header.package)}
