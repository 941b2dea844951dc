# Written by kvcanary-gen from the spec; edit that instead.
"""What the spec language needs of Triton: kernels that never respecialise, segments, saturating sums, floor division.

Everything here is safe for any device data: offsets may run backwards, and sums may exceed 64 bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import cuda

INT64_MAX = tl.constexpr(0x7FFFFFFFFFFFFFFF)


def kernel(function: Callable[..., Any]) -> Any:
    """`triton.jit` without specialisation on values: another batch size or pointer alignment compiles nothing new."""
    parameters = inspect.signature(function).parameters.items()
    runtime = [name for name, parameter in parameters if "constexpr" not in str(parameter.annotation)]
    return triton.jit(function, do_not_specialize=runtime)


@triton.jit
def begin(OVERLAPS: tl.constexpr):
    """The first thing that a kernel does, so that it may be launched while the one before it still ends."""
    join(OVERLAPS)


@triton.jit
def join(OVERLAPS: tl.constexpr):
    """Waits until the launch before this one is done and all that it stored is seen, and allows the next one the same.

    A kernel that begins with something else must not read there what that launch stores, and comes here on every way:
    the launch after the next relies on it.
    """
    if OVERLAPS:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()


@triton.jit
def one_bit(condition):
    """A condition on scalars; Triton's interpreter takes it for an integer when it spreads it over a block."""
    return tl.where(condition, True, False)


@triton.jit
def saturating_add(a, b):
    """a + b of two non-negative int64, at most 2**63 - 1."""
    return tl.where(a > INT64_MAX - b, INT64_MAX, a + b)


@triton.jit
def running_sum(values, before):
    """Inclusive running sums of int64 `values` on top of `before`, saturating; negative values count as 0."""
    values = tl.maximum(values, 0)
    if tl.max(values, axis=0) <= 0x7FFFFFFF // values.shape[0]:
        # What is summed nearly always fits 32 bits, of which sums cost half.
        sums = tl.cumsum(values.to(tl.int32), axis=0).to(tl.int64)
    else:
        # The two halves of 32 bits are summed apart, so neither can overflow before the sum is known to.
        low = tl.cumsum(values & 0xFFFFFFFF, axis=0)
        high = tl.cumsum(values >> 32, axis=0) + (low >> 32)
        sums = tl.where(high > 0x7FFFFFFF, INT64_MAX, (high << 32) | (low & 0xFFFFFFFF))
    return saturating_add(sums, before)


@triton.jit
def segment_bounds(segment, mask, offsets_ptr, limit):
    """First index and end of segments; a negative offset counts as 0, and offsets that run backwards are empty."""
    first = tl.maximum(tl.load(offsets_ptr + segment, mask=mask, other=0), 0)
    end = tl.minimum(tl.load(offsets_ptr + segment + 1, mask=mask, other=0), limit)
    return first, tl.maximum(end, first)


@triton.jit
def longest(lengths):
    """The largest of some lengths, as one int64; those beyond 32 bits count as the largest of these."""
    return tl.max(tl.minimum(lengths, 0x7FFFFFFF).to(tl.int32), axis=0).to(tl.int64)


@triton.jit
def offsets_ascend(offsets_ptr, count, SCAN: tl.constexpr):
    """1 if no offset of `count` segments is less than the one before it, else 0."""
    descents = tl.zeros([], tl.int32)
    start = tl.zeros([], tl.int64)
    while start < count:
        segment = start + tl.arange(0, SCAN)
        mask = segment < count
        first = tl.load(offsets_ptr + segment, mask=mask, other=0)
        end = tl.load(offsets_ptr + segment + 1, mask=mask, other=0)
        descents += tl.max((end < first).to(tl.int32), axis=0)
        start += SCAN
    return descents == 0


