"""An operator in the making, on which every recipe works, and random shapes and axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from random import Random

from .conditions import Type, Value


class Misfit(Exception):
    """No choice fits the earlier choices."""


@dataclass
class OperatorDraft:
    """An operator in the making: types of the operands and values of the attributes chosen so far. `dtype` is the
    element type of operands whose type does not follow from the wished result. If it `is_narrow`, no operand widens
    another, but for the one leaf of the sample that has an axis of size `WIDEST`."""

    head: str
    wish: Type
    random: Random
    dtype: str = "float32"
    is_narrow: bool = False
    operands: dict[str, Type] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first operand that is chosen already."""
        return next(iter(self.operands.values())).shape

    @property
    def rank(self) -> int:
        """The rank of the first operand that is chosen already."""
        return len(self.shape)

    @property
    def has_to_empty(self) -> bool:
        """Whether the wished result has no element although the first operand has some."""
        return 0 in self.wish.shape and 0 not in self.shape

    def random_shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of few elements, or of none if the wished result has none."""
        shape = random_shape(self.random, rank)
        return _without_elements(shape, self.random) if 0 in self.wish.shape and shape else shape

    def integers(self, name: str) -> tuple[int, ...]:
        """The chosen value of an attribute that is a list of integers."""
        value = self.attributes[name]
        return value if isinstance(value, tuple) else ()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability


Choice = Type | Value | None
Recipe = Callable[[OperatorDraft, str], Choice]
"""For an operand a `Type`, or None to leave an optional one out; for an attribute its value."""

FACTORS = (0.1, 0.5, 1.0, 1.0, 2.0, 0.2, 1.5, 0.0, -0.5, -1.0, -2.0, 6.0, 0.01, 0.001)
"""Slopes, thresholds, factors and the like: the schemas allow any number."""
SIZES = ((1, 2, 2, 3, 3, 4, 5), (1, 2, 2, 3, 3, 4, 5), (1, 2), (2,), (2, 3, 4, 5), (0, 1, 2), (0, 2, 3))
"""Sizes that the dimensions of one tensor are chosen from: any, small ones, equal ones, unequal ones, zeros."""
_SHARES = (7, 7, 2, 4, 2, 1, 1)
"""How often a shape takes its sizes from each of these, relative to the others."""
LONG = 64
"""The size from which an axis is a long one: runtimes sum it up in several parts, and sums of narrow floats may
overflow."""
_LONG_SIZES = (101, 128, 200, 333, 600)
"""Sizes of long axes, with and without a remainder by the width of vectors. A sum of as many numbers between 500 and
1000 overflows in float16."""
MOST_ELEMENTS = 1024
"""Elements of an image at most, so that samples are evaluated fast."""


def random_shape(random: Random, rank: int | None = None) -> tuple[int, ...]:
    """A shape of rank 0 to 5 with few elements."""
    rank = random.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5)) if rank is None else rank
    (sizes,) = random.choices(SIZES, _SHARES)
    if len(sizes) == 4 and rank <= 4:
        return tuple(random.sample(sizes, rank))
    return tuple(random.choice(sizes) for _ in range(rank))


def long_shape(random: Random, size: int = 0) -> tuple[int, ...]:
    """A shape of rank 1 to 4 with one long axis, or with one of a given size among others of size 1."""
    rank = random.choice((1, 2, 2, 3, 4))
    shape = [1 if size else random.choice((1, 2, 3)) for _ in range(rank)]
    shape[random.randrange(rank)] = size or random.choice(_LONG_SIZES)
    return tuple(shape)


def empty_shape(random: Random) -> tuple[int, ...]:
    """A shape of rank 1 to 5 with an axis of size 0."""
    return _without_elements(random_shape(random) or (1,), random)


def _without_elements(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    axis = random.randrange(len(shape))
    return (*shape[:axis], 0, *shape[axis + 1 :])


WIDEST = 6
"""The size of the axis along which one leaf alone widens a result: no random shape has it."""


def narrow_shape(random: Random) -> tuple[int, ...]:
    """A shape of rank 0 to 3 with an axis that a leaf may widen."""
    shape = [random.choice((1, 1, 2, 3)) for _ in range(random.choice((0, 1, 1, 2, 2, 3)))]
    if shape:
        shape[random.randrange(len(shape))] = 1
    return tuple(shape)


def narrowed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without what the widest leaf adds to it."""
    return tuple(1 if size == WIDEST else size for size in shape)


def widened(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """The shape with one axis of size 1 widened, or with one axis more."""
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    if not axes or random.random() < _SHARE_OF_HIGHER_RANK:
        return (WIDEST, *shape)
    axis = random.choice(axes)
    return (*shape[:axis], WIDEST, *shape[axis + 1 :])


_SHARE_OF_HIGHER_RANK = 0.4
"""How often the widest leaf has an axis that no other leaf has, rather than a longer one."""


def image(draft: OperatorDraft) -> tuple[int, ...]:
    """A shape of feature maps (batch, channels, space), near the wished shape if its rank allows that.

    It is often so large that a window of stride 2 leaves the wished size, so that windows of windows have elements.
    """
    random, wish = draft.random, draft.wish.shape
    rank = len(wish)
    if rank not in (3, 4, 5):
        rank = random.choice((3, 4, 4, 4, 5))
        size = {3: (3, 5, 7, 9, 11), 4: (3, 4, 5, 6, 7), 5: (2, 3, 4)}[rank]
        return (random.choice((1, 2)), random.choice((1, 2, 3, 4)), *random.choices(size, k=rank - 2))
    kind = random.random()
    if kind < 0.4:
        return wish
    if kind < 0.6:
        return tuple(map(max, wish, (1, 1, 2, 2, 2)))
    grown = (*wish[:2], *(2 * n + random.choice((0, 1, 1, 2)) for n in wish[2:]))
    return grown if prod(grown) <= MOST_ELEMENTS else wish


def one_axis(draft: OperatorDraft, name: str) -> Choice:
    """The operand of an operator of one axis, or that axis."""
    if name != "axis":
        shape = draft.wish.shape or draft.random_shape(draft.random.choice((1, 2, 3)))
        return Type(shape, draft.wish.dtype)
    if not draft.rank:
        raise Misfit
    if max(draft.shape) >= LONG and draft.chance(0.7):
        return draft.shape.index(max(draft.shape))
    if 0 in draft.shape and draft.chance(0.5):
        return draft.shape.index(0)
    return draft.random.randrange(draft.rank) if draft.chance(0.5) else draft.rank - 1


def some_axes(draft: OperatorDraft) -> tuple[int, ...]:
    """Some axes of the first operand, ascending."""
    if not draft.rank:
        return ()
    lengths = [len(v) for n, v in draft.attributes.items() if n in ("starts", "ends", "steps") and isinstance(v, tuple)]
    count = lengths[0] if lengths else draft.random.choice([c for c in (1, 1, 2, 2, 3, 4) if c <= draft.rank])
    if 0 in draft.shape and count == 1 and draft.chance(0.5):
        return (draft.shape.index(0),)
    if draft.rank - 2 == count and draft.chance(0.3):
        return tuple(range(2, draft.rank))
    return tuple(sorted(draft.random.sample(range(draft.rank), count)))
