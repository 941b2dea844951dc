"""One step of a hash in halves of 32 bits, as Triton source."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcanary_gen.emit.code import Atom, Code, Operator, invoke, method, operator
from kvcanary_gen.emit.triton_expr import Block
from kvcanary_gen.expr.mixing import Form, Mix, given, of_products, of_states, state_form
from kvcanary_gen.expr.nodes import Binary, Node, Var

HALF = 32

Pair = tuple[str, str]


@dataclass
class Halves:
    """Names of the halves that steps take from their lane."""

    block: Block
    owner: str
    names: dict[Node, Pair] = field(default_factory=dict)

    def of(self, node: Node) -> Pair:
        if node not in self.names:
            words = dict.fromkeys(part.name for part in node.walk() if isinstance(part, Var))
            word = next(iter(words)) if len(words) == 1 else "given"
            word = f"{word}_mixed" if any(isinstance(part, Binary) for part in node.walk()) else word
            self.names[node] = self.block.fresh(f"{word}_low"), self.block.fresh(f"{word}_high")
        return self.names[node]

    def alike(self, node: Node) -> bool:
        """Whether all lanes have one value."""
        names = {part.name for part in node.walk() if isinstance(part, Var)}
        return self.block.is_literal(node) or self.block.is_uniform(node) or names == {self.owner}


@dataclass
class _Product:
    """The variables of a product; that of its high half once somebody reads it."""

    wide: str
    cross: str
    high: str = ""


class Step:
    """The states behind an entry, from those before it; between steps they are halves."""

    def __init__(self, mix: Mix, halves: Halves, block: Block) -> None:
        self.mix, self.halves, self.block = mix, halves, block
        self.kept: dict[Form, Pair] = {}
        for form in mix.kept():
            names = "_".join(dict.fromkeys(str(atom) for atom, _ in sorted(form, key=repr)))
            word = names if form in map(state_form, mix.after) else f"{names}_mixed"
            self.kept[form] = block.fresh(f"{word}_low"), block.fresh(f"{word}_high")
        forms = [*(form for _, form in mix.products), *(mix.following(form) for form in self.kept)]
        self.nodes = list(dict.fromkeys(node for node in map(given, forms) if node is not None))
        self.at: dict[Node, Pair] = {}
        self.low, self.high = block.fresh("low"), block.fresh("high")

    def whole(self, state: str) -> Code:
        """A state as a word."""
        return invoke("lang.joined", *self.kept[state_form(state)])

    def start(self) -> None:
        """Halves of the states before a segment."""
        for form, names in self.kept.items():
            parts = sorted((shift, str(atom)) for atom, shift in form)
            words = [Operator(">>", (Atom(name), Atom(str(shift)))) if shift else Atom(name) for shift, name in parts]
            self.block.write(f"{', '.join(names)} = ", invoke("lang.halves", operator("^", *words)))

    def given(self, mask: Code) -> None:
        """Halves of what a block gives to its steps."""
        for node in self.nodes:
            value = self.block.typed(node, mask)
            if self.halves.alike(node):
                # A half of it may be all that a half of a state is made of.
                value = operator("+", value, "tl.zeros([BLOCK], tl.uint64)")
            self.block.write(f"{', '.join(self.halves.of(node))} = ", invoke("lang.halves", value))

    def emit(self, entry: str) -> None:
        """One step, that of an entry."""
        block = self.block
        self.at = {node: self.halves.of(node) for node in self.nodes}
        for node in self.nodes:
            if not self.halves.alike(node):
                low, high = (block.fresh(f"{name}_at") for name in self.halves.of(node))
                for at, name in zip((low, high), self.halves.of(node), strict=True):
                    block.text(f"{at} = tl.gather({name}, {entry}, 0)")
                self.at[node] = low, high
        block.text("# Between two products lies one layer of shifts, whose halves need not wait for all of each other.")
        products: list[_Product] = []
        for factor, form in self.mix.products:
            states = of_states(form)
            halves = self._both(form, products, [self.kept[states]] if states else [])
            low, high = self._short(self.low, halves[0]), self._short(self.high, halves[1])
            product = _Product(block.fresh("wide"), block.fresh("cross"))
            block.write(f"{product.wide}, {product.cross} = ", invoke("lang.product", low, high, f"0x{factor:X}"))
            products.append(product)
        following = [self._both(self.mix.following(form), products, None) for form in self.kept]
        names = [self._named(pair, form) for form, pair in zip(self.kept, following, strict=True)]
        for mine, others in zip(self.kept.values(), names, strict=True):
            for name, other in zip(mine, others, strict=True):
                block.text(f"{name} = {other}")

    def _short(self, name: str, code: Code) -> str:
        """A name for a half, if it has none."""
        if isinstance(code, Atom):
            return code.flat()
        self.block.write(f"{name} = ", code)
        return name

    def _named(self, pair: tuple[Code, Code], form: Form) -> Pair:
        """Names of halves, so that no state changes while another still needs it."""
        found = [self.block.fresh(f"next_{name}") for name in self.kept[form]]
        for name, code in zip(found, pair, strict=True):
            self.block.write(f"{name} = ", code)
        return found[0], found[1]

    def _both(self, form: Form, products: list[_Product], states: list[Pair] | None) -> tuple[Code, Code]:
        """Halves of a form; `states` are those of its part that the states decide, None to shift them here.

        What is known last comes last.
        """
        low: list[Code] = []
        high: list[Code] = []
        node = given(form)
        for pair in [*([] if node is None else [self.at[node]]), *(states or [])]:
            low.append(Atom(pair[0]))
            high.append(Atom(pair[1]))
        if states is None:
            for atom, shift in sorted(of_states(form), key=lambda part: (part[1], str(part[0]))):
                pair = self.kept[state_form(str(atom))]
                low += _low_of_halves(pair, shift)
                high += _high(Atom(pair[1]), shift)
        for place, shift in of_products(form):
            product = products[place]
            if shift < HALF:
                low.append(self._bits(product, shift))
                high += _high(self._high(product), shift)
            else:
                low += _high(self._high(product), shift - HALF)
        return _sum(low), _sum(high)

    def _bits(self, product: _Product, shift: int) -> Code:
        if shift == 0:
            return method(Atom(product.wide), "to", "tl.uint32")
        return invoke("lang.product_bits", product.wide, product.cross, str(shift))

    def _high(self, product: _Product) -> Code:
        if not product.high:
            product.high = self.block.fresh("top")
            self.block.write(f"{product.high} = ", self._bits(product, HALF))
        return Atom(product.high)


def _sum(parts: list[Code]) -> Code:
    return operator("^", *parts) if parts else Atom("tl.zeros([BLOCK], tl.uint32)")


def _high(half: Code, shift: int) -> list[Code]:
    """A half shifted to the right, which is nothing once all of it is gone."""
    return [] if shift >= HALF else [Operator(">>", (half, Atom(str(shift)))) if shift else half]


def _low_of_halves(pair: Pair, shift: int) -> list[Code]:
    """The low half of a word shifted to the right."""
    low, high = map(Atom, pair)
    if shift == 0 or shift >= HALF:
        return [low] if shift == 0 else _high(high, shift - HALF)
    crossing = Operator("<<", (high, Atom(str(HALF - shift))))
    return [operator("|", Operator(">>", (low, Atom(str(shift)))), crossing)]
