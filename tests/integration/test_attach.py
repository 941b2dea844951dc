"""How the canary gets onto an engine, and what it refuses."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra: pip install 'kvcanary[transformers]'")

from kvcanary import CanaryConfig, RealKvSourceTable
from kvcanary.errors import CanaryNotImplementedError, CanaryRuntimeError, CanaryTypeError
from kvcanary.integrations.transformers import attach, install, installed, uninstall
from kvcanary.integrations.transformers.sizing import layout_of
from tests.integration.engines import PAGE, SMALL, SteppedEngine, make_model, newer
from tests.integration.test_faults import OTHER, PROMPT
from tests.integration.watched import WatchedEngine


def settings() -> Any:
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    name = {"page_size": PAGE, "auto_switch_to_flash": False} if newer() else {"block_size": PAGE}
    return ContinuousBatchingConfig(num_blocks=40, max_batch_tokens=48, max_requests_per_batch=8, **name)


def greedy() -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=6)


def test_generate_batch_after_install(tmp_path: Any) -> None:
    model = make_model("llama")
    prompts = [PROMPT, PROMPT[:10] + OTHER]
    given = {"generation_config": greedy(), "continuous_batching_config": settings()}
    plain = [output.generated_tokens for output in model.generate_batch(prompts, **given).values()]
    install(CanaryConfig(**SMALL, journal=str(tmp_path / "found.jsonl"), statistics_interval=1))
    try:
        watched = [output.generated_tokens for output in model.generate_batch(prompts, **given).values()]
    finally:
        uninstall()
    assert watched == plain and all(len(tokens) == 6 for tokens in plain)
    # The engine is gone, and its canary closed with it.
    assert not installed()


def test_install_watches_and_uninstall_ends_it() -> None:
    install(CanaryConfig(**SMALL))
    try:
        engine = SteppedEngine(make_model("llama"))
        (canary,) = installed()
        engine.add(PROMPT, 3)
        engine.run()
        assert canary.step == engine.steps == 3
        with pytest.raises(CanaryRuntimeError, match="ContinuousBatchingManager already has a canary"):
            attach(engine.manager)
        canary.close()
        engine.add(PROMPT, 3)
        engine.run()
        assert canary.step == 3
    finally:
        uninstall()
    SteppedEngine(make_model("llama"))
    assert not installed()


def test_raise_fails_the_requests_and_the_engine_stops() -> None:
    engine = WatchedEngine("llama", config={"mode": "raise"})
    engine.add(PROMPT, 400, "one")
    engine.add(OTHER, 400, "two")
    engine.manager.start()
    while not engine.allocators[0].block_table.get("one") or engine.canary.step < 3:
        time.sleep(0.01)
    engine.flip(engine.blocks("one")[1] * PAGE + 1)
    failed = {}
    for _ in range(2):
        output = engine.manager.get_result(timeout=20)
        failed[output.request_id] = output
    assert set(failed) == {"one", "two"}
    for output in failed.values():
        assert output.status.name == "FAILED"
        assert "VERIFY_REAL_KV_HASH_MISMATCH" in output.error
        assert "position 9 of request 'one'" in output.error
    begin = time.monotonic()
    engine.manager.stop(block=True, timeout=10)
    assert time.monotonic() - begin < 5 and not engine.manager.is_running()
    assert engine.canary.closed


def test_a_running_engine_and_other_things_are_refused() -> None:
    engine = SteppedEngine(make_model("llama"))
    with pytest.raises(CanaryTypeError, match="engine must be a ContinuousBatchingManager that is not running, or a"):
        attach(engine.processor)
    engine.manager.start()
    try:
        with pytest.raises(CanaryTypeError, match="got a running ContinuousBatchingManager"):
            attach(engine.manager)
    finally:
        engine.manager.stop()
    with pytest.raises(CanaryTypeError, match="layers must be 'first', 'all' or numbers of layers, got 'last'"):
        attach(SteppedEngine(make_model("llama")).manager, CanaryConfig(**SMALL), layers="last")


def test_a_model_gets_an_engine_that_it_keeps() -> None:
    model = make_model("llama")
    canary = attach(model, CanaryConfig(**SMALL), generation_config=greedy(), continuous_batching_config=settings())
    engine = model.init_continuous_batching()
    assert engine is model._cached_continuous_batching_manager
    engine.add_request(PROMPT, max_new_tokens=4)
    engine.start()
    output = engine.get_result(timeout=20)
    assert len(output.generated_tokens) == 4
    assert canary.step >= 4 and canary.statistics()["violations"] == 0
    engine.stop()
    assert canary.closed


def test_an_unknown_layout_names_what_was_looked_for() -> None:
    class PagedAttentionCache:
        cache_tensor = key_cache = value_cache = None

    with pytest.raises(CanaryNotImplementedError) as caught:
        layout_of(PagedAttentionCache())
    assert str(caught.value) == (
        "kv-canary: PagedAttentionCache has no layout that is known here; looked for transformers 5.24 (no "
        "cache_allocators, bytes_per_sector, num_sectors, max_batch_tokens); transformers 5.17 (no "
        "group_cache_managers, _block_manager, layer_index_to_group_indices)"
    )


def test_mode_none_leaves_the_engine_alone() -> None:
    engine = SteppedEngine(make_model("llama"))
    compute = engine.processor.model_runner.compute_batch
    canary = attach(engine.manager, CanaryConfig(mode="none"))
    assert engine.processor.model_runner.compute_batch == compute
    assert canary.memory_report()["total"] < 1024
    canary.close()


def test_layers_become_sources() -> None:
    engine = SteppedEngine(make_model("qwen3"))
    groups = {}
    for layers in ("first", "all", [1, 2]):
        canary = attach(engine.manager, CanaryConfig(**SMALL), layers=layers)
        groups[str(layers)] = {
            group.name.partition("_attention")[0] + str(place): len(group.real_kv_sources["K"])
            for place, group in enumerate(canary.groups)
        }
        canary.close()
    assert sum(groups["all"].values()) == 5 and sum(groups["[1, 2]"].values()) == 2
    assert set(groups["first"].values()) == {1}


def test_more_layers_than_a_list_has_places() -> None:
    from tests.integration.engines import MODELS, _llama

    MODELS["deep"] = lambda: _llama(layers=6)
    try:
        engine = WatchedEngine("deep", layers="all")
    finally:
        del MODELS["deep"]
    assert all(isinstance(sources, RealKvSourceTable) for sources in engine.canary.groups[0].real_kv_sources.values())
    engine.add(PROMPT, 8, "one")
    engine.clean(3)
    slot = engine.slot("one", 9)
    engine.flip(slot, layer=5, half=1)
    assert {(record.slot, record.half) for record in engine.step_and_see()} == {(slot, "V")}
    engine.close()


def test_nothing_else_imports_transformers() -> None:
    import subprocess

    code = "import sys, kvcanary.integrations.transformers; print('transformers' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert answer.stdout.strip() == "False"


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_tensors_stay_where_they_are() -> None:
    """What the canary keeps can be written outside inference mode, whatever mode the engine runs in."""
    with torch.inference_mode():
        engine = WatchedEngine("llama")
        engine.add(PROMPT, 5, "one")
        engine.run()
    engine.canary.flush()
    engine.close()
    assert not engine.found and not any(tensor.is_inference() for tensor in engine.canary.tensors())
