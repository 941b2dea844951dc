# Written by kvcanary-gen from the spec; edit that instead.
"""`python -m kvcanary selftest`: whether the canary of this installation sees what it should."""

from __future__ import annotations

import argparse
import logging
import sys

import torch

from ..fault_kinds import FAULTS
from ..records import ViolationRecord
from ..selftest import FaultResult, Selftest, SelftestResult

SUMMARY = "run a miniature engine without faults and with every kind of fault, and say what the canary saw"

_BAR = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--steps", type=_count, default=200, help="steps without faults (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="requests, slots and faults (%(default)s)")
    parser.add_argument("--log", action="store_true", help="log every fault and every violation to stderr")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="this kind alone; may be repeated")
    parser.add_argument("--per-fault", type=_count, default=3, help="faults of each kind (%(default)s)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an int of at least 1, got {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0 where everything was seen and nothing reported in vain, else 1."""
    _listen(arguments.log)
    # The tensors are small: more threads than one are in each other's way.
    torch.set_num_threads(1)
    bar = ProgressBar()
    test = Selftest(
        device=arguments.device,
        steps=arguments.steps,
        seed=arguments.seed,
        per_fault=arguments.per_fault,
        progress=bar.show,
    )
    try:
        result = test.run(arguments.fault or list(FAULTS))
    finally:
        bar.clear()
    print(report(result))
    return 0 if result.passed else 1


def _listen(log: bool) -> None:
    """What is planted is reported as violations are: on stderr where it is asked for, else nowhere."""
    logger = logging.getLogger("kvcanary")
    if log:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    elif not logger.hasHandlers():
        logger.addHandler(logging.NullHandler())


def report(result: SelftestResult) -> str:
    """The result as a table, and what went wrong below it."""
    done = ", ".join(f"{count} {name}" for name, count in result.counts.items() if count)
    lines = [f"{result.clean_steps} clean steps ({done}): {len(result.clean_alarms)} false alarms", ""]
    rows = [("fault", "injected", "detected", "latency in steps", "reasons"), *map(_row, result.faults)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for name, *numbers, reasons in rows:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *cells, reasons]).rstrip())
    problems = [f"false alarm in a clean step: {_brief(record)}" for record in result.clean_alarms]
    for each in result.faults:
        problems += _problems(each)
    return "\n".join([*lines, "", *problems, "passed" if result.passed else "FAILED"])


def _row(result: FaultResult) -> tuple[str, str, str, str, str]:
    slow = result.latencies
    latency = "-" if not slow else str(slow[0]) if slow[0] == slow[-1] else f"{slow[0]} to {slow[-1]}"
    return result.fault, str(result.injected), str(result.detected), latency, " ".join(result.reasons)


def _problems(result: FaultResult) -> list[str]:
    found = []
    if not result.injected:
        found.append(f"{result.fault}: no occasion to plant it")
    for injection in result.injections:
        if injection.state == "missed":
            where = f"{result.fault} in step {injection.step} ({injection.planted.detail})"
            found.append(f"{where}: not reported: {' '.join(map(str, injection.missing))}")
    found += [f"{result.fault}: false alarm: {_brief(record)}" for record in result.false_alarms]
    return found


def _brief(record: ViolationRecord) -> str:
    return f"step {record.step}, {record.forward}, {record.kind} slot {record.slot} {'+'.join(record.reasons)}"


class ProgressBar:
    """Says on stderr what is done: a bar on a terminal, a line for each part elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._part = ""

    def show(self, what: str, done: int, total: int) -> None:
        """One step further."""
        if self._terminal:
            filled = _BAR * min(done, total) // total
            sys.stderr.write(f"\r\x1b[K[{'#' * filled}{'.' * (_BAR - filled)}] {what} {done}/{total}")
        elif what != self._part:
            sys.stderr.write(f"selftest: {what}\n")
        sys.stderr.flush()
        self._part = what

    def clear(self) -> None:
        """Leaves the line to what is printed next."""
        if self._terminal and self._part:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
