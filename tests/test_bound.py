"""Bound launchers: what a call does is what the launcher does, and it does nothing else."""

from __future__ import annotations

import gc
import inspect
import re
import weakref
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton.runtime.jit
from torch._subclasses.fake_tensor import FakeTensorMode

import kvcanary
from kvcanary.core import bound, tables
from kvcanary_gen.ir import ScanDomain
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.host import broken_capture, first_broken
from kvcanary_gen.oracle.source import RandomSource
from kvcanary_gen.surface import Surface
from tests.support import compiled
from tests.support.breakages import assert_untouched, broken_call, examples, good, implied, materialised, on_a_gpu
from tests.support.calls import call, keywords, objects, values_of, wrong
from tests.support.program import PROGRAM, SURFACES, both_kinds, drawer, every_surface
from tests.support.strategies import for_each, quick

pytestmark = pytest.mark.usefixtures("interpreted")

BACKENDS = ("triton", "reference")
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def bind(surface: Surface, given: Mapping[str, Any], backend: str) -> kvcanary.Bound:
    found: kvcanary.Bound = getattr(kvcanary, surface.binder)(**keywords(surface, given), backend=backend)
    return found


def check(case: Case, backend: str) -> None:
    """A call after binding leaves every argument as the interpreter does, and binding leaves them as they are."""
    surface = SURFACES[case.surface]
    given = objects(surface, case.args)
    made = bind(surface, given, backend)
    assert values_of(case, given) == case.args
    made()
    assert wrong(case, backend, values_of(case, given)) == []


def small(name: str, *, hostile: bool = False) -> Iterator[Case]:
    """Calls that change something."""
    for seed in range(1000):
        case = seeded(drawer(name, hostile), f"bound {seed}", large=False)
        given = objects(SURFACES[name], case.args)
        call(SURFACES[name], given, "reference")
        if quick(case) and values_of(case, given) != case.args:
            yield case


# --- Bound and unbound ------------------------------------------------------------------------------------------------


@every_backend
@both_kinds
@every_surface
def test_bound_is_as_unbound(name: str, hostile: bool, backend: str) -> None:
    drawn = (seeded(drawer(name, hostile), f"bound {seed}", large=False) for seed in range(30))
    for case in [case for case in drawn if quick(case)][:8]:
        check(case, backend)


