"""What the keys of the spec mean, where their names and the models do not say so already."""

from __future__ import annotations

_EVERYWHERE = {
    "doc": "What it is, in a sentence; goes into docstrings and reference pages.",
    "contract": "Section of the contract that it implements, such as §3.",
    "let": "Values by name, in order; later ones see earlier ones.",
    "launcher": "Name of the public function.",
}

_MEANINGS = {
    "Header.version": "Version of the spec: major.minor.patch.",
    "Header.package": "Name of the generated package.",
    "Header.message_prefix": "What every error message begins with.",
    "Constant.type": "Type in expressions.",
    "Constant.value": "The number, decimal or 0x…",
    "Layout.fields": "8-byte words in order.",
    "LayoutField.type": "How the word is read.",
    "Enum.kind": "Plain numbers, or bits that combine.",
    "Enum.members": "Members in order.",
    "EnumMember.value": "The number, or the number of the bit.",
    "Axis.values": "Values in order.",
    "AxisValue.when": "When a stage runs, relative to the model's forward.",
    "AxisValue.operations": "What a stage launches, in order.",
    "Struct.capacity": "Name of the size that allocation takes.",
    "Struct.fields": "Tensors in order.",
    "StructField.type": "dtype and lengths; these speak of the capacity and constants alone.",
    "Argument.type": "dtype, and lengths for a tensor. Either this or `field`.",
    "Argument.optional": "Whether None may be passed.",
    "Function.params": "Parameters in order.",
    "Function.returns": "Type of the value.",
    "Function.value": "The value.",
    "Kernel.launcher": "Name of the public function; launch_<kernel>_kernel when missing.",
    "Kernel.inputs": "Tensors that are read, in the order of the signature.",
    "Kernel.outputs": "Tensors that are written.",
    "Kernel.scalars": "Integers from the host.",
    "Kernel.domain": "At which points it runs.",
    "Kernel.offsets": "Running sums of a scan, by the tensor that receives them.",
    "Kernel.store": "Values by the element that receives them, at every point.",
    "Kernel.finally": "Stores after the last element of a scan.",
    "Kernel.schedule": "How it is launched.",
    "Fusion.schedule": "How it is launched.",
    "Offsets.sum": "Summand of each element.",
    "Schedule.block": "Points that one program handles at a time.",
    "Schedule.num_warps": "Warps of one program.",
    "Schedule.num_stages": "Stages of software pipelining.",
    "Operation.structs": "Struct arguments, first in the signature.",
    "Operation.arguments": "Other arguments, in the order of the signature.",
    "Operation.workspaces": "Scratch tensors, last in the signature.",
    "Operation.calls": "Launches in order.",
    "StructArgument.type": "The struct.",
    "Workspace.type": "dtype and length; the length is made of constants.",
    "Call.kernel": "The kernel.",
    "Call.bind": "The operation's argument for a kernel's argument of another name.",
    "Invariant.raises": "Built-in exception that the error derives from.",
    "Invariant.message": "Text behind the prefix, with placeholders in braces.",
    "Invariant.meaning": "What is wrong.",
    "Invariant.cause": "How that comes about.",
    "Invariant.fix": "What to do.",
    "RuntimeFault.raises": "Built-in exception that the error derives from.",
    "RuntimeFault.message": "Text behind the prefix, with placeholders in braces.",
    "RuntimeFault.meaning": "What is wrong.",
    "RuntimeFault.cause": "How that comes about.",
    "RuntimeFault.fix": "What to do.",
}


def meaning(model: str, key: str) -> str:
    """Meaning of a model's key; empty where its name says it all."""
    return _MEANINGS.get(f"{model}.{key}", _EVERYWHERE.get(key, ""))
