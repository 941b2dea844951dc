"""Ways to break a spec file: by lines, by words, by expressions, and files that nobody writes by hand."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from .copies import FILES

WORD = re.compile(r"[A-Za-z_]\w*|\d+|\S")
ENTRY = re.compile(r"(\s*(?:- )?(?:'[^']*'|[^:#]*): )(\S.*)")

# Values of other types than the key takes.
VALUES = ["5", "-1", "1.5", "true", "null", "''", "text", "[]", "[1, x]", "{}", "{a: 1}", "0x1F", "'5'", "[[]]", "~"]

# What people and fuzzers write where an expression belongs.
EXPRESSIONS = [
    "1 if x",
    "if x",
    "a if b",
    "x :=",
    "(y := 1)",
    "lambda: 1",
    "lambda x: x",
    "f'{x}'",
    "'text'",
    "b''",
    "...",
    "1e9",
    "1j",
    "1_000",
    "0777",
    "0b101",
    "10**100",
    "9" * 3000,
    "0x" + "f" * 3900,
    "-" * 3000 + "1",
    "not " * 900 + "True",
    "1" + "+1" * 1900,
    "1" + "<1" * 1900,
    "x" + ".y" * 1900,
    "x" + "[0]" * 1200,
    "f(" * 190 + "1" + ")" * 190,
    "(" * 200 + "1" + ")" * 200,
    "(" * 4000,
    "[" * 2000 + "]" * 2000,
    "min(" * 40 + "1" + ",1)" * 40,
    "1 if 1 < 2 else " * 200 + "0",
    "0 < (" * 30 + "1" + ") < 2" * 30,
    "x" * 4000,
    "x" * 10_000,
    "a < b < c < d < e",
    "1 < 2 == True",
    "a is None is None",
    "a not in b",
    "*a",
    "**a",
    "a, b",
    "a; b",
    "a = b",
    "a == b = c",
    "a[b:c]",
    "a[b, *c]",
    "a[...]",
    "{}",
    "{1: 2}",
    "{1}",
    "[x for x in y]",
    "(x for x in y)",
    "await x",
    "yield",
    "print('x')",
    "__import__('os')",
    "().__class__",
    "translate(slot=1)",
    "translate(*row)",
    "translate",
    "translate()",
    "min(1)",
    "min(1, 2, 3, 4, 5, 6, 7, 8, 9)",
    "len(prefix_lens)",
    "u64(-1)",
    "i64(0xFFFFFFFFFFFFFFFF)",
    "u64(True)",
    "1 // 0",
    "1 % -1",
    "1 << 64",
    "u64(1) << 64",
    "u64(1) << -1",
    "u64(1) + 1 + True",
    "~True",
    "True + 1",
    "None",
    "None is None",
    "prefix_lens is None",
    "full_to_swa_index_mapping is not None",
    "full_to_swa_index_mapping[0]",
    "req_to_token[0]",
    "req_to_token[True, 0]",
    "position",
    "ｐosition",
    "ﬁ",
    "名前",
    "x\u00a0+ 1",
    "x # comment",
    "x \\ y",
    "$x",
    "x?",
    "x!",
    "`x`",
    "@x",
    "x @ y",
    "x -> y",
    "x <> y",
    "x ++",
    "++x",
    "x && y",
    "x || y",
    "!x",
    "match",
    "print",
    "0 .. 1",
    "offsets of bs up to 1",
    "int64[bs]",
]


def line_deletions(step: int) -> Iterator[tuple[str, str]]:
    """One line of every file in turn, left out; comments and blank lines stay."""
    for file, text in FILES.items():
        lines = text.splitlines(keepends=True)
        meant = [index for index, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
        for index in meant[::step]:
            yield file, "".join(lines[:index] + lines[index + 1 :])


def random_edits(rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Edits of one line each."""
    files = sorted(FILES)
    for _ in range(count):
        file = rng.choice(files)
        lines = FILES[file].splitlines()
        rng.choice([_value, _word, _character, _cut, _repeat, _indent, _swap])(rng, lines)
        yield file, "\n".join(lines) + "\n"


def _value(rng: random.Random, lines: list[str]) -> None:
    index = rng.choice([i for i, line in enumerate(lines) if ENTRY.match(line)])
    lines[index] = ENTRY.sub(lambda match: match.group(1) + rng.choice(VALUES), lines[index])


def _word(rng: random.Random, lines: list[str]) -> None:
    index = rng.choice([i for i, line in enumerate(lines) if line.strip()])
    word = rng.choice(list(WORD.finditer(lines[index])))
    new = rng.choice(["", word.group() + "x", word.group() * 2, word.group().upper(), rng.choice(VALUES)])
    lines[index] = lines[index][: word.start()] + new + lines[index][word.end() :]