@both_kinds
@every_surface
def test_compiled_launches(name: str, hostile: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiled kernel gets all of its parameters in order, and every tensor's address."""
    compiled.install(monkeypatch)
    for_each(name, hostile, lambda case: check(case, "triton"), share=8)


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0"])
@every_surface
def test_triton_that_is_not_known(name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are launched as everybody launches them; their compiled form is not touched."""
    compiled.install(monkeypatch, version)
    monkeypatch.setattr(compiled.CompiledKernel, "run", None)
    monkeypatch.setattr(compiled.Compiler, "__getitem__", lambda self, grid: self.kernel[grid], raising=False)
    check(next(small(name)), "triton")


@pytest.mark.parametrize("way", ["reference", "interpreted", "compiled"])
@every_surface
def test_other_elements_in_the_same_tensors(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "compiled":
        compiled.install(monkeypatch)
    surface, backend = SURFACES[name], "reference" if way == "reference" else "triton"
    first, *others = drawer(name, False).series(RandomSource(f"bound {name}"), 4)
    given = objects(surface, first.args)
    made = bind(surface, given, backend)
    for case in (first, *others, first):
        overwrite(given, objects(surface, case.args))
        made()
        assert wrong(case, backend, values_of(case, given)) == []


def overwrite(given: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for path, value in given.items():
        for mine, theirs in zip(tensors_of(value), tensors_of(other[path]), strict=True):
            mine.copy_(theirs)


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value if isinstance(value, tuple) else ()
    return [field for item in items for field in map(item.__getattribute__, item.__slots__) if torch.is_tensor(field)]


@every_surface
def test_no_programs_are_no_launches(name: str) -> None:
    """Calls of a launcher that launch nothing are bound to nothing."""
    surface = SURFACES[name]
    always = any(isinstance(kernel.domain, ScanDomain) for kernel in surface.kernels)
    always |= any(counter.always for kernel in surface.kernels for counter in kernel.counters)
    cases = (seeded(drawer(name, False), seed, large=False) for seed in range(200))
    contents = {repr(bind(surface, objects(surface, case.args), "triton")).partition(": ")[2] for case in cases}
    assert ("nothing to launch>" in contents) is not always
    assert any("_kernel[" in content for content in contents)


# --- What a call does not do ------------------------------------------------------------------------------------------


def _forbidden(*_: Any, **__: Any) -> None:
    raise AssertionError("a bound call did more than launch")


@every_surface
def test_calls_launch_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.install(monkeypatch)
    surface, case = SURFACES[name], next(small(name))
    given = objects(surface, case.args)
    given |= {workspace.name: None for workspace in surface.workspaces}
    made = bind(surface, given, "triton")
    calls: list[tuple[Any, ...]] = []
    with monkeypatch.context() as patch:
        patch.setattr(compiled.CompiledKernel, "queue", calls)
        module = inspect.getmodule(getattr(kvcanary, surface.binder))
        for function in ("validate", "launch", "reference"):
            patch.setattr(module, function, _forbidden)
        for function in ("empty", "zeros", "tensor", "empty_like"):
            patch.setattr(torch, function, _forbidden)
        patch.setattr(torch.Tensor, "data_ptr", _forbidden)
        patch.setattr(compiled.Compiler, "warmup", _forbidden)
        made()
        made()
    assert calls and calls[: len(calls) // 2] == calls[len(calls) // 2 :]
    for kernel, *launch in calls[: len(calls) // 2]:
        kernel.run(*launch)
    scratch = {workspace.name: case.args[workspace.name] for workspace in surface.workspaces}
    assert wrong(case, "triton", {**values_of(case, given), **scratch}) == []


@every_backend
@every_surface
def test_binding_checks_as_the_launcher_does(name: str, backend: str) -> None:
    """One call for each rule that it can break: its id and text, which names the binding function, and no write."""
    surface, seen = SURFACES[name], set()
    for breakage in (*(b for _, b in examples(surface)), *implied(surface)):
        metadata = broken_call(surface, breakage)
        want = first_broken(PROGRAM, surface, metadata, reference=True)
        if want is None or want.id in seen:
            continue
        seen.add(want.id)
        values = materialised(metadata)
        with pytest.raises(kvcanary.CanaryError) as info:
            bind(surface, values, backend)
        assert (info.value.id, str(info.value)) == (want.id, want.text.replace(surface.reference, surface.binder))
        assert_untouched(metadata, values, str(breakage))
    assert len(seen) >= 6


@every_surface
def test_backends_that_do_not_exist(name: str) -> None:
    with pytest.raises(kvcanary.CanaryValueError, match="backend must be 'triton' or 'reference', got cuda"):
        bind(SURFACES[name], objects(SURFACES[name], next(small(name)).args), "cuda")


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@every_surface
def test_bound_references_refuse_capture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be bound while a graph is captured, but not called."""
    surface = SURFACES[name]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    # A fake tensor has no address.
    monkeypatch.setattr(tables, "_sharing", lambda _: None)
    with FakeTensorMode():
        metadata = good(surface).call() | {path: () for path, _ in surface.lists}
        made = bind(surface, materialised(metadata, on_a_gpu), "reference")
        with pytest.raises(kvcanary.CanaryRuntimeError) as info:
            made()
    want = broken_capture(PROGRAM, surface.binder)
    assert (info.value.id, str(info.value)) == (want.id, want.text)


# --- Tensors, devices, streams and hooks ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["reference", "interpreted", "compiled"])
@every_surface
def test_tensors_live_as_long_as_what_is_bound(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "compiled":
        compiled.install(monkeypatch)
    given = objects(SURFACES[name], next(small(name)).args)
    made = bind(SURFACES[name], given, "reference" if way == "reference" else "triton")
    tensors = [weakref.ref(tensor) for value in given.values() for tensor in tensors_of(value)]
    assert tensors
    del given
    gc.collect()
    assert all(tensor() is not None for tensor in tensors)
    made()
    del made
    gc.collect()
    assert all(tensor() is None for tensor in tensors)


@pytest.mark.parametrize("current", [0, 1])
def test_the_tensors_device_is_current_during_a_call(current: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            events.append(("enter", self.index))

        def __exit__(self, *_: object) -> None:
            events.append(("leave", self.index))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", Device)
    steps = [lambda stream: events.append(("first", stream)), lambda stream: events.append(("second", stream))]
    made = bound.Bound(
        "bind_it", torch.device("cuda", 1), steps, stream=lambda index: 100 + (index or 0), content="it", held=()
    )
    made()
    launches = [("first", 101), ("second", 101)]
    assert events == (launches if current == 1 else [("enter", 1), *launches, ("leave", 1)])


def test_profilers_see_bound_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = compiled.install(monkeypatch)
    for name, surface in SURFACES.items():
        case, seen = next(small(name)), []
        given = objects(surface, case.args)
        made = bind(surface, given, "triton")
        hooks.launch_enter_hook.calls = [lambda about, seen=seen: seen.append(("enter", about["name"]))]
        hooks.launch_exit_hook.calls = [lambda about, seen=seen: seen.append(("leave", about["name"]))]
        made()
        assert wrong(case, "triton", values_of(case, given)) == []
        kernels = re.findall(r"(\w+)\[", repr(made).partition(": ")[2])
        assert seen == [(way, kernel) for kernel in kernels for way in ("enter", "leave")]
        hooks.launch_enter_hook.calls, hooks.launch_exit_hook.calls = [], []
        made()
        assert len(seen) == 2 * len(kernels)
        with monkeypatch.context() as patch:
            patch.setattr(hooks, "launch_enter_hook", lambda about, seen=seen: seen.append(("alone", about["name"])))
            patch.setattr(hooks, "launch_exit_hook", None)
            made()
        assert seen[2 * len(kernels) :] == [("alone", kernel) for kernel in kernels]


def test_shown_by_name_device_and_kernels() -> None:
    pool = torch.zeros(4, 8, dtype=torch.int32)
    given = {
        "flat_in": torch.arange(3, dtype=torch.int64),
        "offsets": torch.tensor([0, 3]),
        "req_pool_indices": torch.tensor([1]),
        "pool_out": pool,
    }
    made = kvcanary.bind_scatter_req_token_ids_kernel(**given, backend="triton")
    name = "bind_scatter_req_token_ids_kernel"
    assert repr(made) == f"<Bound {name} on cpu: _scatter_req_token_ids_kernel[1]>"
    made()
    assert pool[1].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
    other = kvcanary.bind_scatter_req_token_ids_kernel(**given, backend="reference")
    assert repr(other) == f"<Bound {name} on cpu: torch reference>"


def test_this_triton_launches_as_is_assumed() -> None:
    """How Triton itself launches a compiled kernel, in the versions that are known."""
    known = bound._minor(triton.__version__) in bound._KNOWN
    source = "".join(inspect.getsource(triton.runtime.jit.JITFunction.run).split())
    shape = (
        "kernel.run(grid_0, grid_1, grid_2, stream, kernel.function, kernel.packed_metadata, launch_metadata, "
        "knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook, *bound_args.values())"
    )
    assert known and "".join(shape.split()) in source
    for hook in (triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook):
        assert hook.calls == []
    assert SimpleNamespace(run=1, function=2, packed_metadata=3, launch_metadata=4).__dict__.keys() == {*bound._PARTS}
