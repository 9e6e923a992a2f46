"""What every recipe works on: an operator in the making, random shapes and axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .conditions import Type
from .left_side import Value


class Misfit(Exception):
    """Nothing can be chosen after what was chosen before."""


@dataclass
class Site:
    """An operator in the making: types of the operands and values of the attributes chosen so far."""

    head: str
    wish: Type
    random: Random
    operands: dict[str, Type] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first operand that is there already."""
        return next(iter(self.operands.values())).shape

    @property
    def rank(self) -> int:
        """Of the first operand that is there already."""
        return len(self.shape)

    def integers(self, name: str) -> tuple[int, ...]:
        """A chosen list of integers."""
        value = self.attributes[name]
        return value if isinstance(value, tuple) else ()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability


Choice = Type | Value | None
Recipe = Callable[[Site, str], Choice]
"""For an operand a `Type`, or None to leave an optional one out; for an attribute its value."""

SIZES = ((1, 2, 2, 3, 3, 4, 5), (1, 2, 2, 3, 3, 4, 5), (1, 2), (2,), (2, 3, 4, 5), (0, 1, 2), (0, 2, 3))
"""Sizes that the dimensions of one tensor are chosen from: any, small ones, equal ones, unequal ones, zeros."""
_SHARES = (8, 8, 2, 1, 2, 1, 1)


def random_shape(random: Random, rank: int | None = None) -> tuple[int, ...]:
    """A shape of rank 0 to 5 with few elements."""
    rank = random.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5)) if rank is None else rank
    (sizes,) = random.choices(SIZES, _SHARES)
    if len(sizes) == 4 and rank <= 4:
        return tuple(random.sample(sizes, rank))
    return tuple(random.choice(sizes) for _ in range(rank))


def image(site: Site) -> tuple[int, ...]:
    """A shape of feature maps: batch, channels, space. Near the wished one where that has the rank."""
    rank = len(site.wish.shape)
    if rank in (3, 4, 5):
        least = (1, 1, 2, 2, 2)
        return site.wish.shape if site.chance(0.5) else tuple(map(max, site.wish.shape, least[:rank]))
    rank = site.random.choice((3, 4, 4, 4, 5))
    size = (3, 4, 5) if rank == 4 else (2, 3)
    return (site.random.choice((1, 2)), site.random.choice((1, 2, 3, 4)), *site.random.choices(size, k=rank - 2))


def one_axis(site: Site, name: str) -> Choice:
    """The operand of an operator of one axis, or that axis."""
    if name != "axis":
        shape = site.wish.shape or random_shape(site.random, site.random.choice((1, 2, 3)))
        return Type(shape, site.wish.dtype)
    if not site.rank:
        raise Misfit
    return site.random.randrange(site.rank) if site.chance(0.5) else site.rank - 1


def some_axes(site: Site) -> tuple[int, ...]:
    """Some axes of the first operand, ascending."""
    if not site.rank:
        return ()
    known = [len(v) for n, v in site.attributes.items() if n in ("starts", "ends", "steps") and isinstance(v, tuple)]
    count = known[0] if known else site.random.choice([c for c in (1, 1, 2, 2, 3, 4) if c <= site.rank])
    if site.rank - 2 == count and site.chance(0.3):
        return tuple(range(2, site.rank))
    return tuple(sorted(site.random.sample(range(site.rank), count)))
