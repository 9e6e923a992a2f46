"""The part of a model between a value and the terms that its original and its optimised form share.

Both forms are followed from the value towards the inputs until they meet: a class that both use is a boundary. Terms
below a boundary are the same in both, so that they need no explanation. A boundary becomes a variable, with as many
operators of its own definition (`depth`) as rules may need to look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...engine.egraph.encode import Encoding, multiple_outputs
from ...engine.egraph.graph import EGraph, ENode, Selection
from ...rules.loader import RuleSet
from .ground import reachable

_LEAVES = frozenset({"Var", "Weight", "Full", "Absent"})


@dataclass(frozen=True)
class Rewriting:
    """A model's graph as terms, its e-graph under the rules of the run, and what was chosen from it."""

    encoding: Encoding
    egraph: EGraph
    selection: Selection
    rules: RuleSet

    def keeps(self, term: int) -> bool:
        """Whether the optimised graph computes a value by the original's operator, from the same operands."""
        node, owners = self.encoding.terms[term], self.egraph.terms
        same = ENode(node.op, node.attributes, tuple(owners[c] for c in node.children))
        if self.selection.choice.get(owners[term]) != same:
            return False
        return node.op != "Out" or self.keeps(node.children[0])

    @cached_property
    def fixed(self) -> frozenset[int]:
        """The terms that are inputs or constants, or computed from constants alone."""
        constant: set[int] = set()
        inputs: set[int] = set()
        for term, node in enumerate(self.encoding.terms):
            if node.op == "Var":
                inputs.add(term)
            elif constant.issuperset(node.children):
                constant.add(term)
        return frozenset(constant | inputs)

    def is_computed(self, term: int) -> bool:
        """Whether the result computes the value of a term."""
        return self.egraph.terms[term] in self.selection.choice

    def is_rewritten(self, term: int) -> bool:
        """Whether the result computes the value of a term in another form."""
        return self.is_computed(term) and term not in self.fixed and not self.keeps(term)

    @cached_property
    def rewritten_values(self) -> dict[str, int]:
        """The terms that the result has in another form by the first names of their values, in the original's order."""
        first_names: dict[int, str] = {}
        for name, term in self.encoding.values.items():
            first_names.setdefault(term, name)
        return {name: term for term, name in first_names.items() if self.is_rewritten(term)}


@dataclass(frozen=True)
class TwoForms:
    """A value in both forms: `original` is its term, `owner` its class, `boundary` has the classes in which both meet.

    `chosen`: the e-node of each class between the value and the boundary in the optimised form.
    """

    original: int
    owner: int
    boundary: frozenset[int]
    chosen: Mapping[int, ENode]


@dataclass(frozen=True)
class Cone:
    """The original form as an encoding of its own.

    `owners`: the class of each of its terms in the e-graph of the whole model; `originals`: the term of the model that
    each comes from; `root` is the term of the value.
    """

    encoding: Encoding
    owners: tuple[int, ...]
    originals: tuple[int, ...]
    root: int


def follow_forms(term: int, rewriting: Rewriting) -> TwoForms:
    """Find the classes in which the two forms of a term meet. Requires that the selection has the term's class."""
    encoding, classes, choice = rewriting.encoding, rewriting.egraph.terms, rewriting.selection.choice
    owner = classes[term]
    # a value that became a constant shares nothing with the original: then all other classes of the result count
    below = set(reachable(choice[owner].children, lambda c: choice[c].children)) or choice.keys() - {owner}
    boundary: set[int] = set()
    pending, seen = list(encoding.terms[term].children), {term}
    while pending:
        child = pending.pop()
        if child in seen:
            continue
        seen.add(child)
        op = encoding.terms[child].op
        if not multiple_outputs(op) and op != "Absent" and classes[child] in below:
            boundary.add(classes[child])
        else:
            pending += encoding.terms[child].children
    above = reachable({owner} - boundary, lambda c: [child for child in choice[c].children if child not in boundary])
    return TwoForms(term, owner, frozenset(boundary), {c: choice[c] for c in above})


def build_cone(forms: TwoForms, rewriting: Rewriting, depth: int | None, *, neighbours: bool = False) -> Cone:
    """The original form down to `depth` operators below the boundary (None: down to the inputs).

    `neighbours` adds the other users of its terms, because some rules look at siblings.
    """
    builder = _ConeBuilder(forms, rewriting.encoding, rewriting.egraph, depth)
    builder.collect([forms.original], level=0)
    if neighbours:
        builder.collect(list(builder.neighbours()), level=1)
    return builder.build()


