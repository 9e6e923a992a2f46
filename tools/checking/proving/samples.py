"""The symbolic half of a verdict: the smallest samples of a rule, with a variable for every element of every leaf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ....ir.operators import OPERATORS, Array, Unsupported
from ..oracles.numeric import Counterexample
from ..sampling.coverage import choose_various, settings
from ..sampling.elements import index_bounds
from ..sampling.evaluation import Evaluation
from ..sampling.hits import Hit
from ..sampling.left_side import LEAVES
from ..sampling.samples import Sample
from ..sampling.scratch import Fired
from ..sampling.terms import Leaf, readable
from .arithmetics import Bits, Reals
from .equality import Assumption, EqualityProof, leaf_array, number_text, prove_equal
from .solver import forget_past

SAMPLES = 3
"""Small samples that are proved for each kind of numbers: a proof takes far longer than a test in numbers."""
MAX_ELEMENTS = 128
"""Elements of all leaves together in a sample that is proved, at most; larger samples are only tested in numbers."""
ANY_SHAPE = "any shape"


@dataclass(frozen=True)
class SampleProofs:
    """The proofs of a rule's samples together. `complete`: all samples that were tried are proved, for the shapes in
    `scope`, which names their largest ranks, and under `condition`. `reason`: why a proof is not complete."""

    complete: bool
    scope: str = ""
    condition: str = ""
    reason: str = ""
    counterexample: Counterexample | None = None


def prove_samples(hits: Sequence[Hit], sound: str) -> SampleProofs:
    """Prove the smallest samples of a rule, or as scalars a rule of element-wise operators."""
    forget_past()
    conditions: dict[str, None] = {}
    proved, scalar, reason = 0, False, "no sample is small enough for a proof"
    ranks: set[int] = set()
    fired = [(h.sample, h.outcome) for h in hits if isinstance(h.outcome, Fired)]
    scalar = all(_is_elementwise(sample, outcome) for sample, outcome in fired)
    for kind, chosen in _choose_samples(fired, scalar).items():
        before = proved
        for sample, outcome in chosen:
            try:
                for proof in _proofs(sample, outcome, scalar):
                    if proof.outcome != "proved":
                        return _report_failure(sample, proof, sound)
                    if proof.needs:
                        conditions.setdefault(_facts_text(sample))
            except Unsupported as error:
                reason = f"{kind}: {error}"
                continue
            proved += 1
            ranks.add(max((len(leaf.type.shape) for leaf in sample.named_leaves), default=0))
            if proved - before == SAMPLES:
                break
        if proved == before:
            return SampleProofs(False, reason=reason)
    listed = ", ".join(map(str, sorted(ranks)))
    scope = ANY_SHAPE if scalar else f"{proved} shape{'s' if proved != 1 else ''} of rank {listed}"
    return SampleProofs(True, scope, ", ".join(conditions)) if proved else SampleProofs(False, reason=reason)


def _choose_samples(fired: Sequence[tuple[Sample, Fired]], scalar: bool) -> dict[str, list[tuple[Sample, Fired]]]:
    """The samples to prove by the kind of their numbers, various ones first."""
    by_kind: dict[str, list[tuple[Sample, Fired]]] = {}
    for sample, outcome in fired:
        if scalar or 0 < _size(sample) <= MAX_ELEMENTS:
            dtypes = {leaf.type.dtype for leaf in sample.named_leaves}
            kind = " and ".join(sorted({dtype.rstrip("0123456789") for dtype in dtypes})) or "constants"
            by_kind.setdefault(kind, []).append((sample, outcome))
    chosen = {}
    for kind, some in by_kind.items():
        # the smallest samples say little if every dimension is one
        telling = [s for s in some if scalar or _size(s[0]) >= 4] or some
        small = sorted(telling, key=lambda s: _size(s[0]))[: 4 * SAMPLES]
        chosen[kind] = choose_various(small, [settings(s) for s, _ in small], 2 * SAMPLES)
    return chosen


def _size(sample: Sample) -> int:
    """The number of elements of all leaves together; 0 if one of them has none."""
    sizes = [prod(leaf.type.shape) for leaf in sample.named_leaves]
    return sum(sizes) if all(sizes) else 0


def _is_elementwise(sample: Sample, fired: Fired) -> bool:
    heads = {node.head for nodes in fired.classes.values() for node in nodes} | sample.heads
    return all(h in LEAVES or OPERATORS[h].category.startswith("elementwise") for h in heads)


def _proofs(sample: Sample, fired: Fired, scalar: bool) -> Iterator[EqualityProof]:
    inputs = sample.named_leaves
    arithmetic = _arithmetic(inputs)
    bounds = {name: bound for name, bound in index_bounds(sample).items() if bound[0] < 0}
    elements = {leaf.name: _variables(leaf, scalar, bounds.get(leaf.name), arithmetic) for leaf in inputs}
    assumptions = [Assumption("nonneg", leaf.name) for leaf in inputs if leaf.nonneg]
    assumptions += [Assumption("nonzero", leaf.name) for leaf in inputs if leaf.nonzero]
    evaluation = Evaluation(sample, fired, elements, {}, arithmetic, scalar)
    for comparison in evaluation.comparisons():
        if comparison.left.size and not comparison.is_of_one:
            yield prove_equal(comparison.left, comparison.right, assumptions, arithmetic)


def _variables(leaf: Leaf, scalar: bool, bounds: tuple[int, int] | None, arithmetic: Reals | Bits) -> Array:
    """A variable for each element; indices are numbers, because they decide which elements a result has."""
    if bounds is not None:
        low, high = bounds
        places = np.arange(int(np.prod(leaf.type.shape))).reshape(leaf.type.shape)
        return (1 - places) % (high - low) + low  # from both ends in turn
    return leaf_array(leaf.name, () if scalar else leaf.type.shape, leaf.type.dtype, arithmetic)


def _arithmetic(inputs: Sequence[Leaf]) -> Reals | Bits:
    dtypes = {leaf.type.dtype for leaf in inputs if leaf.type.dtype != "bool"}
    if dtypes and all("int" in d for d in dtypes):
        return Bits(8, signed=not any(d.startswith("uint") for d in dtypes))
    return Reals()


def _facts_text(sample: Sample) -> str:
    """The facts about the signs of leaves, as text."""
    signs = {(True, True): "> 0", (True, False): ">= 0", (False, True): "!= 0"}
    facts = ((leaf.name, signs.get((leaf.nonneg, leaf.nonzero))) for leaf in sample.named_leaves)
    return " and ".join(f"{name} {sign}" for name, sign in facts if sign)


def _may_be_held(sample: Sample, proof: EqualityProof) -> bool:
    """Whether a counterexample gives leaves of integers only whole numbers, which a proof over the reals does not
    ensure."""
    whole = {leaf.name for leaf in sample.named_leaves if "int" in leaf.type.dtype}
    values = proof.counterexample.items()
    return all(value.denominator == 1 for name, value in values if name.partition("[")[0] in whole)


def _report_failure(sample: Sample, proof: EqualityProof, sound: str) -> SampleProofs:
    if proof.outcome == "unknown" or proof.failure != "value" or sound in ("approx", "step"):
        # if one side is undefined, the test in numbers decides, which has infinities
        return SampleProofs(False, reason=proof.reason)
    if not _may_be_held(sample, proof):
        return SampleProofs(False, reason="only values that the element types cannot hold would differ")
    term = "; ".join(readable(root) for root in sample.roots)
    numbers = {name: number_text(value) for name, value in proof.counterexample.items()}
    counterexample = Counterexample(term, numbers, "", "", "", proof.reason)
    return SampleProofs(False, reason=proof.reason, counterexample=counterexample)
