"""The float64 oracle: is a difference rounding, or another computation?

The original is widened to float64 (weights exactly, computation in double) and run by `evaluator.py`; its
result stands for the exact one, and the original's own distance from it measures the effect of rounding in this model.

- Beyond the tolerance, the candidate is acquitted if its distance is at most ``ACQUITTAL_FACTOR`` times the
  original's, both at the worst element and in the root mean square, plus a few units in the last place.
- It is acquitted, too, if it is no farther than the original, however far that is: in a network of large activations
  rounding may do more than any tolerance allows. Since an oracle that computes something else would be far from both,
  the candidate in float64 must then be as near to the oracle.
- Within the tolerance but beyond a few units in the last place, it is convicted if its distance is more than
  ``CONVICTION_FACTOR`` times the original's: a tolerance wide enough for deep networks would let an epsilon that is
  ten times too large pass.

The first and the last rule hold only while the original's own error is small against how far the output moves between
inputs: an original that is itself noise proves little. Without an oracle, the tolerance decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from ..runs.compare import Precision, Tolerance, distances, spread_of, to_double
from ..runs.run import Reference
from ..runs.source import Source
from ..runs.values import Feeds, RunError, Value, leaves, one_line
from .rounding import Extent, RoundedValues, Rounding
from .widening import widen, widen_value

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun

ACQUITTAL_FACTOR = 4.0
"""A reordered sum may round worse than the original order by a small factor; a wrong weight does so by far more."""

CONVICTION_FACTOR = 10.0
"""Larger than the other factor, since the tolerance speaks for the candidate."""

LARGEST_WEIGHTS_BYTES = 1 << 30
"""The most weights that are widened: more would need too much memory as float64, and the tolerance alone decides."""

_MAX_ORIGINAL_ERROR = 1e-2
"""Largest error of the original at which it may serve as the measure: a fraction of the spread of a float output, or
the share of wrong elements of an exact one."""


@dataclass(frozen=True)
class Judgement:
    """Root mean square errors of both against the oracle, and the verdict: neither flag is set when in doubt.

    ``no_farther``: the candidate is as near to the oracle as the original, at the worst element and in the root mean
    square, up to a few units in the last place.
    """

    acquitted: bool
    convicted: bool
    no_farther: bool
    original_error: float
    candidate_error: float


class Oracle:
    """The original in float64."""

    def __init__(self, source: Source) -> None:
        """Widen the model. Raises RunError if it is too large or cannot be loaded by the evaluator."""
        if 4 * sum(math.prod(tensor.dims) for tensor in source.graph.initializer) > LARGEST_WEIGHTS_BYTES:
            raise RunError("the weights are too large for a float64 copy")
        try:
            model = onnx.load(source.path)
        except Exception as error:  # missing external data, in several exception types
            raise RunError(one_line(error)) from error
        from .float64_kernels import Forget  # with onnx's reference evaluator, which most verifications do without

        widen(model)
        model.opset_import.append(onnx.helper.make_opsetid(Forget.op_domain, 1))
        self._model = model
        self._reference: Reference | None = None
        self._rounding = Rounding()

    def run(self, feeds: Feeds, extra: Sequence[str] = ()) -> dict[str, Value]:
        """The outputs and ``extra`` values on inputs widened to float64. Raises RunError."""
        return self._load(extra).run(_widen_feeds(feeds))

    def run_rounded(
        self, feeds: Feeds, values: RoundedValues, extent: Extent, epsilon: float, draw: int
    ) -> dict[str, Value]:
        """The outputs of a run in which the ``values`` are rounded at random, as numbers of a type with this
        ``epsilon``. Raises RunError."""
        tensors = self._model.graph.initializer
        rounding = self._rounding
        rounding.begin(values, extent, epsilon, draw)
        try:
            stored = {t.name: numpy_helper.to_array(t) for t in tensors if t.data_type == TensorProto.DOUBLE}
            return self._load(()).run(rounding.round_fed(_widen_feeds(feeds)), rounding.round_fed(stored))
        finally:
            rounding.extent = Extent.NONE

    def _load(self, extra: Sequence[str]) -> Reference:
        from .evaluator import evaluator_class
        from .float64_kernels import ORACLE_OPERATORS, Forget, contributed_kernels, forget_dead_values

        if extra or self._reference is None:
            forget_dead_values(self._model.graph, extra)  # all values at once may take gigabytes
            kernels: list[type[OpRun]] = [*ORACLE_OPERATORS, *contributed_kernels(self._model), Forget]
            reference = Reference(self._model, extra, kernels, evaluator_class(self._rounding))
            self._reference = None if extra else reference
            return reference
        return self._reference


def judge(exact: Value, original: Value, candidate: Value, spread: float | None) -> Judgement:
    """Apply the rule of this module to one value; without a ``spread``, its root mean square replaces that."""
    truths, firsts, seconds = leaves(exact), leaves(original), leaves(candidate)
    shapes = [leaf.shape for leaf in truths]
    is_text = any(leaf.dtype.kind in "OUS" for leaf in (*truths, *firsts, *seconds))
    if is_text or not shapes == [leaf.shape for leaf in firsts] == [leaf.shape for leaf in seconds]:
        return Judgement(False, False, False, math.inf, math.inf)
    errors = [_errors(*triple) for triple in zip(truths, firsts, seconds, strict=True)]
    trusted = all(error.is_trusted(spread) for error in errors)
    return Judgement(
        trusted and all(error.is_no_worse(ACQUITTAL_FACTOR) for error in errors),
        trusted and not all(error.is_no_worse(CONVICTION_FACTOR) for error in errors),
        all(error.precision is not None and bool(error.original.size) and error.is_no_worse(1.0) for error in errors),
        max((_rms(error.original) for error in errors), default=0.0),
        max((_rms(error.candidate) for error in errors), default=0.0),
    )


def may_acquit(original: Value, candidate: Value, spread: float | None) -> bool:
    """Whether rounding may explain a difference of this size; the oracle is too slow to ask about gross errors.

    Two models that are as far from the truth as outputs move between inputs are at most twice that apart.
    """
    distance = spread_of(original, candidate)
    return spread is None or distance is None or distance <= 2 * spread


@dataclass(frozen=True)
class _Errors:
    """Elementwise distances from the truth, without the elements for which the original overflowed."""

    original: NDArray[Any]
    candidate: NDArray[Any]
    truth: NDArray[Any]
    precision: Precision | None

    def is_trusted(self, spread: float | None) -> bool:
        """Whether the original is near enough to the truth to be the measure."""
        if not self.original.size:
            return False
        if self.precision is None:
            return float(np.mean(self.original > 0)) <= _MAX_ORIGINAL_ERROR
        return _rms(self.original) <= _MAX_ORIGINAL_ERROR * (_rms(self.truth) if spread is None else spread)

    def is_no_worse(self, factor: float) -> bool:
        # A few units in the last place of the largest element; exact types have none, since every flip counts.
        slack = self.precision.noise(float(np.abs(self.truth).max(initial=0.0))) if self.precision else 0.0
        worst = bool(self.candidate.max(initial=0.0) <= factor * self.original.max(initial=0.0) + slack)
        return worst and _rms(self.candidate) <= factor * _rms(self.original) + slack


def _errors(truth: NDArray[Any], original: NDArray[Any], candidate: NDArray[Any]) -> _Errors:
    exact = to_double(truth)
    own = distances(exact, to_double(original))
    finite = np.isfinite(own)
    other = distances(exact, to_double(candidate))
    return _Errors(own[finite], other[finite], exact[np.isfinite(exact)], Tolerance().precision(original.dtype))


def _rms(errors: NDArray[Any]) -> float:
    return math.sqrt(float(np.mean(np.square(errors)))) if errors.size else 0.0


def _widen_feeds(feeds: Feeds) -> Feeds:
    return {name: widen_value(value) for name, value in feeds.items()}
