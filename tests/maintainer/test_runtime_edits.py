"""The self-test follows the spec: another half, another stage, and nobody edits Python."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .quality import looks_written_by_hand, stands_alone
from .workshop import Built, Workshop

# A run of the package's own command, in a process that knows no other package.
_RUN = """
import argparse, sys
sys.path.insert(0, sys.argv[1])
from kvcanary.runtime.commands import selftest
parser = argparse.ArgumentParser()
selftest.add_arguments(parser)
sys.exit(selftest.run(parser.parse_args(sys.argv[2:])))
"""


def selftest(built: Built, *arguments: str) -> str:
    """What the self-test of a package prints with its log; it must pass."""
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(built.folder.parent), "--log", *arguments],
        env=environment,
        cwd=built.folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def expects(text: str, fault: str) -> set[str]:
    """Endpoints that must report a fault, from the lines that say what was planted."""
    lines = [line for line in text.splitlines() if line.startswith(f"kv-canary injected fault={fault} ")]
    return {report.split(":")[0] for line in lines for report in line.split("expects=")[1].split(",")}


@pytest.mark.slow
def test_a_third_half_is_tested_too(workshop: Workshop) -> None:
    workshop.add_after("V: {doc: Values.}", "INDEX: {doc: Keys of an indexer.}")
    stages, groups = ("HEAD", "TAIL", "SWEEP"), ("FULL", "SWA")
    workshop.add_after("- SWEEP_V_SWA", *(f"- {stage}_INDEX_{group}" for group in groups for stage in stages))
    built = workshop.build()
    stands_alone(built)
    looks_written_by_hand(built)
    faults = ["next_tokens_swapped", "unused_byte_flipped_before", "byte_flipped_after"]
    text = selftest(built, "--steps", "6", "--per-fault", "2", *(f"--fault={fault}" for fault in faults))
    assert {"HEAD_INDEX_FULL", "TAIL_INDEX_FULL", "HEAD_K_FULL"} <= expects(text, "next_tokens_swapped")


HEAD = (
    "HEAD: {when: before, operations: [verify, write], buffer: HEAD, real_kv: false, doc: Before the model's forward.}"
)
# Looks at TAIL's fingerprints before the model runs, or keeps some of its own behind it.
BEFORE = "MIDDLE: {when: before, operations: [verify], buffer: TAIL, real_kv: true, doc: Just before the forward.}"
AFTER = (
    "MIDDLE: {when: after, operations: [verify, write], buffer: MIDDLE, real_kv: true, doc: Just after the forward.}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "before", "after"), [(BEFORE, {"MIDDLE", "TAIL"}, {"TAIL"}), (AFTER, *[{"MIDDLE", "TAIL"}] * 2)]
)
def test_another_stage_must_see_what_it_can(workshop: Workshop, stage: str, before: set[str], after: set[str]) -> None:
    workshop.add_after(HEAD, stage)
    workshop.add_after("- SWEEP_V_SWA", *(f"- MIDDLE_{half}_{group}" for group in ("FULL", "SWA") for half in "KV"))
    built = workshop.build()
    stands_alone(built)
    looks_written_by_hand(built)
    faults = ["byte_flipped_before", "byte_flipped_after", "slot_freed_and_reused"]
    text = selftest(built, "--steps", "6", "--per-fault", "1", *(f"--fault={fault}" for fault in faults))
    for fault, want in zip(faults, (before, after, {"HEAD", "MIDDLE", "TAIL"}), strict=True):
        assert {name.split("_")[0] for name in expects(text, fault)} == want, fault
