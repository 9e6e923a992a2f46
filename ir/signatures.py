"""The operators of the e-graph, read from ``operators.toml``, and the sort declarations made from them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DIRECTORY = Path(__file__).parent
KINDS = ("Ints", "i64", "f64", "String")

LEAVES = """\
(sort Ints (Vec i64))
(datatype*
  (T (Var String)              ; an input of the graph, or a value that only opaque code makes
     (Weight String)           ; a constant of the model by name; its elements stay outside the e-graph
     (Full Ints f64 String)    ; a constant of this shape, every element the same, of this dtype
     (Absent)                  ; an optional operand that is not given
     (Out N i64)               ; output number i of a node with several
{single}
  )
  (N (Op String Ts)            ; an opaque node: key of its operator and attributes, operands
{multiple}
  )
  (Ts (Nil) (Cons T Ts)))
"""


@dataclass(frozen=True)
class Operand:
    """A tensor argument; an optional one is (Absent) where the model gives none."""

    name: str
    optional: bool


@dataclass(frozen=True)
class Attribute:
    """A literal argument.

    `input_since` is the opset from which ONNX passes it as a constant input (at position `position` of the
    node's inputs) instead of an attribute; None: always an attribute.
    """

    name: str
    kind: str
    default: int | float | str | None
    input_since: int | None = None
    position: int = -1


@dataclass(frozen=True)
class Operator:
    """One line of ``operators.toml``; `arguments` are in the order of the constructor."""

    name: str
    category: str
    arguments: tuple[Operand | Attribute, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tensor arguments."""
        return tuple(a for a in self.arguments if isinstance(a, Operand))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The literal arguments."""
        return tuple(a for a in self.arguments if isinstance(a, Attribute))

    @property
    def sort(self) -> str:
        """``N`` where the operator has several outputs, ``T`` elsewhere."""
        return "N" if self.category == "multiple-output" else "T"

    @property
    def declaration(self) -> str:
        """The constructor in egglog text."""
        sorts = ("T" if isinstance(a, Operand) else a.kind for a in self.arguments)
        return f"({' '.join((self.name, *sorts))})"


def _literal(kind: str, text: str) -> int | float | str | None:
    if not text:
        return None
    if kind == "i64":
        return int(text)
    return float(text) if kind == "f64" else text


def _attribute(text: str, position: int) -> Attribute:
    declaration, _, default = text.partition("=")
    name, _, kind = declaration.partition(":")
    kind, _, since = kind.partition("@")
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r} in {text!r}: one of {', '.join(KINDS)}")
    return Attribute(name, kind, _literal(kind, default), int(since) if since else None, position)


def _argument(text: str, position: int) -> Operand | Attribute:
    if ":" in text:
        return _attribute(text, position)
    return Operand(text.rstrip("?"), text.endswith("?"))


def parse_operator(name: str, category: str, signature: str) -> Operator:
    """Read one signature. Raises ValueError on a kind that does not exist."""
    inputs, _, attributes = signature.partition("|")
    arguments = [_argument(a, i) for i, a in enumerate(inputs.split())]
    arguments += [_attribute(a, -1) for a in attributes.split()]
    return Operator(name, category, tuple(arguments))


def _walk(table: dict[str, object], path: str = "") -> list[Operator]:
    found: list[Operator] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _walk(value, f"{path}.{key}" if path else key)
        else:
            found.append(parse_operator(key, path, str(value)))
    return found


@cache
def operators() -> dict[str, Operator]:
    """All operators by name, in the order of the file."""
    table = tomllib.loads((DIRECTORY / "operators.toml").read_text(encoding="utf-8"))
    return {o.name: o for o in _walk(table)}


@cache
def sorts() -> str:
    """The egglog program that declares every sort and constructor."""
    lines: dict[str, list[str]] = {"T": [], "N": []}
    for operator in operators().values():
        lines[operator.sort].append(f"     {operator.declaration}")
    return LEAVES.format(single="\n".join(lines["T"]), multiple="\n".join(lines["N"]))


@cache
def settling() -> str:
    """Rules (ruleset ``settle``) that hide the nodes of constants from all others.

    How a constant is computed is nobody's business but the extractor's; rules that rewrote constant expressions would
    only multiply equal ones. The hidden nodes stay in the e-graph and can be extracted.
    """
    rules = []
    for operator in operators().values():
        if operator.sort == "T":
            call = f"({' '.join((operator.name, *(f'x{i}' for i in range(len(operator.arguments)))))})"
            name = f"settle.{operator.name}"
            rules.append(f'(rule ((= e {call}) (const e)) ((subsume {call})) :ruleset settle :name "{name}")')
    return "\n".join(rules)