@triton.jit
def ends_up_to(index, offsets_ptr, count):
    """How many of the first `count` segments end at or before one index, of offsets that ascend.

    Each round looks at 32 of them, since what a search costs is one load after the other.
    """
    lane = tl.arange(0, 32)
    low = tl.zeros([], tl.int64)
    high = low + count
    while low < high:
        stride = (high - low + 31) >> 5
        last = low + (lane + 1) * stride - 1
        end = tl.load(offsets_ptr + last + 1, mask=last < high, other=INT64_MAX)
        low += stride * tl.sum((end <= index).to(tl.int64), axis=0)
        high = tl.minimum(high, low + stride - 1)
    return low


@triton.jit
def bisect_segment(index, lowest, highest, offsets_ptr, count):
    """The segment that holds each index, of offsets that ascend: (segment, its first index, whether there is one).

    It is none before `lowest` and none behind `highest`.
    """
    segment = tl.zeros_like(index) + lowest
    high = tl.zeros_like(index) + highest
    span = highest - lowest
    while span > 0:
        middle = (segment + high) >> 1
        open_ = segment < high
        end = tl.load(offsets_ptr + middle + 1, mask=open_, other=0)
        high = tl.where(open_ & (end > index), middle, high)
        segment = tl.where(open_ & (end <= index), middle + 1, segment)
        span = span >> 1
    first = tl.maximum(tl.load(offsets_ptr + segment, mask=segment < count, other=0), 0)
    return segment, first, (segment < count) & (first <= index)


@triton.jit
def locate_segment(index, start, offsets_ptr, count):
    """The segment that holds each index of the block from `start` on, of offsets that ascend.

    Returns the segment, its first index, and whether there is one. A block mostly lies in one segment, or in few.
    """
    lowest = ends_up_to(start, offsets_ptr, count)
    highest = lowest
    end = tl.load(offsets_ptr + lowest + 1, mask=lowest < count, other=INT64_MAX)
    last = start + index.shape[0] - 1
    if end <= last:
        highest = ends_up_to(last, offsets_ptr, count)
    return bisect_segment(index, lowest, highest, offsets_ptr, count)


@triton.jit
def sum_up(values):
    """Inclusive running sums of int64 `values`, at most 2**31 - 1, in 32 bits, and their int64 total, saturating.

    Negative values count as 0.
    """
    values = tl.maximum(values, 0)
    if longest(values) <= 0x7FFFFFFF // values.shape[0]:
        narrow = values.to(tl.int32)
        ends = tl.cumsum(narrow, axis=0)
        total = tl.sum(narrow, axis=0).to(tl.int64)
    else:
        sums = running_sum(values, tl.zeros([], tl.int64))
        ends = tl.minimum(sums, 0x7FFFFFFF).to(tl.int32)
        total = tl.max(sums, axis=0)
    return ends, total


@triton.jit
def locate_in_sums(index, start, ends, count):
    """The segment that holds each index of the block from `start` on, of ends that ascend in registers.

    Returns the segment, its first index, and whether there is one: for indices below 2**31 - 1. A block mostly lies in
    one segment, or in few.
    """
    last = start + index.shape[0] - 1
    lowest = tl.sum((ends <= start).to(tl.int32), axis=0)
    highest = tl.sum((ends <= last).to(tl.int32), axis=0)
    begin = tl.max(tl.where(ends <= start, ends, 0), axis=0)
    segment = tl.zeros(index.shape, tl.int32) + lowest
    first = tl.zeros(index.shape, tl.int32) + begin
    high = tl.zeros(index.shape, tl.int32) + highest
    span = highest - lowest
    while span > 0:
        middle = (segment + high) >> 1
        open_ = segment < high
        end = tl.gather(ends, tl.minimum(middle, ends.shape[0] - 1), axis=0)
        high = tl.where(open_ & (end > index), middle, high)
        first = tl.where(open_ & (end <= index), end, first)
        segment = tl.where(open_ & (end <= index), middle + 1, segment)
        span = span >> 1
    return segment.to(tl.int64), first.to(tl.int64), segment < count


