"""Do two models compute the same, but for rounding?

How much rounding may change is measured: both models run again with inputs and weights a little off, by about as much
as float32 rounds. What moves a lot under that is chaotic, and proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from .builder import Array, Graph, evaluate

_TRIALS = 3
_UNITS = {"float32": 2.0**-22, "float64": 2.0**-50, "float16": 2.0**-9}
_FACTOR = 40.0
"""How many times what was measured is still rounding: a few trials do not meet the worst case."""
_CHAOTIC = 1e-2
"""An output that moves by more than this part of its size is not compared there."""


@dataclass(frozen=True)
class Verdict:
    """What differs, in one line each; and how many outputs were too chaotic to tell."""

    differences: tuple[str, ...]
    chaotic: int
    outputs: int


def compare(original: Graph, optimised: onnx.ModelProto) -> Verdict:
    """Run both in ONNX Runtime."""
    expected, actual = evaluate(original.model, original.feeds), evaluate(optimised, original.feeds)
    if list(expected) != list(actual):
        return Verdict((f"outputs {list(actual)} instead of {list(expected)}",), 0, len(expected))
    moved = _measure_moves(original.model, original.feeds, expected)
    moved_too = _measure_moves(optimised, original.feeds, actual)
    differences, chaotic = [], 0
    for name, wanted in expected.items():
        reason, doubtful = _difference(wanted, actual[name], moved[name], moved_too[name])
        chaotic += doubtful
        if reason:
            differences.append(f"{name}: {reason}")
    return Verdict(tuple(differences), chaotic, len(expected))


def identical(original: Graph, optimised: onnx.ModelProto) -> list[str]:
    """Outputs that are not equal bit by bit, but for the sign of zero."""
    expected, actual = evaluate(original.model, original.feeds), evaluate(optimised, original.feeds)
    return [n for n, a in expected.items() if not np.array_equal(a, actual[n], equal_nan=a.dtype.kind == "f")]


def _difference(wanted: Array, actual: Array, moved: Array, moved_too: Array) -> tuple[str, bool]:
    if wanted.dtype != actual.dtype or wanted.shape != actual.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {wanted.dtype}{list(wanted.shape)}", False
    if not wanted.size:
        return "", False
    scale = _scale(wanted)
    doubt = np.maximum(moved, moved_too)
    steady = doubt <= (_CHAOTIC * scale if wanted.dtype.kind == "f" else 0)
    if wanted.dtype.kind != "f":
        wrong = (wanted != actual) & steady
    else:
        unit = _UNITS[wanted.dtype.name]
        allowed = _FACTOR * (doubt + float(np.median(doubt[steady], keepdims=False)) if steady.any() else doubt)
        wrong = (_distance(wanted, actual) > allowed + 16 * unit * scale) & steady
    if not wrong.any():
        return "", not steady.all()
    at = tuple(map(int, np.argwhere(wrong)[0]))
    return f"{actual[at]} instead of {wanted[at]} at {at}, moved by {doubt[at]:.2g}", False


def _scale(array: Array) -> float:
    if array.dtype.kind != "f":
        return 1.0
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return max(float(finite.max()) if finite.size else 0.0, 1e-30)


def _distance(left: Array, right: Array) -> Array:
    """How far two arrays lie apart; 0 for the same infinity, infinite where only one is finite."""
    wide, other = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.abs(wide - other)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance)))


def _measure_moves(model: onnx.ModelProto, feeds: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
    """How far each element of the outputs moves at most."""
    distances = {n: np.zeros(a.shape) for n, a in outputs.items()}
    random = np.random.default_rng(0)
    for _ in range(_TRIALS):
        shaken = onnx.ModelProto()
        shaken.CopyFrom(model)
        for tensor in _tensors(shaken):
            tensor.CopyFrom(numpy_helper.from_array(_shake(numpy_helper.to_array(tensor), random), tensor.name))
        results = evaluate(shaken, {n: _shake(a, random) for n, a in feeds.items()})
        for name, array in outputs.items():
            distances[name] = np.maximum(distances[name], _distance(array, results[name]))
    return distances


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Weights, but for the scales of a Resize: they have to give whole sizes."""
    fixed = {i for n in model.graph.node if n.op_type == "Resize" for i in n.input[1:]}
    nodes = [n for n in model.graph.node if n.op_type == "Constant" and n.output[0] not in fixed]
    constants = [a.t for n in nodes for a in n.attribute if a.name == "value"]
    return [*(t for t in model.graph.initializer if t.name not in fixed), *constants]


def _shake(array: Array, random: np.random.Generator) -> Array:
    unit = _UNITS.get(array.dtype.name)
    if unit is None:
        return array
    return np.asarray(array * (1 + unit * random.uniform(-1, 1, array.shape))).astype(array.dtype)
