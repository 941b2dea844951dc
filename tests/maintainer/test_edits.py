"""Edits of the canary's own spec, made as its maintainer makes them: in YAML alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from kvcanary_gen.oracle.case import Case
from kvcanary_gen.surface import surfaces

from .agreement import agree, drawn, run
from .conftest import Inspect
from .workshop import REPOSITORY, Built, Workshop

# What the edits change; the other families have tests of their own.
SIDES = ("triton", "reference")
PLAN_KERNELS = ["plan_offsets", "plan_entries"]
PLAN = [*PLAN_KERNELS, "canary_plan"]
# Follows edits of the plan without any of its own, but for the arguments that it passes on.
FUSED = ["canary_plan_and_verify", "canary_plan_and_verify_endpoints"]
GOLDEN = REPOSITORY / "tests" / "golden" / "plan.json"
DTYPES = {"int32": torch.int32, "int64": torch.int64}


def plan_call(built: Built, *, requests: int = 2, width: int = 4, capacity: int = 8, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of a small valid plan; every request has `width` cached positions."""
    rows = torch.arange(1, requests + 1)
    call: dict[str, Any] = {
        "verify_plan_out": built.VerifyPlan.allocate(verify_capacity=capacity, device="cpu"),
        "write_plan_out": built.WritePlan.allocate(write_req_capacity=max(1, requests), device="cpu"),
        "req_pool_indices": rows,
        "prefix_lens": torch.full([requests], width),
        "extend_seq_lens": torch.ones(requests, dtype=torch.int64),
        "req_to_token": torch.arange((requests + 1) * width, dtype=torch.int32).reshape(-1, width),
        "swa_window_size": 0,
        "verify_capacity": capacity,
        "kv_token_id_vs_position_offset": 0,
    }
    return call | changes


def fails(built: Built, call: dict[str, Any]) -> set[tuple[str, str]]:
    """Ids and texts of what a plan raises on both paths, with the caller's name left out."""
    found = set()
    for suffix in ("", "_torch_reference"):
        launcher = getattr(built, f"launch_canary_plan_kernels{suffix}")
        with pytest.raises(built.CanaryError) as caught:
            launcher(**call)
        found.add((caught.value.id, str(caught.value).replace(suffix, "") if suffix else str(caught.value)))
    return found


def golden_answers(built: Built, names: dict[str, str]) -> None:
    """The plan's golden vectors, under other names of the verify plan's fields."""
    for case in json.loads(GOLDEN.read_text()):
        for side in SIDES:
            call = {k: _tensor(v) if isinstance(v, dict) else v for k, v in case["inputs"].items()}
            verify = built.VerifyPlan.allocate(verify_capacity=call["verify_capacity"], device="cpu")
            write = built.WritePlan.allocate(write_req_capacity=case["write_req_capacity"], device="cpu")
            fields = {n: getattr(p, n) for p in (verify, write) for n in p.__dataclass_fields__}
            for tensor in fields.values():
                tensor.fill_(-7777)
            built.launch_canary_plan_kernels(verify_plan_out=verify, write_plan_out=write, backend=side, **call)
            for name, value in case["outputs"].items():
                assert torch.equal(fields[names.get(name, name)], _tensor(value)), f"{case['name']} {side} {name}"