@triton.jit
def find_segment(index, start, offsets_ptr, count, SCAN: tl.constexpr):
    """The last segment that holds each index of the block from `start` on, whatever the offsets are.

    Returns the segment, its first index, and whether there is one. Offsets that do not ascend are searched one by one,
    so that hostile ones mean the same everywhere.
    """
    segment = tl.zeros_like(index)
    found = index < 0
    if offsets_ascend(offsets_ptr, count, SCAN):
        segment, _, found = locate_segment(index, start, offsets_ptr, count)
    else:
        candidate = tl.zeros([], tl.int64)
        while candidate < count:
            begin = tl.load(offsets_ptr + candidate)
            end = tl.load(offsets_ptr + candidate + 1)
            holds = (begin <= index) & (index < end)
            segment = tl.where(holds, candidate, segment)
            found = found | holds
            candidate += 1
    first = tl.maximum(tl.load(offsets_ptr + segment, mask=found, other=0), 0)
    return segment, first, found


@triton.jit
def append(failing, next_ptr, capacity):
    """Rows for the points of a block that fail: (row, whether it exists). Rows past the end are counted and dropped.

    The counter is device data: it may be negative or huge, and no row that it names outside the ring is written.
    """
    flags = failing.to(tl.int64)
    first = tl.atomic_add(next_ptr, tl.sum(failing.to(tl.int32), axis=0), sem="relaxed").to(tl.int64)
    row = first + tl.cumsum(flags, axis=0) - flags
    return row, failing & (row >= 0) & (row < capacity)


@triton.jit
def halves(words):
    """The low and the high 32 bits of uint64, as uint32."""
    return words.to(tl.uint32), (words >> 32).to(tl.uint32)


@triton.jit
def joined(low, high):
    """The uint64 of two halves."""
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def product(low, high, FACTOR: tl.constexpr):
    """The product of a uint64, given as halves, and a constant: wide + (cross << 32), modulo 2**64.

    Returns wide, uint64, the product of the low halves, and cross, uint32. Bits of the product that both decide need
    not wait for their sum. All of it wraps, which Triton's checks for overflow must not take for a mistake.
    """
    wide = low.to(tl.uint64) * (FACTOR & 0xFFFFFFFF)
    of_low = tl.mul(low, FACTOR >> 32, sanitize_overflow=False)
    of_high = tl.mul(high, FACTOR & 0xFFFFFFFF, sanitize_overflow=False)
    return wide, tl.add(of_low, of_high, sanitize_overflow=False)


@triton.jit
def product_bits(wide, cross, SHIFT: tl.constexpr):
    """32 bits of a product, from bit SHIFT on, which is at most 32."""
    bits = (wide >> SHIFT).to(tl.uint32)
    if SHIFT > 0:
        bits = tl.add(bits, cross << (32 - SHIFT), sanitize_overflow=False)
    return bits


@triton.jit
def load_pair(words_ptr, offset, mask, PAIRED: tl.constexpr):
    """Two neighbouring words for each lane, from `offset` on. PAIRED: all such places are aligned to 16 bytes."""
    if PAIRED and offset.type.is_block():
        # The compiler believes a hint on pointers, but none on arguments of a function.
        first_ptr = tl.multiple_of(words_ptr + offset[:, None], [16, 16])
        low, high = tl.split(tl.load(first_ptr + tl.arange(0, 2)[None, :], mask=mask[:, None], other=0))
    else:
        low = tl.load(words_ptr + offset, mask=mask, other=0)
        high = tl.load(words_ptr + offset + 1, mask=mask, other=0)
    return low, high


