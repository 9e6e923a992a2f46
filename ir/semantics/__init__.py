"""What every operator of the rule language computes, element by element: on numbers, or on symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import elementwise, layout, linear, normalization, pooling, reduction
from .arithmetic import Arithmetic, Array, Unsupported
from .numbers import NUMBERS, full

__all__ = ["MEANINGS", "NUMBERS", "Arithmetic", "Array", "Attribute", "Unsupported", "evaluate", "full"]

Attribute = int | float | str | tuple[int, ...]

MEANINGS: Mapping[str, Callable[..., Any]] = {
    **elementwise.MEANINGS,
    **linear.MEANINGS,
    **normalization.MEANINGS,
    **reduction.MEANINGS,
    **pooling.MEANINGS,
    **layout.MEANINGS,
}
"""By constructor: a function of the arithmetic and the constructor's arguments in order."""


def evaluate(
    head: str, arguments: Sequence[Array | Attribute | None], arithmetic: Arithmetic = NUMBERS
) -> Array | tuple[Array, ...]:
    """The value of an operator; of one with several outputs all of them.

    `arguments` are those of its constructor: operands as arrays, None for one that is absent; attributes in the
    canonical form of the rule language. Raises Unsupported where the operator has no meaning for them.
    """
    meaning = MEANINGS.get(head)
    if meaning is None:
        raise Unsupported(f"nothing says what {head} computes")
    try:
        value = meaning(arithmetic, *arguments)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise Unsupported(f"{head}: {error}") from None
    return value  # type: ignore[no-any-return]