def _tensor(value: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(value["data"], dtype=DTYPES[value["dtype"]]).reshape(value["shape"])


def test_a_plan_field_is_renamed(workshop: Workshop, inspect: Inspect) -> None:
    workshop.rename("verify_slot_indices", "verify_slots")
    workshop.rename("out_verify_slot_indices", "out_verify_slots")
    built = workshop.build()
    assert not any("verify_slot_indices" in text for text in built.files.values())
    plan = built.VerifyPlan.allocate(verify_capacity=3, device="cpu")
    assert plan.verify_slots.shape == (3,)
    text = (
        "kv-canary: launch_canary_plan_kernels verify_capacity=9 does not match verify_plan_out.verify_slots.shape[0]=8"
    )
    assert fails(built, plan_call(built, verify_capacity=9)) == {("KVC-004", text)}
    golden_answers(built, {"verify_slot_indices": "verify_slots"})
    agree(built, PLAN, draws=6)
    inspect(built, kernels=PLAN_KERNELS)


def test_the_table_holds_int64(workshop: Workshop, inspect: Inspect) -> None:
    workshop.replace("type: int32[table_rows, table_width]", "type: int64[table_rows, table_width]")
    built = workshop.build()
    table = torch.arange(12).reshape(3, 4) + (1 << 33)
    for side in SIDES:
        call = plan_call(built, req_to_token=table)
        built.launch_canary_plan_kernels(**call, backend=side)
        assert torch.equal(call["verify_plan_out"].verify_slot_indices, table[1:].reshape(-1))
        assert call["write_plan_out"].write_seed_slot_indices.tolist() == [(1 << 33) + 7, (1 << 33) + 11]
    text = "kv-canary: req_to_token must have dtype torch.int64, got torch.int32"
    assert fails(built, plan_call(built)) == {("KVC-012", text)}
    agree(built, PLAN, draws=12)
    inspect(built, kernels=PLAN_KERNELS)


def test_a_plan_field_is_added(workshop: Workshop, inspect: Inspect) -> None:
    before = workshop.build()
    workshop.add_after(
        "doc: Slot of the position before it, -1 at the start of the chain.",
        "X",
    )
    workshop.replace(
        "        X\n",
        "      verify_req_indices:\n"
        "        type: int64[verify_capacity]\n"
        "        doc: Request of the entry.\n",
    )  # fmt: skip
    workshop.add_after(
        "out_verify_prev_slot_indices: {field: VerifyPlan.verify_prev_slot_indices}",
        "out_verify_req_indices: {field: VerifyPlan.verify_req_indices}",
    )
    workshop.add_after("- out_verify_prev_slot_indices", "- out_verify_req_indices")
    workshop.add_after("out_verify_expected_positions[i]: position", "out_verify_req_indices[i]: r")
    built = workshop.build()
    assert built.VerifyPlan.allocation_bytes(10) == before.VerifyPlan.allocation_bytes(10) + 80
    for side in SIDES:
        call = plan_call(built)
        built.launch_canary_plan_kernels(**call, backend=side)
        assert call["verify_plan_out"].verify_req_indices.tolist() == [0] * 4 + [1] * 4
    agree(built, PLAN, draws=12)
    inspect(built, kernels=PLAN_KERNELS)


def test_the_batch_limit_is_raised(workshop: Workshop, inspect: Inspect) -> None:
    workshop.replace("value: 4096\n", "value: 8192\n")
    workshop.replace("example: {bs: 4097}", "example: {bs: 8193}")
    built = workshop.build()
    large = plan_call(built, requests=8193, width=1, capacity=8193)
    ((id_, text),) = fails(built, large)
    assert id_ == "KVC-005"
    assert text.startswith(
        "kv-canary: launch_canary_plan_kernels supports at most bs=8192 reqs per launch, got bs=8193"
    )
    for side in SIDES:
        call = plan_call(built, requests=5000, width=2, capacity=10000)
        built.launch_canary_plan_kernels(**call, backend=side)
        assert call["verify_plan_out"].verify_num_valid.item() == 10000
        assert torch.equal(call["verify_plan_out"].verify_slot_indices, torch.arange(2, 10002))
    short = {**plan_call(built), "workspace": torch.empty(8192, dtype=torch.int64)}
    assert fails(built, short) == {("KVC-014", "kv-canary: workspace length must be at least 8193, got 8192")}
    inspect(built, kernels=PLAN_KERNELS)


def test_a_rule_is_added(workshop: Workshop, inspect: Inspect) -> None:
    workshop.write(
        "own.yaml",
        """\
invariants:
  OWN-001:
    rule: swa_window_size <= table_width
    operations: [plan_offsets, plan_entries]
    raises: ValueError
    message: "{op}: a window of {swa_window_size} is wider than the table's {table_width} columns (\\"{{wide}}\\")"
    example: {swa_window_size: 1000}
    meaning: The window is wider than the table.
    cause: The table belongs to another model.
    fix: Pass the table's width, or less.
""",
    )
    workshop.replace("- invariants.yaml", "- invariants.yaml\n  - own.yaml")
    built = workshop.build()
    mapping = torch.arange(100)
    call = plan_call(built, swa_window_size=5, full_to_swa_index_mapping=mapping)
    text = 'kv-canary: launch_canary_plan_kernels: a window of 5 is wider than the table\'s 4 columns ("{wide}")'
    assert fails(built, call) == {("OWN-001", text)}
    built.launch_canary_plan_kernels(**{**call, "swa_window_size": 4})
    for name in ("plan_offsets", "plan_entries"):
        launcher = surfaces(built.program)[name].launcher
        args = drawn(built, name, 1)[0].args | {"swa_window_size": 1 << 40}
        for side in SIDES:
            with pytest.raises(built.CanaryValueError, match=rf"{launcher}(_torch_reference)?: a window of") as caught:
                run(built, Case(name, args), side)
            assert caught.value.fix == "Pass the table's width, or less."
    inspect(built, kernels=PLAN_KERNELS)


DIGEST = """\
arguments:
  out_slots:
    type: int64[bs]
    doc: Slot of the last cached position of each request, -1 if it has none.

kernels:
  req_digest:
    doc: The slot at the end of every request's prefix.
    inputs: [req_pool_indices, prefix_lens, req_to_token, full_to_swa_index_mapping]
    outputs: [out_slots]
    domain: {index: r, count: bs}
    let:
      row: req_pool_indices[r]
      last: prefix_lens[r] - 1
    store:
      out_slots[r]: slot_at(row, last) if is_live(row) and last >= 0 else -1
"""


def test_a_kernel_is_added(workshop: Workshop, inspect: Inspect) -> None:
    workshop.write("kernels/req_digest.yaml", DIGEST)
    built = workshop.build()
    assert "launch_req_digest_kernel" in built.__all__
    out = torch.zeros(3, dtype=torch.int64)
    for side in SIDES:
        built.launch_req_digest_kernel(
            req_pool_indices=torch.tensor([2, 0, 1]),
            prefix_lens=torch.tensor([2, 2, 0]),
            req_to_token=torch.arange(9, dtype=torch.int32).reshape(3, 3),
            out_slots=out,
            backend=side,
        )
        assert out.tolist() == [7, -1, -1]
    agree(built, ["req_digest"], draws=30)
    inspect(built, kernels=["req_digest"])


def test_a_kernel_argument_is_renamed(workshop: Workshop, inspect: Inspect) -> None:
    workshop.rename("prefix_lens", "cached_lens")
    workshop.rename("bs", "num_reqs")
    built = workshop.build()
    call = plan_call(built)
    call["cached_lens"] = call.pop("prefix_lens")
    call["extend_seq_lens"] = torch.ones(3, dtype=torch.int64)
    assert fails(built, call) == {("KVC-014", "kv-canary: extend_seq_lens length must be 2, got 3")}
    agree(built, PLAN, draws=6)
    inspect(built, kernels=PLAN_KERNELS)


def test_an_optional_argument_is_removed(workshop: Workshop, inspect: Inspect) -> None:
    workshop.replace(
        "[row, token_column]\n"
        "        if row == given_row and 0 <= token_column < req_to_verify_expected_tokens_valid_lens[r] else -1)\n"
        "        if req_to_verify_expected_tokens is not None and"
        " req_to_verify_expected_tokens_valid_lens is not None else -1",
        "[row, token_column]\n"
        "        if row == given_row and token_column >= 0 else -1)\n"
        "        if req_to_verify_expected_tokens is not None else -1",
    )
    workshop.replace("      - req_to_verify_expected_tokens_valid_lens\n", "", times=4)
    workshop.remove_block("req_to_verify_expected_tokens_valid_lens:")
    workshop.remove_block("KVC-003:")
    built = workshop.build()
    with pytest.raises(TypeError, match="valid_lens"):
        built.launch_canary_plan_kernels(**plan_call(built), req_to_verify_expected_tokens_valid_lens=None)
    agree(built, PLAN, draws=12)
    agree(built, FUSED, draws=6)
    inspect(built, kernels=[*PLAN_KERNELS, "verify_planned", "plan_and_verify_alone"])


BLOCKS = """\
dims:
  num_blocks: Columns of the block table, one for `block_size` positions.

arguments:
  block_table:
    type: int32[table_rows, num_blocks]
    values: 0 .. 99
    doc: Block of every `block_size` positions of every request row.
  block_size:
    type: int64
    values: 1 .. 16
    doc: Positions in a block.
"""


def use_block_tables(workshop: Workshop) -> None:
    workshop.write("kernels/blocks.yaml", BLOCKS)
    workshop.replace(
        "value: translate(req_to_token[row, clamp(position, 0, table_width - 1)])",
        "let:\n"
        "      block: block_table[row, clamp(position // block_size, 0, num_blocks - 1)]\n"
        "    value: translate(block * block_size + position % block_size)",
    )
    workshop.remove_block("req_to_token:")
    workshop.replace("values: 0 .. table_width\n", "values: 0 .. num_blocks * block_size\n", times=2)
    workshop.replace("values: 0 .. 4 * table_width", "values: 0 .. 4 * num_blocks * block_size")
    workshop.remove_block("table_width:")
    workshop.rename("req_to_token", "block_table")
    workshop.replace("scalars: [swa_window_size, ", "scalars: [block_size, swa_window_size, ")
    workshop.replace("scalars: [kv_token_id", "scalars: [block_size, kv_token_id")
    workshop.replace("schedule: {block: 512, num_warps: 4}", "schedule: {block: 256, num_warps: 4}")
    workshop.replace(
        "      - kv_token_id_vs_position_offset\n",
        "      - kv_token_id_vs_position_offset\n      - block_size\n",
        times=3,
    )


def test_block_tables_instead_of_token_tables(workshop: Workshop, inspect: Inspect) -> None:
    use_block_tables(workshop)
    built = workshop.build()
    agree(built, PLAN, draws=30)
    agree(built, FUSED, draws=6)
    call = plan_call(built, block_table=torch.tensor([[0, 0], [3, 5], [4, 6]], dtype=torch.int32), block_size=3)
    del call["req_to_token"]
    for side in SIDES:
        built.launch_canary_plan_kernels(**call, backend=side)
        assert call["verify_plan_out"].verify_slot_indices.tolist() == [9, 10, 11, 15, 12, 13, 14, 18]
        assert call["verify_plan_out"].verify_prev_slot_indices.tolist() == [-1, 9, 10, 11, -1, 12, 13, 14]
    for size in (0, -4):
        ((id_, text),) = fails(built, call | {"block_size": size})
        assert (id_, text) == ("KVC-011", f"kv-canary: block_size must fit int64, at least 1, got {size}")
    inspect(built, kernels=PLAN_KERNELS)


def test_a_second_package_beside_the_first(workshop: Workshop, tmp_path: Any, inspect: Inspect) -> None:
    first = workshop.build()
    other = Workshop(tmp_path / "other")
    other.replace("package: kvcanary", "package: pagecanary")
    other.replace('message_prefix: "kv-canary: "', 'message_prefix: "page canary says: "')
    use_block_tables(other)
    second = other.build()
    assert second.folder.name == "pagecanary"
    assert all(name.startswith("pagecanary/") for name in second.files)
    assert second.CanaryError is not first.CanaryError
    with pytest.raises(second.CanaryValueError, match="page canary says: VerifyPlan verify_capacity must be positive"):
        second.VerifyPlan.allocate(verify_capacity=0, device="cpu")
    with pytest.raises(first.CanaryValueError, match="kv-canary: VerifyPlan verify_capacity must be positive"):
        first.VerifyPlan.allocate(verify_capacity=0, device="cpu")
    agree(first, PLAN, draws=4)
    agree(second, PLAN, draws=4)
    inspect(first, kernels=[])
    inspect(second, kernels=[])