@dataclass
class _ConeBuilder:
    """Collects the terms of a cone, then numbers them as an encoding of their own."""

    forms: TwoForms
    encoding: Encoding
    egraph: EGraph
    depth: int | None
    levels: dict[int, int] = field(default_factory=dict)
    """For each term of the cone the number of operators between it and the boundary above it."""
    numbers: dict[int, int] = field(default_factory=dict)
    nodes: dict[ENode, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first: dict[int, int] = {}
        for term, owner in self.egraph.terms.items():
            if not multiple_outputs(self.encoding.terms[term].op):
                self.first[owner] = min(term, self.first.get(owner, term))

    def representative(self, term: int) -> int:
        """The term that stands for all terms of its class, if the class is a boundary or below one; else the term."""
        return self.first.get(self.egraph.terms[term], term)

    def collect(self, terms: Iterable[int], level: int) -> None:
        """Add terms and their operands to the cone; level 0 is the value itself, and all terms above the boundary."""
        pending = [(term, level) for term in terms]
        while pending:
            term, level = pending.pop()
            if self.levels.get(term, level + 1) <= level:
                continue
            self.levels[term] = level
            if not self._is_fringe(term, level):
                pending += ((c, self._level(c, level)) for c in self._operands(term, level))

    def _level(self, child: int, level: int) -> int:
        return level + 1 if level or self.egraph.terms[child] in self.forms.boundary else 0

    def _operands(self, term: int, level: int) -> list[int]:
        return [self._operand(c, level) for c in self.encoding.terms[term].children]

    def _operand(self, child: int, level: int) -> int:
        below = level > 0 or self.egraph.terms[child] in self.forms.boundary
        apart = self._has_parts(child) or self.levels.get(child) == 0
        return self.representative(child) if below and not apart else child

    def _has_parts(self, term: int) -> bool:
        return multiple_outputs(self.encoding.terms[term].op)

    def _is_fringe(self, term: int, level: int) -> bool:
        """Whether the term becomes a variable or a constant without a definition."""
        node = self.encoding.terms[term]
        cut = self.depth is not None and level > self.depth
        return cut and node.op not in _LEAVES and not self._has_parts(term)

    def neighbours(self) -> Iterator[int]:
        """Terms of the model that are not in the cone, but use a boundary or a term above it."""
        held = {t for t, level in self.levels.items() if level <= 1 and self.encoding.terms[t].op != "Absent"}
        for term, node in enumerate(self.encoding.terms):
            if term not in self.levels and any(self._operand(c, 1) in held for c in node.children):
                yield term

    def build(self) -> Cone:
        for term in sorted(self.levels):
            self.numbers[term] = self.nodes.setdefault(self._node(term), len(self.nodes))
        back: dict[int, int] = {}
        for term, number in self.numbers.items():
            back.setdefault(number, term)
        originals = tuple(back[i] for i in range(len(back)))
        owners = tuple(self.egraph.terms[t] for t in originals)
        return Cone(self._encoding(originals, owners), owners, originals, self.numbers[self.forms.original])

    def _node(self, term: int) -> ENode:
        level, node = self.levels[term], self.encoding.terms[term]
        if self._is_fringe(term, level):
            return self._leaf(term)
        return replace(node, children=tuple(self.numbers[c] for c in self._operands(term, level)))

    def _leaf(self, term: int) -> ENode:
        owner = self.egraph.classes[self.egraph.terms[term]]
        name = f"class {self.egraph.terms[term]}"
        if not owner.constant:
            return ENode("Var", (name,), ())
        if owner.uniform is not None and owner.type is not None and owner.type.shape is not None:
            sizes = tuple(self.encoding.symbols[d] if isinstance(d, str) else d for d in owner.type.shape)
            return ENode("Full", (sizes, owner.uniform, owner.type.dtype), ())
        return ENode("Weight", (name,), ())

    def _encoding(self, originals: tuple[int, ...], owners: tuple[int, ...]) -> Encoding:
        terms = tuple(self.nodes)
        types = {
            index: self.encoding.types.get(term) or self.egraph.classes[owner].type
            for index, (term, owner) in enumerate(zip(originals, owners, strict=True))
            if not multiple_outputs(terms[index].op)
        }
        return Encoding(
            terms=terms,
            types={index: type_ for index, type_ in types.items() if type_ is not None},
            uniform={},
            nonneg=frozenset(i for i, t in enumerate(originals) if t in self.encoding.nonneg),
            nonzero=frozenset(i for i, t in enumerate(originals) if t in self.encoding.nonzero),
            finite=frozenset(i for i, t in enumerate(originals) if t in self.encoding.finite),
            values={},
            nodes={},
            roots=(self.numbers[self.forms.original],),
            symbols=self.encoding.symbols,
            products=self.encoding.products,
        )
