"""Correctness, before anything is timed: a case whose results are wrong has no speed."""

from __future__ import annotations

from typing import Any

import torch

import kvcanary

from .cases import Work

# Slots with a planted fault, one for each field of the record.
FAULTS = kvcanary.SLOT_NUM_FIELDS
CHAIN_TOKENS = 64


class WrongResult(AssertionError):
    """A function left something else than it must have."""


def check(work: Work, *, against_reference: bool) -> int:
    """Runs the case's step on copies and judges all that it left; the work itself stays as it was.

    A clean step reports nothing; planted faults are reported in full; the chain is as Python's integers have it.

    Args:
        against_reference: also compare everything, byte for byte, with the torch references. Rows of the ring may
            come in any order.

    Returns:
        How many comparisons were made.

    Raises:
        WrongResult: naming the case, the function, and the tensor that differs.
    """
    made = _clean_step(work) + _faults(work) + _chain(work)
    return made + (_same_as_reference(work) if against_reference else 0)


def _expect(work: Work, what: str, have: Any, want: Any) -> int:
    if have != want:
        raise WrongResult(f"{work.shape.name}: {what} is {have}, must be {want}")
    return 1


def _clean_step(work: Work) -> int:
    done = work.twin(reference=work.reference)
    before = int(done.context.slot_run_counter)
    runs = int(done.context.kernel_run_counter)
    done.step_apart()
    made = _expect(work, "plan: verify_num_valid", int(done.verify_plan.verify_num_valid), work.shape.entries)
    made += _expect(work, "plan: enable", int(done.verify_plan.enable), 1)
    made += _expect(work, "violations of a clean step", int(done.context.violation_write_index), 0)
    counted = int(done.context.slot_run_counter) - before
    made += _expect(work, "slots checked and stored", counted, work.shape.entries + work.shape.tokens)
    made += _expect(work, "kernel_run_counter's growth", int(done.context.kernel_run_counter) - runs, 2)
    done.verify()
    return made + _expect(work, "violations after the write", int(done.context.violation_write_index), 0)


def _spoil(work: Work) -> set[int]:
    """Flips a bit in a few planned slots, each in another field; returns the slots that verify must report.

    A token, a position and a link are part of what the successor's link is made of. A token is no fault by itself
    while tokens are not checked.
    """
    slots = work.verify_plan.verify_slot_indices[: work.shape.entries].tolist()
    record = work.context.canary_buf.view(torch.int64)
    found = set()
    for field, index in enumerate(range(0, len(slots), max(1, len(slots) // FAULTS))[:FAULTS]):
        record[slots[index], field] ^= 1
        if field != kvcanary.CANARY_FIELD_TOKEN:
            found.add(slots[index])
        has_next = (index + 1) % (work.shape.entries // work.shape.bs) != 0
        if field != kvcanary.CANARY_FIELD_REAL_KV_HASH and has_next:
            found.add(slots[index + 1])
    return found


def _faults(work: Work) -> int:
    if not work.shape.entries:
        return 0
    bad = work.twin(reference=work.reference)
    bad.plan()
    wanted = _spoil(bad)
    bad.verify()
    rows = bad.context.violation_ring[: int(bad.context.violation_write_index)].tolist()
    reported = {row[kvcanary.VIOLATION_FIELD_SLOT_IDX] for row in rows}
    return _expect(work, "slots reported for planted faults", sorted(reported), sorted(wanted))


def _chain(work: Work) -> int:
    """The first request's new records, by Python's integers."""
    done = work.twin(reference=work.reference)
    done.step()
    record = done.context.canary_buf.view(torch.int64)
    seed = int(done.write_plan.write_seed_slot_indices[0])
    link = kvcanary.splitmix64(kvcanary.CANARY_CHAIN_ANCHOR)
    if seed >= 0:
        token, position, before = (value & _MASK for value in record[seed, :3].tolist())
        link = kvcanary.splitmix64_mix3(before, token, position)
    for index in range(min(work.shape.extend, CHAIN_TOKENS)):
        slot, token, position = (int(done.write_args[n][index]) for n in ("out_cache_loc", "input_ids", "positions"))
        have = [value & _MASK for value in record[slot, :3].tolist()]
        _expect(work, f"write: the record of new token {index}", have, [token, position, link])
        link = kvcanary.splitmix64_mix3(link, token, position)
    return 1


_MASK = (1 << 64) - 1


def _same_as_reference(work: Work) -> int:
    """Plan, a verify that finds faults, and write, on both sides."""
    sides = [work.twin(reference=False), work.twin(reference=True)]
    made = 0
    for side in sides:
        _poison(side)
        side.plan()
    for name in ("verify_plan", "write_plan"):
        made += _equal_structs(work, f"plan: {name}", *(getattr(side, name) for side in sides))
    for side in sides:
        if work.shape.entries:
            _spoil(side)
        side.verify()
    made += _equal_contexts(work, "verify", *(side.context for side in sides))
    fused = work.twin(reference=False)
    fused.plan()
    if work.shape.entries:
        _spoil(fused)
    fused.plan_and_verify()
    made += _equal_contexts(work, "plan and verify in one go", fused.context, sides[1].context)
    for side in sides:
        side.write()
    return made + _equal_contexts(work, "write", *(side.context for side in sides))


def _poison(side: Work) -> None:
    for plan in (side.verify_plan, side.write_plan):
        for name in plan.__slots__:
            getattr(plan, name).fill_(-7777)


def _equal_structs(work: Work, what: str, have: Any, want: Any, but: tuple[str, ...] = ()) -> int:
    names = [name for name in have.__slots__ if isinstance(getattr(have, name), torch.Tensor) and name not in but]
    for name in names:
        if not torch.equal(getattr(have, name), getattr(want, name)):
            raise WrongResult(f"{work.shape.name}: {what}.{name} differs from the reference's")
    return len(names)


def _equal_contexts(work: Work, what: str, have: Any, want: Any) -> int:
    made = _equal_structs(work, f"{what}: context", have, want, but=("violation_ring",))
    rows = [sorted(context.violation_ring.tolist()) for context in (have, want)]
    if rows[0] != rows[1]:
        raise WrongResult(f"{work.shape.name}: {what}: the rows of context.violation_ring differ from the reference's")
    return made + 1
