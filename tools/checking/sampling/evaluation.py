"""The elements of every e-class that a rule touched, computed from the leaves by every e-node and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....ir import operators as semantics
from ....ir.operators import NUMBERS, OPERATORS, Arithmetic, Array, Operand, Unsupported
from .conditions import Value
from .samples import Sample
from .scratch import EClass, Fired, ScratchNode
from .terms import Leaf, Term
from .types import operand_types

CALM: dict[str, tuple[Any, Any]] = {
    "float16": (1e-4, 1e3),
    "float32": (1e-27, 1e9),
    "float64": (1e-27, 1e9),
    np.dtype(np.longdouble).name: (np.longdouble("1e-4000"), np.longdouble("1e4000")),
}
"""The smallest and largest ordinary magnitudes by type. Extended precision stands for the reals: nearly all its
magnitudes are ordinary."""

_FOREIGN = frozenset({"Op", "Cons", "Nil"})
"""Constructors of operators of other domains; only their authors know what they compute."""

Elements = Array | tuple[Array, ...] | None


class MeaninglessError(Unsupported):
    """A rule made something that cannot be computed, though the left side can."""


def is_float(array: Array) -> bool:
    """Whether the elements are floats, including bfloat16, an extension of numpy."""
    return array.dtype.kind in "fV"


def _is_finite(*values: Elements) -> bool:
    arrays = (array for value in values for array in (value if isinstance(value, tuple) else (value,)))
    return all(a is None or not is_float(a) or bool(np.all(np.isfinite(a))) for a in arrays)


def is_identical(left: Array, right: Array) -> Array:
    """For each element whether two arrays have the same bits; any two NaN count as the same."""
    same = left == right
    if is_float(left):
        same &= np.signbit(left) == np.signbit(right)
        same |= np.isnan(left) & np.isnan(right)
    return np.asarray(same)


@dataclass(frozen=True)
class Comparison:
    """Two ways to compute one e-class: `right` is the value of `node`. `left` is the value of the sampled term if the
    class is that of the root number `root`, else that of an e-node."""

    left: Array
    right: Array
    node: ScratchNode
    root: int = -1

    @property
    def is_of_one(self) -> bool:
        """Whether both ways are the same: the same operators on the same operands."""
        return self.left is self.right


@dataclass
class Evaluation:
    """One choice of elements for the leaves of a sample, in one arithmetic.

    `dtypes` renames the dtypes in terms, so that a sample in float32 can be computed in float64. With `scalar`, leaves
    and constants have one element each. `classes` and `terms` have the values computed so far, and `intermediate` all
    results of operators. An operator is computed only once on the same operands, because the sampled terms are e-nodes,
    too.
    """

    sample: Sample
    fired: Fired
    elements: Mapping[str, Array]
    dtypes: Mapping[str, str]
    arithmetic: Arithmetic = NUMBERS
    scalar: bool = False
    classes: dict[EClass, Elements] = field(default_factory=dict)
    terms: dict[Term, Elements] = field(default_factory=dict)
    intermediate: list[Array] = field(default_factory=list)
    has_lost_constant: bool = False
    """Whether finite constants make one that its type cannot hold. No graph is chosen with such a constant, so the
    numbers that follow from it say nothing about a rule."""
    _computed: dict[tuple[object, ...], Elements] = field(default_factory=dict)
    """Results by operator, literals and the ids of operands, which stay valid: all operands are kept here or among the
    elements."""

    def comparisons(self) -> Iterator[Comparison]:
        """Every e-node, compared with the value that its class already has: that of the sampled term for a root.

        Raises Unsupported if the left side has no meaning or an operator is not known, and MeaninglessError if only
        another part of the e-graph has no meaning.
        """
        self.left_sides()
        for root, number in zip(self.sample.roots, self.fired.roots, strict=True):
            yield from self._compare(number, self.value(root), ScratchNode("", ()))
        yield from self._compare_nodes()

    def left_sides(self) -> None:
        """Compute the sampled terms, which are the first values of their classes. Raises Unsupported."""
        for root, number in zip(self.sample.roots, self.fired.roots, strict=True):
            self.classes.setdefault(number, self.value(root))

    @property
    def left_is_calm(self) -> bool:
        """Whether the left side stays far from the ends of the range of numbers, so that the right side should too.

        Infinities and NaN of extended precision are no overflow: they say that the left side has no value.
        """
        return all(map(_is_calm, self.left))

    @property
    def left(self) -> list[Array]:
        """The floats that the left side computes."""
        arrays = [a for v in self.terms.values() for a in (v if isinstance(v, tuple) else (v,)) if a is not None]
        return list(filter(is_float, arrays))

    @property
    def is_calm(self) -> bool:
        """Whether everything computed stays far from the ends of the range of numbers."""
        return _is_finite(*self.intermediate) and all(map(_is_calm, filter(is_float, self.intermediate)))

    @property
    def overflows_on_the_right(self) -> bool:
        """Whether numbers that are not of the left side, and only such, are infinite or NaN."""
        return _is_finite(*self.left) and not _is_finite(*self.intermediate)

    def undefined_operator(self) -> str:
        """The first operator of the rule that ONNX does not define for the element type of its first operand, as in
        ``Less of bool``; "" if there is none. The engine writes no such operator. The elements have their own types."""
        for node in (step.node for step in self.fired.steps if step.node.head in OPERATORS):
            schema = OPERATORS[node.head]
            place = next((i for i, each in enumerate(schema.arguments) if isinstance(each, Operand)), None)
            first = None if place is None else self.classes.get(node.arguments[place])  # type: ignore[arg-type]
            if isinstance(first, np.ndarray) and first.dtype.name not in operand_types(
                node.head, schema.operands[0].name
            ):
                return f"{node.head} of {first.dtype.name}"
        return ""

    def _compare_nodes(self) -> Iterator[Comparison]:
        """Compute all e-nodes that can be computed."""
        for step in self.fired.steps:
            try:
                value = self._node_value(step.node)
            except Unsupported as error:
                if step.node.head in _FOREIGN:
                    raise
                raise MeaninglessError(str(error)) from None
            if step.constants and not _is_finite(value):
                self.has_lost_constant |= _is_finite(*(self.classes[each] for each in step.constants))
            if step.number in self.classes:
                yield from self._compare(step.number, value, step.node)
            else:
                self.classes[step.number] = value

    def _compare(self, number: EClass, value: Elements, node: ScratchNode) -> Iterator[Comparison]:
        first = self.classes[number]
        ways = [first, value] if isinstance(first, tuple) else [(first,), (value,)]
        if len({len(way) for way in ways}) > 1:  # type: ignore[arg-type]
            raise MeaninglessError(f"{node.head} has another number of outputs")
        root = self.fired.roots.index(number) if number in self.fired.roots else -1
        for left, right in zip(*ways, strict=True):
            if left is not None and right is not None:
                yield Comparison(left, right, node, root)

    def _node_value(self, node: ScratchNode) -> Elements:
        if node.head in ("Var", "Weight"):
            return self.elements[str(node.arguments[0]).partition(".")[2]]
        if node.head == "Full":
            shape, number, dtype = node.arguments
            return self._full(shape, number, dtype)  # type: ignore[arg-type]
        if node.head == "Absent":
            return None
        if node.head == "Out":
            outputs, index = self.classes[node.arguments[0]], node.arguments[1]  # type: ignore[index]
            return outputs[index]  # type: ignore[index]
        return self._apply(node.head, [self.classes[a] if isinstance(a, EClass) else a for a in node.arguments])

    def value(self, term: Term | Leaf) -> Elements:
        """The elements of a term, or of all outputs of one that has several. Raises Unsupported."""
        if isinstance(term, Leaf):
            if term.kind == "Absent":
                return None
            if term.kind == "Full":
                return self._full(term.type.shape, term.type.value or 0.0, term.type.dtype)
            return self.elements[term.name]
        if term not in self.terms:
            arguments = [self.value(a) if isinstance(a, (Term, Leaf)) else a for a in term.arguments]
            if term.head == "Out":
                self.terms[term] = arguments[0][arguments[1]]  # type: ignore[index,assignment]
            else:
                self.terms[term] = self._apply(term.head, arguments)
        return self.terms[term]

    def _full(self, shape: tuple[int, ...], number: float, dtype: str) -> Array:
        if min(shape, default=0) < 0:
            raise Unsupported("a size below zero")
        key = ("Full", shape, repr(number), dtype)
        if key not in self._computed:
            self._computed[key] = self._new_full(() if self.scalar else shape, number, dtype)
        return self._computed[key]  # type: ignore[return-value]

    def _new_full(self, shape: tuple[int, ...], number: float, dtype: str) -> Array:
        plain = semantics.full(shape, number, self.dtypes.get(dtype, dtype))
        if self.arithmetic is NUMBERS or (plain.dtype.kind in "iu" and not hasattr(self.arithmetic, "bits")):
            return plain  # whole numbers among symbols of reals are indices and the like
        number = bool(number) if plain.dtype.kind == "b" and hasattr(self.arithmetic, "bits") else number
        return np.broadcast_to(self.arithmetic.constant(number, plain), shape)

    def _apply(self, head: str, arguments: list[Elements | Value]) -> Elements:
        key = (head, *map(_identity, arguments))
        if key not in self._computed:
            self._computed[key] = self._compute(head, arguments)
        return self._computed[key]

    def _compute(self, head: str, arguments: list[Elements | Value]) -> Elements:
        renamed = [self.dtypes.get(a, a) if isinstance(a, str) else a for a in arguments]
        try:
            value = semantics.evaluate(head, renamed, self.arithmetic)  # type: ignore[arg-type]
        except (ValueError, IndexError, TypeError) as error:
            raise Unsupported(f"{head}: {error}") from None
        self.intermediate += value if isinstance(value, tuple) else (value,)
        return value


def _identity(argument: Elements | Value) -> object:
    """A key that is equal for equal arguments only; zeros of different sign are different literals."""
    if isinstance(argument, np.ndarray):
        return id(argument)
    if isinstance(argument, tuple):
        return argument
    return repr(argument) if isinstance(argument, (int, float, str)) else id(argument)


def _is_calm(array: Array) -> bool:
    size = np.abs(array)
    low, high = CALM.get(array.dtype.name, CALM["float32"])
    calm = (size < high) & ((size > low) | (size == 0))
    if array.dtype == np.longdouble:
        calm |= ~np.isfinite(array)
    return bool(np.all(calm))
