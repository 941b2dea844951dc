"""A canary that knows whose slot it is, from YAML alone: a field, its check, its place in rows and chain, its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kvcanary_gen.commands.common import load
from kvcanary_gen.lint import warnings
from kvcanary_gen.tree import build_tree

from .agreement import agree
from .conftest import Inspect
from .workshop import Built, Workshop

SIDES = ("triton", "reference")
SLOTS, LENGTH = 16, 5


@pytest.fixture
def owned(workshop: Workshop) -> Workshop:
    layouts(workshop)
    plan(workshop)
    verify(workshop)
    write(workshop)
    return workshop


def layouts(workshop: Workshop) -> None:
    workshop.add_after(
        'real_kv_hash: {type: uint64, doc: "Hash of the slot\'s real KV bytes, 0 where none are hashed."}',
        "owner: {type: int64, doc: Request that wrote the slot.}",
    )
    workshop.add_after(
        "fail_reason_bits: {type: int64, doc: Reasons as bits of FailReason.}",
        "expected_owner: {type: int64, doc: Request that the slot should belong to., unknown: -1}",
    )
    workshop.replace(
        "      WRITE_SLOT_COLLISION:\n        value: 8\n",
        "      VERIFY_OWNER_MISMATCH: {value: 9, doc: The slot belongs to another request.}\n"
        "      WRITE_SLOT_COLLISION:\n        value: 8\n",
    )


def plan(workshop: Workshop) -> None:
    workshop.replace(
        "      verify_num_valid:\n        type: int32[1]\n        doc: Entries",
        "      verify_expected_owners:\n        type: int64[verify_capacity]\n"
        "        doc: Request that the slot should belong to.\n"
        "      verify_num_valid:\n        type: int32[1]\n        doc: Entries",
    )
    workshop.add_after(
        "out_verify_prev_slot_indices: {field: VerifyPlan.verify_prev_slot_indices}",
        "out_verify_expected_owners: {field: VerifyPlan.verify_expected_owners}",
        "request_owners:",
        "  type: int64[bs]",
        "  values: 0 .. 9",
        "  doc: Owner of each request.",
    )
    workshop.replace(
        "      - out_verify_prev_slot_indices\n    scalars",
        "      - out_verify_prev_slot_indices\n      - out_verify_expected_owners\n    scalars",
    )
    workshop.replace(
        "    inputs:\n      - req_pool_indices\n      - prefix_lens\n      - req_to_token\n",
        "    inputs:\n      - req_pool_indices\n      - request_owners\n      - prefix_lens\n      - req_to_token\n",
    )
    workshop.add_after(
        "out_verify_prev_slot_indices[i]: slot_at(row, position - 1) if position > 0 else -1",
        "out_verify_expected_owners[i]: request_owners[r]",
    )
    workshop.replace(
        "    arguments:\n      - req_pool_indices\n      - prefix_lens\n",
        "    arguments:\n      - req_pool_indices\n      - request_owners\n      - prefix_lens\n",
        times=3,
    )


def verify(workshop: Workshop) -> None:
    workshop.add_after(
        "verify_prev_slot_indices: {field: VerifyPlan.verify_prev_slot_indices, values: -1 .. num_slots - 1}",
        "verify_expected_owners: {field: VerifyPlan.verify_expected_owners, values: 0 .. 9}",
    )
    workshop.replace(
        "      - verify_prev_slot_indices\n      - verify_num_valid\n",
        "      - verify_prev_slot_indices\n      - verify_expected_owners\n      - verify_num_valid\n",
    )
    workshop.add_after("expected_position: verify_expected_positions[i]", "expected_owner: verify_expected_owners[i]")
    workshop.add_after(
        "VERIFY_POSITION_MISMATCH: {fails: stored.position != expected_position}",
        "VERIFY_OWNER_MISMATCH: {fails: stored.owner != expected_owner}",
    )
    workshop.add_after("expected_aux: expected_link", "expected_owner: expected_owner")
    workshop.replace(
        "          stored_token: 0\n          expected_token: expected_token\n",
        "          stored_token: 0\n          expected_owner: expected_owner\n"
        "          expected_token: expected_token\n",
    )


def write(workshop: Workshop) -> None:
    workshop.replace(
        "  input_ids:\n    type: int64[num_new_tokens]\n",
        "  write_owners:\n    type: int64[write_req_capacity]\n    values: 0 .. 9\n    doc: Owner of each request.\n"
        "  input_ids:\n    type: int64[num_new_tokens]\n",
    )
    workshop.replace(
        "      - write_num_valid_reqs\n      - input_ids\n",
        "      - write_num_valid_reqs\n      - write_owners\n      - input_ids\n",
    )
    inputs = "    arguments:\n      - {}input_ids\n"
    workshop.replace(inputs.format(""), inputs.format("write_owners\n      - "), times=2)
    workshop.add_after("canary_buf[slot].real_kv_hash: bytes_hash", "canary_buf[slot].owner: write_owners[r]")
    # Whoever wrote a slot goes into the chain, too.
    workshop.replace(
        "next: splitmix64_mix3(prev_hash, u64(token), u64(position))",
        "next: splitmix64(splitmix64_mix3(prev_hash, u64(token), u64(position)) ^ u64(write_owners[r]))",
    )
    workshop.replace(
        "splitmix64_mix3(canary_buf[slot].prev_hash, u64(canary_buf[slot].token), u64(canary_buf[slot].position))",
        "splitmix64(splitmix64_mix3(canary_buf[slot].prev_hash, u64(canary_buf[slot].token), "
        "u64(canary_buf[slot].position)) ^ u64(canary_buf[slot].owner))",
    )
    workshop.replace("            expected_aux: 0\n", "            expected_aux: 0\n            expected_owner: -1\n")
    workshop.replace(
        "          expected_token: token\n          stored_chain_hash: 0\n          expected_aux: 0\n",
        "          expected_token: token\n          stored_chain_hash: 0\n          expected_aux: 0\n"
        "          expected_owner: write_owners[r]\n",
    )
    for last in ("u64(expected_position)", "u64(previous_position + 1)", "prev_hash"):
        workshop.add_after(f"expected_aux: {last}", "expected_owner: write_owners[r]")


def test_owner(owned: Workshop, inspect: Inspect) -> None:
    built = owned.build()
    assert (built.SLOT_BYTES, built.VIOLATION_NUM_FIELDS) == (40, 9)
    agree(built, ["plan_entries", "canary_plan", "canary_verify", "canary_plan_and_verify", "canary_write"])
    several = ["canary_verify_endpoints", "canary_write_endpoints", "canary_plan_and_verify_endpoints"]
    agree(built, several, draws=4)
    for side in SIDES:
        tells_whose_slot_it_is(built, side)
    shows_everywhere(built.spec)
    kernels = ["plan_entries", "verify_entries", "verify_planned", "write_entries", "verify_entries_of_many"]
    kernels += ["plan_and_verify_alone", "plan_and_verify_alone_of_many"]
    inspect(built, kernels=kernels)


def shows_everywhere(spec: Path) -> None:
    program, document = load(spec)
    assert not warnings(program, document).found
    files = build_tree(program, document)
    for path, words in {
        "include/kvcanary.h": ["int64_t owner;", "VERIFY_OWNER_MISMATCH", "int64_t expected_owner;"],
        "docs/layouts.md": [
            "`CANARY_FIELD_OWNER`",
            "`VIOLATION_FIELD_EXPECTED_OWNER`",
            "`VERIFY_OWNER_MISMATCH`",
            "`verify_expected_owners`",
        ],
        "docs/ops/canary_write.md": ["`write_owners`"],
        "docs/ops/canary_plan.md": ["`request_owners`"],
        "docs/ops/canary_plan_and_verify.md": ["`request_owners`"],
        "kvcanary/violations.py": ["expected_owner: int"],
    }.items():
        for word in words:
            assert word in files[path], f"{word} in {path}"


def tells_whose_slot_it_is(built: Built, side: str) -> None:
    """What request 3 wrote verifies for request 3, and not for request 4."""
    context = a_context(built)
    table = torch.tensor([[0] * LENGTH, [7, 2, 9, 4, 1]], dtype=torch.int32)
    written = built.WritePlan.allocate(write_req_capacity=1, device="cpu")
    planned = built.VerifyPlan.allocate(verify_capacity=LENGTH, device="cpu")

    def batch(owner: int, prefix: int, extend: int) -> dict[str, object]:
        return {
            "write_plan_out": written,
            "req_pool_indices": torch.tensor([1]),
            "request_owners": torch.tensor([owner]),
            "prefix_lens": torch.tensor([prefix]),
            "extend_seq_lens": torch.tensor([extend]),
            "req_to_token": table,
            "swa_window_size": 0,
            "full_to_swa_index_mapping": None,
            "verify_capacity": LENGTH,
            "kv_token_id_vs_position_offset": 0,
            "backend": side,
        }

    def apart(owner: int) -> list[object]:
        """What a plan that is stored finds."""
        context.violation_write_index.zero_()
        built.launch_canary_plan_kernels(verify_plan_out=planned, **batch(owner, LENGTH, 0))
        built.launch_canary_verify_kernel(
            context=context, plan=planned, check_verify_expected_token=False, backend=side
        )
        return built.decode_violations(context.violation_ring, context.violation_write_index)

    def at_once(owner: int) -> list[object]:
        """The same without one; the fusion has taken up the field by itself."""
        context.violation_write_index.zero_()
        built.launch_canary_plan_and_verify_kernels(
            context=context, check_verify_expected_token=False, **batch(owner, LENGTH, 0)
        )
        return built.decode_violations(context.violation_ring, context.violation_write_index)

    built.launch_canary_plan_kernels(verify_plan_out=planned, **batch(3, 0, LENGTH))
    built.launch_canary_write_kernel(
        context=context,
        plan=written,
        write_owners=torch.tensor([3]),
        input_ids=torch.arange(LENGTH) + 50,
        positions=torch.arange(LENGTH),
        out_cache_loc=table[1].long(),
        enable_write_input_assert=False,
        backend=side,
    )
    for violations in (apart, at_once):
        assert violations(3) == []
        found = violations(4)
        assert {row.reason_names for row in found} == {("VERIFY_OWNER_MISMATCH",)}  # type: ignore[attr-defined]
        assert {row.expected_owner for row in found} == {4}  # type: ignore[attr-defined]
        assert sorted(row.slot_idx for row in found) == [1, 2, 4, 7, 9]  # type: ignore[attr-defined]


def a_context(built: Built) -> Any:
    def one(dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(1, dtype=dtype)

    return built.VerifyOrWriteContext(
        canary_buf=torch.zeros(SLOTS, 40, dtype=torch.uint8),
        kernel_kind=int(built.CanaryLaunchTag.HEAD_K_FULL),
        violation_ring=torch.zeros(32, built.VIOLATION_NUM_FIELDS, dtype=torch.int64),
        violation_write_index=one(torch.int32),
        slot_run_counter=one(),
        kernel_run_counter=one(),
        real_kv_sources=(),
        real_kv_hash_mode=built.RealKvHashMode.NONE,
        enable_chain_position_assert=one(torch.int32),
    )
