"""The symbolic half of a verdict: the smallest samples of a rule, with a variable for every element of every leaf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ....ir.operators import OPERATORS, Array, Unsupported
from ..drawing.coverage import settings, various
from ..drawing.elements import index_bounds, named_leaves
from ..drawing.evaluation import Comparison, Evaluation
from ..drawing.hits import Hit
from ..drawing.left_side import LEAVES
from ..drawing.samples import Sample
from ..drawing.scratch import Fired
from ..drawing.terms import Argument, Leaf, Term, readable
from ..oracles.numeric import Counterexample
from .arithmetics import Bits, Reals
from .equality import Assumption, Proof, leaf_array, prove_equal

SAMPLES = 3
"""How many small samples are proved for each kind of numbers."""
MAX_ELEMENTS = 128
"""Samples with more elements than this among the leaves are left to numbers."""
ANY_SHAPE = "any shape"


@dataclass(frozen=True)
class Proven:
    """What the proofs of a rule's samples come to. `complete`: all tried were proved, for the shapes in `scope`,
    which names the largest rank among the tensors of each;
    `condition` says what they needed. `reason`: why a proof is not complete."""

    complete: bool
    scope: str = ""
    condition: str = ""
    reason: str = ""
    counterexample: Counterexample | None = None


def prove_samples(hits: Sequence[Hit], sound: str) -> Proven:
    """Prove the smallest samples of a rule, or as scalars a rule of element-wise operators."""
    conditions: dict[str, None] = {}
    proved, scalar, reason = 0, False, "no sample is small enough for a proof"
    ranks: set[int] = set()
    for kind, chosen in _chosen(hits).items():
        before = proved
        for sample, fired, scalar in chosen:
            try:
                for _, proof in _proofs(sample, fired, scalar):
                    if proof.outcome != "proved":
                        return _unproved(sample, proof, sound)
                    if proof.needs:
                        conditions.setdefault(_facts(sample))
            except Unsupported as error:
                reason = f"{kind}: {error}"
                continue
            proved += 1
            ranks.add(max((len(leaf.type.shape) for leaf in named_leaves(sample)), default=0))
            if proved - before == SAMPLES:
                break
        if proved == before:
            return Proven(False, reason=reason)
    listed = ", ".join(map(str, sorted(ranks)))
    scope = ANY_SHAPE if scalar else f"{proved} shape{'s' if proved != 1 else ''} of rank {listed}"
    return Proven(True, scope, ", ".join(conditions)) if proved else Proven(False, reason=reason)


def _chosen(hits: Sequence[Hit]) -> dict[str, list[tuple[Sample, Fired, bool]]]:
    """By kind of their numbers the samples to prove, various ones first, and whether as scalars."""
    fired = [(h.sample, h.outcome) for h in hits if isinstance(h.outcome, Fired)]
    scalar = bool(fired) and all(_elementwise(s, f) for s, f in fired)
    by_kind: dict[str, list[tuple[Sample, Fired]]] = {}
    for sample, outcome in fired:
        if scalar or 0 < _elements(sample) <= MAX_ELEMENTS:
            by_kind.setdefault(_kind(sample), []).append((sample, outcome))
    found = {}
    for kind, some in by_kind.items():
        # the smallest say little where every dimension is one
        telling = [s for s in some if scalar or _elements(s[0]) >= 4] or some
        small = sorted(telling, key=lambda s: _elements(s[0]))[: 4 * SAMPLES]
        kept = various(small, [settings(s) for s, _ in small], 2 * SAMPLES)
        found[kind] = [(s, f, scalar) for s, f in kept]
    return found


def _elements(sample: Sample) -> int:
    total = 0
    for leaf in named_leaves(sample):
        size = 1
        for d in leaf.type.shape:
            size *= d
        if size == 0:
            return 0
        total += size
    return total


def _elementwise(sample: Sample, fired: Fired) -> bool:
    heads = {node.head for nodes in fired.classes.values() for node in nodes}
    heads |= {term.head for root in sample.roots for term in _terms(root)}
    return all(h in LEAVES or OPERATORS[h].category.startswith("elementwise") for h in heads)


def _terms(term: Argument) -> Iterator[Term]:
    if isinstance(term, Term):
        yield term
        for argument in term.arguments:
            yield from _terms(argument)


def _kind(sample: Sample) -> str:
    """What a proof is about: numbers of other kinds are proved apart."""
    dtypes = {leaf.type.dtype for leaf in named_leaves(sample)}
    kinds = {d.rstrip("0123456789") for d in dtypes}
    return " and ".join(sorted(kinds)) or "constants"


def _proofs(sample: Sample, fired: Fired, scalar: bool) -> Iterator[tuple[Comparison, Proof]]:
    known = list(named_leaves(sample))
    arithmetic = _arithmetic(known)
    bounds = {name: bound for name, bound in index_bounds(sample).items() if bound[0] < 0}
    elements = {leaf.name: _variables(leaf, scalar, bounds.get(leaf.name), arithmetic) for leaf in known}
    assumptions = [Assumption(fact, leaf.name) for leaf in known for fact in _told(leaf)]
    evaluation = Evaluation(sample, fired, elements, {}, arithmetic, scalar)
    for comparison in evaluation.comparisons():
        if comparison.left.size:
            yield comparison, prove_equal(comparison.left, comparison.right, assumptions, arithmetic)


def _variables(leaf: Leaf, scalar: bool, bounds: tuple[int, int] | None, arithmetic: Reals | Bits) -> Array:
    """A variable for each element; indices are numbers, for they decide which elements there are."""
    if bounds is not None:
        low, high = bounds
        places = np.arange(int(np.prod(leaf.type.shape))).reshape(leaf.type.shape)
        return (1 - places) % (high - low) + low  # from both ends in turn
    return leaf_array(leaf.name, () if scalar else leaf.type.shape, leaf.type.dtype, arithmetic)


def _arithmetic(known: Sequence[Leaf]) -> Reals | Bits:
    dtypes = {leaf.type.dtype for leaf in known if leaf.type.dtype != "bool"}
    if dtypes and all("int" in d for d in dtypes):
        return Bits(8, signed=not any(d.startswith("uint") for d in dtypes))
    return Reals()


def _told(leaf: Leaf) -> Iterator[Literal["nonneg", "nonzero"]]:
    if leaf.nonneg:
        yield "nonneg"
    if leaf.nonzero:
        yield "nonzero"


def _facts(sample: Sample) -> str:
    """What the left side makes sure of, in words."""
    said = [f"{leaf.name} {word}" for leaf in named_leaves(sample) for word in _words(leaf)]
    return " and ".join(said)


def _words(leaf: Leaf) -> tuple[str, ...]:
    if leaf.nonneg and leaf.nonzero:
        return ("> 0",)
    if leaf.nonneg:
        return (">= 0",)
    return ("!= 0",) if leaf.nonzero else ()


def _unproved(sample: Sample, proof: Proof, sound: str) -> Proven:
    if proof.outcome == "unknown" or proof.failure != "value" or sound == "approx":
        # where one side is undefined, numbers decide: they know infinities
        return Proven(False, reason=proof.reason)
    term = "; ".join(readable(root) for root in sample.roots)
    found = Counterexample(term, dict(proof.counterexample), "", "", "", proof.reason)
    return Proven(False, reason=proof.reason, counterexample=found)
