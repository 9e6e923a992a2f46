"""The values of a body as functions of the columns of its rows: equal functions are equal, however they are written.

    z = [x, h] W + b; i, f = split(sigmoid(z))  =>  i = sigmoid(x Wi + h Ri + bi), f = ...

A matrix [rows, columns] is a sum: products of sources with constant matrices, a constant row, and products of `Atom`s,
which are activations of values and affine values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Source:
    """The value with which an iteration begins: the matrix at a place along an `axis` of a `sequence`, a state, or,
    with `atoms`, their product."""

    name: str
    width: int
    sequence: ir.Value | None = field(default=None, compare=False)
    axis: int = 0
    atoms: tuple[Atom, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Atom:
    """An activation of a value by ONNX's name and factors; an affine value itself if it has no name."""

    name: str
    factors: tuple[float, ...]
    value: Value = field(compare=False)
    digest: str = ""

    @staticmethod
    def of(value: Value, name: str = "", factors: tuple[float, ...] = ()) -> Atom:
        """The atom of a value."""
        return Atom(name, factors, value, value.digest)

    def columns(self, first: int, end: int) -> Atom:
        """The atom of some columns."""
        return Atom.of(self.value.columns(first, end), self.name, self.factors)

    @property
    def state(self) -> str | None:
        """The name of the source that it is; None for anything else."""
        if self.name or self.value.products or self.value.bias.any() or len(self.value.matrices) != 1:
            return None
        ((source, matrix),) = self.value.matrices.items()
        return source.name if _is_identity(matrix) else None


Product = tuple[Atom, ...]


@dataclass(frozen=True)
class Value:
    """A matrix of as many columns as `bias` has elements; one column stands for any number of equal ones."""

    matrices: Mapping[Source, Array]
    bias: Array
    products: Mapping[Product, float] = field(default_factory=dict)

    @staticmethod
    def source(source: Source) -> Value:
        """A source itself."""
        return Value({source: np.eye(source.width)}, np.zeros(source.width))

    @cached_property
    def digest(self) -> str:
        """A key that is equal for equal values."""
        texts = [(s.name, m.shape, sha256((m + 0.0).tobytes()).hexdigest()) for s, m in self.matrices.items()]
        products = sorted(([(a.name, a.factors, a.digest) for a in p], c) for p, c in self.products.items())
        return sha256(repr((sorted(texts), (self.bias + 0.0).tobytes(), products)).encode()).hexdigest()

    @property
    def is_affine(self) -> bool:
        """Whether it is made of sources and a constant row alone."""
        return not self.products

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant row."""
        return not self.products and not self.matrices

    def scale(self, factor: Array) -> Value | None:
        """Each column times a number; None if that number differs within a product."""
        if self.products and np.ptp(factor):
            return None
        products = {p: c * float(factor.flat[0]) for p, c in self.products.items()} if factor.any() else {}
        return Value({s: m * factor for s, m in self.matrices.items()}, self.bias * factor, products)

    def negate(self) -> Value:
        """0 less the value."""
        return Value(
            {s: -m for s, m in self.matrices.items()}, -self.bias, {p: -c for p, c in self.products.items()}
        )

    def add(self, other: Value) -> Value:
        """The sum, without parts that cancel."""
        matrices, products = dict(self.matrices), dict(self.products)
        for source, matrix in other.matrices.items():
            matrices[source] = matrices[source] + matrix if source in matrices else matrix
        for product, factor in other.products.items():
            products[product] = products.get(product, 0.0) + factor
        return Value(
            {s: m for s, m in matrices.items() if m.any()}, self.bias + other.bias,
            {p: c for p, c in products.items() if c},
        )  # fmt: skip

    def multiply(self, other: Value) -> Value | None:
        """The product element by element; None if it is no product of few atoms."""
        if other.is_constant:
            return self.scale(other.bias)
        if self.is_constant:
            return other.scale(self.bias)
        result = Value({}, np.zeros(max(self.bias.size, other.bias.size)))
        for first, by in self._summands():
            for second, times in other._summands():
                result = result.add(_expand(tuple(sorted((*first, *second), key=_key)), by * times, result.bias.size))
        return result

    def transform(self, matrix: Array) -> Value:
        """The product with a constant matrix; a value that is no sum of sources becomes a source."""
        matrices = {s: m @ matrix for s, m in self.matrices.items()}
        result = Value(matrices, self.bias @ matrix)
        for product, factor in self.products.items():
            name = repr([(a.name, a.factors, a.digest) for a in product])
            source = Source(name, self.bias.size, atoms=product)
            result = result.add(Value({source: factor * matrix}, np.zeros(matrix.shape[1])))
        return result

    def activate(self, name: str, factors: tuple[float, ...]) -> Value:
        """An activation of the value."""
        return Value({}, np.zeros(self.bias.size), {(Atom.of(self, name, factors),): 1.0})

    def columns(self, first: int, end: int) -> Value:
        """Some columns."""
        products: dict[Product, float] = {}
        for product, factor in self.products.items():
            products[tuple(sorted((a.columns(first, end) for a in product), key=_key))] = factor
        return Value({s: m[:, first:end] for s, m in self.matrices.items()}, self.bias[first:end], products)

    def _summands(self) -> Iterator[tuple[Product, float]]:
        """Products and their factors; the affine part is one of them."""
        yield from self.products.items()
        if not self.matrices:
            if np.ptp(self.bias):
                yield (Atom.of(replace(self, products={})),), 1.0
            elif self.bias.any():
                yield (), float(self.bias[0])
            return
        affine, factor = replace(self, products={}), 1.0
        (matrix, *others) = self.matrices.values()
        if not others and not self.bias.any() and matrix.shape[0] == matrix.shape[1]:
            corner = float(matrix[0, 0])
            if corner and np.array_equal(matrix, corner * np.eye(len(matrix))):
                affine, factor = Value({next(iter(self.matrices)): np.eye(len(matrix))}, self.bias), corner
        yield (Atom.of(affine),), factor


def _expand(product: Product, factor: float, width: int) -> Value:
    """A product as a value: without atoms a constant; with one affine atom that itself."""
    if not product:
        return Value({}, np.full(width, factor))
    if len(product) == 1 and not product[0].name:
        value = product[0].value
        return Value({s: m * factor for s, m in value.matrices.items()}, value.bias * factor)
    return Value({}, np.zeros(width), {product: factor})


def _key(atom: Atom) -> tuple[str, tuple[float, ...], str]:
    return atom.name, atom.factors, atom.digest


def _is_identity(matrix: Array) -> bool:
    return matrix.shape[0] == matrix.shape[1] and np.array_equal(matrix, np.eye(len(matrix)))


def concatenate(values: list[Value]) -> Value | None:
    """The columns of several values, which are affine."""
    if not all(value.is_affine for value in values):
        return None
    sources = dict.fromkeys(source for value in values for source in value.matrices)
    matrices = {
        s: np.hstack([v.matrices.get(s, np.zeros((s.width, v.bias.size))) for v in values]) for s in sources
    }
    return Value(matrices, np.concatenate([value.bias for value in values]))
