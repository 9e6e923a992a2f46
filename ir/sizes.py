"""Sizes that depend on dynamic dimensions, in a normal form: polynomials with integer coefficients.

A polynomial is made of `Atom`s: a symbol, which stands for a size of at least 0; a floor division that leaves a
remainder for some sizes; the least or greatest of several polynomials. Two polynomials of one normal form are equal for
every size of the symbols. (The reverse does not hold: `(H + 1) // 2` is `H - H // 2`, and differs in form.)

The text of a polynomial is its identity, and serves as the name of a dimension: `2*H + 1`, `(H + 1)//2`, `min(2, H)`.
`parse_size` reads such texts, and others that models and users write, such as `32k` or `floor(H/2)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd, prod
from types import MappingProxyType

from .types import Dimension, TensorType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_MOST_TERMS = 64
"""Terms of the largest polynomial; one with more is no shape of a real model, and counts as unknown."""
_LONGEST_TEXT = 2000
"""Characters of the longest text that is parsed or written for a polynomial of one atom: minima of minima double."""
NO_SIZES: Mapping[str, int] = MappingProxyType({})
SYMBOL = 128
"""The size that costs assume for an unknown dimension: that of a sentence or of a feature map's side. A batch counts 1
(`assume_sizes`): so models are deployed, and so a flattened batch x length counts the same."""
_IMAGE_RANK = 4
"""The least rank of an input whose dynamic first dimension is a batch whatever its name."""
_COLOURS = (1, 3, 4)
"""Numbers of channels of an image that is stored channels last and may come without a batch."""
_LENGTH = re.compile("seq|len|time|frame|token|height|width", re.IGNORECASE)
"""Parts of names of dimensions that are no batch."""


class TooComplex(Exception):
    """A polynomial has more terms, or a longer text, than any size of a real model."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A symbol (`kind` "symbol", no parts), a floor division (parts: numerator, divisor), a min or a max of parts."""

    text: str
    kind: str
    parts: tuple[Size, ...] = field(compare=False, default=())


Monomial = tuple[Atom, ...]
"""Factors in the order of their texts, a power as often as its exponent; () for the constant term."""


