"""Engines in which nothing is wrong: nothing is found, and every output is what it is without the canary.

Long runs take the torch reference, which is many times as quick as interpreted kernels, except at night. Each model
also has a run of a few steps that is interpreted by day too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra: pip install 'kvcanary[transformers]'")

from tests.integration.engines import SteppedEngine, make_model, newer
from tests.integration.long_run import run_engine
from tests.integration.test_faults import OTHER, PROMPT
from tests.integration.watched import WatchedEngine

# Model, what is varied, blocks, steps, and what must have happened.
RUNS = [
    ("llama", "offload", 18, 40, {"offloaded", "prefix hits"}),
    ("llama", "reset", 18, 40, {"preempted", "prefix hits"}),
    ("llama", "forks", 20, 35, {"copied blocks", "offloaded"}),
    ("mistral", "eager", 12, 25, set()),
    ("mistral", "forks", 12, 25, {"copied blocks", "offloaded"}),
    ("qwen3", "offload", 20 if newer() else 44, 25, {"offloaded"}),
    ("qwen3", "forks", 44, 20, {"copied blocks"}),
]


@pytest.mark.usefixtures("reference_by_day")
@pytest.mark.parametrize(("model", "variant", "blocks", "steps", "happens"), RUNS)
def test_runs_in_which_blocks_are_short(model: str, variant: str, blocks: int, steps: int, happens: set[str]) -> None:
    entries, counts = compare_runs(model, variant, blocks=blocks, steps=steps)
    assert entries > 300
    assert happens <= set(+counts), counts


@pytest.mark.parametrize(("model", "variant", "blocks"), [run[:3] for run in (RUNS[0], RUNS[4], RUNS[5])])
def test_first_steps_of_such_runs(model: str, variant: str, blocks: int) -> None:
    entries, _ = compare_runs(model, variant, blocks=blocks, steps=6)
    assert entries > 30


def compare_runs(model: str, variant: str, **more: int) -> tuple[int, Counter[str]]:
    """A run with the canary and the same without; answers the verified entries, and what happened."""
    settings: dict[str, Any] = {"seed": 2, "requests": 14, "layers": "first", **more}
    engine, canary, counts = run_engine(model, variant, watched=True, **settings)
    assert canary is not None
    plain, _, _ = run_engine(model, variant, watched=False, **settings)
    canary.flush()
    numbers = canary.statistics()
    canary.close()
    assert numbers["violations"] == 0 and numbers["skipped_plans"] == 0
    assert engine.outputs == plain.outputs
    assert generated(engine) == generated(plain)
    return numbers["entries_TAIL_K_FULL" if model != "mistral" else "entries_TAIL_K_SWA"], counts


def generated(engine: SteppedEngine) -> dict[str, list[int]]:
    """What requests that are still running have generated."""
    found = {name: list(state.generated_tokens) for name, state in engine.active.items()}
    assert found
    return found


def pair(model: str, change: Any, **settings: Any) -> tuple[SteppedEngine, WatchedEngine]:
    """The same engine twice, changed alike, the second one with the canary."""
    plain = SteppedEngine(make_model(model), **{"safety_margin": 0.0, **settings})
    watched = WatchedEngine(model, **settings)
    for engine in (plain, watched):
        change(engine)
        engine.add(PROMPT, 8, "one")
        engine.add(PROMPT[:9] + OTHER, 12, "two")
        engine.run()
        engine.add(OTHER[:5] * 9, 12, "three")
        engine.run()
    watched.close()
    assert not watched.found
    assert watched.outputs == plain.outputs and len(plain.outputs) == 3
    return plain, watched


@pytest.mark.usefixtures("reference_by_day")
@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_padded_batches_and_their_warm_up(model: str) -> None:
    seen = []

    def padded(engine: SteppedEngine) -> None:
        engine.processor.model_runner.pad_inputs = True
        for name in ("q_padding_interval_size", "kv_padding_interval_size"):
            setattr(engine.processor.model_runner.cb_config, name, 16)
        prepare = engine.processor.inputs_and_outputs.prepare_batch_tensors

        def noted(*args: Any, **kwargs: Any) -> None:
            prepare(*args, **kwargs)
            batch = args[0] if args else kwargs["requests_in_batch"]
            seen.append(engine.processor.inputs_and_outputs.num_q_tokens > sum(one.query_length for one in batch))

        engine.processor.inputs_and_outputs.prepare_batch_tensors = noted
        engine.manager.warmup()

    _, watched = pair(model, padded)
    assert any(seen)
    # The warm-up itself is left out.
    assert watched.canary.step == watched.steps


@pytest.mark.usefixtures("reference_by_day")
def test_a_prompt_longer_than_the_ring_in_one_forward() -> None:
    engine = WatchedEngine("mistral", max_batch_tokens=64)
    engine.add((PROMPT + OTHER) * 4, 30, "long")
    engine.clean(2)
    assert engine.active["long"].position_offset > 100
    engine.run()
    engine.close()
    assert not engine.found


@pytest.mark.usefixtures("reference_by_day")
def test_a_prompt_that_is_known_to_its_last_token() -> None:
    engine = WatchedEngine("llama")
    prompt = (PROMPT + OTHER)[:32]
    engine.add(prompt, 30, "first")
    engine.clean(2)
    engine.add(prompt, 30, "second")
    engine.add([*prompt, 1], 30, "third")
    engine.clean(1)
    shared = 4 if not newer() else 3
    assert engine.blocks("second")[:shared] == engine.blocks("first")[:shared]
    engine.run()
    engine.close()
    assert not engine.found


def test_sessions_that_follow_each_other() -> None:
    """What the prefix cache keeps over a reset keeps its fingerprints."""
    engine = WatchedEngine("llama", config={"sweep_interval": 2})
    engine.add(PROMPT, 30, "first")
    engine.clean(4)
    assert engine.manager._create_batch_processor() is engine.processor
    engine.add(PROMPT, 6, "second")
    engine.clean(1)
    assert engine.active["second"].position_offset == len(PROMPT)
    engine.run()
    engine.close()
    assert not engine.found


@pytest.mark.usefixtures("reference_by_day")
def test_a_cache_that_was_in_use_before() -> None:
    """What was stored before the canary came is left out until it is written again."""
    plain = SteppedEngine(make_model("llama"), safety_margin=0.0)
    plain.add(PROMPT, 30, "first")
    for _ in range(4):
        plain.step()
    from kvcanary import CanaryConfig
    from kvcanary.integrations.transformers import attach
    from tests.integration.engines import SMALL

    canary = attach(plain.manager, CanaryConfig(**SMALL))
    plain.add(PROMPT, 6, "second")
    plain.run()
    canary.flush()
    assert canary.statistics()["violations"] == 0
    assert canary.statistics()["launches_TAIL_K_FULL"] > 10
    canary.close()
