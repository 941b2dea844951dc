"""Draws calls from declarations alone, so that a new kernel is tested with inputs that nobody wrote.

A valid draw keeps to the declared `values`. A hostile one mixes in whatever the dtype holds, and sizes of 0: device
data is never trusted. Host-side rules and divisors hold in both, because validators refuse anything else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from kvcanary_gen.expr.nodes import Const, names_of
from kvcanary_gen.ir import OffsetValues, Program, ScalarArg, TensorArg, ValueRange
from kvcanary_gen.oracle.aims import aims
from kvcanary_gen.oracle.case import Case, calls, input_at, poisoned
from kvcanary_gen.oracle.elements import EXPLICIT, MAX_POINTS, WILD, elements, offsets, sprinkled, wild
from kvcanary_gen.oracle.evaluate import evaluate
from kvcanary_gen.oracle.listed import SourceDrawer, filled
from kvcanary_gen.oracle.outline import Outline
from kvcanary_gen.oracle.plausible import made_plausible
from kvcanary_gen.oracle.roles import count_so_far, distinct, next_row, record_data, roles
from kvcanary_gen.oracle.source import RandomSource, Source, chance
from kvcanary_gen.oracle.values import Array, Values, wrap
from kvcanary_gen.surface import CheckedTensor, Setting, Surface

SMALL_SIZES = (1, 2, 3, 4, 1, 5, 6, 7, 8, 12)
# Where kernels report: of few entries hardly any two have to do with each other.
MEDIUM_SIZES = (5, 8, 12, 16, 20, 33, 3, 2, 1)
# Around the block sizes of kernels, and the largest batch.
LARGE_SIZES = (511, 512, 513, 1023, 1024, 1025, 1100, 2049, 4096)
# The same where kernels report, which have smaller blocks and cost the interpreter more.
LARGE_REPORTING_SIZES = (127, 128, 129, 255, 256, 257, 300, 511, 513)
_ATTEMPTS = 200


class Drawer:
    """Draws calls of one public function."""

    def __init__(self, program: Program, surface: Surface, *, hostile: bool) -> None:
        self.program = program
        self.surface = surface
        self.hostile = hostile
        self.inputs = {t.path: t.argument if t.argument and not t.output else self._input(t) for t in surface.tensors}
        self.aims = list(aims(program, surface))
        self.roles = roles(program, surface)
        bound = [bind for _, bind in calls(program, surface)]
        folds = {bind[f.sources]: f for bind in bound for f in program.folds.values() if f.sources in bind}
        self.bytes = {
            tensor.path for tensor in surface.tensors if tensor.record is not None and tensor.dtype == "uint8"
        }
        self.listers = {
            path: SourceDrawer(program, value, folds.get(path), hostile=hostile) for path, value in surface.lists
        }

    def _input(self, tensor: CheckedTensor) -> TensorArg | None:
        return input_at(self.program, self.surface, tensor.path)

    def draw(self, source: Source, *, large: bool | None = None, sizes: Mapping[str, int] | None = None) -> Case:
        """One call.

        Args:
            large: with one size around or above a kernel's block; by chance where it is not said.
            sizes: sizes that are fixed beforehand.
        """
        outline = self._outline(source, chance(source, 3) if large is None else large, sizes or {})
        return Case(self.surface.name, self._aimed(outline, source)[1])

    def series(self, source: Source, count: int) -> list[Case]:
        """Calls of one metadata with other elements each, scratch passed along: what a captured graph replays."""
        outline = self._outline(source, False, {})
        outline.present.update({tensor.path: True for tensor in self.surface.tensors if tensor.workspace})
        outline, values = self._aimed(outline, source)
        others = [self._fill(outline, source, {}) for _ in range(count - 1)]
        return [Case(self.surface.name, elements) for elements in (values, *others)]

    # --- metadata -----------------------------------------------------------------------------------------------

    def _outline(self, source: Source, large: bool, fixed: Mapping[str, int]) -> Outline:
        zeros = True
        for _ in range(_ATTEMPTS):
            outline = self._attempt(source, large, zeros, fixed)
            if outline.settle(source):
                if self.hostile or self._ranges_hold(outline):
                    return outline
                zeros = False
        raise AssertionError(f"no valid call of {self.surface.name} in {_ATTEMPTS} draws")

    def _attempt(self, source: Source, large: bool, zeros: bool, fixed: Mapping[str, int]) -> Outline:
        surface = self.surface
        sizes = {name: self._size(source, zeros) for name in surface.dims}
        if large and sizes:
            sizes[source.pick(list(sizes))] = source.pick(LARGE_REPORTING_SIZES if self.roles.rings else LARGE_SIZES)
        sizes |= fixed
        free = {name: self._free_size(source, sizes) for name in self._free_names()}
        optional = [tensor.path for tensor in surface.tensors if tensor.optional]
        present = {path: not chance(source, 25) for path in optional}
        minimum = [t.path for t in surface.tensors if any(axis.at_least for axis in t.shape)]
        slack = {path: source.pick((0, 0, 1, 5)) * (8 if path in self.bytes else 1) for path in minimum}
        outline = Outline(surface, sizes, {}, present, slack, free, frozenset(fixed))
        for scalar in self._scalars_in_order():
            outline.scalars[scalar.name] = self._scalar(scalar, outline, source)
        outline.scalars |= {setting.path: self._setting(setting, source) for setting in surface.settings}
        for first, *others in surface.alike:
            outline.scalars |= dict.fromkeys(others, outline.scalars[first])
        outline.lists = {path: lister.draw(outline.names(), source) for path, lister in self.listers.items()}
        return outline

    def _setting(self, setting: Setting, source: Source) -> int:
        if setting.kind == "enum":
            members = self.program.enums[setting.of].members.values()
            return source.pick([int(member.value) for member in members])
        if setting.kind == "bool":
            return source.pick((0, 1))
        return source.pick((0, 1, 7, -1, *(WILD if self.hostile else ())))

    def _scalars_in_order(self) -> list[ScalarArg]:
        """Scalars behind those that their range speaks of; of a circle, the first as it comes."""
        waiting, ordered = list(self.surface.scalars), list[ScalarArg]()
        while waiting:
            names = {scalar.name for scalar in waiting}
            ready = (s for s in waiting if s.values is None or not names - {s.name} & _range_names(s.values))
            ordered.append(next(ready, waiting[0]))
            waiting.remove(ordered[-1])
        return ordered

    def _size(self, source: Source, zeros: bool) -> int:
        if zeros and chance(source, 9 if self.hostile else 2):
            return 0
        return source.pick(MEDIUM_SIZES if self.roles.rings else SMALL_SIZES)

    @staticmethod
    def _free_size(source: Source, sizes: dict[str, int]) -> int:
        """A size that only ranges of values speak of; often that of another tensor, so that some values hit it."""
        return source.pick([*sizes.values(), *SMALL_SIZES[:4]])

    def _free_names(self) -> list[str]:
        known = {name.rpartition(".")[2] for name in self.surface.dims} | {s.name for s in self.surface.scalars}
        arguments = [*self.inputs.values(), *self.surface.scalars]
        found = {name for a in arguments if a is not None and a.values for name in _range_names(a.values)}
        return sorted(found - known)

    def _scalar(self, scalar: ScalarArg, outline: Outline, source: Source) -> int:
        low, high = self._range(scalar.values, outline.names())
        if self.hostile and chance(source, 30):
            value = source.pick(wild("int64", low, high, list(outline.names().values())))
            return value if scalar.least is None else max(value, scalar.least)
        if high <= low:
            return low
        return source.pick((low, high, min(low + 1, high), source.integer(low, high), source.integer(low, high)))

    @staticmethod
    def _range(values: ValueRange | OffsetValues | None, names: dict[str, int]) -> tuple[int, int]:
        if not isinstance(values, ValueRange):
            return 0, 7
        return evaluate(values.low, names), evaluate(values.high, names)

    def _ranges_hold(self, outline: Outline) -> bool:
        """Whether every tensor with elements has a valid value for them, and every scalar is one."""
        for tensor in self.surface.tensors:
            argument, names = self.inputs[tensor.path], outline.names(tensor.scope)
            if argument is None or not isinstance(argument.values, ValueRange):
                continue
            low, high = self._range(argument.values, names)
            if high < low and 0 not in outline.shape(tensor):
                return False
        return all(self._scalar_holds(scalar, outline) for scalar in self.surface.scalars)

    def _scalar_holds(self, scalar: ScalarArg, outline: Outline) -> bool:
        low, high = self._range(scalar.values, outline.names())
        return scalar.values is None or low <= outline.scalars[scalar.name] <= high

    # --- elements -----------------------------------------------------------------------------------------------

    def _fill(self, outline: Outline, source: Source, before: Values) -> Values:
        """Elements for every tensor; what `before` holds in the right shape is kept."""
        values: Values = dict(outline.scalars)
        for tensor in self.surface.tensors:
            kept = before.get(tensor.path)
            if not outline.present.get(tensor.path, True):
                values[tensor.path] = None
            elif isinstance(kept, Array) and kept.shape == outline.shape(tensor):
                values[tensor.path] = kept
            else:
                values[tensor.path] = self._tensor(tensor, outline, source)
        for path, layouts in outline.lists.items():
            kept = before.get(path)
            values[path] = kept if isinstance(kept, list) else [filled(layout, source) for layout in layouts]
        if self.roles.rings:
            made_plausible(self.program, self.surface.name, values, source)
        return values

    def _tensor(self, tensor: CheckedTensor, outline: Outline, source: Source) -> Array:
        shape, argument = outline.shape(tensor), self.inputs[tensor.path]
        known = self._known(tensor, shape, outline, source)
        if known is not None:
            return Array(tensor.dtype, shape, [wrap(value, tensor.dtype) for value in known])
        if argument is None:
            return poisoned(tensor.dtype, shape)
        count, names = math.prod(shape), outline.names(tensor.scope)
        inner: Source = source if count <= EXPLICIT else RandomSource(source.bulk())
        if isinstance(argument.values, OffsetValues):
            ends = evaluate(argument.values.count, names), max(0, evaluate(argument.values.limit, names))
            data = offsets(count, *ends, list(outline.names().values()), inner, hostile=self.hostile)
        else:
            low, high = self._range(argument.values, names)
            apart = tensor.path in self.roles.targets and chance(inner, 40 if self.hostile else 85)
            if apart:
                data = distinct(count, low, high, inner)
            elif all(isinstance(axis.length, Const) and not axis.at_least for axis in tensor.shape):
                # A count of entries, or a switch: most calls should do something.
                data = [inner.pick((*[high] * 6, low, inner.integer(low, max(low, high)))) for _ in range(count)]
            else:
                data = elements(count, low, high, inner, varied=bool(self.roles.rings))
            if self.hostile:
                data = sprinkled(data, wild(tensor.dtype, low, high, list(outline.names().values())), inner)
        return Array(tensor.dtype, shape, [wrap(value, tensor.dtype) for value in data])

    def _known(
        self, tensor: CheckedTensor, shape: tuple[int, ...], outline: Outline, source: Source
    ) -> list[int] | None:
        """Elements of a tensor that kernels go on from: where its next row goes, a count so far, records."""
        if tensor.path in self.roles.rings:
            ring = self.surface.tensor(self.roles.rings[tensor.path])
            return [next_row(outline.shape(ring)[0], source, hostile=self.hostile)] * math.prod(shape)
        if tensor.path in self.roles.counters:
            return [count_so_far(source)] * math.prod(shape)
        if tensor.path in self.roles.records and len(shape) == 2:
            return record_data(tensor.dtype, shape, source)
        return None

    # --- aims ---------------------------------------------------------------------------------------------------

    def _aimed(self, outline: Outline, source: Source) -> tuple[Outline, Values]:
        """Elements, and capacities at, below or above the totals that they have to hold."""
        values = self._fill(outline, source, {})
        for aim in self.aims:
            total = aim.total(self.program, values)
            wanted = source.pick((total, total, total - 1, total + 1, total + 7, None))
            if wanted is None or not 0 <= wanted <= MAX_POINTS:
                continue
            moved = outline.with_pinned(aim.target, wanted)
            if moved.settle(source) and (self.hostile or self._ranges_hold(moved)):
                outline, values = moved, self._fill(moved, source, values)
        return outline, values


def _range_names(values: ValueRange | OffsetValues) -> set[str]:
    nodes = [values.low, values.high] if isinstance(values, ValueRange) else [values.count, values.limit]
    return set().union(*(names_of(node, kind) for node in nodes for kind in ("dim", "scalar")))


def seeded(
    drawer: Drawer, seed: int | str, *, large: bool | None = None, sizes: Mapping[str, int] | None = None
) -> Case:
    """The call that a seed stands for; the same on every machine."""
    text = f"{drawer.surface.name} {'hostile' if drawer.hostile else 'valid'} {seed}"
    return drawer.draw(RandomSource(random.Random(text)), large=large, sizes=sizes)