@dataclass(frozen=True, slots=True)
class Size:
    """A polynomial: its monomials with coefficients, none of them 0, in the order of their texts, the constant last."""

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def number(self) -> int | None:
        """The value of a constant polynomial; None for others."""
        if not self.terms:
            return 0
        (factors, coefficient), *rest = self.terms
        return coefficient if not factors and not rest else None

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    @property
    def atom(self) -> Atom | None:
        """The atom that is the whole polynomial; None if it is more, or a number."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    def __add__(self, other: Size) -> Size:
        if not other.terms or not self.terms:
            return self if not other.terms else other
        sums = dict(self.terms)
        for factors, coefficient in other.terms:
            sums[factors] = sums.get(factors, 0) + coefficient
        return _normal(sums)

    def __sub__(self, other: Size) -> Size:
        return self + other.scale(-1)

    def __mul__(self, other: Size) -> Size:
        for one, another in ((self, other), (other, self)):
            if one.number is not None:
                return another.scale(one.number)
        products: dict[Monomial, int] = {}
        for factors, coefficient in self.terms:
            for factors2, coefficient2 in other.terms:
                key = tuple(sorted((*factors, *factors2), key=_text_of_atom))
                products[key] = products.get(key, 0) + coefficient * coefficient2
        return _normal(products)

    def scale(self, factor: int) -> Size:
        """The product with a number."""
        return Size(tuple((f, c * factor) for f, c in self.terms)) if factor else ZERO

    def __str__(self) -> str:
        return _text(self)

    def atoms(self) -> frozenset[Atom]:
        """Every atom that occurs, those inside of atoms too."""
        own = {atom for factors, _ in self.terms for atom in factors}
        return frozenset(own.union(*(part.atoms() for atom in own for part in atom.parts)))

    def names(self) -> frozenset[str]:
        """The names of the symbols that occur."""
        return frozenset(atom.text for atom in self.atoms() if atom.kind == "symbol")

    def replace(self, symbols: Mapping[str, Size]) -> Size:
        """The polynomial with some symbols (by name) replaced."""
        return rebuild(self, lambda name: symbols.get(name))

    def value(self, size_of: Callable[[str], int]) -> int:
        """The value if each symbol has the size that `size_of` gives. Raises ZeroDivisionError for a divisor of 0."""
        total = 0
        for factors, coefficient in self.terms:
            for atom in factors:
                coefficient *= _atom_value(atom, size_of)
            total += coefficient
        return total


def _atom_value(atom: Atom, size_of: Callable[[str], int]) -> int:
    if atom.kind == "symbol":
        return size_of(atom.text)
    numbers = [part.value(size_of) for part in atom.parts]
    if atom.kind == "floor":
        return numbers[0] // numbers[1]
    return min(numbers) if atom.kind == "min" else max(numbers)


def rebuild(size: Size, replacement: Callable[[str], Size | None]) -> Size:
    """The polynomial with each symbol replaced, by name, unless the replacement is None; again in normal form."""
    total = ZERO
    for factors, coefficient in size.terms:
        product = number(coefficient)
        for atom in factors:
            product = product * _rebuild_atom(atom, replacement)
        total = total + product
    return total


def _rebuild_atom(atom: Atom, replacement: Callable[[str], Size | None]) -> Size:
    if atom.kind == "symbol":
        return replacement(atom.text) or Size((((atom,), 1),))
    parts = [rebuild(part, replacement) for part in atom.parts]
    return floor_divide(*parts) if atom.kind == "floor" else extremum(atom.kind, parts)


def _text_of_atom(atom: Atom) -> str:
    return atom.text


def _order(term: tuple[Monomial, int]) -> tuple[bool, tuple[str, ...]]:
    return not term[0], tuple(atom.text for atom in term[0])


def _normal(terms: Mapping[Monomial, int]) -> Size:
    if len(terms) > _MOST_TERMS:
        raise TooComplex
    return Size(tuple(sorted(((f, c) for f, c in terms.items() if c), key=_order)))


ZERO = Size(())


def number(value: int) -> Size:
    """A constant polynomial."""
    return Size((((), int(value)),)) if value else ZERO


ONE = number(1)


def neighbour_products(shapes: Iterable[Sequence[Size | None]]) -> dict[tuple[Size, Size], Size]:
    """The products of neighbouring dimensions, each by its first factor and the product of the others, if one of
    these two is no number. Unknown dimensions, and products of too many terms, are left out.
    """
    products: dict[tuple[Size, Size], Size] = {}
    for shape in shapes:
        for end in range(1, len(shape)):
            total = shape[end]
            for size in reversed(shape[:end]):
                if size is None or total is None:
                    break
                factors = size, total
                if (total := products.get(factors)) is None:
                    try:
                        total = size * factors[1]
                    except TooComplex:
                        break
                    if size.number is None or factors[1].number is None:
                        products[factors] = total
    return products


@lru_cache(maxsize=4096)
def symbol(name: str) -> Size:
    """A dynamic dimension of this name."""
    return Size((((Atom(name, "symbol"),), 1),))


# --- operations beside sums and products


def floor_divide(dividend: Size, divisor: Size) -> Size:
    """The quotient, rounded down. Raises ZeroDivisionError for a divisor of 0.

    A divisor that is not a number divides evenly, or the quotient is an atom.
    """
    steps = divisor.number
    if steps is None:
        quotient = exact_quotient(dividend, divisor)
        return _quotient_atom(dividend, divisor) if quotient is None else quotient
    if steps < 0:
        dividend, steps = dividend.scale(-1), -steps
    whole = {f: c // steps for f, c in dividend.terms}
    rest = _normal({f: c % steps for f, c in dividend.terms})
    return _normal(whole) + _proper_fraction(rest, steps)


def _proper_fraction(rest: Size, steps: int) -> Size:
    """`rest // steps` if every coefficient is at least 0 and below `steps`."""
    common = gcd(steps, *(c for f, c in rest.terms if f))
    if common > 1:
        rest = _normal({f: c // common for f, c in rest.terms})
        steps //= common
    if rest.number is not None:
        return number(rest.number // steps)
    if steps == 1:
        return rest
    inner = (rest - number(rest.constant)).atom
    if inner is not None and inner.kind == "floor" and (divisor := inner.parts[1].number) is not None:
        return floor_divide(inner.parts[0] + number(rest.constant * divisor), number(steps * divisor))
    return _quotient_atom(rest, number(steps))


def _quotient_atom(dividend: Size, divisor: Size) -> Size:
    return _of_atom(f"{_factor(dividend)}//{_factor(divisor)}", "floor", (dividend, divisor))


def _of_atom(text: str, kind: str, parts: tuple[Size, ...]) -> Size:
    if len(text) > _LONGEST_TEXT:
        raise TooComplex
    return Size((((Atom(text, kind, parts),), 1),))


def exact_quotient(dividend: Size, divisor: Size) -> Size | None:
    """The polynomial whose product with `divisor` is `dividend`; None if there is none, or the divisor is 0."""
    if not divisor.terms:
        return None
    quotient, rest = ZERO, dividend
    lead, share = _lead(divisor)
    for _ in range(_MOST_TERMS):
        if not rest.terms:
            return quotient
        factors, coefficient = _lead(rest)
        remaining = _without(factors, lead)
        if remaining is None or coefficient % share:
            return None
        term = Size(((remaining, coefficient // share),))
        quotient, rest = quotient + term, rest - term * divisor
    return None


def _lead(size: Size) -> tuple[Monomial, int]:
    """The leading term in a graded order, which products respect: degree first, then exponents."""
    return max(size.terms, key=lambda term: (len(term[0]), [_Reversed(a.text) for a in term[0]]))


@dataclass(frozen=True, slots=True)
class _Reversed:
    text: str

    def __lt__(self, other: _Reversed) -> bool:
        return other.text < self.text


def _without(factors: Monomial, taken: Monomial) -> Monomial | None:
    rest = list(factors)
    for atom in taken:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def extremum(kind: str, sizes: Iterable[Size]) -> Size:
    """The least ("min") or greatest ("max") of some sizes; a part that all have in common stands outside."""
    parts: dict[Size, None] = {}
    for size in sizes:
        constant = number(size.constant)
        atom = (size - constant).atom
        inner = [part + constant for part in atom.parts] if atom is not None and atom.kind == kind else [size]
        parts.update(dict.fromkeys(inner))
    differing = _without_dominated(kind, list(parts))
    if len(differing) == 1:
        return differing[0]
    common = number(min(size.constant for size in differing))
    rest = sorted((size - common for size in differing), key=str)
    return _of_atom(f"{kind}({', '.join(map(str, rest))})", kind, tuple(rest)) + common


def _without_dominated(kind: str, sizes: list[Size]) -> list[Size]:
    """Sizes without those that differ by a number from another one and can be left out."""
    best: dict[Size, int] = {}
    for size in sizes:
        variable = size - number(size.constant)
        old = best.setdefault(variable, size.constant)
        best[variable] = min(old, size.constant) if kind == "min" else max(old, size.constant)
    return [variable + number(constant) for variable, constant in best.items()]


# --- texts


@lru_cache(maxsize=1 << 14)
def _text(size: Size) -> str:
    if not size.terms:
        return "0"
    text = ""
    for factors, coefficient in size.terms:
        amount = abs(coefficient)
        alone = len(factors) == 1 and coefficient == 1
        names = factors[0].text if alone and factors[0].kind == "floor" else "*".join(map(_quote, factors))
        term = names if factors and amount == 1 else f"{amount}*{names}" if factors else str(amount)
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {term}" if text else (f"-{term}" if coefficient < 0 else term)
    return text


def _quote(atom: Atom) -> str:
    if atom.kind == "floor":
        return f"({atom.text})"
    if atom.kind != "symbol" or _PLAIN.fullmatch(atom.text):
        return atom.text
    return "`" + atom.text.replace("`", "``") + "`"


def _factor(size: Size) -> str:
    atom = size.atom
    plain = size.number is not None or (atom is not None and atom.kind != "floor")
    return str(size) if plain else f"({size})"


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|`((?:[^`]|``)*)`(?!`)|(//|[-+*/(),]))")


@lru_cache(maxsize=1 << 12)
def parse_size(text: str) -> Size | None:
    """The polynomial of a text, such as the text of a polynomial, `32k` or `past + 1`; None for any other text."""
    try:
        return _Parser(text).parse() if len(text) <= _LONGEST_TEXT else None
    except (ValueError, ZeroDivisionError, RecursionError, TooComplex):
        return None


def dimension_as_size(dimension: Dimension) -> Size | None:
    """The size that a dimension of an operator graph stands for; None if it is not known before the run."""
    return number(dimension) if isinstance(dimension, int) else parse_size(dimension)


def size_as_dimension(size: Size) -> Dimension:
    """The dimension of that size: the number if it is one, else its text."""
    return str(size) if size.number is None else size.number


def elements(type_: TensorType) -> Size | None:
    """The number of elements of a tensor; None if it is not known before the run, or too complex."""
    total = number(1)
    for size in map(dimension_as_size, type_.shape if type_.shape is not None else ("?",)):
        if size is None:
            return None
        try:
            total = total * size
        except TooComplex:
            return None
    return total


class _Parser:
    """Recursive descent; raises ValueError if the text does not continue as it should."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError
            digits, name, quoted, sign = match.groups()
            text_of_name = quoted.replace("``", "`") if quoted else name
            self.tokens.append(digits or (f"`{text_of_name}" if text_of_name else sign))
            position = match.end()
        self.tokens.reverse()

    def parse(self) -> Size:
        size = self.sum()
        if self.tokens:
            raise ValueError
        return size

    def accept(self, *signs: str) -> str:
        return self.tokens.pop() if self.tokens and self.tokens[-1] in signs else ""

    def require(self, sign: str) -> None:
        if not self.accept(sign):
            raise ValueError

    def sum(self) -> Size:
        total = self.product().scale(-1) if self.accept("-") else self.product()
        while sign := self.accept("+", "-"):
            term = self.product()
            total = total + term if sign == "+" else total - term
        return total

    def product(self) -> Size:
        size = self.factor()
        while self.tokens:
            if self.accept("*"):
                size = size * self.factor()
            elif self.accept("//", "/"):
                size = floor_divide(size, self.factor())
            elif self.tokens[-1].startswith("`") and size.number is not None:  # 32k
                size = size * self.factor()
            else:
                break
        return size

    def factor(self) -> Size:
        token = self.tokens.pop() if self.tokens else ""
        if token.isdigit():
            return number(int(token))
        if token == "(":
            size = self.sum()
            self.require(")")
            return size
        if not token.startswith("`"):
            raise ValueError
        if token == "`floor" and self.accept("("):  # of a quotient, which is rounded down anyway
            size = self.sum()
            self.require(")")
            return size
        if token in ("`min", "`max") and self.accept("("):
            sizes = [self.sum()]
            while self.accept(","):
                sizes.append(self.sum())
            self.require(")")
            return extremum(token[1:], sizes)
        return symbol(token[1:])


