"""Einsum as matrix products: ``equation, shapes -> function``.

    bhls,bshp->blhp: Y[b, l, h, p] = sum over s of A[b, h, l, s] * B[b, s, h, p]
 => A, Transpose(B): MatMul of [b, h, l, s] and [b, h, s, p]; Transpose

Operands are joined two by two in the order of numpy's `einsum_path`. What both have and the rest needs is a batch, what
both have and nobody needs is summed, and several axes that only one has become one by a Reshape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...ir.types import Dimension

_FREE = 32
"""The size of a free dimension for the order of the products."""
_ALLOWS_ZERO = 14
"""The first opset in which a Reshape may make an axis of no elements that its operand does not have there."""


@dataclass(frozen=True)
class _Term:
    """A value, and a letter for each of its axes."""

    name: str
    letters: str


def einsum_function(
    equation: str, shapes: Sequence[tuple[Dimension, ...]], opset: int
) -> onnx.FunctionProto | None:
    """The function that computes an Einsum of operands of these shapes.

    None where one operand has a letter twice (a diagonal) or sizes of a letter differ (broadcasting).
    """
    letters = _letters_of(equation, [len(shape) for shape in shapes])
    if letters is None or opset < 13:  # before, ReduceSum and Unsqueeze have their axes as attributes
        return None
    operands, result = letters
    sizes: dict[str, Dimension] = {}
    for own, shape in zip(operands, shapes, strict=True):
        for letter, size in zip(own, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None
    if any(len(set(own)) < len(own) for own in (*operands, result)) or not set(result) <= sizes.keys():
        return None
    names = [f"x{number}" for number in range(len(operands))]
    terms = [_Term(name, own) for name, own in zip(names, operands, strict=True)]
    parts = _Parts(sizes, result, tuple(terms), opset)
    for pair in _order(terms, result, sizes):
        chosen = [terms.pop(place) for place in sorted(pair, reverse=True)][::-1]
        while len(chosen) > 1:
            others = "".join(term.letters for term in (*terms, *chosen[2:]))
            chosen[:2] = [parts.join(chosen[0], chosen[1], others + result)]
        terms += chosen
    parts.finish(parts.sum_out(terms[0], result))
    return helper.make_function("", "einsum", names, ["y"], parts.nodes, [helper.make_opsetid("", opset)])


def _letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """The letters of the operands and of the result, an ellipsis written out; None where they fit no ranks."""
    left, _, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        return None
    spare = [letter for letter in ascii_letters if letter not in equation]
    hidden = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    if any(count < 0 or (count and "..." not in text) for text, count in zip(texts, hidden, strict=True)):
        return None
    dots = "".join(spare[: max(hidden)])
    operands = [text.replace("...", dots[len(dots) - count :]) for text, count in zip(texts, hidden, strict=True)]
    once = sorted(letter for letter in set(left) if letter.isalpha() and left.count(letter) == 1)
    return operands, right.replace("...", dots) if "->" in equation else dots + "".join(once)


def _order(terms: Sequence[_Term], result: str, sizes: dict[str, Dimension]) -> list[tuple[int, ...]]:
    """The places of the operands that are joined one after the other; the result of each is the last operand then."""
    shapes = [tuple(size if isinstance(size := sizes[x], int) else _FREE for x in term.letters) for term in terms]
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    equation = ",".join(term.letters for term in terms) + "->" + result
    path, _ = np.einsum_path(equation, *arrays, optimize="optimal" if len(terms) < 6 else "greedy")
    return [tuple(pair) for pair in path[1:]]


@dataclass(frozen=True)
class _Parts:
    """The nodes of the function so far."""

    sizes: dict[str, Dimension]
    result: str
    operands: tuple[_Term, ...]
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def join(self, left: _Term, right: _Term, needed: str) -> _Term:
        """The product of two operands, summed over what they share and nothing else needs."""
        left, right = self.sum_out(left, right.letters + needed), self.sum_out(right, left.letters + needed)
        shared = [x for x in left.letters if x in right.letters]
        batch = "".join(x for x in shared if x in needed)
        summed = "".join(x for x in shared if x not in needed)
        rows, columns = ("".join(x for x in t.letters if x not in shared) for t in (left, right))
        if not summed:
            first = self._spread(self._transpose(left, batch + rows), len(batch + rows), len(columns))
            second = self._spread(self._transpose(right, batch + columns), len(batch), len(rows))
            return _Term(self._add("Mul", first.name, second.name), batch + rows + columns)
        first = self._merge(self._transpose(left, batch + rows + summed), batch, rows, summed)
        second = self._merge(self._transpose(right, batch + summed + columns), batch, summed, columns)
        product = _Term(self._add("MatMul", first.name, second.name), batch + rows + columns)
        return product if len(rows) == len(columns) == 1 else self._reshape(product, batch, rows + columns)

    def sum_out(self, term: _Term, needed: str) -> _Term:
        """The sum over all axes that are not needed."""
        axes = [axis for axis, letter in enumerate(term.letters) if letter not in needed]
        if not axes:
            return term
        kept = "".join(letter for letter in term.letters if letter in needed)
        return _Term(self._add("ReduceSum", term.name, self._numbers(axes), keepdims=0), kept)

    def finish(self, term: _Term) -> None:
        """The axes in the order of the result, under its name."""
        self.nodes.append(helper.make_node("Identity", [self._transpose(term, self.result).name], ["y"]))

    def _transpose(self, term: _Term, letters: str) -> _Term:
        order = [term.letters.index(letter) for letter in letters]
        if order == sorted(order):
            return replace(term, letters=letters)
        return _Term(self._add("Transpose", term.name, perm=order), letters)

    def _spread(self, term: _Term, place: int, count: int) -> _Term:
        """Axes of one element at a place."""
        if not count or place == 0:
            return term  # axes in front broadcast by themselves
        axes = self._numbers(range(place, place + count))
        return _Term(self._add("Unsqueeze", term.name, axes), term.letters)

    def _merge(self, term: _Term, batch: str, *groups: str) -> _Term:
        """Each group of axes as one."""
        if all(len(group) == 1 for group in groups):
            return term
        return _Term(self._shape(term.name, batch, groups), term.letters)

    def _reshape(self, term: _Term, batch: str, rest: str) -> _Term:
        return _Term(self._shape(term.name, batch, rest), term.letters)

    def _shape(self, name: str, batch: str, groups: Sequence[str]) -> str:
        """A Reshape that keeps the axes of the batch, with each of the groups of letters as one axis."""
        free = [group for group in groups if not self._is_fixed(group)]
        if len(free) <= 1 and self._is_fixed(batch):
            sizes = [-1 if group in free else self._fixed_size(group) for group in groups]
            return self._add("Reshape", name, self._numbers([*map(self._fixed_size, batch), *sizes]))
        if not free:
            return self._add("Reshape", name, self._numbers([*(0 for _ in batch), *map(self._fixed_size, groups)]))
        target = self._add("Concat", *map(self._size_of, (*batch, *groups)), axis=0)
        return self._add("Reshape", name, target, **({"allowzero": 1} if self.opset >= _ALLOWS_ZERO else {}))

    def _is_fixed(self, group: str) -> bool:
        return all(isinstance(self.sizes[letter], int) for letter in group)

    def _fixed_size(self, group: str) -> int:
        return prod(int(self.sizes[letter]) for letter in group)

    def _size_of(self, group: str) -> str:
        """The elements of a group of letters, by the shapes of the operands."""
        if self._is_fixed(group):
            return self._numbers([self._fixed_size(group)])
        sizes = []
        for letter in group:
            operand = next(term for term in self.operands if letter in term.letters)
            shape = self._add("Shape", operand.name)
            sizes.append(self._add("Gather", shape, self._numbers([operand.letters.index(letter)])))
        return reduce(lambda one, other: self._add("Mul", one, other), sizes)

    def _numbers(self, numbers: Sequence[int]) -> str:
        return self._add("Constant", value=numpy_helper.from_array(np.asarray(numbers, np.int64)))

    def _add(self, operator: str, *operands: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(operands), [name], **attributes))
        return name
