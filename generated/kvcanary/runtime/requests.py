# Written by kvcanary-gen from the spec; edit that instead.
"""What the miniature engine is configured with, what it is asked, and what it hands out for each forward."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .. import errors
from .pool import Copies


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of the miniature engine.

    Attributes:
        seed (int): order in which slots are handed out, and which requests are preempted.
        device (str): where tensors lie, such as cpu or cuda:1.
        page_size (int): slots in a page of either pool.
        full_pages, swa_pages (int): pages of the pools, page 0 among them; no pool for the window if 0.
        window (int): positions that sliding-window layers see.
        full_layers, swa_layers (int): layers on each pool.
        bytes_per_token (int): of one layer and half; a multiple of 16.
        rows (int): rows of the token table, padding row 0 among them, so one more than requests run at a time.
        max_context (int): positions of a row.
        chunk (int): prompt tokens that one forward takes.
        drafts (int): tokens that are guessed and checked in each decode forward.
        decode_sizes (tuple of int): batch sizes that decode forwards are padded to, ascending.
        prefix_cache (bool): whether requests share what they have in common.
        preempt_every (int): steps after which one request loses its slots though there is room; 0 for never.
        vocabulary (int): token ids are below it.
    """

    seed: int = 0
    device: str = "cpu"
    page_size: int = 4
    full_pages: int = 65
    swa_pages: int = 33
    window: int = 12
    full_layers: int = 2
    swa_layers: int = 2
    bytes_per_token: int = 32
    rows: int = 7
    max_context: int = 64
    chunk: int = 16
    drafts: int = 2
    decode_sizes: tuple[int, ...] = (1, 2, 4, 6)
    prefix_cache: bool = True
    preempt_every: int = 0
    vocabulary: int = 211

    def __post_init__(self) -> None:
        for name, least in (("page_size", 1), ("full_layers", 1), ("rows", 2), ("chunk", 2), ("drafts", 0)):
            self._require(getattr(self, name) >= least, name, f"be at least {least}")
        self._require(_is_there(self.device), "device", "be cpu, or a CUDA device that torch sees")
        whole = self.bytes_per_token > 0 and self.bytes_per_token % 16 == 0
        self._require(whole, "bytes_per_token", "be a positive multiple of 16")
        self._require((self.swa_pages > 0) == (self.swa_layers > 0), "swa_pages", "be positive with swa_layers, else 0")
        self._require(self.swa_layers == 0 or self.window >= 1, "window", "be at least 1")
        sizes = self.decode_sizes
        ascending = bool(sizes) and list(sizes) == sorted(set(sizes)) and sizes[0] >= 1
        self._require(ascending, "decode_sizes", "ascend from at least 1")
        # One request alone must always find room: its pages, the dummy page, and one to copy to.
        least = -(-self.max_context // self.page_size) + 2
        self._require(self.full_pages >= least, "full_pages", f"be at least {least} for one request of max_context")
        least = -(-(self.window + max(self.chunk, self.drafts + 1)) // self.page_size) + 3
        enough = self.swa_pages == 0 or self.swa_pages >= least
        self._require(enough, "swa_pages", f"be at least {least} for the window")

    def _require(self, holds: bool, name: str, rule: str) -> None:
        have = getattr(self, name)
        if not holds:
            raise errors.CanaryValueError("KVC-090", f"kv-canary: EngineConfig {name} must {rule}, got {have}")


def _is_there(device: str) -> bool:
    try:
        wanted = torch.device(device)
    except RuntimeError:
        return False
    count = torch.cuda.device_count() if wanted.type == "cuda" else 0
    return wanted.type == "cpu" or (wanted.type == "cuda" and (wanted.index or 0) < count)


@dataclass(eq=False)
class Request:
    """One request, or one of several samples of a prompt.

    Attributes:
        id, sample (int): samples of one prompt share the id.
        prompt (list of int): token ids, at least two.
        max_new (int): tokens to generate.
        samples (int): further samples to fork when the prompt is computed.
        tokens (list of int): the prompt and what was generated.
        computed (int): leading tokens whose keys and values are in the pools.
        row (int): row of the token table while it runs.
        pages (list of int): pages of its positions; those from `window_from` on have the window's page too.
        shared (int): leading pages that the prefix cache knows.
        recorded (int): leading tokens that the device's token history has, in the request's row.
    """

    id: int
    sample: int
    prompt: list[int]
    max_new: int
    samples: int = 0
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    row: int = 0
    pages: list[int] = field(default_factory=list)
    window_from: int = 0
    shared: int = 0
    recorded: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.tokens or list(self.prompt)

    @property
    def name(self) -> str:
        """As violations and outputs speak of it."""
        return f"{self.id}.{self.sample}"

    @property
    def remaining(self) -> int:
        """Tokens that are known but not computed; a request with one of them decodes."""
        return len(self.tokens) - self.computed


@dataclass
class Item:
    """A request's part of a forward: `tokens` from position `start` on, drafts among them."""

    request: Request
    start: int
    tokens: list[int]


@dataclass
class Work:
    """What one forward is to do, still on the host."""

    kind: str
    items: list[Item]
    copies: Copies


@dataclass
class Batch:
    """One forward, as the engine hands it out. A decode batch is padded with row 0, token 0 and slot 0.

    Tensors of a decode batch are the same ones in every forward of the same size, so a CUDA graph may hold them.

    Attributes:
        step, forward (int): the step, and which of its forwards this is, both from 0.
        kind (str): 'prefill' or 'decode'.
        work (Work): the requests behind the entries; padding has none.
        req_pool_indices, prefix_lens, extend_seq_lens (int64 [bs]): row, cached tokens and new tokens of each entry.
        input_ids, positions, out_cache_loc (int64 [n]): new tokens, their positions and full slots.
        expected_tokens, expected_positions (int64 [n]): what the former two must hold, from the requests' histories.
        history_lens (int64 [bs]): tokens of each entry's request that are known to be right, drafts not among them.
        token_rows, salts (int64 [n]): row and sampling salt of each token, for the model.
        next_tokens (int64 [n]): what the model says after each token; `Engine.forward` fills it.
        copied (bool): whether the copies were made.
    """

    step: int
    forward: int
    kind: str
    work: Work
    req_pool_indices: torch.Tensor
    prefix_lens: torch.Tensor
    extend_seq_lens: torch.Tensor
    input_ids: torch.Tensor
    positions: torch.Tensor
    out_cache_loc: torch.Tensor
    expected_tokens: torch.Tensor
    expected_positions: torch.Tensor
    history_lens: torch.Tensor
    token_rows: torch.Tensor
    salts: torch.Tensor
    next_tokens: torch.Tensor
    copied: bool = False

    @property
    def copies(self) -> Copies:
        """Slots to copy before this forward."""
        return self.work.copies

    @property
    def request_names(self) -> list[str]:
        """Names of the entries' requests; padding behind them has none."""
        return [item.request.name for item in self.work.items]

    @property
    def histories(self) -> list[list[int]]:
        """Tokens of each request that are known to be right, in order of position."""
        return [item.request.tokens for item in self.work.items]
