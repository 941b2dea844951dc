"""The page on the runtime: how an engine attaches it, what it costs, its settings."""

from __future__ import annotations

import math

from kvcanary_gen.emit.docs.markdown import code, codes, listing, table
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.runtime_templates import program_has_runtime
from kvcanary_gen.emit.settings import settings
from kvcanary_gen.ir import Program
from kvcanary_gen.resolve.examples import evaluate
from kvcanary_gen.surface import surfaces, workspace_lengths

WORD_BYTES = 8
# What SlotExclusions keeps of a slot: its place in the map and a flag; of a full slot in a mapping: two places.
EXCLUSION_BYTES, MAPPED_BYTES = WORD_BYTES + 1, 2 * WORD_BYTES
# What InputStage keeps of a token and of a request, LaunchScratch of a token, RowStage of a request.
INPUT_BYTES, TRANSLATION_BYTES, ROW_BYTES = 4 * WORD_BYTES, 2 * WORD_BYTES + 1, 3 * WORD_BYTES + 1
# What each pool of a forward adds: its slots, its write plan and what a window needs.
POOL_TOKEN_BYTES, POOL_REQUEST_BYTES = 2 * WORD_BYTES + 1, 3 * WORD_BYTES + 1


def runtime_page(program: Program) -> dict[str, str]:
    """The page by its path; none where the package has no runtime."""
    if not program_has_runtime(program):
        return {}
    stages = program.axes["stage"].values
    halves = list(program.axes["half"].values)
    buffers = list(dict.fromkeys(stage.buffer for stage in stages.values()))
    ring = next(kernel.tensors[kernel.report.ring] for kernel in program.kernels.values() if kernel.report is not None)
    slot_bytes = WORD_BYTES * len(program.layouts["slot"].fields)
    row_bytes = WORD_BYTES * len(program.layouts[str(ring.record)].fields)
    tags = len(next(iter(program.tags.values())).numbers)
    text = page(
        "runtime.md.j2",
        package=program.header.package,
        stages=_stages(program),
        halves=listing(halves),
        kinds=codes(program.axes["group"].values),
        buffers=len(buffers),
        slot_bytes=slot_bytes,
        per_slot=len(buffers) * len(halves) * slot_bytes,
        exclusion_bytes=EXCLUSION_BYTES,
        mapped_bytes=MAPPED_BYTES,
        row_bytes=row_bytes,
        tags=tags,
        channel_bytes=2 * WORD_BYTES * (3 + 2 * tags),
        per_token=INPUT_BYTES + TRANSLATION_BYTES + _scratch_bytes(program, 1, 0),
        per_request=INPUT_BYTES + ROW_BYTES + _scratch_bytes(program, 0, 1),
        pool_token=POOL_TOKEN_BYTES,
        pool_request=POOL_REQUEST_BYTES,
        batch=int(program.constants["MAX_PLAN_BATCH"].value),
        settings=_settings(program),
    )
    return {"runtime.md": text}


def _scratch_bytes(program: Program, tokens: int, requests: int) -> int:
    """Scratch of the write launcher for so many new tokens and requests."""
    surface = surfaces(program)["canary_write"]
    sizes = {t.path: [requests if "." in t.path else tokens] * len(t.shape) for t in surface.tensors}
    found = 0
    for workspace in surface.workspaces:
        lengths = [evaluate(node, dict(sizes)) for node in workspace_lengths(surface, workspace)]
        found += math.prod(int(length) for length in lengths if length is not None) * WORD_BYTES
    return found


def _stages(program: Program) -> str:
    when = {"before": "before the forward", "after": "after the forward", "periodic": "in sweeps"}
    rows = []
    for name, stage in program.axes["stage"].values.items():
        does = listing([f"{operation}s" if operation == "write" else "verifies" for operation in stage.operations])
        own = "its own" if stage.buffer == name else f"those of {stage.buffer}"
        rows.append([code(name), when[str(stage.when)], does, own, "yes" if stage.real_kv else "no"])
    return table(["stage", "runs", "does", "buffers", "real KV bytes"], rows)


def _settings(program: Program) -> str:
    rows = []
    for setting in settings(tuple(program.enums["RealKvHashMode"].members)):
        variable = f"{program.header.package}_{setting.name}".upper()
        default = setting.default.strip('"') if setting.kind == "choice" else setting.default
        rows.append([code(setting.name), code(variable), setting.values, code(default), setting.doc])
    return table(["setting", "variable", "values", "default", "meaning"], rows)
