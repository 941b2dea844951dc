"""Division by a value of run time, by way of float64 and back: exact on all of int64."""

from __future__ import annotations

import random

import pytest
import torch
import triton
import triton.language as tl

from kvcanary.core import lang

pytestmark = pytest.mark.usefixtures("interpreted")

LANES = 16
LOW, HIGH = -(1 << 63), (1 << 63) - 1
DIVISORS = (1, 2, 3, 7, 16, 4096, (1 << 31) - 1, 1 << 40, (1 << 52) + 1, (1 << 53) - 1, (1 << 62) + 3, HIGH)


@triton.jit
def _divide(dividends_ptr, divisor, quotients_ptr, remainders_ptr, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    dividend = tl.load(dividends_ptr + lane)
    divisor = divisor.to(tl.int64) + 0
    tl.store(quotients_ptr + lane, lang.floor_div_by(dividend, divisor))
    tl.store(remainders_ptr + lane, lang.floor_mod_by(dividend, divisor))


def dividends(chosen: random.Random, divisor: int) -> list[int]:
    """About multiples of the divisor, about the ends of the range, and anything."""
    most = HIGH // divisor
    near = [divisor * chosen.randint(-most, most) + chosen.choice((-1, 0, 1)) for _ in range(6)]
    given = [*near, 0, -1, divisor, divisor - 1, -divisor, LOW, HIGH, chosen.randint(LOW, HIGH)]
    given += [chosen.randint(-(1 << 40), 1 << 40) for _ in range(LANES - len(given))]
    return [min(max(value, LOW), HIGH) for value in given]


def test_division_is_exact() -> None:
    chosen = random.Random(0)
    others = [chosen.randint(1, 1 << chosen.randint(1, 62)) for _ in range(200)]
    for divisor in (*DIVISORS, *others):
        given = dividends(chosen, divisor)
        quotients, remainders = torch.zeros(LANES, dtype=torch.int64), torch.zeros(LANES, dtype=torch.int64)
        _divide[(1,)](torch.tensor(given), divisor, quotients, remainders, LANES=LANES)
        assert quotients.tolist() == [value // divisor for value in given], divisor
        assert remainders.tolist() == [value % divisor for value in given], divisor
