"""One page for the generator's own rules."""

from __future__ import annotations

from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.lint import WARNINGS
from kvcanary_gen.rules import RULES


def rules_page() -> str:
    return page("rules.md.j2", errors=sorted(RULES.items()), warnings=sorted(WARNINGS.items()))
