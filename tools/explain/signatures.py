"""The declarations of the catalogue: the sorts of every constructor, function and relation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from ...rules.constructors import sorts
from ...rules.loader import RuleFile
from ...rules.places import analysis_files
from ...rules.sexpr import Atom, Form, read

TERM_SORTS = ("T", "N", "Ts")


@dataclass(frozen=True)
class Table:
    """A constructor, function or relation; the `output` of a relation is empty.

    `place` is the file and line of its declaration; empty for operators and for declarations that all rules share.
    """

    inputs: tuple[str, ...]
    output: str
    constructs: bool
    place: str = ""


Signatures = Mapping[str, Table]


def read_signatures(files: Iterable[RuleFile]) -> dict[str, Table]:
    """All tables by name: the operators, the analyses, and what the rule files declare."""
    return {**_shared_tables(), **{name: table for file in files for name, table in _file_tables(file)}}


@cache
def _shared_tables() -> Mapping[str, Table]:
    operators = {name: table for form in read(sorts()).forms for name, table in _tables(form)}
    return {**operators, **{name: table for file in analysis_files() for name, table in _file_tables(file)}}


def _file_tables(file: RuleFile) -> Iterator[tuple[str, Table]]:
    for command in file.declarations:
        place = "" if file.path.stem == "declarations" else f"{file.path}:{command.line}"
        for name, table in _tables(read(command.text).forms[0]):
            yield name, replace(table, place=place)


def _tables(form: Form) -> Iterator[tuple[str, Table]]:
    if form.head == "datatype":
        yield from _variants(str(form.items[1]), form.items[2:])
    elif form.head == "datatype*":
        for part in form.items[1:]:
            if isinstance(part, Form):
                yield from _variants(part.head, part.items[1:])
    elif form.head in ("constructor", "function", "relation"):
        output = "" if form.head == "relation" else str(form.items[3])
        yield str(form.items[1]), Table(_names(form.items[2]), output, form.head == "constructor")


def _variants(sort: str, variants: Iterable[Atom | Form]) -> Iterator[tuple[str, Table]]:
    for variant in variants:
        if isinstance(variant, Form):
            names = tuple(n for n in _names(variant)[1:] if not n.startswith(":"))
            yield variant.head, Table(names, sort, True)


def _names(node: Atom | Form) -> tuple[str, ...]:
    return tuple(map(str, node.items)) if isinstance(node, Form) else ()
