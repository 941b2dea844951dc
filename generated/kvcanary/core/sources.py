# Written by kvcanary-gen from the spec; edit that instead.
"""Lists of byte sources: what is checked of them, and how a kernel takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import torch

from .. import errors, layout, structs
from . import checks, eager

# Bytes of a row's piece that a kernel reads at once, in words, and the longest fold that needs no more than one.
LARGEST_TILE = 8


def row_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a row, whatever the dtype."""
    return math.prod(tensor.shape[1:]) * tensor.element_size()


def row_stride(tensor: torch.Tensor) -> int:
    """Bytes from a row to the next."""
    return int(tensor.stride(0)) * tensor.element_size()


def packed(tensor: torch.Tensor) -> bool:
    """Whether the elements of each row lie side by side; asked without a view of one, which would take longer."""
    want = 1
    for length, stride in zip(reversed(tensor.shape[1:]), reversed(tensor.stride()[1:]), strict=True):
        if length != 1 and stride != want:
            return tensor.numel() == 0
        want *= length
    return True


@dataclass(frozen=True)
class Form:
    """How a fold reads its sources; kernels are compiled for each form that occurs.

    Attributes:
        tile (int): Words that are read at once.
        alignment (int): 16, 8, 4 or 1: every place that is read is a multiple of as many bytes.
        cut (int): Whether the last tile of a slot may end early (1), or anything may end anywhere (2).
        long (bool): Whether it takes several tiles.
    """

    tile: int
    alignment: int
    cut: int
    long: bool


@dataclass(frozen=True)
class Reach:
    """What a fold reads of one source: bytes for each slot, end of the furthest in a row, divisor of all places."""

    length: int
    furthest: int | None
    row_bytes: int
    divisor: int


def form_of(reaches: list[Reach]) -> Form:
    """The form that suits all sources of a fold."""
    longest = max((reach.length for reach in reaches), default=0)
    tile = next((words for words in (2, 4) if longest <= 8 * words), LARGEST_TILE)
    divisor = math.gcd(*(reach.divisor for reach in reaches))
    alignment = next(unit for unit in (16, 8, 4, 1) if divisor % unit == 0)
    unit = min(alignment, 8)
    cut = 0
    for reach in reaches:
        inside = reach.furthest is not None and reach.furthest <= reach.row_bytes
        if reach.length % unit or not inside:
            cut = 2
        elif reach.length % (8 * tile):
            cut = max(cut, 1)
    if cut == 2 and alignment == 4:
        alignment = 1
    return Form(tile, alignment, cut, longest > 8 * LARGEST_TILE)


# --- RealKvSource ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RealKvSourceTable(Sequence[structs.RealKvSource]):
    """Any number of RealKvSource, at any alignment, as a table on the device.

    Make it once with `build`, outside CUDA graphs, and pass it where a list of RealKvSource is taken. Kernels read
    the addresses from the table, so a launch takes as many sources as there are. The limits of a plain list, on number
    and alignment, do not hold here; places that are multiples of 16 bytes are read fastest, then those of 8, 4 and 1.

    Attributes:
        sources (tuple of RealKvSource): The sources, in the order in which they are hashed.
        table (int64 [n, 7]): Of each source its address and geometry.
    """

    sources: tuple[structs.RealKvSource, ...]
    table: torch.Tensor
    forms: dict[object, Form] = field(default_factory=dict, repr=False)

    @classmethod
    def build(cls, sources: Sequence[structs.RealKvSource]) -> RealKvSourceTable:
        """Checks the sources, and writes their table to the device on which they lie.

        Args:
            sources: at least one. Their tensors must not be reallocated while the table is in use.

        Raises:
            CanaryError: a source has a field of another kind, a number out of range, or rows that are not packed.
        """
        name = "sources"
        if isinstance(sources, RealKvSourceTable):
            sources = sources.sources
        real_kv_source_kinds(name, sources)
        if not sources:
            want, have = "at least 1 long", "0"
            raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")
        for place, source in enumerate(sources):
            path = f"{name}[{place}]"
            below(f"{path}.page_size", source.page_size, 1)
            below(f"{path}.num_bytes_per_token", source.num_bytes_per_token, 1)
            below(f"{path}.read_bytes", source.read_bytes, 1)
            above(f"{path}.read_bytes", source.read_bytes, "num_bytes_per_token", source.num_bytes_per_token)
            bytes_of(f"{path}.tensor", source.tensor, 1)
        first = sources[0].tensor
        anchor = (f"{name}[0].tensor", first, first.dtype, first.dim())
        real_kv_source_devices(name, sources, [anchor])
        rows = [[source.tensor.data_ptr(), *_real_kv_source_numbers(source)] for source in sources]
        return cls(tuple(sources), torch.tensor(rows, dtype=torch.int64, device=first.device))

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, place: int) -> structs.RealKvSource: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[structs.RealKvSource, ...]: ...

    def __getitem__(self, place: int | slice) -> structs.RealKvSource | tuple[structs.RealKvSource, ...]:
        return self.sources[place]


def _real_kv_source_numbers(source: structs.RealKvSource) -> list[int]:
    tensor = source.tensor
    geometry = [tensor.shape[0], row_stride(tensor), row_bytes(tensor)]
    return [*geometry, source.page_size, source.num_bytes_per_token, source.read_bytes]


