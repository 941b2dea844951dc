"""`kvcanary-gen explain` finds what a name means, where it stands, and what becomes of it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import kvcanary
from kvcanary_gen.cli import app
from kvcanary_gen.commands.common import load
from kvcanary_gen.explain import explain_name, generated_excerpts, spec_excerpt
from kvcanary_gen.explain.subjects import Subject, subjects
from kvcanary_gen.ir import StructIR
from kvcanary_gen.tree import build_tree
from tests.support.program import ROOT, SPEC

_, DOCUMENT = load(ROOT / "spec")
TREE = build_tree(SPEC, DOCUMENT)
CODE = [subject for subject in subjects(SPEC) if subject.kind in ("kernel", "fusion", "operation", "function")]


@pytest.mark.parametrize("subject", CODE, ids=lambda subject: str(subject.name))
def test_code_stands_in_the_spec_and_in_the_package(subject: Subject) -> None:
    assert subject in explain_name(SPEC, subject.name)
    declared = spec_excerpt(DOCUMENT, subject)
    assert declared is not None
    assert f"  {subject.name}:" in declared.lines
    assert f"    doc: {subject.meaning}" in declared.lines or subject.meaning in " ".join(declared.lines)
    excerpts = generated_excerpts(SPEC, TREE, subject)
    assert any(subject.name in line for excerpt in excerpts for line in excerpt.lines)
    # Names that it also goes by can be called.
    assert all(callable(getattr(kvcanary, name)) for name in subject.aliases)


def test_every_section_of_code_is_explained() -> None:
    sections = ("kernels", "fusions", "operations", "functions")
    declared = {(section, name) for section in sections for name in DOCUMENT.names(section)}
    assert {subject.place for subject in CODE} == declared


@pytest.mark.parametrize("struct", [s for s in SPEC.structs.values() if s.table], ids=lambda struct: str(struct.name))
def test_tables_are_explained_by_their_struct(struct: StructIR) -> None:
    assert [subject.name for subject in explain_name(SPEC, struct.table)] == [struct.name]
    assert ("table", struct.table) in explain_name(SPEC, struct.name)[0].facts


def test_everything_explained_has_a_name_and_a_meaning() -> None:
    assert all(subject.name and subject.meaning for subject in subjects(SPEC))
    assert explain_name(SPEC, "") == []


def test_a_fusion_says_what_it_is_made_of() -> None:
    done = CliRunner().invoke(app, ["explain", "verify_planned", "--spec", str(ROOT / "spec")])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("fusion verify_planned\n")
    words = {line.strip() for line in done.output.splitlines()}
    assert "made of   verify_entries and plan_entries" in words
    (parents,) = (word for word in words if word.startswith("part of "))
    assert "launch_canary_plan_and_verify_kernels" in parents
    assert "def _verify_planned_kernel(" in done.output
    # Operations alone launch it.
    assert "launch_verify_planned_kernel" not in done.output
