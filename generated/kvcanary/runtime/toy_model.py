# Written by kvcanary-gen from the spec; edit that instead.
"""The miniature engine's model: no weights, but keys and values that depend on everything before them.

Every token gets, in every layer, bytes for each half of the cache, hashed from its id, its position and what the layers
below made of the tokens before it. Attention sums over the cached bytes, in integers, so the order of the sum does not
matter: the same history gives the same tokens whatever the batch, the pages and the cuts of the prefill are, and
one wrong byte gives others.
"""

from __future__ import annotations

import torch

from .stages import HALVES

_ODD = 0x2545F4914F6CDD1D
_EVEN = 0x1F83D9ABFB41BD6A
_WORD = 8


def mix(value: torch.Tensor, salt: torch.Tensor | int = 0) -> torch.Tensor:
    """A hash of int64 values. Wraps; nothing but this model depends on it."""
    mixed = (value ^ salt) * _ODD
    mixed = (mixed ^ (mixed >> 29)) * _ODD
    return mixed ^ (mixed >> 32)


def successor(token: int, vocabulary: int) -> int:
    """The token that the model says most often after `token`; drafts bet on it."""
    return (5 * token + 1) % vocabulary


class Layer:
    """KV bytes of one layer: `kv[half]` is uint8 [pages, page_size * bytes_per_token]."""

    def __init__(self, pages: int, page_size: int, bytes_per_token: int, device: torch.device) -> None:
        width = page_size * bytes_per_token
        self.kv = {half: torch.zeros([pages, width], dtype=torch.uint8, device=device) for half in HALVES}
        self.words_per_token = bytes_per_token // _WORD

    def words(self, half: str) -> torch.Tensor:
        """The bytes of a half as int64 [slots, words]: a view."""
        return self.kv[half].view(torch.int64).reshape(-1, self.words_per_token)

    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copies slots, all at once."""
        for half in HALVES:
            words = self.words(half)
            words[targets] = words[sources]


class Model:
    """Layers with full attention and with a sliding window, in turn.

    Attributes:
        full_layers, swa_layers (list of Layer): in the order in which they run, a full one first.
        window (int): positions that a layer of the latter kind sees, its own among them.
        vocabulary (int): token ids are below it.
    """

    def __init__(
        self,
        *,
        full_layers: int,
        swa_layers: int,
        full_pages: int,
        swa_pages: int,
        page_size: int,
        bytes_per_token: int,
        window: int,
        vocabulary: int,
        device: torch.device,
    ) -> None:
        self.full_layers = [Layer(full_pages, page_size, bytes_per_token, device) for _ in range(full_layers)]
        self.swa_layers = [Layer(swa_pages, page_size, bytes_per_token, device) for _ in range(swa_layers)]
        self.window = window
        self.vocabulary = vocabulary
        words = torch.arange(1, bytes_per_token // _WORD + 1, dtype=torch.int64, device=device)
        self._salts = mix(words, _EVEN)
        self._weights = mix(words) | 1

    def forward(
        self,
        *,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        token_rows: torch.Tensor,
        out_cache_loc: torch.Tensor,
        salts: torch.Tensor,
        req_to_token: torch.Tensor,
        mapping: torch.Tensor | None,
    ) -> torch.Tensor:
        """Computes a batch: writes the keys and values of its tokens and returns the token after each, int64 [n].

        Reads nothing back to the host, so a CUDA graph may hold it. A slot outside its pool counts as slot 0: the
        engine has to survive the faults that are planted in it.

        Args:
            input_ids, positions, token_rows, out_cache_loc, salts (int64 [n]): of every token its id, its position,
                its request's row, its full slot, and what its request's sampling adds.
            req_to_token (int32 [rows, width]): full slot of every position of every row.
            mapping (int64 [full slots], optional): slot in the window's pool of every full slot.
        """
        table = req_to_token[token_rows].to(torch.int64)
        column = torch.arange(table.shape[1], device=table.device)
        distance = positions[:, None] - column
        state = mix(mix(input_ids) + positions, _EVEN)
        for index in range(max(len(self.full_layers), len(self.swa_layers))):
            for layer, swa in ((self.full_layers, False), (self.swa_layers, True)):
                if index < len(layer):
                    visible = (distance >= 0) & ((distance < self.window) if swa else True)
                    where, slots = self._places(mapping if swa else None, table, out_cache_loc)
                    state = self._layer(layer[index], state, where, slots, visible)
        spoken = mix(state, salts)
        usual = (5 * input_ids + 1) % self.vocabulary
        other = (spoken >> 8) % self.vocabulary
        return torch.where((spoken & 7) < 5, usual, other)

    @staticmethod
    def _places(
        mapping: torch.Tensor | None, table: torch.Tensor, out_cache_loc: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots to read and to write, in the layer's own pool."""
        if mapping is None:
            return table, out_cache_loc
        return mapping[_inside(table, len(mapping))], mapping[_inside(out_cache_loc, len(mapping))]

    def _layer(
        self, layer: Layer, state: torch.Tensor, where: torch.Tensor, slots: torch.Tensor, visible: torch.Tensor
    ) -> torch.Tensor:
        """Stores the tokens' bytes, then attends to all that each of them sees."""
        read = []
        for place, half in enumerate(HALVES):
            words = layer.words(half)
            words[_inside(slots, len(words))] = mix(state[:, None] + place, self._salts)
            digest = (words * self._weights).sum(1)
            read.append(digest[_inside(where, len(words))])
        scores, values = read[0], read[-1]
        for middle in read[1:-1]:
            values = values + mix(middle)
        seen = mix(mix(scores ^ state[:, None]) + values)
        return mix(state + torch.where(visible, seen, 0).sum(1))


def _inside(slots: torch.Tensor, count: int) -> torch.Tensor:
    return torch.where((slots >= 0) & (slots < count), slots, 0)
