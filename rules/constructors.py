"""The egglog program that declares the sorts and constructors of terms, made from the operator table."""

from __future__ import annotations

from functools import cache

from ..ir.operators import OPERATORS

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


@cache
def sorts() -> str:
    """The egglog program that declares every sort and constructor."""
    lines: dict[str, list[str]] = {"T": [], "N": []}
    for operator in OPERATORS.values():
        lines[operator.sort].append(f"     {operator.declaration}")
    return LEAVES.format(single="\n".join(lines["T"]), multiple="\n".join(lines["N"]))


@cache
def freezing_rules() -> str:
    """Rules (ruleset ``freeze``) that hide the nodes of constants from all others.

    How a constant is computed is nobody's business but the extractor's; rules that rewrote constant expressions would
    only multiply equal ones. The hidden nodes stay in the e-graph and can be extracted.
    """
    rules = []
    for operator in OPERATORS.values():
        if operator.sort == "T":
            call = f"({' '.join((operator.name, *(f'x{i}' for i in range(len(operator.arguments)))))})"
            name = f"freeze.{operator.name}"
            rules.append(f'(rule ((= e {call}) (const e)) ((subsume {call})) :ruleset freeze :name "{name}")')
    return "\n".join(rules)
