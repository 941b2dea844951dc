"""Every kernel in every form compiles ahead of time for every target and keeps to its registers; no GPU is needed."""

from __future__ import annotations

import inspect
import os
import re
from functools import cache
from pathlib import Path

import pytest
import triton

from kvcanary.core import lang
from kvcanary_gen import recorded
from kvcanary_gen.aot import DEFAULT_TARGETS, Report, Specialisation, compile_kernel, compile_one, parse_target
from kvcanary_gen.expr.phases import phases
from kvcanary_gen.many import variants
from kvcanary_gen.specialisations import package_loader, specialisations
from tests.support.program import ROOT, SPEC

pytestmark = pytest.mark.aot

KERNELS = sorted(phase.name for kernel in (SPEC.kernels | variants(SPEC)).values() for phase in phases(kernel))


@cache
def jobs() -> list[Specialisation]:
    return specialisations(SPEC, package_loader(ROOT / "generated" / SPEC.header.package))


# Targets of the record.
RECORDED = ("sm_90", "gfx942")
# Of a kernel's forms, each run compiles about so many more for one target; the nightly run compiles all for all.
SAMPLED, MORE = "sm_90", 6
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


# `make record` writes it anew.
RECORD = recorded.read(Path(__file__).with_name("recorded.json"))


@cache
def reports(kernel: str, target: str) -> list[tuple[Specialisation, Report]]:
    """A kernel's forms and their reports: the leanest and the richest form, and some of the others."""
    forms = [job for job in jobs() if job.kernel == kernel]
    if not NIGHTLY:
        ends = recorded.extremes(forms)
        others = [job for job in forms if job not in ends]
        forms = ends + (others[:: max(1, len(others) // MORE)] if target == SAMPLED else [])
    return [(job, compile_one(job, target)) for job in forms]


@pytest.mark.parametrize("target", DEFAULT_TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_spills_and_nothing_gained(kernel: str, target: str) -> None:
    """No register goes to local memory, and no form on record loads or stores more than it did."""
    compiled = reports(kernel, target)
    assert compiled
    for _, report in compiled:
        assert (report.spills, report.local_accesses) == (0, 0), report
        assert report.registers > 0
        assert report.code_bytes > 0
        assert report.stores + report.atomics > 0, "a kernel that stores nothing"
    found = recorded.gains(RECORD, compiled, triton.__version__)
    assert not found, "\n".join(["`make record`, if this is meant:", *map(str, found)])


def test_the_record_is_of_these_kernels() -> None:
    """Every kernel's leanest and richest form for the two targets, and nothing else."""
    assert recorded.strays(RECORD, jobs()) == []
    want = {(job.kernel, recorded.form(job), target) for job in recorded.extremes(jobs()) for target in RECORDED}
    assert recorded.recorded_forms(RECORD) == want


def test_the_record_is_of_this_compiler() -> None:
    """Without this, loads and stores were not compared."""
    job = recorded.extremes(jobs())[0]
    for target in RECORDED:
        report = compile_one(job, target)
        if not recorded.comparable(RECORD, report, triton.__version__):
            pytest.skip(f"the record is of Triton {RECORD['triton']}; only spills were compared")
        figures = RECORD["kernels"][job.kernel][recorded.form(job)][target]
        assert figures["loads"] > 0 and figures["stores"] > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_form_is_its_own(kernel: str) -> None:
    """One form for each set of optional tensors, none twice."""
    forms = [tuple(sorted(job.constants.items(), key=lambda item: item[0])) for job in jobs() if job.kernel == kernel]
    assert len(set(map(str, forms))) == len(forms)
    optional = [name for name, _ in forms[0] if name.startswith("HAS_")]
    assert len(forms) >= 2 ** len(optional)


@pytest.mark.parametrize("kernel", KERNELS)
def test_compiles_with_overflow_checks(kernel: str) -> None:
    """TRITON_DEBUG checks 32-bit arithmetic. What comes from the spec has none: all it loads is widened first."""
    forms = [job for job in jobs() if job.kernel == kernel]
    for job in (forms[0], forms[-1]):
        compiled = compile_kernel(job, parse_target("sm_90"), debug=True)
        assert compiled.metadata.debug
        assert "inline_asm" not in compiled.asm["ttir"]
        emitted = [
            path for path in checked_files(compiled.asm["ttir"]) if path.parent.name == "ops" or path.stem == "device"
        ]
        assert not emitted


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.endswith("_chain")])
def test_products_of_a_step_wrap(kernel: str) -> None:
    """A hash wraps by design, so a check of its products for overflow would stop valid calls."""
    job = next(job for job in jobs() if job.kernel == kernel)
    compiled = compile_kernel(job, parse_target("sm_90"), debug=True)
    lines: set[int] = set()
    for function in (lang.product, lang.product_bits):
        text, first = inspect.getsourcelines(function.fn)
        lines |= set(range(first, first + len(text)))
    assert not {line for path, line in checked_places(compiled.asm["ttir"]) if path.stem == "lang" and line in lines}


def checked_files(ttir: str) -> set[Path]:
    """Files with arithmetic that is checked for overflow at run time."""
    return {path for path, _ in checked_places(ttir)}


def checked_places(ttir: str) -> set[tuple[Path, int]]:
    """Lines of such files."""
    places = dict(re.findall(r"^#(loc\d*) = loc\((.*)\)$", ttir, re.MULTILINE))
    found = set()
    for name in re.findall(r"tt\.assert .* loc\(#(loc\d*)\)", ttir):
        place = places[name]
        while (outer := re.search(r"#(loc\d*)", place)) and '":' not in place:
            place = places[outer.group(1)]
        at = re.search(r'"(.*)":(\d+)', place)
        assert at is not None, place
        found.add((Path(at[1]), int(at[2])))
    return found


def test_no_inline_assembly() -> None:
    """One source for all makers of GPUs."""
    folder = ROOT / "generated" / SPEC.header.package
    for path in folder.rglob("*.py"):
        assert "inline_asm" not in path.read_text("utf-8"), path
