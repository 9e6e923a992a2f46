"""The symbolic half of a verdict: the smallest samples of a rule, with a variable for every element of every leaf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..semantics import Array, Unsupported
from ..signatures import operators
from .evaluation import Comparison, Evaluation
from .generate import Sample
from .numeric import INDICES, Counterexample, bounded, named_leaves
from .pattern import LEAVES
from .proof import Assumption, Proof, leaf_array, prove_equal
from .sampling import Hit
from .scratch import Fired
from .symbolic import Reals
from .symbolic_bits import Bits
from .terms import Argument, Leaf, Term, readable

SAMPLES = 3
"""How many of the smallest samples are proved."""
MAX_ELEMENTS = 128
"""Samples with more elements than this among the leaves are left to numbers."""
ANY_SHAPE = "any shape"


@dataclass(frozen=True)
class Proven:
    """What the proofs of a rule's samples come to. `complete`: all tried were proved, for the shapes in `scope`;
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
    for sample, fired, scalar in _chosen(hits):
        try:
            for _, proof in _proofs(sample, fired, scalar):
                if proof.outcome != "proved":
                    return _unproved(sample, proof, sound)
                if proof.needs:
                    conditions.setdefault(_facts(sample))
        except Unsupported as error:
            reason = str(error)
            continue
        proved += 1
        if proved == SAMPLES:
            break
    scope = ANY_SHAPE if scalar else f"{proved} sampled shape{'s' if proved != 1 else ''}"
    return Proven(True, scope, ", ".join(conditions)) if proved else Proven(False, reason=reason)


def _chosen(hits: Sequence[Hit]) -> list[tuple[Sample, Fired, bool]]:
    """Samples to prove in turn, the smallest first, and whether as scalars."""
    fired = [(h.sample, h.outcome) for h in hits if isinstance(h.outcome, Fired)]
    if fired and all(_elementwise(s, f) for s, f in fired):
        scalars = [(s, f) for s, f in fired if not _has_integers(s)] or fired
        return [(s, f, True) for s, f in scalars]
    sized = sorted((_elements(s), i) for i, (s, f) in enumerate(fired))
    small = [i for size, i in sized if 0 < size <= MAX_ELEMENTS]
    # the smallest say little where every dimension is one
    telling = [i for i in small if _elements(fired[i][0]) >= 4] or small
    return [(*fired[i], False) for i in telling[: 2 * SAMPLES]]


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
    return all(h in LEAVES or operators()[h].category.startswith("elementwise") for h in heads)


def _terms(term: Argument) -> Iterator[Term]:
    if isinstance(term, Term):
        yield term
        for argument in term.arguments:
            yield from _terms(argument)


def _has_integers(sample: Sample) -> bool:
    return any("int" in leaf.type.dtype for leaf in named_leaves(sample))


def _proofs(sample: Sample, fired: Fired, scalar: bool) -> Iterator[tuple[Comparison, Proof]]:
    known = list(named_leaves(sample))
    arithmetic = _arithmetic(known)
    indices = {n for n, limit in bounded(sample).items() if limit == INDICES}
    elements = {leaf.name: _variables(leaf, scalar, leaf.name in indices, arithmetic) for leaf in known}
    assumptions = [Assumption(fact, leaf.name) for leaf in known for fact in _told(leaf)]
    evaluation = Evaluation(sample, fired, elements, {}, arithmetic, scalar)
    for comparison in evaluation.comparisons():
        if comparison.left.size:
            yield comparison, prove_equal(comparison.left, comparison.right, assumptions, arithmetic)


def _variables(leaf: Leaf, scalar: bool, indices: bool, arithmetic: Reals | Bits) -> Array:
    """A variable for each element; indices are numbers, for they decide which elements there are."""
    if indices:
        return np.arange(int(np.prod(leaf.type.shape))).reshape(leaf.type.shape) % INDICES
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


