"""The values of terms on random tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...ir import operators as semantics
from ...ir.operators import OPERATORS, Array, Attribute, Unsupported
from ...ir.operators.numbers import element_type
from ...rules.sexpr import Atom, Form, Node
from ..checking.sampling.conditions import literal
from .language import VARIABLES

Draw = Literal["positive", "mixed", "wide", "zeros", "special", "extreme"]
"""Positive: between 0.3 and 1.6. Mixed: the same with either sign. Wide: up to 6 with either sign. Zeros: small
numbers, some of them zero. Special: these, and infinities and NaN. Extreme: integers up to the ends of their type."""
SHAPE = (3, 4)
"""The shape of leaves of one shape."""
_DIGITS = 9
"""Decimal places to which fingerprints round, relative to the largest element, so that roundings of float64 rarely
show."""


@dataclass
class Setting:
    """Elements for the variables, values for the attributes, and the values of terms computed so far."""

    tensors: Mapping[str, Array]
    literals: Mapping[str, int | float | str | tuple[int, ...]]
    _memory: dict[Node, Array | None] = field(default_factory=dict)

    def value(self, node: Node) -> Array | None:
        """The value of a term; None if an operator in it has no meaning."""
        if isinstance(node, Atom):
            return self.tensors[node.text]
        if node not in self._memory:
            with np.errstate(all="ignore"):
                self._memory[node] = self._compute(node)
        return self._memory[node]

    def _compute(self, node: Form) -> Array | None:
        if node.head == "Full":
            return semantics.full((), float(str(self._literal(node.items[2]))), str(self.literals["t"]))
        arguments: list[Array | int | float | str | tuple[int, ...] | None] = []
        for argument, item in zip(OPERATORS[node.head].arguments, node.items[1:], strict=True):
            is_tensor = not isinstance(argument, Attribute)
            value = self.value(item) if is_tensor else self._literal(item)
            if value is None:
                return None
            arguments.append(value)
        try:
            result = semantics.evaluate(node.head, arguments)
        except Unsupported:
            return None
        return result if isinstance(result, np.ndarray) else np.asarray(result)

    def _literal(self, node: Node) -> int | float | str | tuple[int, ...]:
        if isinstance(node, Form):
            return tuple(int(str(item)) for item in node.items[1:])
        return self.literals[node.text] if node.text in self.literals else literal(node)


def draw_setting(
    random: np.random.Generator,
    draw: Draw,
    dtype: str,
    shapes: Sequence[tuple[int, ...]] = (SHAPE,) * len(VARIABLES),
    *,
    keepdims: int = 1,
    nonneg: frozenset[str] = frozenset(),
    nonzero: frozenset[str] = frozenset(),
) -> Setting:
    """Elements for every variable; those of the variables in `nonneg` and `nonzero` are not negative, and not zero.
    Reductions are along axis 1."""
    tensors = {}
    for name, shape in zip(VARIABLES, shapes, strict=True):
        array = _draw(random, draw, dtype, shape)
        array = np.abs(array) if name in nonneg and dtype != "bool" else array
        tensors[name] = np.where(array == 0, np.ones_like(array), array) if name in nonzero else array
    return Setting(tensors, {"axes": (1,), "k": keepdims, "v": 3.0, "t": dtype})


def _draw(random: np.random.Generator, draw: Draw, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "bool":
        return random.random(shape) < 0.5
    if "int" in dtype:
        limits = np.iinfo(dtype)
        edges = np.array([limits.min, limits.max, limits.max // 2, 1, 0], dtype)
        plain = random.integers(limits.min, limits.max, shape, dtype=dtype)
        return np.where(random.random(shape) < 0.3, random.choice(edges, shape), plain) if draw == "extreme" else plain
    if draw in ("zeros", "special"):
        special = [np.inf, -np.inf, np.nan] if draw == "special" else []
        return random.choice(np.array([0.0, 1.0, -1.0, 0.5, -2.0, *special]), shape).astype(element_type(dtype))
    numbers = random.uniform(-6.0, 6.0, shape) if draw == "wide" else random.uniform(0.3, 1.6, shape)
    if draw == "mixed":
        numbers = numbers * random.choice(np.array([-1.0, 1.0]), shape)
    return np.asarray(numbers).astype(element_type(dtype))


def fingerprint(value: Array) -> bytes:
    """Bytes that are equal for arrays of one shape and type that are equal within rounding."""
    head = f"{value.shape}{value.dtype}".encode()
    if value.dtype.kind != "f":
        return head + value.tobytes()
    finite = np.where(np.isfinite(value), value, 0.0)
    scale = 10.0 ** np.ceil(np.log10(max(float(np.abs(finite).max(initial=0.0)), 1e-3)))
    rounded = np.round(finite / scale, _DIGITS) + 0.0
    return b"".join((head, rounded.astype(np.float64).tobytes(), np.isfinite(value).tobytes()))


def agree(left: Node, right: Node, setting: Setting) -> bool:
    """Whether the right side is equal to the left side, as far as that has a value."""
    one, other = setting.value(left), setting.value(right)
    if one is None:
        return True
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    finite = np.isfinite(one)
    if not np.array_equal(np.where(finite, 0.0, one), np.where(np.isfinite(other), 0.0, other), equal_nan=True):
        return False
    scale = max(1e-6, float(np.abs(one[finite]).max(initial=0.0)))
    return bool(np.all(np.abs(one[finite] - other[finite]) <= 1e-8 * scale))


def identical(left: Node, right: Node, setting: Setting) -> bool:
    """Whether both sides are equal bit by bit, except for the sign of zero."""
    one, other = setting.value(left), setting.value(right)
    return one is not None and other is not None and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