def declared_sizes(names: Iterable[str]) -> dict[str, Size]:
    """The sizes that names of dimensions stand for: an expression of other names, or of one more as in `32*k + 16`, is
    a polynomial; every other name is a symbol."""
    declared = frozenset(names)
    return {name: _declared_size(name, declared) for name in sorted(declared)}


def _declared_size(name: str, declared: frozenset[str]) -> Size:
    size = parse_size(name)
    if size is None or size.number is not None or size.names() == {name} or size == symbol(name.strip("`")):
        return symbol(name)
    if size.names() <= declared - {name}:
        return size
    *variable, rest = size.terms if size.constant else (*size.terms, ((), 0))
    is_line = len(variable) == 1 and len(variable[0][0]) == 1 and variable[0][0][0].kind == "symbol"
    return size if is_line and variable[0][1] > 0 and rest[1] >= 0 and variable[0][1] + rest[1] > 1 else symbol(name)


def dimension_size(dimension: Dimension, sizes: Mapping[str, int] = NO_SIZES) -> int:
    """The number a dimension counts: itself, that of `sizes`, 1 for a symbolic batch ("N", "batch..."), else `SYMBOL`.

    An expression of names counts its value for their numbers.
    """
    if isinstance(dimension, int):
        return dimension if dimension >= 0 else SYMBOL
    size = parse_size(dimension)
    if dimension in sizes or size is None or size.number is not None:
        return _symbol_size(dimension, sizes)
    try:
        return max(1, size.value(lambda name: _symbol_size(name, sizes)))
    except ZeroDivisionError:
        return SYMBOL


