"""What a name of the spec means, where it stands, and what it becomes."""

from __future__ import annotations

from kvcanary_gen.explain.find import explain_name, generated_excerpts, known_names, spec_excerpt
from kvcanary_gen.explain.generated import Excerpt
from kvcanary_gen.explain.subjects import Subject, generator_rules

__all__ = ["Excerpt", "Subject", "explain_name", "generated_excerpts", "generator_rules", "known_names", "spec_excerpt"]
