"""Engines of Transformers' continuous batching that are stepped by hand, with the canary and without."""

from __future__ import annotations

import argparse
import collections
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from kvcanary import CanaryConfig
from kvcanary.integrations.transformers import attach

PAGE = 256
# Steps before anything is timed, and steps in which waits for the device are counted.
WARM_UP, COUNTED = 8, 5
# Those of a Llama 3.2 1B with less of a vocabulary: 1.04 billion parameters with 16 layers.
LARGE = {"vocab_size": 32768, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32}
TINY = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8}


@dataclass
class Subject:
    """One engine, with or without the canary, and the times of its steps, by turn: of all of a step, and of its forward
    alone, in milliseconds."""

    name: str
    engine: Any
    canary: Any = None
    whole: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    synchronisations: int | None = None

    @property
    def processor(self) -> Any:
        return self.engine.batch_processor

    def tokens(self) -> dict[str, list[int]]:
        return {name: list(state.generated_tokens) for name, state in self.processor.scheduler.active_requests.items()}


def newer() -> bool:
    """Whether settings have the names of transformers 5.24, where paged attention needs no prefix any more."""
    return "page_size" in ContinuousBatchingConfig.__init__.__code__.co_varnames


def make_model(given: argparse.Namespace) -> Any:
    sizes = LARGE if given.device == "cuda" else TINY
    config = LlamaConfig(
        **sizes, num_key_value_heads=8, num_hidden_layers=given.layers, max_position_embeddings=given.context + 4096
    )
    torch.manual_seed(0)
    with torch.device(given.device):
        model = LlamaForCausalLM(config).eval()
    if given.device == "cuda":
        model = model.to(torch.bfloat16)
    # Without the prefix, 5.17 takes flash attention instead where it finds it.
    model.set_attn_implementation(given.attention if newer() else f"paged|{given.attention}")
    return model


def most_steps(given: argparse.Namespace) -> int:
    return WARM_UP + COUNTED + given.rounds * (given.turn + 1) + 8


def make_engine(model: Any, given: argparse.Namespace, graphs: bool) -> Any:
    # One block more for each request than its tokens fill, as the engine rounds up.
    blocks = given.batch * (-(-(given.context + most_steps(given)) // PAGE) + 1)
    sizes = {"page_size": PAGE, "auto_switch_to_flash": False} if newer() else {"block_size": PAGE}
    engine = model.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1),
        continuous_batching_config=ContinuousBatchingConfig(
            num_blocks=blocks,
            max_batch_tokens=max(given.tokens, given.batch),
            max_requests_per_batch=given.batch,
            # With the engine's own margin of 15 %, the last requests wait until the first are done.
            safety_margin=0.0,
            use_cuda_graph=graphs,
            use_async_batching=False,
            cpu_offload_space=0.0,
            **sizes,
        ),
    )
    engine.batch_processor = engine._create_batch_processor()
    return engine


def make_subject(
    model: Any, given: argparse.Namespace, graphs: bool, name: str, settings: dict[str, Any] | None
) -> Subject:
    """An engine that has all its requests' prompts in the cache."""
    subject = Subject(name, make_engine(model, given, graphs))
    if graphs and not any(subject.processor.cb_config.cuda_graph_booleans):
        raise RuntimeError("the engine uses no CUDA graphs here")
    if settings is not None:
        wanted = {"mode": "log", "max_requests": given.batch, **settings}
        subject.canary = attach(subject.engine, CanaryConfig(**wanted))
    generator = torch.Generator().manual_seed(1)
    for number in range(given.batch):
        prompt = torch.randint(0, model.config.vocab_size, [given.context], generator=generator).tolist()
        subject.engine.add_request(prompt, request_id=f"request {number}", max_new_tokens=most_steps(given))
    # Requests whose prompt is through stand aside, so that those after them do not wait for their attention.
    active, aside = subject.processor.scheduler.active_requests, {}
    while len(aside) < given.batch:
        step(subject)
        ready = [name for name, state in active.items() if state.status.name == "DECODING"]
        aside.update((name, active.pop(name)) for name in ready)
    active.update(aside)
    for _ in range(WARM_UP):
        step(subject)
    return subject


def synchronise(subject: Subject) -> None:
    if subject.engine.model.device.type == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def step(subject: Subject) -> tuple[float, float]:
    """One step: milliseconds of all of it, and of the part that the device is busy with, the canary included."""
    processor = subject.processor
    synchronise(subject)
    begin = time.perf_counter()
    if not processor.prepare_next_batch():
        scheduler = processor.scheduler
        states = collections.Counter(state.status.name for state in scheduler.active_requests.values())
        raise RuntimeError(
            f"the engine has nothing to do: {dict(states)} active, {len(scheduler.waiting_requests)} waiting, "
            f"{processor.cache.num_blocks} blocks"
        )
    synchronise(subject)
    middle = time.perf_counter()
    processor._generation_step(subject.engine.model)
    synchronise(subject)
    end = time.perf_counter()
    processor.update_batch()
    return 1e3 * (time.perf_counter() - begin), 1e3 * (end - middle)
