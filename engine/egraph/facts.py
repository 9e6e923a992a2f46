"""An encoding as egglog facts: one tab-separated table per constructor, and the program that loads them.

Loading text with ``let`` takes seconds for a large graph (its parser is quadratic); tables take milliseconds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...ir.operators import OPERATORS, Operand
from ...ir.types import TensorType
from .encode import Encoding, multiple_outputs
from .graph import ENode, Literal

_SAFE = re.compile(r"[^~\s](?:[^\t\r\n]*\S)?")
_FIXED = {
    "Var": ("String",),
    "Weight": ("String",),
    "Full": ("Ints", "f64", "String"),
    "Absent": (),
    "Out": ("N", "i64"),
}

HEADER = """\
(constructor term (i64) T :unextractable)
(constructor node (i64) N :unextractable)
(function integers (String) Ints :no-merge)
(ruleset load)
"""


def signature(op: str) -> tuple[str, ...]:
    """Sorts of a constructor's arguments, in order."""
    if op in _FIXED:
        return _FIXED[op]
    return tuple("T" if isinstance(a, Operand) else a.kind for a in OPERATORS[op].arguments)


@dataclass
class Labels:
    """Strings that egglog's tables can hold: a number replaces a string with tabs, line breaks or blank ends.

    Every other string stays, for rules look into some (the configuration of a Resize).
    """

    names: dict[str, str] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """The label of a name."""
        if name not in self.names:
            label = name if _SAFE.fullmatch(name) else f"~{len(self.names)}"
            self.names[name] = label
            self.originals[label] = name
        return self.names[name]


@dataclass
class Tables:
    """Rows by table, and the integer lists that they refer to by key."""

    labels: Labels = field(default_factory=Labels)
    rows: dict[str, list[str]] = field(default_factory=dict)
    integers: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, table: str, *cells: object) -> None:
        """Append one row."""
        self.rows.setdefault(table, []).append("\t".join(map(str, cells)))

    def cell(self, sort: str, literal: Literal) -> str:
        """One literal as a table's cell."""
        if isinstance(literal, tuple):
            return self.key(literal)
        return self.labels.of(literal) if isinstance(literal, str) else repr(literal)

    def key(self, integers: tuple[int, ...]) -> str:
        """The name of an integer list in the program."""
        key = ",".join(map(str, integers)) or "-"
        self.integers[key] = integers
        return key


def write_facts(encoding: Encoding, folder: Path) -> tuple[str, Labels]:
    """Write the tables into `folder`. Returns the program that loads them, and the labels of all strings."""
    tables = Tables()
    arities = set()
    for index, term in enumerate(encoding.terms):
        if term.op == "Op":
            arities.add(len(term.children))
            tables.add(f"Op{len(term.children)}", index, tables.labels.of(str(term.attributes[0])), *term.children)
        else:
            tables.add(term.op, index, *_arguments(tables, term))
    _write_analyses(encoding, tables)
    for table, rows in tables.rows.items():
        (folder / f"{table}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return _program(encoding, tables, sorted(arities)), tables.labels


def _arguments(tables: Tables, term: ENode) -> Iterable[str]:
    literals, children = iter(term.attributes), iter(term.children)
    for sort in signature(term.op):
        yield str(next(children)) if sort in ("T", "N") else tables.cell(sort, next(literals))


def _write_analyses(encoding: Encoding, tables: Tables) -> None:
    for term, type_ in encoding.types.items():
        tables.add("known-dtype", term, type_.dtype)
        shape = _number_shape(type_, encoding)
        if shape is not None:
            tables.add("known-shape", term, tables.key(shape))
    for term, number in encoding.uniform.items():
        tables.add("known-value", term, repr(number))
    for index, node in enumerate(encoding.terms):
        if node.op == "Weight":
            tables.add("known-token", index, *tokens(f"weight {node.attributes[0]}"))
    for number in sorted({a for t in encoding.terms for a in t.attributes if isinstance(a, float)}):
        if number not in (0.0, 1.0, 2.0, -1.0):
            tables.add("known-number", repr(number), *tokens(f"number {number!r}"))
    for one, other in encoding.equal:
        tables.add("known-equal", one, other)
    for (first, rest), product in encoding.products.items():
        tables.add("known-product", first, rest, product)
    for term in sorted(encoding.nonneg):
        tables.add("known-nonneg", term)
    for term in sorted(encoding.nonzero):
        tables.add("known-nonzero", term)
    for term in sorted(encoding.finite):
        tables.add("known-finite", term)


def _number_shape(type_: TensorType, encoding: Encoding) -> tuple[int, ...] | None:
    if type_.shape is None:
        return None
    return tuple(d if isinstance(d, int) else encoding.symbols[d] for d in type_.shape)


def tokens(identity: str) -> tuple[int, int]:
    """The two numbers that represent a stored constant in rules/analysis/tokens.egg: random, but the same every run."""
    digest = hashlib.sha256(identity.encode()).digest()
    return tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") % p for i, p in enumerate(_PRIMES))  # type: ignore[return-value]


_PRIMES = (2147483647, 2147483629)

_ANALYSES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "known-dtype": (("i64", "String"), "", "(set (dtype (term x0)) x1)"),
    "known-shape": (("i64", "String"), "(= v (integers x1))", "(set (shape (term x0)) v)"),
    "known-value": (("i64", "f64"), "", "(set (value (term x0)) x1)"),
    "known-nonneg": (("i64",), "", "(nonneg (term x0))"),
    "known-nonzero": (("i64",), "", "(nonzero (term x0))"),
    "known-finite": (("i64",), "", "(finite (term x0))"),
    "known-token": (("i64", "i64", "i64"), "", "(set (token (term x0)) (vec-of x1 x2))"),
    "known-equal": (("i64", "i64"), "", "(union (term x0) (term x1))"),
    "known-product": (("i64", "i64", "i64"), "", "(set (symbolic-product x0 x1) x2)"),
    "known-number": (("f64", "i64", "i64"), "", "(set (number x0) (vec-of x1 x2))"),
}
"""Tables of known facts: columns, condition and action of the rule that loads a row."""


