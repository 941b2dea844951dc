"""What no kernel can undercut: bytes that must move, and the serial chain's cycles."""

from __future__ import annotations

from .cases import Shape

# splitmix64_mix3 of a token on the one before it: three rounds of multiplications and shifts, each on the last.
CHAIN_CYCLES = 157

TABLE_BYTES = 4
MAPPING_BYTES = 8
SLOT_BYTES = 32
PLAN_WRITTEN, PLAN_READ = 32, 24  # four numbers an entry; verify leaves expected tokens alone while it checks none
LENGTH_BYTES = 8
NEW_TOKEN_READ = 24  # token, position and slot
PARTIAL_BYTES = 16


def source_bytes(shape: Shape) -> int:
    """Real bytes that are hashed for one slot."""
    if shape.mode == "NONE":
        return 0
    return sum(min(read, PARTIAL_BYTES) if shape.mode == "PARTIAL" else read for _, read in shape.sources)


def moved_bytes(shape: Shape) -> dict[str, int]:
    """Bytes that each part must move, everything counted once however often it is read.

    A whole step needs no plan in memory: the table's entries lead to the slots.
    """
    table = shape.entries * (TABLE_BYTES + (MAPPING_BYTES if shape.window else 0))
    lengths = shape.bs * LENGTH_BYTES
    offsets = 2 * (shape.bs + 1) * LENGTH_BYTES  # write_offsets and the seeds
    slots = shape.entries * (SLOT_BYTES + source_bytes(shape))
    new = shape.tokens * (NEW_TOKEN_READ + SLOT_BYTES + source_bytes(shape))
    seeds = shape.bs * SLOT_BYTES if shape.prefix else 0
    plan = 3 * lengths + table + shape.entries * PLAN_WRITTEN + offsets
    verify = shape.entries * PLAN_READ + slots
    write = offsets + seeds + new
    return {
        "plan": plan,
        "verify": verify,
        "write": write,
        "plan_and_verify": 3 * lengths + table + slots,
        "step": 3 * lengths + table + slots + seeds + new,
    }


def floors_us(shape: Shape, copy_gb_per_s: float, sm_clock_ghz: float) -> dict[str, float]:
    """Microseconds below which no part can stay, at these speeds; a step's chain may run beside its loads."""
    floors = {part: count / copy_gb_per_s / 1e3 for part, count in moved_bytes(shape).items()}
    chain = shape.extend * CHAIN_CYCLES / sm_clock_ghz / 1e3
    return {part: max(floor, chain) if part in ("write", "step") else floor for part, floor in floors.items()}
