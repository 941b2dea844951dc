"""A canary around the miniature engine, by the public kernel API alone: what a runtime does, without its comforts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import kvcanary
from kvcanary import CanaryLaunchTag, RealKvHashMode, RealKvSource, Violation
from kvcanary.runtime.engine import Engine
from kvcanary.runtime.requests import Batch
from kvcanary.runtime.toy_model import HALVES

GROUPS = ("FULL", "SWA")
STAGES = ("HEAD", "TAIL")
VERIFY_CAPACITY = 512
# The two modes that read bytes, and sources that leave the end of each token's bytes out.
MODES = {"K": RealKvHashMode.ALL, "V": RealKvHashMode.PARTIAL}
UNDECLARED_BYTES = 16
# Small enough that requests get in each other's way.
BUSY: dict[str, Any] = {"full_pages": 40, "swa_pages": 22, "preempt_every": 17}
RING = 8192


@dataclass(frozen=True)
class Endpoint:
    """One launch tag with its buffer; SWEEP has TAIL's."""

    tag: CanaryLaunchTag
    context: kvcanary.VerifyOrWriteContext

    @property
    def name(self) -> tuple[str, str, str]:
        return self.tag.stage, self.tag.half, self.tag.group


class Canary:
    """Buffers, plans and endpoints for every stage, half and group.

    Args:
        modes: how much real KV the endpoints of each half hash.
        backend: 'reference' or 'triton'.
        tags: the endpoints; all of HEAD and TAIL if None.
    """

    def __init__(
        self,
        engine: Engine,
        modes: dict[str, RealKvHashMode],
        backend: str,
        tags: tuple[CanaryLaunchTag, ...] | None = None,
    ) -> None:
        self.engine, self.modes, self.backend = engine, modes, backend
        config = engine.config
        self.slots = {"FULL": config.full_pages * config.page_size, "SWA": config.swa_pages * config.page_size}
        self.ring = torch.zeros([RING, kvcanary.VIOLATION_NUM_FIELDS], dtype=torch.int64)
        self.write_index = torch.zeros(1, dtype=torch.int32)
        self.buffers = {
            (stage, half, group): torch.zeros([self.slots[group], kvcanary.SLOT_BYTES], dtype=torch.uint8)
            for stage in STAGES
            for half in HALVES
            for group in GROUPS
        }
        self.endpoints = [self._endpoint(tag) for tag in CanaryLaunchTag if tags is None or tag in tags]
        bs = config.rows
        self.verify_plans = {
            group: kvcanary.VerifyPlan.allocate(verify_capacity=VERIFY_CAPACITY, device="cpu") for group in GROUPS
        }
        self.write_plans = {group: kvcanary.WritePlan.allocate(write_req_capacity=bs, device="cpu") for group in GROUPS}
        self.history = torch.zeros([config.rows, config.max_context], dtype=torch.int32)

    def _endpoint(self, tag: CanaryLaunchTag) -> Endpoint:
        buffer = self.buffers["HEAD" if tag.stage == "HEAD" else "TAIL", tag.half, tag.group]
        context = kvcanary.VerifyOrWriteContext(
            canary_buf=buffer,
            kernel_kind=tag,
            violation_ring=self.ring,
            violation_write_index=self.write_index,
            slot_run_counter=torch.zeros(1, dtype=torch.int64),
            kernel_run_counter=torch.zeros(1, dtype=torch.int64),
            real_kv_sources=() if tag.stage == "HEAD" else self.sources(tag.half, tag.group),
            real_kv_hash_mode=self.modes[tag.half],
            enable_chain_position_assert=torch.ones(1, dtype=torch.int32),
        )
        return Endpoint(tag, context)

    def sources(self, half: str, group: str) -> tuple[RealKvSource, ...]:
        """Every layer of a group; the last bytes of each token are none of theirs."""
        config = self.engine.config
        sizes = (config.page_size, config.bytes_per_token, config.bytes_per_token - UNDECLARED_BYTES)
        return tuple(RealKvSource(layer.kv[half], *sizes) for layer in self.engine.layers(group))

    # --- around a forward ---------------------------------------------------------------------------------------------

    def copy(self, batch: Batch) -> None:
        """Fingerprints go where their slots go."""
        copies = batch.copies
        places = {
            "FULL": (copies.sources, copies.targets),
            "SWA": (copies.swa_sources, copies.swa_targets),
        }
        for (_, _, group), buffer in self.buffers.items():
            sources, targets = places[group]
            if sources:
                buffer[targets] = buffer[sources]

    def plan(self, batch: Batch, histories: list[list[int]]) -> None:
        """One plan for each group; what the requests should hold goes to the expected-token pool first."""
        rows = batch.req_pool_indices
        lens = [len(history) for history in histories] + [0] * (len(rows) - len(histories))
        kvcanary.launch_scatter_req_token_ids_kernel(
            flat_in=torch.tensor([token for history in histories for token in history], dtype=torch.int64),
            offsets=torch.tensor([sum(lens[:r]) for r in range(len(lens) + 1)], dtype=torch.int64),
            req_pool_indices=rows,
            pool_out=self.history,
            backend=self.backend,
        )
        for group in GROUPS:
            kvcanary.launch_canary_plan_kernels(
                verify_plan_out=self.verify_plans[group],
                write_plan_out=self.write_plans[group],
                req_pool_indices=rows,
                prefix_lens=batch.prefix_lens,
                extend_seq_lens=batch.extend_seq_lens,
                req_to_token=self.engine.req_to_token,
                swa_window_size=self.engine.config.window if group == "SWA" else 0,
                full_to_swa_index_mapping=self.engine.pools.mapping if group == "SWA" else None,
                verify_capacity=VERIFY_CAPACITY,
                req_to_verify_expected_tokens=self.history,
                req_to_verify_expected_tokens_valid_lens=torch.tensor(lens, dtype=torch.int64),
                kv_token_id_vs_position_offset=0,
                backend=self.backend,
            )

    def stage(self, stage: str, batch: Batch) -> None:
        """Verifies what is cached, then writes what is new."""
        for endpoint in self.endpoints:
            if endpoint.tag.stage != stage:
                continue
            group = endpoint.tag.group
            kvcanary.launch_canary_verify_kernel(
                context=endpoint.context,
                plan=self.verify_plans[group],
                check_verify_expected_token=True,
                backend=self.backend,
            )
            slots = batch.out_cache_loc
            mapping = self.engine.pools.mapping
            if group == "SWA" and mapping is not None:
                inside = slots.clamp(0, len(mapping) - 1)
                slots = torch.where(slots >= 0, mapping[inside], slots)
            kvcanary.launch_canary_write_kernel(
                context=endpoint.context,
                plan=self.write_plans[group],
                input_ids=batch.input_ids,
                positions=batch.positions,
                out_cache_loc=slots,
                enable_write_input_assert=True,
                expected_input_tokens=batch.expected_tokens,
                expected_input_positions=batch.expected_positions,
                backend=self.backend,
            )

    # --- the prefix cache ---------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Verifies all that the prefix cache holds; returns how many entries that were."""
        cached, checked = list(self.engine.cached_slots()), 0
        for endpoint in self.endpoints:
            if endpoint.tag.stage != "SWEEP":
                continue
            swa = endpoint.tag.group == "SWA"
            place = self.engine.pools.swa_slot if swa else int
            entries = [
                (place(slot), token, position, place(before) if before >= 0 else -1)
                for slot, position, before, token in cached
            ]
            # What has left the window has no fingerprint there.
            entries = [entry for entry in entries if entry[0] > 0]
            columns = torch.tensor(entries, dtype=torch.int64).reshape(-1, 4).T.contiguous()
            plan = kvcanary.VerifyPlan(
                verify_slot_indices=columns[0],
                verify_expected_tokens=columns[1],
                verify_expected_positions=columns[2],
                verify_prev_slot_indices=columns[3],
                verify_num_valid=torch.tensor([len(entries)], dtype=torch.int32),
                enable=torch.ones(1, dtype=torch.int32),
            )
            if entries:
                kvcanary.launch_canary_verify_kernel(
                    context=endpoint.context, plan=plan, check_verify_expected_token=True, backend=self.backend
                )
            checked += len(entries)
        return checked

    # --- what was found -----------------------------------------------------------------------------------------------

    def violations(self) -> list[Violation]:
        """Rows found since the last call."""
        assert int(self.write_index) <= RING, "the ring is too short for this test"
        found = kvcanary.decode_violations(self.ring, self.write_index)
        self.write_index.zero_()
        return found


def forwards(engine: Engine) -> Iterator[Batch]:
    """The forwards of one step."""
    while (batch := engine.schedule()) is not None:
        yield batch


def guarded(engine: Engine, canary: Canary, batch: Batch) -> None:
    """One forward with the canary around it."""
    canary.copy(batch)
    engine.copy(batch)
    canary.plan(batch, batch.histories)
    canary.stage("HEAD", batch)
    engine.forward(batch)
    canary.stage("TAIL", batch)
    engine.finish(batch)