def _symbol_size(name: str, sizes: Mapping[str, int]) -> int:
    return sizes.get(name, 1 if name == "N" or name.lower() in ("batch", "batch_size", "bs") else SYMBOL)


def assume_sizes(shapes: Iterable[Sequence[Dimension]], equal: Iterable[tuple[Size, Size]] = ()) -> dict[str, int]:
    """The number that each symbolic dimension of the inputs counts: 1 for a batch, else `SYMBOL`.

    A batch is a dimension with such a name; the first dimension of an image or of a tensor with still more axes, unless
    it is another axis of one as well; and that of an input whose other axes are a whole sample, unless it is another
    axis of any input. The `equal` sizes, each pair with the plainer one last, add the dimensions that no shape names
    any more.
    """
    shapes = [*shapes]
    images = [shape for shape in shapes if len(shape) >= _IMAGE_RANK]
    samples = [shape for shape in shapes if _has_samples(shape)]
    batches = _first_axes(images, images) | _first_axes(samples, shapes)
    declared = declared_sizes(d for shape in shapes for d in shape if isinstance(d, str))
    sizes: dict[str, int] = {}
    for name in dict.fromkeys(d for shape in shapes for d in shape if isinstance(d, str)):
        if declared[name].atom is not None:
            sizes[name] = 1 if name in batches else dimension_size(name)
        else:  # such as 32*k + 16
            factor = sum(coefficient for factors, coefficient in declared[name].terms if factors)
            for free in declared[name].names():
                sizes.setdefault(free, max(1, (SYMBOL - declared[name].constant) // max(1, factor)))
    for side, plainer in equal:
        for name in (side.names() | plainer.names()) - sizes.keys():
            is_known = side == symbol(name) and plainer.names() <= sizes.keys()
            sizes[name] = plainer.value(sizes.__getitem__) if is_known else dimension_size(name)
    return sizes


def _first_axes(shapes: Iterable[Sequence[Dimension]], others: Iterable[Sequence[Dimension]]) -> set[Dimension]:
    """The first dimensions of shapes that are no other axis of `others`."""
    return {shape[0] for shape in shapes} - {dimension for shape in others for dimension in shape[1:]}


def _has_samples(shape: Sequence[Dimension]) -> bool:
    """Whether the first axis of an input may count samples, since the other axes have many elements.

    It does not if it is called a length, if another axis is called a batch, or for the height of one image.
    """
    if len(shape) < 2 or not isinstance(shape[0], str) or _LENGTH.search(shape[0]):
        return False
    has_batch = any(isinstance(dimension, str) and dimension_size(dimension) == 1 for dimension in shape[1:])
    is_one_image = len(shape) == 3 and isinstance(shape[1], str) and shape[2] in _COLOURS
    return not has_batch and not is_one_image and prod(map(dimension_size, shape[1:])) >= SYMBOL
