"""Judges what is no plain argument: flags, members of enums, values of structs, and lists of byte sources.

Every method yields, for each thing that breaks a rule, the words of the rule's message; the first one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvcanary_gen.ir import Program, StructValueIR
from kvcanary_gen.oracle.evaluate import Fields, Member, Meta
from kvcanary_gen.oracle.listed import ITEM_BYTES
from kvcanary_gen.surface import Setting, Surface

Words = dict[str, object]
_NOUNS = {"int64": "an int", "bool": "a bool"}


def kind_of(value: object) -> str:
    """Name of the type that stands there."""
    if isinstance(value, Fields):
        return value.struct
    if isinstance(value, Member):
        return value.enum
    return "Tensor" if isinstance(value, Meta) else type(value).__name__


def too_large(value: object) -> bool:
    """Whether an integer does not fit 64 bits."""
    assert isinstance(value, int)
    return not -(1 << 63) <= value < 1 << 63


@dataclass
class ValueJudge:
    program: Program
    surface: Surface
    call: Mapping[str, object]

    # --- kinds --------------------------------------------------------------------------------------------------

    def kinds(self) -> Iterator[Words]:
        """Flags and members of enums among the arguments, then the values of structs, lists in their places."""
        settings = {setting.path: setting for setting in self.surface.settings}
        own = {path for path, _ in self.surface.values}
        for path, setting in settings.items():
            if path not in own:
                yield from self._setting(setting)
        for path, value in self.surface.values:
            yield from self._list(path, value) if value.kind == "list" else self._setting(settings[path])

    def _setting(self, setting: Setting) -> Iterator[Words]:
        given = self.call[setting.path]
        if setting.kind == "enum":
            good = isinstance(given, Member) and given.enum == setting.of
        else:
            good = isinstance(given, bool) if setting.kind == "bool" else type(given) is int
        if not good:
            want = _NOUNS.get(setting.kind, f"a {setting.of}")
            yield {"name": setting.path, "want": want, "have": kind_of(given)}

    def _list(self, path: str, value: StructValueIR) -> Iterator[Words]:
        given = self.call[path]
        if not isinstance(given, (tuple, list)):
            yield {"name": path, "want": f"a tuple of {value.of}", "have": kind_of(given)}
            return
        for place, item in enumerate(given):
            name = f"{path}[{place}]"
            if not isinstance(item, Fields) or item.struct != value.of:
                yield {"name": name, "want": f"a {value.of}", "have": kind_of(item)}
                return
            # Bytes first, then numbers.
            for inner in sorted(self._fields(value), key=lambda f: f.kind != "bytes"):
                have = item.fields[inner.name]
                good = isinstance(have, Meta) if inner.kind == "bytes" else type(have) is int
                if not good:
                    want = "a torch.Tensor" if inner.kind == "bytes" else "an int"
                    yield {"name": f"{name}.{inner.name}", "want": want, "have": kind_of(have)}

    # --- fields of structs in lists -----------------------------------------------------------------------------

    def _fields(self, value: StructValueIR) -> tuple[StructValueIR, ...]:
        return self.program.structs[value.of].values

    def _given(self, path: str) -> tuple[Fields, ...]:
        given = self.call[path]
        assert isinstance(given, (tuple, list))
        return tuple(given)

    def _numbers(self) -> Iterator[tuple[str, StructValueIR, int, Fields]]:
        for path, value in self.surface.lists:
            for place, item in enumerate(self._given(path)):
                for inner in self._fields(value):
                    have = item.fields[inner.name]
                    if inner.kind == "int64":
                        assert isinstance(have, int)
                        yield f"{path}[{place}].{inner.name}", inner, have, item

    def _tensors(self) -> Iterator[tuple[str, StructValueIR, Meta]]:
        for path, value in self.surface.lists:
            for place, item in enumerate(self._given(path)):
                for inner in self._fields(value):
                    have = item.fields[inner.name]
                    if isinstance(have, Meta):
                        yield f"{path}[{place}].{inner.name}", inner, have

    def tensors(self) -> Iterator[tuple[str, Meta]]:
        """Tensors that stand in lists."""
        yield from ((path, meta) for path, _, meta in self._tensors())

    def too_large(self) -> Iterator[Words]:
        """Numbers that fit no argument of a kernel."""
        settings = [(s.path, self.call[s.path]) for s in self.surface.settings if s.kind == "int64"]
        for path, have in (*settings, *((path, have) for path, _, have, _ in self._numbers())):
            if too_large(have):
                yield {"name": path, "want": "int64", "have": have}

    def counts(self) -> Iterator[Words]:
        for path, value in self.surface.lists:
            have = len(self._given(path))
            if value.at_most is not None and have > value.at_most:
                yield {"name": path, "want": value.at_most, "have": have}

    def numbers(self) -> Iterator[Words]:
        """Numbers outside their ranges."""
        for path, inner, have, item in self._numbers():
            unit, least = inner.multiple_of, inner.at_least
            if unit is not None and (have < unit or have % unit):
                yield {"name": path, "want": f"a positive multiple of {unit}", "have": have}
            if unit is None and least is not None and have < least:
                yield {"name": path, "want": f"at least {least}", "have": have}
            most = have if inner.at_most_field is None else item.fields[inner.at_most_field]
            assert isinstance(most, int)
            if have > most:
                yield {"name": path, "want": f"at most {inner.at_most_field}={most}", "have": have}

    def geometry(self) -> Iterator[Words]:
        """Tensors whose rows are not packed bytes, each at a boundary."""
        for path, inner, meta in self._tensors():
            unit = inner.multiple_of or 1
            if len(meta.shape) < 2:
                yield {"name": path, "want": "be at least 2-D", "have": f"shape {meta.shape}"}
                return
            first = Meta(meta.dtype, (min(1, meta.shape[0]), *meta.shape[1:]), meta.strides)
            if not first.contiguous:
                yield {"name": path, "want": "have packed rows", "have": f"strides {meta.strides}"}
            step = meta.strides[0] * ITEM_BYTES[meta.dtype]
            if step % unit:
                want = f"have a row stride that is a multiple of {unit} bytes"
                yield {"name": path, "want": want, "have": step}
            if meta.offset % unit and 0 not in meta.shape:
                have = f"{meta.offset % unit} bytes more"
                yield {"name": path, "want": f"begin at a multiple of {unit} bytes", "have": have}
