"""What the canary adds to a step of Transformers' continuous batching, on a GPU.

    PYTHONPATH=generated python benchmarks/transformers_cost.py

A Llama of about one billion parameters with random weights decodes a batch of 64 requests that have 2,048 tokens each.
The same engine runs with and without the canary, step by step; a step is timed with the device synchronised before and
after, so that host and device both count. Medians, as a table in Markdown. Needs torch, triton and transformers alone.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import statistics
import time
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from kvcanary import CanaryConfig
from kvcanary.integrations.transformers import attach

PAGE = 256
CASES: list[tuple[str, dict[str, Any] | None]] = [
    ("without canary", None),
    ("NONE", {"real_kv_mode": "NONE"}),
    ("PARTIAL", {"real_kv_mode": "PARTIAL"}),
    ("ALL, one layer", {"real_kv_mode": "ALL"}),
]


def make_model(layers: int, attention: str) -> Any:
    """1.04 billion parameters with 16 layers, those of a Llama 3.2 1B with less of a vocabulary."""
    config = LlamaConfig(
        vocab_size=32768,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    model.set_attn_implementation(attention)
    return model


def make_engine(model: Any, batch: int, context: int, graphs: bool) -> Any:
    blocks = batch * (-(-(context + 256) // PAGE) + 1)
    names = ContinuousBatchingConfig.__init__.__code__.co_varnames
    sizes = {"page_size" if "page_size" in names else "block_size": PAGE}
    if "auto_switch_to_flash" in names:
        sizes["auto_switch_to_flash"] = False
    engine = model.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(
            num_blocks=blocks,
            max_batch_tokens=2048,
            max_requests_per_batch=batch,
            use_cuda_graph=graphs,
            use_async_batching=False,
            cpu_offload_space=0.0,
            **sizes,
        ),
    )
    engine.batch_processor = engine._create_batch_processor()
    return engine


@torch.no_grad()
def step(engine: Any) -> tuple[float, float]:
    """One step: milliseconds of all of it, and of the part that the device is busy with, the canary included."""
    processor = engine.batch_processor
    torch.cuda.synchronize()
    begin = time.perf_counter()
    assert processor.prepare_next_batch()
    torch.cuda.synchronize()
    middle = time.perf_counter()
    processor._generation_step(engine.model)
    torch.cuda.synchronize()
    end = time.perf_counter()
    processor.update_batch()
    return 1e3 * (time.perf_counter() - begin), 1e3 * (end - middle)


def measure(model: Any, given: argparse.Namespace, settings: dict[str, Any] | None) -> dict[str, Any]:
    engine = make_engine(model, given.batch, given.context, given.graphs)
    canary = None
    if settings is not None:
        wanted = {"mode": "log", "max_tokens": 2048, "max_requests": given.batch, **settings}
        canary = attach(engine, CanaryConfig(**wanted))
    generator = torch.Generator().manual_seed(1)
    for _ in range(given.batch):
        prompt = torch.randint(0, 32768, [given.context], generator=generator).tolist()
        engine.add_request(prompt, max_new_tokens=given.steps + 200)
    active = engine.batch_processor.scheduler.active_requests
    while len(active) < given.batch or any(state.status.name != "DECODING" for state in active.values()):
        step(engine)
    for _ in range(10):
        step(engine)
    times = [step(engine) for _ in range(given.steps)]
    found: dict[str, Any] = {
        "step_ms": statistics.median(whole for whole, _ in times),
        "forward_ms": statistics.median(forward for _, forward in times),
        "violations": 0,
        "canary_mib": 0,
    }
    if canary is not None:
        canary.flush()
        numbers = canary.statistics()
        found["violations"], found["skipped"] = numbers["violations"], numbers["skipped_plans"]
        found["entries"] = numbers.get("entries_TAIL_K_FULL", 0)
        found["canary_mib"] = canary.memory_report()["total"] / 2**20
        canary.close()
    engine.batch_processor = None
    del engine, canary
    gc.collect()
    torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40, help="steps that are timed in each case")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs, which the engine uses for flash attention")
    parser.add_argument("--json", help="where to write the numbers")
    given = parser.parse_args()
    model = make_model(given.layers, given.attention)
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e9
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton", "transformers"))
    print(f"{torch.cuda.get_device_name()}, {versions}; {size:.2f} billion parameters, batch {given.batch}, ", end="")
    print(f"context {given.context}, {given.attention} attention, graphs {given.graphs}\n")
    print("| case | step ms | added | forward ms | added | violations | canary MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    # A first run compiles kernels and fills the allocator.
    measure(model, argparse.Namespace(**{**vars(given), "steps": 5}), CASES[-1][1])
    rows, base = {}, None
    for name, settings in CASES:
        row = measure(model, given, settings)
        base = base or row
        rows[name] = row
        added = [f"{100 * (row[key] / base[key] - 1):+.1f} %" for key in ("step_ms", "forward_ms")]
        times = f"{row['step_ms']:.2f} | {added[0]} | {row['forward_ms']:.2f} | {added[1]}"
        print(f"| {name} | {times} | {row['violations']} | {row['canary_mib']:.0f} |", flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "versions": versions, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
