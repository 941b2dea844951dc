"""From a word to the subjects that it names, and from a subject to its lines in the spec and in generated code."""

from __future__ import annotations

import re

from kvcanary_gen.compare import Tree
from kvcanary_gen.excerpt import block
from kvcanary_gen.explain.generated import Excerpt, Module, modules
from kvcanary_gen.explain.subjects import Subject, subjects
from kvcanary_gen.ir import Program
from kvcanary_gen.load import Document


def known_names(program: Program) -> set[str]:
    return {name for subject in subjects(program) for name in subject.names}


def explain_name(program: Program, word: str) -> list[Subject]:
    """Subjects called `word`; by a name in full if there are any, whatever the case if there are none."""
    everything = list(subjects(program))
    exact = [subject for subject in everything if word in (subject.name, *subject.aliases)]
    found = exact or [subject for subject in everything if word in subject.names]
    return found or [subject for subject in everything if word.lower() in map(str.lower, subject.names)]


def spec_excerpt(document: Document, subject: Subject) -> Excerpt | None:
    """The lines of the spec that declare a subject."""
    if not subject.place:
        return None
    section, name, *path = subject.place
    first, lines = block(document, str(section), str(name), *path)
    file = document.places[str(section), str(name)]
    return Excerpt(file, tuple(range(first, first + len(lines))), tuple(lines))


def generated_excerpts(program: Program, tree: Tree, subject: Subject) -> list[Excerpt]:
    """What a subject becomes: definitions in full, uses by their lines, and the reference page."""
    files = modules(tree, program.header.package)
    finder = _FINDERS.get(subject.kind)
    found = [excerpt for excerpt in finder(files, subject, program) if excerpt is not None] if finder else []
    return [*found, *_pages(tree, subject)]


def _pages(tree: Tree, subject: Subject) -> list[Excerpt]:
    """The page of an operation, kernel or error: its path alone."""
    name = subject.name
    paths = {"kernel": f"docs/ops/{name}.md", "operation": f"docs/ops/{name}.md", "invariant": f"docs/errors/{name}.md"}
    path = paths.get(subject.kind, "")
    return [Excerpt(path, (1,), (), "reference page")] if path in tree else []


# ---- by kind ---------------------------------------------------------------------------------------------------------

Files = dict[str, Module]
Found = list[Excerpt | None]


def _word(name: str) -> str:
    return rf"\b{re.escape(name)}\b"


def _kernel(files: Files, subject: Subject, program: Program) -> Found:
    module = files[f"ops/{subject.name}.py"]
    kernel = module.definition(f"_{subject.name}_kernel", "Triton kernel")
    return [kernel, module.definition("launch", "launch"), module.definition("reference", "torch reference")]


def _operation(files: Files, subject: Subject, program: Program) -> Found:
    module = files[f"ops/{subject.name}.py"]
    return [module.definition(subject.aliases[0], "launcher"), module.definition("validate", "validator")]


def _function(files: Files, subject: Subject, program: Program) -> Found:
    titles = {"core/device.py": "Triton", "core/functions.py": "torch", "hashing.py": "Python integers"}
    return [files[file].definition(subject.name, title) for file, title in titles.items() if file in files]


def _argument(files: Files, subject: Subject, program: Program) -> Found:
    found: Found = []
    for name in (*program.kernels, *program.operations):
        module = files[f"ops/{name}.py"]
        found.append(module.mentions(_word(subject.name), ("validate",), "validator"))
        word = rf"\b{re.escape(subject.name)}(_ptr)?\b"
        found.append(module.mentions(word, (f"_{name}_kernel",), "Triton kernel"))
        found.append(module.mentions(_word(subject.name), ("reference",), "torch reference"))
    return found


def _size(files: Files, subject: Subject, program: Program) -> Found:
    """Where a size is read off a tensor."""
    return [
        files[f"ops/{name}.py"].mentions(rf"^ +{re.escape(subject.name)} = ", ("launch", "validate"))
        for name in (*program.kernels, *program.operations)
    ]


def _let(files: Files, subject: Subject, program: Program) -> Found:
    kernel, _, name = subject.name.partition(".")
    module = files[f"ops/{kernel}.py"]
    triton = module.mentions(_word(name), (f"_{kernel}_kernel",), "Triton kernel")
    return [triton, module.mentions(_word(name), ("reference",), "torch reference")]


def _of_operation(files: Files, subject: Subject, program: Program) -> Found:
    """Struct arguments and workspaces."""
    operation, _, name = subject.name.partition(".")
    return [files[f"ops/{operation}.py"].mentions(_word(name), ("validate",), "validator")]


def _constant(files: Files, subject: Subject, program: Program) -> Found:
    return [files[file].definition(subject.name) for file in ("layout.py", "core/device.py")]


def _record(files: Files, subject: Subject, program: Program) -> Found:
    prefix = program.layouts[subject.name].prefix
    return [files["layout.py"].mentions(rf"^({prefix}|{subject.name.upper()})_[A-Z_]+ =")]


def _record_field(files: Files, subject: Subject, program: Program) -> Found:
    return [files["layout.py"].definition(subject.aliases[0])]


def _class(files: Files, subject: Subject, program: Program) -> Found:
    file = "structs.py" if subject.kind == "struct" else "layout.py"
    return [files[file].definition(subject.name)]


def _member(files: Files, subject: Subject, program: Program) -> Found:
    owner, _, name = subject.name.partition(".")
    file = "structs.py" if subject.kind == "struct field" else "layout.py"
    found: Found = [files[file].mentions(_word(name), (owner,))]
    if subject.kind == "tag":
        found.append(files[file].mentions(rf"\.{name}\b"))
    return found


def _invariant(files: Files, subject: Subject, program: Program) -> Found:
    return [excerpt for module in files.values() for excerpt in module.raises(subject.name)]


_FINDERS = {
    "kernel": _kernel,
    "fusion": _kernel,
    "operation": _operation,
    "function": _function,
    "argument": _argument,
    "size": _size,
    "let": _let,
    "struct argument": _of_operation,
    "workspace": _of_operation,
    "constant": _constant,
    "record": _record,
    "record field": _record_field,
    "enum": _class,
    "struct": _class,
    "tag family": _class,
    "enum member": _member,
    "struct field": _member,
    "tag": _member,
    "invariant": _invariant,
}
