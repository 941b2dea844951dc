"""Everything that the spec builds: the package, its reference pages, and the schema of the spec itself."""

from __future__ import annotations

import json

from kvcanary_gen.compare import MANIFEST, Comparison, Difference, State, Tree, compare, manifest_text
from kvcanary_gen.ir import Program
from kvcanary_gen.load import Document
from kvcanary_gen.write import FolderError, write_tree

SCHEMA = "spec.schema.json"


def build_tree(program: Program, document: Document) -> dict[str, str]:
    """Every generated file: path below the generated folder (with `/`) to text.

    The same spec gives the same bytes, on every machine and under every hash seed.
    """
    from kvcanary_gen.emit.docs import build_docs
    from kvcanary_gen.emit.header import build_header
    from kvcanary_gen.emit.package import build_package

    files: dict[str, str] = {}
    parts = [build_package(program), build_header(program), build_docs(program, document), {SCHEMA: schema_text()}]
    for part in parts:
        twice = files.keys() & part.keys()
        if twice:
            raise ValueError(f"two emitters write {', '.join(sorted(twice))}")
        files |= part
    files[MANIFEST] = manifest_text(files)
    return dict(sorted(files.items()))


def schema_text() -> str:
    """JSON Schema of a spec file, as editors read it."""
    from kvcanary_gen.schema.publish import spec_schema

    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


__all__ = [
    "MANIFEST",
    "SCHEMA",
    "Comparison",
    "Difference",
    "FolderError",
    "State",
    "Tree",
    "build_tree",
    "compare",
    "schema_text",
    "write_tree",
]