def real_kv_source_arguments(sources: Sequence[structs.RealKvSource], most: int) -> list[object]:
    """Kernel arguments of a table and of `most` sources, those that are missing included."""
    if isinstance(sources, RealKvSourceTable):
        return [sources.table, len(sources), *[None, 0, 0, 0, 0, 0, 0] * most]
    found: list[object] = [None, 0]
    for source in sources:
        found += [eager.byte_rows(source.tensor), *_real_kv_source_numbers(source)]
    for _ in range(most - len(sources)):
        found += [None, 0, 0, 0, 0, 0, 0]
    return found


def real_kv_source_kinds(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """A tuple or list of sources, their fields of the declared kinds."""
    if isinstance(sources, RealKvSourceTable):
        return
    if not isinstance(sources, (tuple, list)):
        want, have = "a tuple of RealKvSource", type(sources).__name__
        raise errors.CanaryTypeError("KVC-001", f"kv-canary: {name} must be {want}, got {have}")
    for place, source in enumerate(sources):
        path = f"{name}[{place}]"
        checks.kind(path, source, structs.RealKvSource)
        checks.kind(f"{path}.tensor", source.tensor, torch.Tensor)
        checks.kind(f"{path}.page_size", source.page_size, int)
        checks.kind(f"{path}.num_bytes_per_token", source.num_bytes_per_token, int)
        checks.kind(f"{path}.read_bytes", source.read_bytes, int)


def real_kv_source_count(name: str, sources: Sequence[structs.RealKvSource], most: int) -> None:
    """As many sources as one launch takes; a table may hold more."""
    if not isinstance(sources, RealKvSourceTable):
        checks.count(name, sources, most)


def real_kv_source_sizes(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """Numbers of every source fit an argument of a kernel."""
    if isinstance(sources, RealKvSourceTable):
        return
    for place, source in enumerate(sources):
        path = f"{name}[{place}]"
        checks.int64(f"{path}.page_size", source.page_size)
        checks.int64(f"{path}.num_bytes_per_token", source.num_bytes_per_token)
        checks.int64(f"{path}.read_bytes", source.read_bytes)


def real_kv_source_values(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """Numbers of every source are in their ranges."""
    if isinstance(sources, RealKvSourceTable):
        return
    for place, source in enumerate(sources):
        path = f"{name}[{place}]"
        below(f"{path}.page_size", source.page_size, 1)
        multiple(f"{path}.num_bytes_per_token", source.num_bytes_per_token, 16)
        multiple(f"{path}.read_bytes", source.read_bytes, 16)
        above(f"{path}.read_bytes", source.read_bytes, "num_bytes_per_token", source.num_bytes_per_token)


def real_kv_source_geometry(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """Tensors of every source can be read row by row, in aligned words."""
    if isinstance(sources, RealKvSourceTable):
        return
    for place, source in enumerate(sources):
        bytes_of(f"{name}[{place}].tensor", source.tensor, 16)


def real_kv_source_devices(name: str, sources: Sequence[structs.RealKvSource], tensors: checks.Tensors) -> None:
    """Tensors of every source lie where the call's first tensor does."""
    for place, source in enumerate(sources):
        tensor = source.tensor
        row = (f"{name}[{place}].tensor", tensor, tensor.dtype, tensor.dim())
        checks.devices([tensors[0], row])


# --- real_kv_hash ----------------------------------------------------------------------------------------------------


def real_kv_hash_form(sources: Sequence[structs.RealKvSource], real_kv_hash_mode: layout.RealKvHashMode) -> Form:
    """The form in which `real_kv_hash` reads its sources."""
    key = ("real_kv_hash", real_kv_hash_mode)
    if isinstance(sources, RealKvSourceTable) and key in sources.forms:
        return sources.forms[key]
    reaches: list[Reach] = []
    for source in sources:
        tensor = source.tensor
        length = (
            min(source.read_bytes, layout.PARTIAL_REAL_KV_BYTES)
            if real_kv_hash_mode == layout.RealKvHashMode.PARTIAL
            else source.read_bytes
        )
        furthest = (source.page_size - 1) * source.num_bytes_per_token + length
        divisor = math.gcd(tensor.data_ptr(), row_stride(tensor), source.num_bytes_per_token)
        reaches.append(Reach(length, furthest, row_bytes(tensor), divisor))
    form = form_of(reaches)
    if isinstance(sources, RealKvSourceTable):
        sources.forms[key] = form
    return form


# --- Shared -----------------------------------------------------------------------------------------------------------


def is_table(sources: object) -> bool:
    """Whether sources are a table on the device."""
    return isinstance(sources, RealKvSourceTable)


def inline(sources: Sequence[object]) -> int:
    """How many sources are arguments of the kernel itself."""
    return 0 if is_table(sources) else len(sources)


def below(name: str, have: int, least: int) -> None:
    if have < least:
        want = f"at least {least}"
        raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")


def above(name: str, have: int, other: str, most: int) -> None:
    if have > most:
        want = f"at most {other}={most}"
        raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")


def multiple(name: str, have: int, unit: int) -> None:
    if have <= 0 or have % unit:
        want = f"a positive multiple of {unit}"
        raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")


def bytes_of(name: str, tensor: torch.Tensor, align: int) -> None:
    """A tensor whose rows are read as bytes."""
    if tensor.dim() < 2:
        want, have = "be at least 2-D", f"shape {tuple(tensor.shape)}"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
    if not packed(tensor):
        want, have = "have packed rows", f"strides {tuple(tensor.stride())}"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
    if row_stride(tensor) % align:
        want, have = f"have a row stride that is a multiple of {align} bytes", f"{row_stride(tensor)}"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
    if tensor.data_ptr() % align:
        want, have = f"begin at a multiple of {align} bytes", f"{tensor.data_ptr() % align} bytes more"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
