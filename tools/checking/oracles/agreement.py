"""The second oracle: ONNX Runtime and ONNX's shape inference, beside the meaning in numpy.

What one implementation computes may be its own fault; what two agree on is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from ....ir.operators import Array
from ..drawing.evaluation import Comparison, Evaluation, is_float
from ..drawing.generate import Sample
from ..drawing.placing import Placement
from ..drawing.scratch import Fired
from ..drawing.terms import Leaf, Term, readable
from .onnx_model import Inexpressible, feeds, term_model
from .runtime import KernelMissing, Refused, infer_types, outputs

_CLOSE = 1e-3
"""Two implementations of the left side agree within this share of the value, or of a thousandth of the largest number
met: what is wrong with a rule is seen in wider precision."""


class Disagreement(Exception):
    """The oracles do not give the left side one value, so that nothing follows from it."""


@dataclass
class Oracle:
    """Judges one sample. `reasons` is what it could not judge; `alone` whether it left a counterexample to numpy."""

    sample: Sample
    fired: Fired
    reasons: list[str] = field(default_factory=list)
    alone: bool = False

    @property
    def placement(self) -> Placement:
        """Where the sample's terms are in the e-graph."""
        return Placement(self.sample, self.fired)

    def refusal(self, evaluation: Evaluation) -> str:
        """Why ONNX refuses what the rule made while it takes the left side; "" where it takes both.

        That ONNX Runtime stops at an empty tensor, as some of its kernels do, is no fault of a rule.
        """
        try:
            runs = _runs(self.sample.roots, evaluation)
        except (Inexpressible, Refused) as error:
            self.reasons.append(f"ONNX refuses a left side: {_first_line(error)}")
            return ""
        try:
            model = _typed(self.placement.after(), evaluation)
        except (Inexpressible, Refused) as error:
            return _first_line(error)
        try:
            if runs:
                outputs(model, feeds(model, evaluation.elements), reference=False)
        except Refused as error:
            if not self.sample.is_empty:
                return _first_line(error)
            self.reasons.append(f"ONNX Runtime stops at an empty tensor: {_first_line(error)}")
        except KernelMissing as error:
            self.reasons.append(f"ONNX Runtime has no kernel for a right side: {_first_line(error)}")
        return ""

    def confirmed(
        self, evaluation: Evaluation, pair: Comparison, places: Sequence[tuple[int, ...]], sound: str
    ) -> tuple[int, ...]:
        """The first of the places where two sides differ at which both oracles give the left side one value, and
        neither gives the right side the same. Raises Disagreement where there is none.

        Of two zeros implementations return one or the other: there it is enough that each sees a difference.
        """
        if pair.root < 0 or pair.left.shape != pair.right.shape or pair.left.dtype != pair.right.dtype:
            return places[0]
        left = self._computed(self.sample.roots[pair.root], evaluation)
        if left is None:
            self.alone = True
            return places[0]
        scale = max((float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0)) for a in evaluation.left), default=0.0)
        right = self._made(evaluation, pair)
        signed = sound == "exact" and right is None
        agreed = [at for at in places if _agree(left, pair.left, at, scale, signed)]
        if not agreed:
            raise Disagreement(f"the oracles disagree on {self._named(pair)}")
        if right is None or right.shape != left.shape:
            return agreed[0]
        found = next((at for at in agreed if not _same(left[at], right[at], sound)), None)
        if found is None:
            raise Disagreement(f"the oracles disagree on the right side of {self._named(pair)}")
        return found

    def _made(self, evaluation: Evaluation, pair: Comparison) -> Array | None:
        term = self.placement.term(pair.node, self.fired.roots[pair.root])
        return None if term is None else self._computed(term, evaluation)

    def _computed(self, term: Term | Leaf, evaluation: Evaluation) -> Array | None:
        """The value of a term by ONNX Runtime, or by ONNX's reference where that has no kernel; None for neither."""
        try:
            model = term_model([term], evaluation.dtypes)
            return outputs(model, feeds(model, evaluation.elements))[0]
        except (Inexpressible, KernelMissing, Refused):
            return None

    def _named(self, pair: Comparison) -> str:
        root = self.sample.roots[pair.root]
        return f"{root.head} of {pair.left.dtype}" if isinstance(root, Term) else readable(root)


def _typed(terms: Sequence[Term | Leaf], evaluation: Evaluation) -> onnx.ModelProto:
    """The terms as a model whose types ONNX infers. Raises Inexpressible and Refused."""
    model = term_model([t for t in terms if t != Leaf("Absent")], evaluation.dtypes)
    infer_types(model)
    return model


def _runs(terms: Sequence[Term | Leaf], evaluation: Evaluation) -> bool:
    """Whether ONNX Runtime has the kernels for terms. Raises Inexpressible, and Refused where it fails."""
    model = _typed(terms, evaluation)
    try:
        outputs(model, feeds(model, evaluation.elements), reference=False)
    except KernelMissing:
        return False
    return True


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def _agree(left: Array, known: Array, at: tuple[int, ...], scale: float, signed: bool) -> bool:
    if left.shape != known.shape:
        return False
    one, other = left[at], known[at]
    if _same(one, other, "exact"):
        return True
    if not is_float(known) or not (np.isfinite(one) and np.isfinite(other)):
        return False
    if signed and one == 0 and other == 0:
        return False
    return bool(abs(one - other) <= _CLOSE * max(abs(one), abs(other), _CLOSE * scale))


def _same(one: np.generic, other: np.generic, sound: str) -> bool:
    if np.asarray(one).dtype.kind not in "fV":
        return bool(one == other)
    if np.isnan(one) or np.isnan(other):
        return bool(np.isnan(one) and np.isnan(other))
    return bool(one == other) and (sound != "exact" or bool(np.signbit(one) == np.signbit(other)))
