"""Tiny models, built in code, and an engine around them that is stepped by hand."""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

VOCABULARY = 97
PAGE = 8
WINDOW = 20
# Room for these engines alone: attaching makes it as large as they need.
SMALL = {"verify_capacity": 256, "max_tokens": 8, "max_requests": 4, "ring_capacity": 256}
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


_MADE: dict[tuple[str, str], Any] = {}


def newer() -> bool:
    """Whether the cache is that of 5.24: of sectors, and with other names for its settings."""
    major, minor = importlib.metadata.version("transformers").split(".")[:2]
    return (int(major), int(minor)) >= (5, 20)


def _llama(layers: int = 2) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_SIZES, num_hidden_layers=layers))


def _mistral() -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**_SIZES, num_hidden_layers=2, head_dim=8, sliding_window=WINDOW))


def _qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "full_attention"]
    sizes = {**_SIZES, "num_hidden_layers": len(kinds), "head_dim": 8, "layer_types": kinds}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, use_sliding_window=True, sliding_window=WINDOW))


MODELS: dict[str, Callable[[], Any]] = {"llama": _llama, "mistral": _mistral, "qwen3": _qwen3}


def make_model(name: str, attention: str = "sdpa") -> Any:
    """A model of one's own, with the same weights each time."""
    if (name, attention) not in _MADE:
        _MADE[name, attention] = _made(name, attention)
    torch.manual_seed(0)
    return copy.deepcopy(_MADE[name, attention])


def _made(name: str, attention: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    model.set_attn_implementation(attention)
    # Small random weights make every token alike; louder ones make tokens differ.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    return model


@contextlib.contextmanager
def _unpinned() -> Iterator[None]:
    """Memory for offloading is pinned, which needs a GPU; here any memory will do."""
    empty = torch.empty

    def unpinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return empty(*args, pin_memory=pin_memory and torch.cuda.is_available(), **kwargs)

    torch.empty = unpinned
    try:
        yield
    finally:
        torch.empty = empty


class SteppedEngine:
    """Continuous batching without its thread: `step` runs one forward and everything around it."""

    def __init__(self, model: Any, *, children: int = 1, processor: Any = None, **settings: Any) -> None:
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        if newer():
            settings = {"page_size": PAGE, "auto_switch_to_flash": False, **settings}
        else:
            settings = {"block_size": PAGE, **settings}
        sizes = {"num_blocks": 40, "max_batch_tokens": 48, "max_requests_per_batch": 8, **settings}
        generation = GenerationConfig(do_sample=children > 1, eos_token_id=-1, num_return_sequences=children)
        self.model = model
        self.manager = model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=ContinuousBatchingConfig(**sizes)
        )
        with _unpinned():
            self.manager.batch_processor = self.manager._create_batch_processor()
        self.outputs: dict[str, list[int]] = {}
        self.failures: dict[str, str] = {}
        self.steps = 0

    @property
    def processor(self) -> Any:
        return self.manager.batch_processor

    @property
    def cache(self) -> Any:
        return self.processor.cache

    @property
    def allocators(self) -> list[Any]:
        return list(self.cache.cache_allocators.values()) if newer() else self.cache.group_cache_managers

    @property
    def active(self) -> dict[str, Any]:
        return self.processor.scheduler.active_requests

    def add(self, tokens: Sequence[int], new: int, name: str | None = None) -> str:
        return self.manager.add_request(list(tokens), request_id=name, max_new_tokens=new)

    @torch.no_grad()
    def step(self) -> bool:
        """One step; False where there was nothing to do."""
        if not self.processor.prepare_next_batch():
            return False
        self.processor._generation_step(self.model)
        self.processor.update_batch()
        self.steps += 1
        self._collect()
        return True

    def _collect(self) -> None:
        while not self.manager.output_router.output_queue.empty():
            output = self.manager.output_router.output_queue.get_nowait()
            self.outputs[output.request_id] = output.generated_tokens
            if output.error is not None:
                self.failures[output.request_id] = output.error

    def run(self, most: int = 1000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(most):
            if not self.step():
                return
        raise AssertionError(f"still busy after {most} steps")
