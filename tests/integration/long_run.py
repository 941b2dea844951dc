"""Many steps of a real engine with everything that it does to a cache, watched: not a single violation may be found.

    PYTHONPATH=.:generated python tests/integration/long_run.py --steps 10000

Prompts share prefixes, the pool is so small that blocks are evicted and requests preempted, some requests have
children, and some settings offload to the host. With `--compare`, each run is made once more without the canary, and
every output must be the same, token for token.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from typing import Any

import torch

from kvcanary import CanaryConfig, CanaryManager
from kvcanary.integrations.transformers import attach
from tests.integration.engines import MODELS, SMALL, VOCABULARY, SteppedEngine, make_model, newer

# Name, and settings of the engine: offloading, soft resets, eager attention.
VARIANTS: dict[str, dict[str, Any]] = {
    "offload": {"cpu_offload_space": 0.001},
    "reset": {"cpu_offload_space": 0.0},
    "eager": {"cpu_offload_space": 0.0, "attention": "eager"},
    "forks": {"cpu_offload_space": 0.001, "children": 3},
    "unshared": {"cpu_offload_space": 0.0, "allow_block_sharing": False},
}
# So few that requests are in each other's way. The older cache counts blocks of one of a hybrid's groups.
BLOCKS = {"llama": 30, "mistral": 12, "qwen3": 24 if newer() else 60}


class Traffic:
    """Requests that come over time, the same for the same seed: half of the prompts begin as one of a few others."""

    def __init__(self, seed: int, count: int) -> None:
        self._random = random.Random(seed)
        self.left = count
        self._stems = [self._tokens(self._random.randrange(8, 60)) for _ in range(4)]

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(VOCABULARY) for _ in range(count)]

    def next(self) -> tuple[list[int], int]:
        self.left -= 1
        stem = self._random.choice(self._stems) if self._random.random() < 0.7 else []
        # Now and then a prompt is known to its last token.
        tail = self._tokens(self._random.randrange(1, 24)) if self._random.random() < 0.8 or not stem else []
        return stem + tail, self._random.randrange(2, 40)

    def due(self) -> bool:
        return self.left > 0 and self._random.random() < 0.35


def run_engine(
    model: str,
    variant: str,
    seed: int,
    requests: int,
    steps: int,
    watched: bool,
    config: dict[str, Any] | None = None,
    blocks: int = 0,
    layers: str = "all",
) -> tuple[SteppedEngine, CanaryManager | None, Counter[str]]:
    settings = dict(VARIANTS[variant])
    attention = settings.pop("attention", "sdpa")
    engine = SteppedEngine(make_model(model, attention), **{"num_blocks": blocks or BLOCKS[model], **settings})
    canary = None
    if watched:
        wanted = {**SMALL, "real_kv_mode": "PARTIAL", "sweep_interval": 16, **(config or {})}
        canary = attach(engine.manager, CanaryConfig(**wanted), layers=layers)
    traffic, counts = Traffic(seed, requests), counted(engine)
    while engine.steps < steps:
        while traffic.due():
            tokens, new = traffic.next()
            engine.add(tokens, new)
        if not engine.step() and not traffic.left:
            break
    return engine, canary, counts


def counted(engine: SteppedEngine) -> Counter[str]:
    """Counts what the engine does to its cache, by its own methods."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, key: str, amount: Any) -> None:
        method = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            counts[key] += int(amount(args, answer))
            return answer

        setattr(owner, name, wrapped)

    processor = engine.processor
    count(engine.cache, "search_prefix_match", "prefix hits", lambda args, answer: answer > 0)
    count(processor.offloading_manager, "_offload_to_cpu", "offloaded", lambda args, answer: len(answer))
    count(processor.offloading_manager, "_offload_to_cpu", "preempted", lambda args, answer: len(args[0]))
    if hasattr(engine.cache, "evict_cached_blocks"):
        count(engine.cache, "evict_cached_blocks", "evictions", lambda args, answer: answer)
        copied = lambda args, answer: sum(len(to) for _, to in args[0].values())  # noqa: E731
        count(engine.cache, "perform_cache_copy", "copied blocks", copied)
    else:
        count(engine.cache, "copy_cache", "copied blocks", lambda args, answer: len(args[1]))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000, help="steps of all runs together")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=60, help="requests of each run")
    parser.add_argument("--real-kv", default="PARTIAL", choices=["NONE", "PARTIAL", "ALL"])
    parser.add_argument("--compare", action="store_true", help="run again without the canary and compare the outputs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    begin, total, found, seed, different = time.monotonic(), 0, 0, given.seed, 0
    while total < given.steps and time.monotonic() - begin < given.seconds:
        for model in given.models:
            for variant in given.variants:
                left, wanted = given.steps - total, {"real_kv_mode": given.real_kv}
                engine, canary, counts = run_engine(model, variant, seed, given.requests, left, True, wanted)
                assert canary is not None
                canary.flush()
                numbers = canary.statistics()
                total, found = total + engine.steps, found + numbers["violations"]
                entries = sum(count for name, count in numbers.items() if name.startswith("entries_"))
                told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
                print(
                    f"{model:8} {variant:9} seed {seed:3} {engine.steps:5} steps {numbers['violations']} violations "
                    f"{entries} entries {numbers['skipped_plans']} skipped; {told}",
                    flush=True,
                )
                canary.close()
                if given.compare:
                    plain, _, _ = run_engine(model, variant, seed, given.requests, engine.steps, False)
                    if plain.outputs != engine.outputs:
                        different += 1
                        print("    outputs differ")
                if total >= given.steps or time.monotonic() - begin > given.seconds:
                    break
        seed += 1
    print(f"{total} steps, {found} violations, {different} runs with other outputs, {time.monotonic() - begin:.0f} s")
    return 1 if found or different else 0


if __name__ == "__main__":
    sys.exit(main())
