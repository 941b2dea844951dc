"""A serial hash as exclusive ors of shifted products, so that fewer operations wait for each other.

What a chain costs is not its operations but the length of the longest path through them. Exclusive or and shifts to the
right are linear over bits: one layer of them after another is one layer, whose shifts need not wait for each other, and
whatever does not depend on the state joins it from outside the path. Layers that lead from a product to the next one,
through the end of a step too, are composed here; between them stand products with constants, which nothing passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import Binary, Call, Const, Node, Type, Var, mapped, names_of
from kvcanary_gen.ir import FunctionIR, KernelIR

BITS = 64
# Nodes of what a step takes from its entry; more would be written again for every product that it is part of.
MOST_GIVEN = 48


@dataclass(frozen=True)
class Product:
    """A product of the step, by its place in their order."""

    place: int


# Of what a form is made: a state before the step, a product, or an expression that does not depend on the state.
Atom = str | Product | Node
# Exclusive or of atoms shifted to the right, each by a number of bits.
Form = frozenset[tuple[Atom, int]]


class Unmixable(Exception):
    """An expression that is no exclusive or of shifted products."""


@dataclass(frozen=True)
class Mix:
    """One step: `products` are factors and what they multiply, in order; `after` is every state behind the step."""

    products: tuple[tuple[int, Form], ...]
    after: Mapping[str, Form]

    def kept(self) -> tuple[Form, ...]:
        """Forms of the states that a step starts from and leaves to the next: the states, then layers of them."""
        whole = [state_form(name) for name in self.after]
        parts = [of_states(form) for _, form in self.products]
        return tuple(dict.fromkeys([*whole, *(part for part in parts if part)]))

    def following(self, form: Form) -> Form:
        """A form of the states as one of the step that leads to them."""
        found: Form = frozenset()
        for atom, shift in form:
            assert isinstance(atom, str)
            found ^= shifted(self.after[atom], shift)
        return found


def mix(kernel: KernelIR, names: Iterable[str], functions: Mapping[str, FunctionIR]) -> Mix | None:
    """The step of some states of a kernel, None where it is more than exclusive ors, shifts and constant products.

    Those states may read each other, but no other state: what it is differs from entry to entry.
    """
    states = [state for state in kernel.state if state.name in set(names)]
    others = {state.name for state in kernel.state} - {state.name for state in states}
    if not states or any(state.first.type is not Type.UINT or names_of(state.next, "let") & others for state in states):
        return None
    reader = _Reader(functions)
    known: dict[str, Form | Node] = {state.name: state_form(state.name) for state in states}
    try:
        after = {state.name: _moving(reader.value(state.next, known)) for state in states}
    except Unmixable:
        return None
    found = _pruned(reader.products, after)
    forms = [*(form for _, form in found.products), *(found.following(form) for form in found.kept())]
    long = any(len(list(node.walk())) > MOST_GIVEN for node in map(given, forms) if node is not None)
    return None if long or not found.products else found


def _pruned(products: list[tuple[int, Form]], after: dict[str, Form]) -> Mix:
    """The step without products that nobody reads."""
    read = {atom.place for form in after.values() for atom, _ in form if isinstance(atom, Product)}
    for place in reversed(range(len(products))):
        if place in read:
            read |= {atom.place for atom, _ in products[place][1] if isinstance(atom, Product)}
    places = {old: Product(new) for new, old in enumerate(sorted(read))}

    def moved(form: Form) -> Form:
        return frozenset((places[a.place] if isinstance(a, Product) else a, shift) for a, shift in form)

    kept = tuple((factor, moved(form)) for place, (factor, form) in enumerate(products) if place in read)
    return Mix(kept, {name: moved(form) for name, form in after.items()})


def state_form(name: str) -> Form:
    return frozenset([(name, 0)])


def of_states(form: Form) -> Form:
    """The part of a form that the states alone decide."""
    return frozenset((atom, shift) for atom, shift in form if isinstance(atom, str))


def given(form: Form) -> Node | None:
    """The part of a form that no state has a say in, as an expression; None where there is none."""
    parts = [(atom, shift) for atom, shift in form if isinstance(atom, Node)]
    found: Node | None = None
    for atom, shift in sorted(parts, key=lambda part: (part[1], repr(part[0]))):
        node = Binary(Type.UINT, ">>", atom, Const(Type.INT, shift)) if shift else atom
        found = node if found is None else Binary(Type.UINT, "^", found, node)
    return found


def of_products(form: Form) -> list[tuple[int, int]]:
    """Products in a form and their shifts, in order."""
    return sorted((atom.place, shift) for atom, shift in form if isinstance(atom, Product))


def shifted(form: Form, bits: int) -> Form:
    """A form shifted to the right; what is shifted out is gone."""
    return frozenset((atom, shift + bits) for atom, shift in form if shift + bits < BITS)


def _form(value: Form | Node) -> Form:
    return frozenset([(value, 0)]) if isinstance(value, Node) else value


def _moving(value: Form | Node) -> Form:
    """A form that the states have a say in: what they vanish from, a step would not be the place to compute."""
    if isinstance(value, Node) or all(isinstance(atom, Node) for atom, _ in value):
        raise Unmixable
    return value


@dataclass
class _Reader:
    """Reads expressions: a node where no state has a say, else a form."""

    functions: Mapping[str, FunctionIR]
    products: list[tuple[int, Form]] = field(default_factory=list)

    def value(self, node: Node, known: Mapping[str, Form | Node]) -> Form | Node:
        if isinstance(node, Var):
            return known.get(node.name, node)
        children = [self.value(child, known) for child in node.children()]
        if all(isinstance(child, Node) for child in children):
            left = iter(children)
            return mapped(node, lambda _: _node(next(left)))
        if isinstance(node, Binary) and node.type is Type.UINT:
            return self._binary(node, *children)
        if isinstance(node, Call) and not node.builtin:
            return self._call(node, children)
        if isinstance(node, Call) and node.function == "u64" and node.args[0].type is Type.UINT:
            return children[0]
        raise Unmixable

    def _binary(self, node: Binary, left: Form | Node, right: Form | Node) -> Form:
        if node.op == "^":
            return _form(left) ^ _form(right)
        if node.op == "*" and isinstance(left, Node):
            left, right = right, left
        number = constant(right) if isinstance(right, Node) else None
        if node.op == ">>" and number is not None:
            return shifted(_form(left), number)
        if node.op == "*" and number is not None:
            return self._product(number, _form(left))
        raise Unmixable

    def _product(self, factor: int, value: Form) -> Form:
        form = _moving(value)
        if (factor, form) not in self.products:
            self.products.append((factor, form))
        return frozenset([(Product(self.products.index((factor, form))), 0)])

    def _call(self, node: Call, arguments: list[Form | Node]) -> Form | Node:
        function = self.functions[node.function]
        names = (name for name, _ in function.params)
        known: dict[str, Form | Node] = dict(zip(names, arguments, strict=True))
        for name, value in function.lets:
            known[name] = self.value(value, known)
        return self.value(function.value, known)


def _node(value: Form | Node) -> Node:
    assert isinstance(value, Node)
    return value
