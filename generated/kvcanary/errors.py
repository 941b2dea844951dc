# Written by kvcanary-gen from the spec; edit that instead.
"""Exceptions of kvcanary. Every one carries the id of the rule that was broken, as in `docs/errors/KVC-001.md`."""

from __future__ import annotations


class CanaryError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        id: the rule's stable id, such as 'KVC-001'.
    """

    def __init__(self, id: str, message: str) -> None:
        super().__init__(message)
        self.id = id

    def __reduce__(self) -> tuple[type[CanaryError], tuple[str, str]]:
        return type(self), (self.id, str(self))

    @property
    def fix(self) -> str:
        """What to do about it."""
        return FIXES[self.id]


class CanaryNotImplementedError(CanaryError, NotImplementedError):
    """A NotImplementedError with a rule id."""


class CanaryRuntimeError(CanaryError, RuntimeError):
    """A RuntimeError with a rule id."""


class CanaryTypeError(CanaryError, TypeError):
    """A TypeError with a rule id."""


class CanaryValueError(CanaryError, ValueError):
    """A ValueError with a rule id."""


FIXES = {
    "KVC-001": "Pass the kind that the reference page names; only arguments marked optional may be None.",
    "KVC-002": "Pass the pool's full_to_swa_index_mapping, or swa_window_size=0 for layers with full attention.",
    "KVC-003": "Pass the valid length of every request, or no history at all.",
    "KVC-004": "Pass verify_capacity=plan.verify_slot_indices.shape[0].",
    "KVC-005": "Split the batch, or raise MAX_PLAN_BATCH in spec/constants.yaml and generate the package again.",
    "KVC-006": "Allocate the plan with WritePlan.allocate.",
    "KVC-007": "Pass the length of the verify plan's tensors.",
    "KVC-008": "Allocate the plan with WritePlan.allocate, and slice all fields alike.",
    "KVC-009": "Allocate the write plan for the largest batch that will run.",
    "KVC-010": "Plan in several launches, each with a plan of its own.",
    "KVC-011": "Pass a value within the type's range.",
    "KVC-012": "Convert once, outside the loop, with tensor.to(dtype).",
    "KVC-013": "Reshape the tensor to the declared rank.",
    "KVC-014": "Slice all per-request tensors to the batch, and allocate plans with allocate().",
    "KVC-015": "Pass tensor.contiguous() for an input; an output must be contiguous from the start.",
    "KVC-016": "Move it to the device of the others before the call.",
    "KVC-021": "Cut at a multiple of the element size, or clone the tensor.",
    "KVC-017": "Allocate for the largest batch, at least 1.",
    "KVC-018": "Use triton or reference, or leave it out to choose by device.",
    "KVC-019": "Set TRITON_INTERPRET=1 before the import to interpret the kernels, or let the reference run.",
    "KVC-020": "Capture the Triton path; references are for tests and for CPUs.",
    "KVC-030": "Allocate the buffer by itself, with rows that are a multiple of 8 bytes long.",
    "KVC-031": "Pass a table of the sources, which holds any number of them, or hash fewer layers.",
    "KVC-032": "Pass bytes, in multiples of 16; a table of the sources takes any number of bytes.",
    "KVC-033": (
        "Pass the pool's tensor as it was allocated, rows packed and 16-byte aligned, or else a table of the sources."
    ),
    "KVC-034": "Pass both expected tensors, or enable_write_input_assert=False.",
    "KVC-035": (
        "Build a table for each pool and mode, and for writing one in which every endpoint has a buffer of its own."
    ),
    "KVC-050": "Leave out the endpoints for which is_sweep_tag(endpoint.tag) is true.",
    "KVC-051": "Take the endpoints for which is_sweep_tag(endpoint.tag) is true.",
    "KVC-052": "Make the group with CanaryBufferGroup.allocate, which makes a buffer for each stage and half.",
    "KVC-053": (
        "Set the setting that the message names, or its KVCANARY_ variable, to the largest that the engine makes."
    ),
    "KVC-054": "Pass one of the values that the page on the runtime lists for it.",
    "KVC-055": "Correct the name, or unset the variable; the page on the runtime lists all settings.",
    "KVC-056": "Close the manager after the last forward, and make a new one to go on.",
    "KVC-057": "Make a manager in each process, after the fork.",
    "KVC-058": (
        "Capture again with both calls of the manager inside the graph, and name the stream that the engine works on."
    ),
    "KVC-060": "Give slots for every pool without a mapping, a table for each, and both lengths of every request.",
    "KVC-061": "Call both around each forward, or use CanaryManager.forward(batch), which cannot miss one.",
    "KVC-062": "Install the extra with pip install 'kvcanary[prometheus]', or leave the metrics out.",
    "KVC-063": "Lower the largest size that the message lists, or name a device that torch sees.",
    "KVC-070": "Install one of the versions that the message names, or attach a CanaryManager by hand.",
    "KVC-071": "Pass what model.init_continuous_batching returns, before it is started, or the model itself.",
    "KVC-072": "Install the extra with pip install 'kvcanary[transformers]'.",
    "KVC-073": "Keep the manager of the first call, or close it before attaching another.",
    "KVC-080": "Convert it, as in int(value) or value.item(), once the data is on the host.",
    "KVC-081": "Pass the line as it was written, from its first word, and read it with the package that wrote it.",
    "KVC-082": "Pass the journal itself; on_bad_line=… skips such lines and tells of each.",
    "KVC-083": "Name a file in a folder that exists and may be written to.",
    "KVC-084": "Print error.describe(); keep a journal and read its page from `python -m kvcanary report`.",
    "KVC-085": "Raise only where there are records.",
    "KVC-090": "Set the field that the message names, or leave it at its default.",
    "KVC-091": "Shorten the prompt or max_new, or make the engine with a larger max_context or vocabulary.",
    "KVC-092": "Call copy(batch) after schedule(), and let the canary copy its fingerprints at the same place.",
    "KVC-093": "Use one of the kinds that the message lists, and a probability between 0 and 1.",
}
