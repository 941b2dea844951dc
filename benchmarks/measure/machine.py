"""What the figures were measured on, and the two speeds that floors are made of: copying, and the SM's clock."""

from __future__ import annotations

import datetime
import platform
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from .timing import device_us

COPIED_BYTES = 1 << 30
ROOT = Path(__file__).resolve().parents[2]


@triton.jit(do_not_specialize=["steps"])
def clock_kernel(out_ptr, steps):
    """Cycles and nanoseconds of a chain of multiplications; each reading depends on what must come before it."""
    first = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    began = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    value = first ^ began
    for _ in range(steps):
        value = value * 6364136223846793005 + 1442695040888963407
    tl.store(out_ptr + 2, value)
    tl.debug_barrier()
    last = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,l", [value], dtype=tl.int64, is_pure=False, pack=1)
    ended = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,l", [value], dtype=tl.int64, is_pure=False, pack=1
    )
    tl.store(out_ptr, last - first)
    tl.store(out_ptr + 1, ended - began)


def sm_clock_ghz(steps: int = 400_000, rounds: int = 5) -> float:
    """The clock that one busy SM runs at, by its own counters. Raises what Triton raises where there are none."""
    out = torch.zeros(3, dtype=torch.int64, device="cuda")
    found = []
    for _ in range(rounds):
        clock_kernel[(1,)](out, steps, num_warps=1)
        cycles, nanoseconds, _ = out.tolist()
        found.append(cycles / nanoseconds)
    return statistics.median(found)


def copy_gb_per_s() -> float:
    """Gigabytes per second of a copy that no cache holds, bytes read and bytes written both counted."""
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    microseconds = device_us(copy, calls=2, replays=15)
    return 2 * COPIED_BYTES / microseconds / 1e3


def describe(device: str) -> dict[str, Any]:
    """Date, card, driver and versions, as they stand in a result."""
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": device,
        "card": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "driver": _driver() if device == "cuda" else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "revision": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
    }
    if device == "cuda":
        found["sms"] = torch.cuda.get_device_properties(0).multi_processor_count
    return found


def speeds() -> dict[str, float]:
    """The measured speeds, by the names that a result has for them."""
    return {"copy_gb_per_s": round(copy_gb_per_s(), 1), "sm_clock_ghz": round(sm_clock_ghz(), 4)}


def _driver() -> str | None:
    text = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return text.splitlines()[0].strip() if text else None


def _output(*command: str) -> str | None:
    """What a program prints, None where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None
