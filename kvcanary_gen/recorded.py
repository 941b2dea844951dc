"""What kernels cost in machine code, on record: a kernel may not come to spill, load or store more unnoticed.

A record holds, for some forms of kernels on some targets, static counts of instructions. They depend on Triton's
version and on what they were counted in, so loads and stores are compared between equals alone; spills always are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcanary_gen.aot import KNOWN_TARGETS, Report, Specialisation

Compiled = tuple[Specialisation, Report]
Forms = set[tuple[str, str, str]]  # kernel, form, target

_FIGURES = ("registers", "spills", "loads", "stores", "block", "threads")


class RecordError(ValueError):
    """A file that is no record."""


@dataclass(frozen=True)
class Gain:
    """A figure that grew: `what` is spills, loads or stores, the counts are a thread's."""

    kernel: str
    form: str
    target: str
    what: str
    recorded: int
    now: int
    # Entries that a thread of the form works on, on record and now.
    entries: tuple[float, float]

    def __str__(self) -> str:
        """One line with the form and the figures."""
        text = f"{self.kernel} ({self.form or 'its only form'}) for {self.target}: "
        if self.what == "spills":
            return text + f"spills {self.now} bytes a thread, {self.recorded} on record"
        text += f"{self.now} {self.what}, {self.recorded} on record"
        if self.entries[0] != self.entries[1]:
            before, after = self.recorded / self.entries[0], self.now / self.entries[1]
            text += f"; an entry {after:.2f} instead of {before:.2f}"
        return text


def form(job: Specialisation) -> str:
    """A form's name within its kernel: its constants, except what is left out, and block sizes that there is one of."""
    hidden = (
        {"SCAN", "OVERLAPS"}
        if job.sized
        else {"SCAN", "OVERLAPS", *(name for name in job.constants if "BLOCK" in name)}
    )
    shown = {n: v for n, v in job.constants.items() if v is not None and n not in hidden}
    return " ".join(f"{name}={value}" for name, value in shown.items())


def extremes(jobs: Iterable[Specialisation]) -> list[Specialisation]:
    """Of every kernel the leanest and the richest form."""
    kernels: dict[str, list[Specialisation]] = {}
    for job in jobs:
        kernels.setdefault(job.kernel, []).append(job)
    return [job for forms in kernels.values() for job in (forms[:1] if len(forms) == 1 else (forms[0], forms[-1]))]


# ---- making and reading a record -------------------------------------------------------------------------------------


def make(compiled: Iterable[Compiled], triton: str) -> str:
    """The text of a record: by kernel, form and target."""
    kernels: dict[str, dict[str, dict[str, Any]]] = {}
    for job, report in compiled:
        targets = kernels.setdefault(job.kernel, {}).setdefault(form(job), {})
        assert report.target not in targets, "two forms of one name"
        targets[report.target] = _figures(job, report)
    return json.dumps({"triton": triton, "kernels": kernels}, indent=1) + "\n"


def _figures(job: Specialisation, report: Report) -> dict[str, Any]:
    block, threads = _block(job, report.target)
    found = {name: getattr(report, name) for name in _FIGURES[:4]}
    return {**found, "block": block, "threads": threads, "counted_in": report.source}


def _block(job: Specialisation, target: str) -> tuple[int, int]:
    """Entries and threads of a program; a kernel without blocks has one thread for each entry."""
    threads = job.num_warps * KNOWN_TARGETS[target][2]
    block = job.constants.get("BLOCK")
    return (block if isinstance(block, int) else threads), threads


def read(path: Path) -> dict[str, Any]:
    """A record.

    Raises:
        RecordError: the file is none.
        OSError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        for *_, figures in _entries(found):
            if not all(isinstance(figures[name], int) for name in _FIGURES):
                raise TypeError
        if not isinstance(found["triton"], str):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RecordError(f"{path} is no record of kernels; `kvcanary-gen compile --record FILE` writes one") from None
    return dict(found)


def _entries(recorded: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for kernel, forms in recorded["kernels"].items():
        for name, targets in forms.items():
            for target, figures in targets.items():
                yield kernel, name, target, figures


def recorded_forms(recorded: dict[str, Any]) -> Forms:
    """Kernel, form and target of everything on record."""
    return {entry[:3] for entry in _entries(recorded)}


# ---- comparing -------------------------------------------------------------------------------------------------------


def strays(recorded: dict[str, Any], jobs: list[Specialisation]) -> list[str]:
    """Kernels of which nothing is on record, and recorded forms that no kernel has: a sentence for each."""
    there = {(job.kernel, form(job)) for job in jobs}
    known = dict.fromkeys(entry[:2] for entry in _entries(recorded))
    kernels = {kernel for kernel, _ in known}
    found = [f"nothing is on record of {name}" for name in dict.fromkeys(j.kernel for j in jobs) if name not in kernels]
    gone = [(kernel, name) for kernel, name in known if (kernel, name) not in there]
    return found + [f"{kernel} has no form {name or 'without constants'} any more" for kernel, name in gone]


def comparable(recorded: dict[str, Any], report: Report, triton: str) -> bool:
    """Whether counts of loads and stores mean the same in both."""
    targets = (figures for _, _, target, figures in _entries(recorded) if target == report.target)
    return recorded["triton"] == triton and any(figures["counted_in"] == report.source for figures in targets)


def gains(recorded: dict[str, Any], compiled: Iterable[Compiled], triton: str) -> list[Gain]:
    """What grew, of all that is on record; forms that are not are passed over."""
    found = []
    for job, report in compiled:
        figures = recorded["kernels"].get(job.kernel, {}).get(form(job), {}).get(report.target)
        if figures is not None:
            compared = ["spills", *(["loads", "stores"] if comparable(recorded, report, triton) else [])]
            found += [gain for what in compared if (gain := _gain(figures, job, report, what)) is not None]
    return found


def _gain(figures: dict[str, Any], job: Specialisation, report: Report, what: str) -> Gain | None:
    """A thread of a larger block may do more, so loads and stores count for each entry."""
    block, threads = _block(job, report.target)
    now, before = getattr(report, what), figures[what]
    grew = now > before if what == "spills" else now * threads * figures["block"] > before * figures["threads"] * block
    if not grew:
        return None
    entries = (figures["block"] / figures["threads"], block / threads)
    return Gain(job.kernel, form(job), report.target, what, before, now, entries)