@triton.jit
def load_tile(tensor_ptr, start, first, stop, inside, WORDS: tl.constexpr, ALIGNMENT: tl.constexpr, CUT: tl.constexpr):
    """WORDS neighbouring little-endian words for each lane, [lanes, WORDS], from byte `first` of the row at `start`.

    Bytes before the row's first, and from `stop` on, are zero. CUT says which of them a lane that is inside may have:
    0 none, 1 those of whole units, 2 any, which does not go with an alignment of 4. A unit is ALIGNMENT bytes, of which
    all places are multiples, at most a word.
    """
    column = tl.arange(0, WORDS)[None, :]
    byte = first[:, None] + 8 * column
    place = start[:, None] + byte
    words_ptr = tensor_ptr.to(tl.pointer_type(tl.uint64))
    halves_ptr = tensor_ptr.to(tl.pointer_type(tl.uint32))
    inside = inside[:, None]
    whole = inside
    half = inside
    if CUT > 0:
        inside = inside & (byte >= 0)
        whole = inside & (byte <= stop[:, None] - 8)
        half = inside & (byte <= stop[:, None] - 4)
    if ALIGNMENT == 16:
        # A lane takes two words at a time where it knows that they are aligned.
        first_ptr = tl.multiple_of(words_ptr + ((start + first) >> 3)[:, None], [16, 16])
        words = tl.load(first_ptr + column, mask=whole, other=0)
    elif ALIGNMENT == 8:
        words = tl.load(words_ptr + (place >> 3), mask=whole, other=0)
    elif ALIGNMENT == 4:
        low = tl.load(halves_ptr + (place >> 2), mask=half, other=0)
        high = tl.load(halves_ptr + (place >> 2) + 1, mask=whole, other=0)
        words = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
    else:
        words = tl.zeros(byte.shape, tl.uint64)
    if CUT == 2 or ALIGNMENT == 1:
        # Whatever no aligned load covers, byte by byte; a loop keeps the registers of one.
        shift = tl.zeros([], tl.int64)
        while shift < 8:
            left = inside & (byte + shift < stop[:, None])
            if ALIGNMENT >= 8:
                left = left & (byte + 8 > stop[:, None])
            part = tl.load(tensor_ptr + place + shift, mask=left, other=0)
            words = words | (part.to(tl.uint64) << (8 * shift).to(tl.uint64))
            shift += 1
    return words


@triton.jit
def split_four(words):
    """The four columns of a tile, split in registers."""
    even, odd = tl.split(tl.reshape(words, [words.shape[0], 2, 2]))
    word_0, word_2 = tl.split(even)
    word_1, word_3 = tl.split(odd)
    return word_0, word_1, word_2, word_3


@triton.jit
def split_words(words):
    """The eight columns of a tile, split in registers."""
    even, odd = tl.split(tl.reshape(words, [words.shape[0], 4, 2]))
    even_0, even_2 = tl.split(tl.reshape(even, [words.shape[0], 2, 2]))
    odd_1, odd_3 = tl.split(tl.reshape(odd, [words.shape[0], 2, 2]))
    word_0, word_4 = tl.split(even_0)
    word_2, word_6 = tl.split(even_2)
    word_1, word_5 = tl.split(odd_1)
    word_3, word_7 = tl.split(odd_3)
    return word_0, word_1, word_2, word_3, word_4, word_5, word_6, word_7


@triton.jit
def floor_div(a, b):
    """a // b rounded down, for positive b; Triton's own rounds towards zero."""
    quotient = a // b
    return quotient - (quotient * b > a).to(tl.int64)


@triton.jit
def floor_div_by(a, b):
    """a // b rounded down, for a positive b that is one value; a division of 64 bits would take a hundred steps."""
    quotient = a
    if b != 1:
        inverse = 1.0 / b.to(tl.float64)
        quotient = tl.floor(a.to(tl.float64) * inverse).to(tl.int64)
        # A float64 has 53 bits of the 64, so what is left over is divided as well.
        rest = a - quotient * b
        quotient += tl.floor(rest.to(tl.float64) * inverse).to(tl.int64)
        rest = a - quotient * b
        quotient += (rest >= b).to(tl.int64) - (rest < 0).to(tl.int64)
    return quotient


@triton.jit
def floor_mod_by(a, b):
    """a modulo a positive b that is one value, never negative."""
    return a - floor_div_by(a, b) * b


@triton.jit
def floor_mod(a, b):
    """a modulo positive b, never negative."""
    remainder = a % b
    return tl.where(remainder < 0, remainder + b, remainder)
