"""The rewritings of DNNFusion (Niu et al., PLDI 2021), Table 4, as terms, and which operators they are made of.

A square is written ``x*x``, and row 5 with the right side ``(B + C) * A``, for ``(A + B) * C`` is another value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqfuse.rules import sexpr
from eqfuse.rules.sexpr import Atom, Form, Node
from eqfuse.tools.checking.sampling.conditions import Type, literal
from eqfuse.tools.checking.sampling.scratch import Scratch
from eqfuse.tools.checking.sampling.terms import Argument, Leaf, Term
from eqfuse.tools.discovery.discover import Options, discover

SCHEDULE = "(saturate analysis) (repeat 5 (seq simplify explore (saturate analysis)))"


@dataclass(frozen=True)
class Family:
    """A row: the operators to discover rules over, and both sides over leaves `a`, `b` and `c`."""

    property: str
    operators: tuple[str, ...]
    left: str
    right: str
    dtype: str = "float32"
    nonneg: str = ""
    nonzero: str = ""

    def leaves(self) -> dict[str, Leaf]:
        """The leaf for each name, with the sign that the row rests on."""
        type_ = Type((3, 4), self.dtype)
        return {n: Leaf("Var", n, type_, n in self.nonneg, n in self.nonzero) for n in "abc"}


_SUM = "(ReduceSum b (vec-of 1) 1)"
_ROOT = "(Sqrt b)"
_PLUS = "(Add a b)"

TABLE_4 = {
    "1": Family(
        "associative",
        ("Mul", "Reciprocal"),
        "(Mul (Reciprocal a) (Reciprocal (Mul a b)))",
        "(Mul (Mul (Reciprocal a) (Reciprocal a)) (Reciprocal b))",
        nonzero="ab",
    ),
    "2": Family(
        "associative",
        ("Mul", "Sqrt"),
        f"(Mul (Mul a {_ROOT}) (Mul {_ROOT} c))",
        "(Mul (Mul a b) c)",
        nonneg="b",
    ),
    "3": Family("associative", ("Mul", "Abs"), "(Mul (Mul (Abs a) b) (Abs c))", "(Mul (Abs (Mul a c)) b)"),
    "4": Family(
        "associative",
        ("Mul", "ReduceSum"),
        f"(Mul (Mul a {_SUM}) (Mul {_SUM} c))",
        f"(Mul (Mul a (Mul {_SUM} {_SUM})) c)",
    ),
    "5": Family("distributive", ("Mul", "Add"), "(Add (Mul a c) (Mul a b))", "(Mul (Add b c) a)"),
    "6": Family("distributive", ("Mul", "Add"), "(Add a (Mul a b))", "(Mul a (Add b (Full (vec-empty) 1.0 t)))"),
    "7": Family(
        "distributive",
        ("Mul", "Add", "Sub"),
        f"(Sub (Mul {_PLUS} {_PLUS}) (Mul {_PLUS} c))",
        f"(Mul {_PLUS} (Sub {_PLUS} c))",
    ),
    "8": Family("commutative", ("Mul",), "(Mul a b)", "(Mul b a)"),
    "9": Family(
        "commutative",
        ("ReduceSum", "BitShift"),
        '(ReduceSum (BitShift a (Full (vec-empty) 2.0 t) "LEFT") (vec-of 1) 1)',
        '(BitShift (ReduceSum a (vec-of 1) 1) (Full (vec-empty) 2.0 t) "LEFT")',
        dtype="uint32",
    ),
    "10": Family(
        "commutative",
        ("ReduceProd", "Exp", "ReduceSum"),
        "(ReduceProd (Exp a) (vec-of 1) 1)",
        "(Exp (ReduceSum a (vec-of 1) 1))",
    ),
}


def discovered(operators: tuple[str, ...], size: int) -> str:
    """The rules found without the catalogue, those that the catalogue has as well included."""
    return "\n".join(one.rule.text for one in discover(Options(operators, size)).rules)


def derives(rules: str, family: Family) -> bool:
    """Whether the rules alone, without the catalogue, prove both sides equal."""
    leaves = family.leaves()
    left, right = (_term(sexpr.read(side).forms[0], leaves, family.dtype) for side in (family.left, family.right))
    return Scratch().derives(rules, SCHEDULE, left, right)


def _term(form: Form, leaves: Mapping[str, Leaf], dtype: str) -> Term | Leaf:
    if form.head == "Full":
        return Leaf("Full", type=Type((), dtype, float(str(form.items[2]))))
    return Term(form.head, tuple(_argument(item, leaves, dtype) for item in form.items[1:]))


def _argument(node: Node, leaves: Mapping[str, Leaf], dtype: str) -> Argument:
    if isinstance(node, Atom):
        return leaves[node.text] if node.text in leaves else literal(node)
    if node.head.startswith("vec-"):
        return tuple(int(str(item)) for item in node.items[1:])
    return _term(node, leaves, dtype)
