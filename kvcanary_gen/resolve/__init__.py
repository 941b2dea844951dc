"""From validated declarations to the resolved program: names, types, and rules that span several declarations."""

from __future__ import annotations

from pathlib import Path

from kvcanary_gen.diagnostics import Diagnostics
from kvcanary_gen.ir import Program
from kvcanary_gen.load import Document, load_document
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.data import check_constants, resolve_arguments, resolve_structs
from kvcanary_gen.resolve.errors import resolve_errors
from kvcanary_gen.resolve.folds import resolve_folds
from kvcanary_gen.resolve.functions import resolve_functions
from kvcanary_gen.resolve.fusions import check_limits, resolve_fusions
from kvcanary_gen.resolve.invariants import resolve_invariants
from kvcanary_gen.resolve.kernels import resolve_kernels
from kvcanary_gen.resolve.many import check_many
from kvcanary_gen.resolve.names import check_names
from kvcanary_gen.resolve.operations import resolve_operations
from kvcanary_gen.resolve.strays import explain_strays
from kvcanary_gen.resolve.tags import check_enums, check_tags


def resolve_document(document: Document) -> Program:
    """Resolves every name and type.

    Raises:
        SpecError: with every finding, those of loading included, sorted by place.
    """
    findings = document.findings
    context = Context(document, Diagnostics(list(findings.found), findings.limit))
    check_names(context)
    check_constants(context)
    check_enums(context)
    check_tags(context)
    structs = resolve_structs(context)
    arguments = resolve_arguments(context, structs)
    functions = resolve_functions(context, arguments)
    folds = resolve_folds(context, arguments, structs)
    kernels = resolve_kernels(context, arguments, functions, folds)
    kernels |= resolve_fusions(context, arguments, kernels)
    operations = resolve_operations(context, arguments, structs, kernels)
    invariants = resolve_invariants(context, kernels, operations)
    check_limits(context, kernels, invariants)
    check_many(context, operations, functions, folds, invariants)
    errors = resolve_errors(context, kernels, structs, operations)
    _check_kernels(context)
    explain_strays(document, context.out)
    context.out.raise_if_any()
    return Program(
        header=document.header,
        constants=document.section("constants"),
        layouts=document.section("layouts"),
        enums=document.section("enums"),
        axes=document.section("axes"),
        tags=document.section("tags"),
        structs=structs,
        dim_docs={name: str(doc) for name, doc in document.section("dims").items()},
        functions=functions,
        folds=folds,
        kernels=kernels,
        operations=operations,
        invariants=invariants,
        errors=errors,
    )


def _check_kernels(context: Context) -> None:
    if not context.document.names("kernels"):
        context.out.add(
            context.document.header_mark, "KVG-013", "no kernel is declared, so there is nothing to generate"
        )


def load_program(root: Path) -> Program:
    """Reads and resolves the spec folder `root`; raises SpecError."""
    return resolve_document(load_document(root))