def _program(encoding: Encoding, tables: Tables, arities: list[int]) -> str:
    lines = [HEADER]
    lines += [f'(set (integers "{k}") {vector(v)})' for k, v in tables.integers.items()]
    ops = {t.op for t in encoding.terms if t.op != "Op"}
    lines += [_load_rule(op, signature(op)) for op in sorted(ops)]
    lines += [_load_opaque(n) for n in arities]
    lines += [_load_analysis(t, *_ANALYSES[t]) for t in _ANALYSES if t in tables.rows]
    return "\n".join([*lines, "(run-schedule (saturate load))"])


def vector(integers: Iterable[int]) -> str:
    """An integer list as an egglog expression."""
    text = " ".join(map(str, integers))
    return f"(vec-of {text})" if text else "(vec-empty)"


_CELLS = {"T": "i64", "N": "i64", "Ints": "String"}
_VALUES = {"T": "(term {})", "N": "(node {})", "Ints": "v{}"}


def _table(name: str, columns: Iterable[str]) -> str:
    return f'(relation table-{name} (i64 {" ".join(columns)}))(input table-{name} "{name}.tsv")'


def _load_rule(op: str, sorts: tuple[str, ...]) -> str:
    names = [f"x{i}" for i in range(len(sorts))]
    values = " ".join(_VALUES.get(s, "{}").format(n) for s, n in zip(sorts, names, strict=True))
    row = " ".join(["o", *names])
    wrapper = "node" if multiple_outputs(op) else "term"
    lists = "".join(f" (= v{n} (integers {n}))" for s, n in zip(sorts, names, strict=True) if s == "Ints")
    table = _table(op, (_CELLS.get(s, s) for s in sorts))
    return f"{table}\n(rule ((table-{op} {row}){lists}) ((union ({wrapper} o) ({op} {values}))) :ruleset load)"


def _load_opaque(arity: int) -> str:
    names = [f"x{i}" for i in range(arity)]
    operands = "(Nil)"
    for name in reversed(names):
        operands = f"(Cons (term {name}) {operands})"
    table = _table(f"Op{arity}", ["String", *["i64"] * arity])
    row = " ".join(["o", "k", *names])
    return f"{table}\n(rule ((table-Op{arity} {row})) ((union (node o) (Op k {operands}))) :ruleset load)"


def _load_analysis(table: str, columns: tuple[str, ...], condition: str, actions: str) -> str:
    row = " ".join(f"x{i}" for i in range(len(columns)))
    return (
        f'(relation table-{table} ({" ".join(columns)}))(input table-{table} "{table}.tsv")\n'
        f"(rule ((table-{table} {row}) {condition}) ({actions}) :ruleset load)"
    )