def _character(rng: random.Random, lines: list[str]) -> None:
    index = rng.randrange(len(lines))
    place = rng.randrange(len(lines[index]) + 1)
    new = rng.choice("()[]{}:,#&*!|>'\"%@`?-+=<~^ \t\\;$\0\x07é名\u2028\ufeff\u00a0")
    lines[index] = lines[index][:place] + new + lines[index][place:]


def _cut(rng: random.Random, lines: list[str]) -> None:
    index = rng.choice([i for i, line in enumerate(lines) if line.strip()])
    lines[index] = lines[index][: rng.randrange(len(lines[index]))]


def _repeat(rng: random.Random, lines: list[str]) -> None:
    index = rng.randrange(len(lines))
    lines.insert(rng.randrange(len(lines)), lines[index])


def _indent(rng: random.Random, lines: list[str]) -> None:
    index = rng.randrange(len(lines))
    lines[index] = " " * rng.randrange(9) + lines[index].lstrip()


def _swap(rng: random.Random, lines: list[str]) -> None:
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]


# Where an expression stands: file, and the text that it replaces.
PLACES = {
    "let": ("kernels/plan_offsets.yaml", "      prefix_len: ", "prefix_lens[r]"),
    "condition": ("kernels/plan_entries.yaml", "      when: ", "verify_enable[0] != 0"),
    "count": ("kernels/scatter_req_token_ids.yaml", "count: ", "bs"),
    "sum": ("kernels/plan_offsets.yaml", "{sum: ", "write_count"),
    "store": ("kernels/plan_entries.yaml", "      out_verify_expected_positions[i]: ", "position"),
    "target": ("kernels/plan_entries.yaml", "      out_verify_expected_positions[", "i"),
    "function": ("functions.yaml", "    value: ", "row != REQ_POOL_IDX_PADDING and 0 <= row < table_rows"),
    "rule": ("invariants.yaml", "    rule: ", "verify_capacity >= 0"),
    "placeholder": ("invariants.yaml", '"bs={', "bs"),
    "length": ("operations.yaml", "type: int64[>= ", "MAX_PLAN_BATCH + 1"),
    "type": ("arguments.yaml", "  prefix_lens:\n    type: ", "int64[bs]"),
    "values": ("arguments.yaml", "    values: 0 .. ", "31999"),
    "bound": ("kernels/plan_entries.yaml", "      limit: ", "verify_capacity"),
}


