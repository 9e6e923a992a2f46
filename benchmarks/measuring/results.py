"""What a rewritten model is worth: whether it computes what the original does, and how long it takes beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eqfuse.engine.verification import verify
from eqfuse.engine.verification.inputs.draws import generate
from eqfuse.engine.verification.inputs.given import Sample
from eqfuse.engine.verification.inputs.plans import InputSpec, Plan, input_specs
from eqfuse.engine.verification.runs.source import read_source
from eqfuse.engine.verification.runs.structure import Structure
from eqfuse.lowering.running.onnx_runtime import RuntimeContest
from eqfuse.lowering.running.turns import Estimate
from eqfuse.support.errors import EqfuseError

_SESSIONS = 3
"""How often both models are loaded anew: where their memory lies makes a difference of a percent."""
_SECONDS = 3.0
"""Of pairs in each of these sessions at most, if nothing else is asked for."""
_LARGE = 128
"""The size of a dynamic dimension that has no other; the first of an input has 1."""


@dataclass(frozen=True)
class Verdict:
    """Whether a result is right: "right", "wrong", or "invalid" where ONNX Runtime does not run it; with the reason.

    "unknown" is a result whose original does not run, or gives nothing that depends on its inputs.
    """

    status: str
    reason: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it does not compute what the original does."""
        return self.status in ("wrong", "invalid")


def sample_of(source: Path, sizes: Mapping[str, int]) -> Sample | None:
    """Inputs with dynamic dimensions of these sizes; None without sizes, for those that the verification draws."""
    if not sizes:
        return None
    specs = input_specs(Structure(read_source(source, "original").structure))
    plan = Plan({name: sizes.get(name, default) for name, default in _free_dimensions(specs).items()})
    return Sample("--sizes", {name: np.asarray(value) for name, value in generate(specs, plan, 0).items()})


def _free_dimensions(specs: tuple[InputSpec, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in specs:
        for axis, dimension in enumerate(spec.dims or ()):
            if isinstance(dimension, str):
                sizes[dimension] = 1 if axis == 0 else sizes.get(dimension, _LARGE)
    return sizes


def judge_result(source: Path, result: Path, sample: Sample | None) -> Verdict:
    """Compare a result with its original as `eqfuse verify` does, on drawn inputs or else on the sample."""
    try:
        verification = verify(source, result, precision="real")
        if verification.status == "unverified" and sample is not None:
            verification = verify(source, result, precision="real", samples=[sample])
    except EqfuseError as error:
        return Verdict("unknown", str(error))
    if verification.status == "failed":
        is_invalid = "does not run" in verification.reason or "not the candidate" in verification.reason
        return Verdict("invalid" if is_invalid else "wrong", verification.reason)
    return Verdict("right" if verification.status == "passed" else "unknown", verification.reason)


def time_result(
    source: Path, result: Path, sample: Sample | None, threads: int, seconds: float = _SECONDS
) -> Estimate | None:
    """The time of a result over that of its original; None if one of them does not run."""
    samples = [sample] if sample is not None else []
    try:
        with RuntimeContest(source, samples, 0, threads) as contest:
            ratios = [r for _ in range(_SESSIONS) for r in contest.time_pairs(result, seconds, float("inf"))]
    except EqfuseError:
        return None
    return Estimate.of(ratios)
