"""Pairs of terms that are equal on random tensors, oriented so that the right side is not worse.

Fingerprints are the characteristic vectors of Ruler (Nandi et al., OOPSLA 2021, section 4), and as there, larger terms
are built of one term of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, permutations
from typing import Any, Literal

import numpy as np

from ...ir import operators as semantics
from ...ir.operators import OPERATORS, Array, Attribute, Unsupported
from ...ir.operators.numbers import element_type
from ...rules.sexpr import Atom, Form, Node, substitute
from ..checking.overlap import COMMUTATIVE
from ..checking.sampling.conditions import literal
from .language import ONE, VARIABLES, Domain, atoms_of, build_terms, canonical, heads, names_of, parse_term, subterms


@dataclass(frozen=True, order=True)
class Cost:
    """The cost of a term: elements computed, distinct operators, loads of leaves."""

    flops: int
    operators: int
    loads: int


@dataclass(frozen=True)
class Pair:
    """Two equal terms, with variables in the order of their first use on the left. `level` is the number of operators
    at which the enumeration found them; `both`: neither side is worse, so that the rule goes in both directions."""

    left: Node
    right: Node
    level: int
    both: bool

    @property
    def order(self) -> tuple[int, bool, int, int, int, bool, str]:
        """A sort key: commutativity comes first, then small pairs of few operators, general ones before their
        instances; of those with the same number of variables first the ones that keep their order, as associativity
        does."""
        size = len(heads(self.left)) + len(heads(self.right))
        kinds = len({*heads(self.left), *heads(self.right)})
        turned = names_of(self.left) != names_of(self.right)
        general = not is_mirror_image(self.left, self.right)
        return self.level, general, kinds, size, -len(names_of(self.left)), turned, str(self.left)


def is_mirror_image(left: Node, right: Node) -> bool:
    """Whether the right side is the left one with its two operands swapped."""
    return (
        isinstance(left, Form)
        and isinstance(right, Form)
        and left.head in COMMUTATIVE
        and (left.items[0], *left.items[:0:-1]) == right.items
    )


@dataclass
class _Classes:
    """Terms by their values on random tensors: `equal` on all draws, `alike` on positive numbers."""

    equal: dict[bytes, list[Node]] = field(default_factory=dict)
    alike: dict[bytes, list[Node]] = field(default_factory=dict)


class Enumeration:
    """The terms of one domain, level by level. Larger terms are built only of the first ones of each class; equations
    of the others follow from those of the first."""

    def __init__(self, domain: Domain, seed: int) -> None:
        """`seed` determines the random tensors."""
        random = np.random.default_rng(seed)
        wide = "float64" if domain.dtype == "float32" else domain.dtype
        self.domain = domain
        self.random = (draw_setting(random, "mixed", wide), draw_setting(random, "zeros", wide))
        self.positive = draw_setting(random, "positive", wide)
        self.classes = _Classes()
        self.first: dict[int, list[Node]] = {}
        self.seen: set[tuple[Node, Node]] = set()
        self.count = 0

    def level(self, size: int) -> list[Pair]:
        """The new pairs with terms of `size` operators, in the order in which they are to be judged."""
        terms = self.domain.leaves if size == 0 else build_terms(self.domain, self.first, size)
        changed: dict[bytes, None] = {}
        before = {key: len(members) for key, members in self.classes.equal.items()}
        for term in terms:
            if size > 1 and _repeats_mirror_image(term):
                continue
            key = self._key(term)
            if key is not None:
                self.count += 1
                self.classes.equal.setdefault(key, []).append(term)
                changed[key] = None
        self.first[size] = []
        pairs: list[Pair] = []
        for key in changed:
            pairs += self._class(key, before.get(key, 0), size)
        return sorted(pairs, key=lambda pair: pair.order)

    def _class(self, key: bytes, before: int, size: int) -> Iterator[Pair]:
        members = self.classes.equal[key]
        members[before:] = sorted(members[before:], key=lambda t: (self.cost(t), str(t)))
        best = members[0]
        for other in members[max(1, before) :]:
            yield from self._pair(other, best, size)
        if before == 0:
            self.first[size].append(best)
            value = self.positive.value(best) if self.domain.signed else None
            alike = self.classes.alike.setdefault(fingerprint(value) if value is not None else key, [])
            for other in alike[:1]:
                yield from self._pair(best, other, size)
            alike.append(best)

    def _key(self, term: Node) -> bytes | None:
        if not names_of(term) and term != parse_term(ONE):
            return None
        values = [setting.value(term) for setting in (*self.random, self.positive)]
        return b"".join(fingerprint(v) for v in values if v is not None) if all(v is not None for v in values) else None

    def _pair(self, one: Node, other: Node, level: int) -> Iterator[Pair]:
        left, right = (one, other) if self.cost(one) >= self.cost(other) else (other, one)
        if not isinstance(left, Form) or not set(names_of(left)) >= set(names_of(right)):
            return
        both = self.cost(left) == self.cost(right) and set(names_of(left)) == set(names_of(right))
        left, right = canonical(left, right)
        if self.domain.needed.isdisjoint((*heads(left), *heads(right))) or (left, right) in self.seen:
            return
        self.seen |= {(left, right), canonical(right, left)}
        yield Pair(left, right, level, both and not is_mirror_image(left, right))

    def cost(self, term: Node) -> Cost:
        """The cost of the term if all leaves have one shape; parts that it uses twice are computed once."""
        distinct = {t for t in subterms(term) if isinstance(t, Form) and t.head != "Full"}
        return Cost(sum(map(self._work, distinct)), len(distinct), sum(name in _LEAVES for name in atoms_of(term)))

    def _work(self, term: Form) -> int:
        value = self.positive.value(term.items[1] if term.head.startswith("Reduce") else term)
        return value.size if value is not None else 0


_LEAVES = frozenset("abc")


def _repeats_mirror_image(term: Node) -> bool:
    """Whether the term is the mirror image of another term that is enumerated."""
    if not isinstance(term, Form) or term.head not in COMMUTATIVE:
        return False
    return str(term.items[2]) < str(term.items[1])


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
