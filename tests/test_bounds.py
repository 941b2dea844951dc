"""No access leaves a tensor, whatever the data says. The watch itself is tried on kernels that do leave theirs."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

import kvcanary
from kvcanary_gen.emit.package import build_package
from kvcanary_gen.emit.proof import Facts
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.values import Values
from tests.support import broken_kernels
from tests.support.calls import run, sides
from tests.support.guards import Bands, OutOfBoundsError, StrictIndices, watched
from tests.support.packages import import_package
from tests.support.program import SPEC, SURFACES, both_kinds, drawer, every_surface
from tests.support.strategies import for_each, quick, reporting
from tests.support.verdicts import differences

pytestmark = pytest.mark.usefixtures("interpreted")

# Bands that look like data: what is read from them shows in what is written.
FILLS = (1, 90)


def triton_within_bounds(case: Case, package: ModuleType = kvcanary) -> None:
    """Raises OutOfBoundsError for an access outside; what bands hold neither changes nor matters."""
    for side in sides(SURFACES[case.surface]):
        if side in ("triton", "triton, in launches"):
            _within_bounds(case, side, package)


def _within_bounds(case: Case, side: str, package: ModuleType) -> None:
    results: list[Values] = []
    for fill in FILLS:
        bands = Bands(fill)
        with watched() as watch:
            results.append(run(case, side, bands, package))
        bands.check()
        results[-1]["accesses"] = watch.accesses
    # Interpreted programs run in a fixed order, so even what the contract leaves open is the same.
    assert differences(*results) == []


@both_kinds
@every_surface
def test_triton_stays_inside(name: str, hostile: bool) -> None:
    for_each(name, hostile, triton_within_bounds, share=4)


@every_surface
def test_triton_stays_inside_around_a_block(name: str) -> None:
    drawn = (seeded(drawer(name, True), seed, large=True) for seed in range(40))
    for case in [case for case in drawn if quick(case)][: 3 if reporting(name) else 6]:
        triton_within_bounds(case)


@both_kinds
@every_surface
def test_references_stay_inside(name: str, hostile: bool) -> None:
    """No index wraps: a negative one is as wrong as one behind the end."""
    for_each(name, hostile, reference_within_bounds, share=4)


def reference_within_bounds(case: Case) -> None:
    bands = Bands(FILLS[0])
    with StrictIndices():
        run(case, "reference", bands)
    bands.check()


# --- The watch can fail -----------------------------------------------------------------------------------------------


@every_surface
def test_watch_sees_accesses(name: str) -> None:
    """On a Triton whose interpreter works another way the tests above would see nothing."""
    seen, indexed = [], []
    for seed in range(8):
        case = seeded(drawer(name, False), f"watched {seed}")
        with watched() as watch:
            run(case, "triton")
        with StrictIndices() as strict:
            run(case, "reference")
        seen.append(watch.accesses)
        indexed.append(strict.indexed)
    assert max(seen) > 0 and max(indexed) > 0


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The package as it would be if the generator took every index for proven: without bounds checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Facts, "below", lambda *_: True)
        patch.setattr(Facts, "not_negative", lambda *_: True)
        files = build_package(SPEC)
    return import_package(files, tmp_path_factory.mktemp("careless"))


@every_surface
def test_kernels_without_bounds_checks_are_caught(name: str, careless: ModuleType) -> None:
    drawn = (seeded(drawer(name, True), seed, large=False) for seed in range(200))
    assert any(_caught(case, careless) for case in drawn)


def _caught(case: Case, package: ModuleType) -> bool:
    try:
        triton_within_bounds(case, package)
    except OutOfBoundsError:
        return True
    return False


@pytest.mark.parametrize("broken", broken_kernels.ALL, ids=lambda kernel: kernel.__name__)
def test_broken_kernels_are_caught(broken: broken_kernels.Broken) -> None:
    tensors = [Bands(FILLS[0])(array) for array in broken_kernels.arguments()]
    with pytest.raises(OutOfBoundsError), watched():
        broken(*tensors)


def test_bands_show_a_write_outside() -> None:
    bands = Bands(FILLS[0])
    broken_kernels.stores_behind_the_end(*(bands(array) for array in broken_kernels.arguments()))
    with pytest.raises(OutOfBoundsError):
        bands.check()


def test_bands_show_a_read_outside() -> None:
    results = []
    for fill in FILLS:
        tensors = [Bands(fill)(array) for array in broken_kernels.arguments()]
        broken_kernels.loads_behind_the_end(*tensors)
        results.append(tensors[1].tolist())
    assert results[0] != results[1]


@pytest.mark.parametrize("index", [-1, 3])
def test_strict_indices_show_an_index_outside(index: int) -> None:
    with StrictIndices(), pytest.raises(OutOfBoundsError):
        torch.arange(3)[torch.tensor([index])]
    with StrictIndices(), pytest.raises(OutOfBoundsError):
        torch.arange(3)[torch.tensor([0, index])] = 5
