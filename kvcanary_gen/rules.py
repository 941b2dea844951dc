"""The rules that `lint` reports by id: what each means and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One generator rule, shown by `kvcanary-gen explain KVG-…`."""

    title: str
    meaning: str
    fix: str


RULES: dict[str, Rule] = {
    "KVG-001": Rule(
        "unreadable file",
        "The file is missing, too large, not UTF-8, or holds control characters.",
        "Check the path in `include`, and save the file as UTF-8.",
    ),
    "KVG-002": Rule(
        "YAML syntax",
        "The file is not well-formed YAML.",
        "Look at indentation, brackets and quotes at the place given; quote text that holds ': ' or ' #'.",
    ),
    "KVG-003": Rule(
        "duplicate key", "A mapping holds one key twice; YAML parsers would silently keep the last.", "Remove one."
    ),
    "KVG-004": Rule(
        "YAML 1.1 spelling",
        "on, off, yes and no are booleans to some parsers and words to others; 010 is 8 or 10.",
        "Write true or false, or quote the word; write numbers without leading zeros.",
    ),
    "KVG-005": Rule(
        "YAML feature outside the language",
        "Anchors, aliases, merge keys, tags, several documents, keys that are no words, control characters and deep "
        "nesting are refused.",
        "Write the value out.",
    ),
    "KVG-006": Rule("include", "An included file or pattern names nothing, or a file twice.", "Correct the path."),
    "KVG-010": Rule(
        "wrong value", "A value has another type or form than the schema says.", "See `kvcanary-gen schema`."
    ),
    "KVG-011": Rule("unknown key", "The schema has no such key at this place.", "Correct the spelling, or remove it."),
    "KVG-012": Rule(
        "unknown name",
        "An expression or a list names something that is not declared, or not visible there.",
        "Declare it, or correct the spelling.",
    ),
    "KVG-013": Rule("missing key", "The schema demands a key that is not there.", "Add it."),
    "KVG-014": Rule("declared twice", "One name is declared at two places.", "Rename or remove one of them."),
    "KVG-015": Rule(
        "unusable name",
        "The name is a keyword or builtin of Python, or is taken by the language or the generated code.",
        "Choose another name.",
    ),
    "KVG-016": Rule(
        "names that differ by case alone",
        "Kernels and operations become files, which some systems cannot tell apart; arguments, layouts and tag "
        "families become upper-case names.",
        "Choose another name.",
    ),
    "KVG-020": Rule("expression syntax", "The text is not an expression.", "Use the subset of Python's syntax."),
    "KVG-021": Rule(
        "construct outside the language",
        "The expression uses Python that the spec language does not have.",
        "Use names, integers, indexing, arithmetic, comparisons, and/or/not, `a if c else b` and calls.",
    ),
    "KVG-022": Rule(
        "type mismatch",
        "Operands have types that do not go together: int64 for indices, uint64 for hashes, bool for conditions.",
        "Convert with u64(x) or i64(x), which keep the bits, or compare to get a bool.",
    ),
    "KVG-023": Rule("number of indices", "A tensor is indexed with too few or too many indices.", "Give one per axis."),
    "KVG-024": Rule("call", "A function is called with the wrong number of arguments.", "See its declaration."),
    "KVG-025": Rule("recursion", "Functions call each other in a circle.", "Expressions must end; break the circle."),
    "KVG-026": Rule(
        "divisor",
        "A divisor is not known to be positive, and dividing by zero is undefined on a device.",
        "Divide by a positive literal, a constant, or a scalar argument whose `values` begin at 1 or more.",
    ),
    "KVG-027": Rule("literal out of range", "An integer does not fit the type it is used as.", "Use a smaller one."),
    "KVG-028": Rule(
        "optional argument not tested",
        "An optional tensor is read where it may be missing.",
        "Read it inside `… if NAME is not None else …`.",
    ),
    "KVG-029": Rule(
        "size of an expression",
        "With the lets that it reads written out, an expression would be too large to prove anything about it.",
        "Compute less at once, or put a part into a function.",
    ),
    "KVG-030": Rule(
        "type text", "A type is not of the form dtype or dtype[length, …].", "For example int64[bs + 1] or int64."
    ),
    "KVG-031": Rule(
        "unbound size",
        "A size appears in no argument by itself, so its value cannot be read off any tensor.",
        "Give the kernel a tensor with that size as one whole axis, or a scalar argument of that name.",
    ),
    "KVG-032": Rule("store", "A store does not go to an output of the kernel.", "List the tensor under `outputs`."),
    "KVG-033": Rule(
        "domain",
        "The iteration domain is incomplete, mixes two kinds, or has bounds that only the device knows.",
        "Give exactly one of index, segments and scan, with bounds over sizes and scalars.",
    ),
    "KVG-034": Rule(
        "offsets", "Running sums and `finally` belong to a scan domain, sums to a 1-D int64 output.", "Move them there."
    ),
    "KVG-035": Rule("output never written", "An output receives no value.", "Store to it, or remove it."),
    "KVG-036": Rule(
        "order of stores",
        "Two points of a domain, or two sections, may store to one place; a device would not keep their order.",
        "Store to [index]. In a segment domain, also to indices that depend on the owner beside one that is the place "
        "within the segment.",
    ),
    "KVG-037": Rule(
        "recurrence",
        "A recurrence has no segments to run along, no scratch that holds its state, or no way to be done in one "
        "program; or what belongs to a recurrence stands elsewhere.",
        "Use a segments domain. Declare the scratch as int64 records of the state, with a row for every entry and one "
        "for every segment. Give `shapes` ascending blocks.",
    ),
    "KVG-038": Rule(
        "counter",
        "A counter is no int64 output of the kernel, or `always` does not fit it.",
        "List the tensor under `outputs`.",
    ),
    "KVG-039": Rule(
        "report",
        "Checks have nowhere to append their rows, or a row is incomplete.",
        "Declare `report` with the ring, the next index and the enum of reasons; give every field of the row.",
    ),
    "KVG-040": Rule(
        "message placeholder",
        "A message names something that the rule's operation does not have, or its braces do not match.",
        "Use the operation's names, without formats; double a brace that is meant as text.",
    ),
    "KVG-041": Rule(
        "invariant",
        "An invariant is neither a rule with an example nor an implied rule, an implied kind has not one entry, or a "
        "rule stands before the implied one that it relies on.",
        "Give `rule`, `operations` and `example`, or `implied`.",
    ),
    "KVG-042": Rule(
        "example does not violate",
        "The example of an invariant does not break its rule, so nothing would prove that the rule works.",
        "Change the example.",
    ),
    "KVG-043": Rule(
        "error of the runtime",
        "The runtime that goes with violation rows raises errors by id, and `errors` does not say what they mean.",
        "Declare each of them under `errors`, as the spec that comes with the generator does.",
    ),
    "KVG-044": Rule(
        "record",
        "A tensor of records is used as a plain one, or a plain one as records, or its rows do not hold the layout.",
        "Name a field, as in tensor[index].field; declare `record` and end the shape in NAME_NUM_FIELDS or NAME_BYTES.",
    ),
    "KVG-045": Rule(
        "fusion",
        "Two kernels cannot be fused: what one stores is not what the other reads, entry by entry or in all.",
        "Fuse a kernel over [0, count) with one over segments that stores to [index] alone and does nothing else, and "
        "run what counts the segments first, in the same operation. A kernel with a `scan` of its own reads the sums "
        "and values of their total, has a rule for its limit, and shares nothing else that one of the two writes.",
    ),
    "KVG-050": Rule(
        "tag numbers",
        "The numbers of a tag family do not name every combination of its axes exactly once.",
        "Append what is missing; numbers are on the wire and keep their meaning.",
    ),
    "KVG-051": Rule("enum values", "Two members of an enum share a value, or a bit is out of range.", "Renumber."),
    "KVG-060": Rule(
        "call of a kernel",
        "An operation does not supply an argument of a kernel that it calls, or supplies one that does not fit.",
        "Add the argument, or bind it.",
    ),
    "KVG-061": Rule(
        "values",
        "The `values` of an argument cannot be read, or there are none.",
        "Use `LOW .. HIGH`, or `offsets of N up to M` for a 1-D int64 tensor.",
    ),
    "KVG-062": Rule(
        "many structs in one launch",
        "A struct has no table that holds many, or a kernel cannot run for many of them at once.",
        "Take the struct alone, or move what they would share into its fields.",
    ),
}
