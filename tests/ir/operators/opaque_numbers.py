"""Numbers that only their arithmetic can look into: they show where an operator computes past it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqfuse.ir.operators import NUMBERS, Array
from eqfuse.ir.operators.arithmetic import Reduction


class Opaque:
    """A number without operators, truth value, order or equality."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _refuse(self, *others: object) -> Any:
        raise AssertionError("an operator computes past its arithmetic")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __abs__ = __neg__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def hidden(x: Array) -> Array:
    """The same tensor of opaque numbers."""
    result = np.empty(x.shape, object)
    for index in np.ndindex(x.shape):
        result[index] = Opaque(x[index])
    return result


def shown(x: Array, dtype: Any) -> Array:
    """The tensor of numbers again."""
    result = np.empty(x.shape, dtype)
    for index in np.ndindex(x.shape):
        element: Any = x[index]
        assert isinstance(element, Opaque), "a plain number among the symbols"
        result[index] = element.value
    return result


class OpaqueArithmetic:
    """`Arithmetic` on opaque float64 numbers and truth values, one at a time."""

    def apply(self, function: str, *operands: Array) -> Array:
        """As of numbers."""
        return self._through(lambda *plain: NUMBERS.apply(function, *plain), *operands)

    def reduce(self, function: Reduction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """As of numbers."""
        return self._through(lambda plain: NUMBERS.reduce(function, plain, axes, keepdims), x)

    def matmul(self, a: Array, b: Array) -> Array:
        """As of numbers."""
        return self._through(NUMBERS.matmul, a, b)

    def constant(self, value: float, like: Array) -> Array:
        """As of numbers."""
        assert like.dtype == object
        return hidden(np.asarray(float(value)))

    def cast(self, x: Array, dtype: str) -> Array:
        """As of numbers."""
        return self._through(lambda plain: NUMBERS.cast(plain, dtype), x)

    def _through(self, compute: Callable[..., Array], *operands: Array) -> Array:
        return hidden(compute(*(self._plain(x) for x in operands)))

    def _plain(self, x: Array) -> Array:
        assert isinstance(x, np.ndarray)
        assert x.dtype == object
        values = [e.value for e in x.flat]
        return shown(x, bool if values and all(isinstance(v, (bool, np.bool_)) for v in values) else np.float64)
