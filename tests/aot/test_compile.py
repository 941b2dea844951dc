"""Every kernel in every form compiles ahead of time for every target and keeps to its registers; no GPU is needed."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

from kvcanary_gen.aot import DEFAULT_TARGETS, Report, Specialisation, compile_kernel, compile_one, parse_target
from kvcanary_gen.expr.phases import phases
from kvcanary_gen.specialisations import package_loader, specialisations
from tests.support.program import PROGRAM, ROOT

pytestmark = pytest.mark.aot

KERNELS = sorted(phase.name for kernel in PROGRAM.kernels.values() for phase in phases(kernel))


@cache
def jobs() -> list[Specialisation]:
    return specialisations(PROGRAM, package_loader(ROOT / "generated" / PROGRAM.header.package))


# Targets for which every form is compiled in each run; the others get all of theirs in the nightly one.
EVERY_FORM = ("sm_90", "gfx942")
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


@cache
def reports(kernel: str, target: str) -> list[Report]:
    """Reports of a kernel's forms; of a target beside the two, the leanest and the richest form."""
    forms = [job for job in jobs() if job.kernel == kernel]
    if target not in EVERY_FORM and not NIGHTLY:
        forms = [forms[0], forms[-1]]
    return [compile_one(job, target) for job in forms]


@pytest.mark.parametrize("target", DEFAULT_TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_spills(kernel: str, target: str) -> None:
    """No register goes to local memory, whichever optional tensors there are."""
    compiled = reports(kernel, target)
    assert compiled
    for report in compiled:
        assert (report.spills, report.local_accesses) == (0, 0), report
        assert report.registers > 0
        assert report.code_bytes > 0
        assert report.stores + report.atomics > 0, "a kernel that stores nothing"


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


def checked_files(ttir: str) -> set[Path]:
    """Files with arithmetic that is checked for overflow at run time."""
    places = dict(re.findall(r"^#(loc\d*) = loc\((.*)\)$", ttir, re.MULTILINE))
    found = set()
    for name in re.findall(r"tt\.assert .* loc\(#(loc\d*)\)", ttir):
        place = places[name]
        while (outer := re.search(r"#(loc\d*)", place)) and '":' not in place:
            place = places[outer.group(1)]
        found.add(Path(place.split('"')[1]))
    return found


def test_no_inline_assembly() -> None:
    """One source for all makers of GPUs."""
    folder = ROOT / "generated" / PROGRAM.header.package
    for path in folder.rglob("*.py"):
        assert "inline_asm" not in path.read_text("utf-8"), path
