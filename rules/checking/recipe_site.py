"""What every recipe works on: an operator in the making, random shapes and axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .conditions import Type
from .pattern import Value


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

DIMS = (1, 2, 2, 3, 3, 4, 5)


def random_shape(random: Random, rank: int | None = None) -> tuple[int, ...]:
    """Small dimensions, rarely a zero; few elements in all."""
    rank = random.choice((1, 2, 2, 3, 3, 4, 4, 4, 5)) if rank is None else rank
    dims = [random.choice(DIMS) for _ in range(rank)]
    if rank and random.random() < 0.04:
        dims[random.randrange(rank)] = 0
    return tuple(dims)


def image(site: Site) -> tuple[int, ...]:
    """A shape of feature maps: batch, channels, space. Near the wished one where that has the rank."""
    rank = len(site.wish.shape)
    if rank in (3, 4, 5):
        return tuple(max(d, 1 if i < 2 else 2) for i, d in enumerate(site.wish.shape))
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
        raise Misfit
    known = [len(v) for n, v in site.attributes.items() if n in ("starts", "ends", "steps") and isinstance(v, tuple)]
    count = known[0] if known else site.random.choice([c for c in (1, 1, 2, 2, 3) if c <= site.rank])
    if site.rank - 2 == count and site.chance(0.3):
        return tuple(range(2, site.rank))
    return tuple(sorted(site.random.sample(range(site.rank), count)))