def expressions(rng: random.Random, each: int) -> Iterator[tuple[str, str]]:
    """Every odd expression at some places, as a plain scalar and in quotes."""
    for text in EXPRESSIONS:
        for place in rng.sample(sorted(PLACES), each):
            file, before, old = PLACES[place]
            assert before + old in FILES[file], place
            quoted = text if rng.random() < 0.3 or place in ("target", "placeholder", "length") else _quoted(text)
            yield file, FILES[file].replace(before + old, before + quoted, 1)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def garbled(rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Real expressions, cut off, with words swapped, or with characters of others in them."""
    for _ in range(count):
        file, before, old = PLACES[rng.choice(sorted(PLACES))]
        words = WORD.findall(old)
        for _ in range(rng.randrange(1, 4)):
            words.insert(
                rng.randrange(len(words) + 1),
                rng.choice(["(", ")", "[", "]", "if", "not", "<", "-", "r", "0", ",", "is"]),
            )
        text = " ".join(words)[: rng.randrange(1, 60)]
        yield (
            file,
            FILES[file].replace(before + old, before + _quoted(text) if before.endswith(": ") else before + text, 1),
        )


def files() -> Iterator[tuple[str, str, str | bytes]]:
    """Name, file and content of files that are no spec files, or nearly."""
    deep = "\n".join(f"{' ' * n}k:" for n in range(500))
    lists = "\n".join(f"{' ' * n}-" for n in range(500))
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [*{p}, *{p}, *{p}]\n" for p, c in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
    )
    texts: dict[str, str | bytes] = {
        "empty": "",
        "blank": "\n\n   \n",
        "comment": "# nothing\n",
        "a scalar": "just words\n",
        "a number": "5\n",
        "a list": "- a\n- b\n",
        "null": "null\n",
        "two documents": "constants: {}\n---\nconstants: {}\n",
        "document markers": "---\nconstants: {}\n...\n",
        "a directive": "%YAML 1.1\n---\nconstants: {}\n",
        "bytes": bytes(range(256)),
        "zeros": b"\0" * 1000,
        "UTF-16": "constants: {}\n".encode("utf-16"),
        "Latin-1": "constants: {é: 1}\n".encode("latin-1"),
        "half a character": b"constants: {} # \xe2\x82",
        "surrogates": b"constants: {} # \xed\xa0\x80",
        "byte-order mark": "\ufeffconstants: {}\n",
        "byte-order mark inside": "constants: {}\n\ufeff",
        "Windows lines": "constants: {}\r\ndims: {}\r\n",
        "old Mac lines": "constants: {}\rdims: {}\r",
        "no last newline": "constants: {}",
        "tabs": "constants:\n\tA:\n\t\tvalue: 1\n",
        "a megabyte": "# " + "x" * 1_000_000 + "\n",
        "a megabyte of brackets": "[" * 1_000_000,
        "brackets": "[" * 250_000,
        "braces": "{" * 250_000,
        "closed brackets": "[" * 100_000 + "]" * 100_000,
        "flow mappings": "{a: " * 60_000,
        "question marks": "? " * 100_000,
        "dashes": "- " * 100_000,
        "deep mappings": deep,
        "deep lists": lists,
        "33 levels": "constants: " + "[" * 33 + "]" * 33,
        "aliases": bomb,
        "an alias of itself": "a: &a [*a]\n",
        "an unknown alias": "a: *b\n",
        "merge keys": "constants:\n  A: &a {value: 1, doc: X.}\n  B:\n    <<: *a\n",
        "tags": "constants: !!python/object/apply:os.system ['true']\n",
        "a tagged key": "!!str constants: {}\n",
        "binary": "constants: !!binary aGVsbG8=\n",
        "a set": "constants: !!set {a, b}\n",
        "unhashable keys": "? [a, b]\n: c\n? {a: b}\n: c\n",
        "keys of keys": "? ? ? a\n",
        "odd keys": "1: a\n1.5: b\nnull: c\ntrue: d\n2001-01-01: e\n'': f\n~: g\n",
        "sections with odd keys": "constants: {1: {}, 1.5: {}, '': {}, é: {}, 'a b': {}}\n",
        "YAML 1.1 words": "on: 1\nyes: 2\nNo: 3\nconstants: {y: {value: off, doc: X.}}\n",
        "a long key": f"constants: {{{'k' * 900}: 1}}\n",
        "a very long key": "k" * 200_000 + ": 1\n",
        "a long scalar": f"dims: {{x: {'d' * 200_000}}}\n",
        "many keys": "constants:\n" + "".join(f"  C{n}: 1\n" for n in range(10_000)),
        "many duplicates": "dims:\n" + "  a: A.\n" * 10_000,
        "many constants": "constants:\n" + "".join(f"  C{n}: {{value: {n}, doc: N.}}\n" for n in range(4000)),
        "many lets": "functions:\n  f:\n    doc: F.\n    returns: int64\n    value: a0\n    let:\n      a0: 1\n"
        + "".join(f"      a{n}: a{n - 1} + 1\n" for n in range(1, 4000)),
        "doubling lets": "functions:\n  f:\n    doc: F.\n    returns: int64\n    value: a0\n    let:\n      a0: 1\n"
        + "".join(f"      a{n}: a{n - 1} * a{n - 1}\n" for n in range(1, 900)),
        "a long chain of functions": "functions:\n"
        + "".join(f"  f{n}: {{doc: F., returns: int64, value: f{n + 1}()}}\n" for n in range(3000))
        + "  f3000: {doc: F., returns: int64, value: 1}\n",
        "a long circle of functions": "functions:\n"
        + "".join(f"  f{n}: {{doc: F., returns: int64, value: f{(n + 1) % 3000}()}}\n" for n in range(3000)),
        "a function that calls itself": "functions: {f: {doc: F., returns: int64, value: f()}}\n",
        "many includes": "include: [" + "constants.yaml, " * 5000 + "]\n",
        "odd includes": "include: ['', ., .., /, '*', '**', '[', '//', a/../b, '~', 5, null, [x], {a: b}, 'a\\0b']\n",
        "an include of everything": "include: ['**/*']\n",
        "a long include": f"include: ['{'**/' * 60}*.yaml', '{'*' * 5000}']\n",
        "a text for includes": "include: constants.yaml\n",
        "many axes": "axes:\n"
        + "".join(f"  a{n}: {{doc: A., values: {{x{n}: {{doc: X.}}, y{n}: {{doc: Y.}}}}}}\n" for n in range(40))
        + "tags: {Many: {doc: M., name: '"
        + "".join(f"{{a{n}}}" for n in range(40))
        + "', numbers: [x]}}\n",
        "a wide placeholder": "axes: {a: {doc: A., values: {X: {doc: X.}}}}\n"
        "tags: {T: {doc: T., name: '{a:>999999999}', numbers: [X]}}\n",
        "blanks in a type": f"arguments: {{a: {{type: 'int64{' ' * 900}x', doc: A.}}}}\n",
        "quoted controls": 'dims: {a: "\\0", b: "\\e[0m", c: "\\u2028", "\\a": x}\n',
        "large numbers": f"constants: {{A: {{value: {'9' * 5000}, doc: A.}}, B: {{value: 0x{'f' * 5000}, doc: B.}}}}\n",
    }
    for name, text in texts.items():
        yield name, "extra.yaml", text
    for name in ("empty", "bytes", "a list", "brackets", "deep mappings", "aliases", "two documents", "odd includes"):
        yield f"{name} as root", "kvcanary.yaml", texts[name]
