# Written by kvcanary-gen from the spec; edit that instead.
"""What the spec language needs of torch: total loads and stores, segments, saturating sums.

References are for tests and for devices without Triton. They read device data on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

INT64_MAX = 0x7FFFFFFFFFFFFFFF


def bits(value: int) -> int:
    """The 64 low bits of a Python integer as a signed one, the form in which torch takes them."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


def scalar(value: int, like: torch.Tensor) -> torch.Tensor:
    """A Python integer as a 0-d int64 tensor, so that its arithmetic wraps as a kernel's does."""
    return torch.tensor(value, dtype=torch.int64, device=like.device)


def shift_right(value: torch.Tensor, distance: int) -> torch.Tensor:
    """Logical shift of 64 bits; torch's own repeats the sign."""
    return (value >> distance) & ((1 << (64 - distance)) - 1) if distance else value


def _places(tensor: torch.Tensor, indices: tuple[torch.Tensor | int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat places of elements, and which of them exist; the others' place is 0."""
    flat, *others = torch.broadcast_tensors(*(torch.as_tensor(index, device=tensor.device) for index in indices))
    inside = (flat >= 0) & (flat < tensor.shape[0])
    for index, length in zip(others, tensor.shape[1:], strict=True):
        inside = inside & (index >= 0) & (index < length)
        flat = flat * length + index
    return torch.where(inside, flat, 0), inside


def load(tensor: torch.Tensor, *indices: torch.Tensor | int, outside: int = 0) -> torch.Tensor:
    """Elements widened to int64; a place outside the tensor reads `outside`."""
    flat, inside = _places(tensor, indices)
    if tensor.numel() == 0:
        return torch.full_like(flat, outside)
    words = tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor
    # Rows that lie apart are read where they lie: flat, all of them would have to be copied.
    found = words.view(-1)[flat] if words.is_contiguous() else words[torch.unravel_index(flat, words.shape)]
    return torch.where(inside, found.to(torch.int64), outside)


def store(
    tensor: torch.Tensor, indices: tuple[torch.Tensor | int, ...], value: torch.Tensor | int, *, unique: bool
) -> None:
    """Stores the low bits of `value`; a place outside is dropped, and of equal places the last one wins.

    Args:
        unique: no two places are equal, so there is nothing to sort.
    """
    flat, inside = _places(tensor, indices)
    flat, inside, values = torch.broadcast_tensors(flat, inside, torch.as_tensor(value, device=tensor.device))
    if not bool(inside.all()):
        flat, values = flat[inside], values[inside]
    if not unique:
        flat, order = torch.sort(flat, stable=True)
        last = torch.ones_like(flat, dtype=torch.bool)
        last[:-1] = flat[1:] != flat[:-1]
        flat, values = flat[last], values[order[last]]
    # torch cannot index uint64; the bits are the same.
    words = tensor.view(torch.int64) if tensor.dtype == torch.uint64 else tensor
    words.view(-1)[flat] = values.to(words.dtype)


@dataclass(frozen=True)
class Segments:
    """Every index of every segment, segment by segment: three int64 vectors of equal length.

    `disjoint` says that no index belongs to two segments; `number` counts the segments, empty ones included.
    """

    number: torch.Tensor

    owner: torch.Tensor
    within: torch.Tensor
    index: torch.Tensor
    disjoint: bool

    def steps(self) -> Iterator[torch.Tensor]:
        """Places of all first indices, then of all second ones, and so on: no segment stands twice in one step."""
        _, order = torch.sort(self.within, stable=True)
        for places in order.split(torch.bincount(self.within).tolist()):
            if places.shape[0]:
                yield places


def segments(offsets: torch.Tensor, count: int, limit: int) -> Segments:
    """Expands offsets; a negative one counts as 0, those that run backwards are empty, `limit` ends all."""
    count = max(0, min(count, offsets.shape[0] - 1))
    first = offsets[:count].clamp(min=0)
    end = torch.maximum(offsets[1 : count + 1].clamp(max=limit), first)
    lengths = end - first
    owner = torch.repeat_interleave(torch.arange(count, device=offsets.device), lengths)
    within = torch.arange(owner.shape[0], device=offsets.device) - (lengths.cumsum(0) - lengths)[owner]
    disjoint = bool((offsets[1 : count + 1] >= offsets[:count]).all())
    number = torch.arange(count, device=offsets.device)
    return Segments(number, owner, within, first[owner] + within, disjoint)


def spread(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A vector of its own, one element for each of `like`."""
    return value.to(like.device).expand_as(like).clone()


def add(counter: torch.Tensor, amount: torch.Tensor | int) -> None:
    """Adds to the first element; sums wrap."""
    counter[:1] += amount


def append(
    ring: torch.Tensor, next_row: torch.Tensor, groups: list[tuple[torch.Tensor, list[torch.Tensor | int]]]
) -> None:
    """Appends a row for every point whose reasons are not 0: point by point, and at one point group by group.

    The counter grows by all of them. Rows that it places outside the ring are dropped.

    Args:
        groups: of each group the reasons, one for a point, and the fields of its row.
    """
    failing = torch.stack([reasons != 0 for reasons, _ in groups], 1).flatten()
    fields = [torch.stack([_spread_field(field, reasons) for field in row], 1) for reasons, row in groups]
    rows = torch.stack(fields, 1).flatten(0, 1)[failing]
    first = int(next_row[0]) if next_row.shape[0] else 0
    # The counter is an int32 that wraps.
    place = (first + torch.arange(rows.shape[0], device=rows.device) + (1 << 31)) % (1 << 32) - (1 << 31)
    inside = (place >= 0) & (place < ring.shape[0])
    ring[place[inside]] = rows[inside]
    next_row[:1] = (first + rows.shape[0] + (1 << 31)) % (1 << 32) - (1 << 31)


def _spread_field(field: torch.Tensor | int, reasons: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(field, dtype=torch.int64, device=reasons.device).expand_as(reasons)


def byte_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with packed rows as rows of bytes, whatever its dtype and number of dimensions."""
    if tensor.dim() > 2 or tensor.stride(-1) != 1:
        # Rows whose last dimension has one element are packed whatever its stride, which a view does not take.
        tensor = tensor.as_strided((tensor.shape[0], math.prod(tensor.shape[1:])), (tensor.stride(0), 1))
    return tensor.view(torch.uint8)


def load_word(rows: torch.Tensor, row: torch.Tensor, byte: torch.Tensor, size: int) -> torch.Tensor:
    """The little-endian 8-byte word that begins at a byte of a row; bytes outside, and from `size` on, are zero."""
    word = torch.zeros_like(byte)
    for place in range(min(8, size)):
        word |= load(rows, row, byte + place) << (8 * place)
    return word


def running_sum(values: torch.Tensor) -> torch.Tensor:
    """Inclusive running sums of int64, saturating; negative values count as 0.

    The two halves of 32 bits are summed apart, so neither can overflow before the sum is known to.
    """
    values = values.clamp(min=0)
    low = (values & 0xFFFFFFFF).cumsum(0)
    high = (values >> 32).cumsum(0) + (low >> 32)
    return torch.where(high > 0x7FFFFFFF, INT64_MAX, (high << 32) | (low & 0xFFFFFFFF))


def total(sums: torch.Tensor) -> torch.Tensor:
    """The last of running sums as a 0-d tensor, 0 for none."""
    return sums[-1] if sums.shape[0] else sums.new_zeros([])


def store_offsets(tensor: torch.Tensor, ends: torch.Tensor, *, rest: int | None = None) -> None:
    """Writes 0, the running sums, and `rest` behind them; what does not fit is dropped."""
    fits = ends[: max(0, tensor.shape[0] - 1)]
    tensor[:1] = 0
    tensor[1 : fits.shape[0] + 1] = fits
    if rest is not None:
        tensor[fits.shape[0] + 1 :] = rest
