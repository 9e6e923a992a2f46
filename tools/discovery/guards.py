"""The conditions under which two terms are equal: predicted from numbers, for the checker to confirm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ...rules.sexpr import Atom, Node, substitute
from .language import VARIABLES, names_of
from .values import SHAPE, Draw, Setting, agree, draw_setting, identical

Nameset = frozenset[str]
NONE: Nameset = frozenset()


@dataclass(frozen=True)
class Guards:
    """Conditions of a rule: floating point, reductions that keep their axes, leaves of one shape, and signs of
    leaves."""

    floating: bool = False
    keepdims: bool = False
    same_shape: bool = False
    nonneg: Nameset = NONE
    nonzero: Nameset = NONE


class Predictor:
    """Predicts conditions by comparing two terms in several settings, each of which is made once."""

    def __init__(self, dtype: str, seed: int) -> None:
        self.dtype, self.seed = dtype, seed
        self.wide = "float64" if dtype == "float32" else dtype
        self.setting = cache(self._setting)

    def _setting(self, draw: Draw, dtype: str, layout: int = -1, keepdims: int = 1, nonneg: Nameset = NONE,
                 nonzero: Nameset = NONE) -> Setting:  # fmt: skip
        """`layout`: -1 if all leaves have one shape, -2 if they are cubes, else the index of a way in which they
        broadcast."""
        shapes = _LAYOUTS[layout] if layout >= 0 else ((_CUBE if layout == -2 else SHAPE),) * len(VARIABLES)
        random = np.random.default_rng(self.seed)
        return draw_setting(random, draw, dtype, shapes, keepdims=keepdims, nonneg=nonneg, nonzero=nonzero)

    def guards(self, left: Node, right: Node) -> Guards | None:
        """The weakest conditions under which the terms were equal in all settings; None if there are none."""
        floats = self.dtype == "float32"
        signs = self._signs(left, right) if floats else Guards()
        if signs is None or not self._agree(left, right, draw="positive", dtype=self.wide):
            return None
        layouts = range(len(_LAYOUTS))
        everywhere = all(self._agree(left, right, draw="positive", dtype=self.wide, layout=i) for i in layouts)
        integers = not floats or self._agree(left, right, draw="extreme", dtype="int32")
        dropped = self._agree(left, right, draw="positive", dtype=self.wide, layout=-2, keepdims=0)
        return replace(signs, floating=not integers, keepdims=not dropped, same_shape=not everywhere)

    def _agree(self, left: Node, right: Node, **chosen: Any) -> bool:
        return agree(left, right, self.setting(**chosen))

    def _signs(self, left: Node, right: Node) -> Guards | None:
        names = names_of(left)
        nonneg = _first(
            names,
            lambda s: all(self._agree(left, right, draw=d, dtype=self.wide, nonneg=s) for d in ("mixed", "wide")),
        )
        if nonneg is None:
            return None
        nonzero = _first(
            names, lambda s: self._agree(left, right, draw="zeros", dtype=self.wide, nonneg=nonneg, nonzero=s)
        )
        return None if nonzero is None else Guards(nonneg=nonneg, nonzero=nonzero)

    def integers(self, left: Node) -> bool:
        """Whether the term has a value on integers."""
        return self.setting(draw="extreme", dtype="int32").value(left) is not None

    def exact(self, left: Node, right: Node, guards: Guards) -> bool:
        """Whether both sides were equal bit by bit in the precision of the type itself."""
        if self.dtype != "float32":
            return True
        draws: Sequence[Draw] = ("mixed", "positive", "zeros", "special")
        return all(
            identical(left, right, self.setting(draw, dtype, -2, nonneg=guards.nonneg, nonzero=guards.nonzero))
            for draw in draws
            for dtype in ("float32", "float64")
        )


_CUBE = (5, 5, 5)
"""A shape whose axes are alike, so that results of reductions broadcast with leaves even if they drop their axis."""
_LAYOUTS = (
    *permutations(((3, 1), (1, 4), (3, 4))),
    *tuple(permutations(((3, 4), (3, 4), (1, 1))))[::2],
    *permutations(((3, 4), (2, 3, 4), (5, 2, 3, 4))),
)
"""Shapes of leaves that broadcast, also with different ranks, so that one number of an axis means different axes."""


def _first(names: Sequence[str], holds: Callable[[Nameset], bool]) -> Nameset | None:
    """The smallest subset of the names for which `holds` is true."""
    subsets = (frozenset(some) for size in range(len(names) + 1) for some in combinations(names, size))
    return next(filter(holds, subsets), None)


def strengthen(guards: Guards, reason: str, names: Sequence[str], reduces: bool) -> Guards | None:
    """Conditions to try next after the checker found a counterexample; None if none are left."""
    if ("shape" in reason or "e-graph" in reason) and not guards.same_shape:
        return replace(guards, same_shape=True)
    if reduces and not guards.keepdims:
        return replace(guards, keepdims=True)
    if not guards.floating:
        return replace(guards, floating=True)
    if guards.nonzero != frozenset(names):
        return replace(guards, nonzero=frozenset(names))
    return replace(guards, nonneg=frozenset(names)) if guards.nonneg != frozenset(names) else None


def apply_guards(node: Node, guards: Guards) -> Node:
    """The term as the rule writes it: reductions keep their axes if the guards require it."""
    return substitute(node, {"k": Atom("1")}) if guards.keepdims else node


