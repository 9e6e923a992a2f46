"""Networks on which rounding decides: what computes the same another way passes, and what is damaged does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from eqfuse.engine.verification import verify

from ..models import normal

BOXES = 400


def build(signature: str, nodes: str, weights: dict[str, NDArray[Any]]) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> graph {signature} {{ {nodes} }}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return proto


def waves(factor: float = 0.0) -> onnx.ModelProto:
    """Sines of coordinates, large ones too; with a factor, that and a turn are folded into the frequencies."""
    signature = "(float[1,8,2] x) => (float[1,8,32] y)"
    frequencies, turn = normal(2, 32, seed=3), np.float32(2 * np.pi)
    if factor:
        folded = (frequencies * turn * np.float32(factor)).astype(np.float32)
        return build(signature, "p = MatMul (x, g) y = Sin (p)", {"g": folded})
    nodes = "p = MatMul (x, g) q = Mul (p, turn) y = Sin (q)"
    return build(signature, nodes, {"g": frequencies, "turn": turn})


def scaled(weights: dict[str, NDArray[np.float32]], factor: float) -> dict[str, NDArray[Any]]:
    """Weights divided by a factor, by which what they are multiplied with is multiplied."""
    return {"c": np.float32(factor), **{name: (array / np.float32(factor)).astype(np.float32)
                                        for name, array in weights.items()}}  # fmt: skip


def best(factor: float = 1.0, largest: int = 1, shift: int = 0) -> onnx.ModelProto:
    """The boxes of the hundred best scores, many of which are nearly 1."""
    weights = scaled({"w": normal(64, 1, seed=6) * 2, "b": normal(64, 4, seed=7) / 8}, factor)
    constants = {"two": np.array([2]), "k": np.array([100]), "four": np.array([1, 1, 4]), "n": np.array([[BOXES]]),
                 "shift": np.array([[shift]])}  # fmt: skip
    nodes = f"""z = Mul (x, c) l = MatMul (z, w) p = Sigmoid (l) q = Squeeze (p, two) boxes = MatMul (z, b)
        v, i = TopK <axis = 1, largest = {largest}> (q, k) j = Add (i, shift) m = Mod (j, n)
        e = Unsqueeze (m, two) f = Expand (e, four) y = GatherElements <axis = 1> (boxes, f)"""
    outputs = "(float[1,100] v, int64[1,100] m, float[1,100,4] y)"
    return build(f"(float[1,{BOXES},64] x) => {outputs}", nodes, weights | constants)


def detected(factor: float = 1.0, overlap: float = 0.5, center: int = 0) -> onnx.ModelProto:
    """What NonMaxSuppression leaves of boxes with scores that are often nearly 1."""
    drawn = {"w": normal(32, 2, seed=9) / 4, "s": normal(32, 2, seed=10) / 8, "l": normal(32, 3, seed=11) * 3}
    constants = {"most": np.array([100]), "overlap": np.float32([overlap]), "least": np.float32([0.3]),
                 "last": np.array(2), "zero": np.array([0])}  # fmt: skip
    nodes = f"""z = Mul (x, c) a = MatMul (z, w) d = MatMul (z, s) e = Exp (d) f = Add (a, e)
        boxes = Concat <axis = 2> (a, f) g = MatMul (z, l) p = Sigmoid (g) q = Transpose <perm = [0, 2, 1]> (p)
        y = NonMaxSuppression <center_point_box = {center}> (boxes, q, most, overlap, least)
        i = Gather <axis = 1> (y, last) r = Squeeze (boxes, zero) o = Gather <axis = 0> (r, i)"""
    signature = "(float[1,120,32] x) => (int64[n,3] y, float[n,4] o)"
    return build(signature, nodes, scaled(drawn, factor) | constants)


def signs(factor: float = 1.0, damage: float = 1.0) -> onnx.ModelProto:
    """Signs of sums that whole numbers often bring to zero."""
    weights = {"w": (np.round(normal(6, 16, seed=5) * 5) / 10 * damage).astype(np.float32)}
    nodes = "z = Mul (x, c) s = MatMul (z, w) g = Sign (s) y = Add (s, g)"
    return build("(float[32,6] x) => (float[32,16] y)", nodes, scaled(weights, factor))


def words(order: str = "cast", factor: float = 1.0) -> onnx.ModelProto:
    """Numbers that are cast to uint32, which cannot hold some of them, before or after they are transposed."""
    steps = {
        "cast": "c = Cast <to = 12> (s) t = Transpose (c)",
        "transpose": "p = Transpose (s) t = Cast <to = 12> (p)",
    }
    weights = {"c0": np.float32(4e9 * factor), "c1": np.float32(2.5e-10)}
    nodes = f"s = Mul (x, c0) {steps[order]} f = Cast <to = 1> (t) y = Mul (f, c1)"
    return build("(float[13,7] x) => (float[7,13] y)", nodes, weights)


@dataclass(frozen=True)
class Kind:
    """A network, the same with products in another order, and damaged ones."""

    original: Callable[[], onnx.ModelProto]
    same: Callable[[], onnx.ModelProto]
    damaged: tuple[Callable[[], onnx.ModelProto], ...]


KINDS = {
    "waves": Kind(waves, lambda: waves(1.0), (lambda: waves(1.001), lambda: waves(1.5))),
    "best": Kind(best, lambda: best(3.0), (lambda: best(3.0, largest=0), lambda: best(3.0, shift=1))),
    "detected": Kind(
        detected, lambda: detected(3.0), (lambda: detected(3.0, overlap=0.6), lambda: detected(3.0, center=1))
    ),
    "words": Kind(words, lambda: words("transpose"), (lambda: words("transpose", 1.001), lambda: words("cast", 0.99))),
    "signs": Kind(signs, lambda: signs(3.0), (lambda: signs(3.0, -1.0), lambda: signs(3.0, 1.001))),
}
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.conformance) for seed in range(2, 10))]


@pytest.mark.representatives(5)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_another_order_passes(kind: str, seed: int) -> None:
    verdict = verify(KINDS[kind].original(), KINDS[kind].same(), seed=seed)
    assert verdict.status == "passed", verdict


@pytest.mark.representatives(5)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.conformance) for seed in range(1, 10))])
@pytest.mark.parametrize(("kind", "number"), [(kind, number) for kind in KINDS for number in range(2)])
def test_damage_does_not(kind: str, number: int, seed: int) -> None:
    assert verify(KINDS[kind].original(), KINDS[kind].damaged[number](), seed=seed).status == "failed"


def test_casts_that_onnx_leaves_open_may_have_other_bits() -> None:
    assert verify(words(), words("transpose"), precision="exact").status == "passed"
    assert verify(words(), words("transpose", 1.001), precision="exact").status == "failed"
