"""Public functions on Python integers, which do not wrap by themselves."""

from __future__ import annotations

from kvcanary_gen.emit.code import Atom, Code, Prefix, Ternary, compare, invoke, operator, statement
from kvcanary_gen.emit.frames import docstring
from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import Binary, Call, Compare, Const, Logic, Node, Select, Type, Unary, Var
from kvcanary_gen.ir import FunctionIR

_WRAPPING = frozenset({"+", "-", "*", "<<"})


class PythonBlock:
    """Emits expressions over unbounded integers; records whether signed wrapping or constants are used."""

    def __init__(self) -> None:
        self.signed = False
        self.layout: set[str] = set()

    def value(self, node: Node) -> Code:
        if isinstance(node, Const):
            return self._constant(node)
        if isinstance(node, Var):
            return Atom(node.name)
        if isinstance(node, Unary):
            return self._unary(node)
        if isinstance(node, Binary):
            code = operator(node.op, self.value(node.left), self.value(node.right))
            return self.wrap(code, node.type) if node.op in _WRAPPING else code
        if isinstance(node, Compare):
            left, right = self.value(node.left), self.value(node.right)
            return compare(node.op, left, right, constant_left=constant(node.left) is not None)
        if isinstance(node, Logic):
            return operator(node.op, *(self.value(item) for item in node.items))
        if isinstance(node, Select):
            return Ternary(self.value(node.then), self.value(node.condition), self.value(node.other))
        assert isinstance(node, Call), node
        return self._call(node)

    def wrap(self, code: Code, type_: Type) -> Code:
        if type_ is Type.UINT:
            return operator("&", code, "_UINT64")
        self.signed = True
        return invoke("_int64", code)

    def _constant(self, node: Const) -> Code:
        if node.name is not None:
            self.layout.add(node.name)
            return Atom(node.name)
        if node.type is Type.BOOL:
            return Atom("True" if node.value else "False")
        return Atom(f"0x{node.value:X}" if node.value > 0xFFFF else str(node.value))

    def _unary(self, node: Unary) -> Code:
        operand = self.value(node.operand)
        return Prefix("not", operand) if node.op == "not" else self.wrap(Prefix(node.op, operand), node.type)

    def _call(self, node: Call) -> Code:
        args = [self.value(arg) for arg in node.args]
        if not node.builtin or node.function in ("min", "max"):
            return invoke(node.function, *args)
        if node.function == "clamp":
            return invoke("min", invoke("max", args[0], args[1]), args[2])
        return args[0] if node.args[0].type is node.type else self.wrap(args[0], node.type)


_ANNOTATIONS = {Type.INT: "int", Type.UINT: "int", Type.BOOL: "bool"}


def emit_python_function(function: FunctionIR, block: PythonBlock) -> str:
    """The function on Python integers; arguments of any sign are taken as 64 bits."""
    params = [f"{name}: {_ANNOTATIONS[type_]}" for name, type_ in function.params]
    lines = statement("", invoke(f"def {function.name}", *params), 0, f" -> {_ANNOTATIONS[function.returns]}:")
    lines.append(docstring(f"{function.doc} Contract {function.contract}." if function.contract else function.doc, 4))
    for name, type_ in function.params:
        if type_ is not Type.BOOL:
            lines += statement(f"{name} = ", block.wrap(Atom(name), type_), 4)
    for name, node in function.lets:
        lines += statement(f"{name} = ", block.value(node), 4)
    return "\n".join([*lines, *statement("return ", block.value(function.value), 4)])
