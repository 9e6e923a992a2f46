"""Convolutions as one kernel: the same numbers, and nothing computed twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

from eqfuse.lowering.kernels.channels_last import channels_last, from_last, to_last
from eqfuse.lowering.schedules import Draft, Scheduled, Trace, apply_rule, mark_constants
from eqfuse.lowering.schedules.intensive.convolution_chain import convolution_chain

from ..functions import ARM, HOST, REFERENCE, SERVER, count_multiply_adds, execute, inputs, run

pytestmark = pytest.mark.usefixtures("shared_by_threads")


@dataclass(frozen=True)
class Layer:
    """A convolution with bias and relu; `depthwise` or of all channels."""

    outputs: int
    kernel: int
    stride: int = 1
    depthwise: bool = False

    def build(self, x: Any, name: str) -> tuple[Any, list[Any], int]:
        """Its result, its weights, and its multiply-adds."""
        inputs = 1 if self.depthwise else int(x.shape[1])
        w = te.placeholder((self.outputs, inputs, self.kernel, self.kernel), name=f"w{name}")
        b = te.placeholder((self.outputs,), name=f"b{name}")
        pad = self.kernel // 2
        padded = topi.nn.pad(x, (0, 0, pad, pad), (0, 0, pad, pad), name=f"pad{name}") if pad else x
        size = [(int(n) + 2 * pad - self.kernel) // self.stride + 1 for n in x.shape[2:]]
        kernel = [te.reduce_axis((0, self.kernel)) for _ in range(2)]
        channel = [] if self.depthwise else [te.reduce_axis((0, inputs))]

        def element(n: Any, o: Any, i: Any, j: Any) -> Any:
            inner = o if self.depthwise else channel[0]
            places = (i * self.stride + kernel[0], j * self.stride + kernel[1])
            weight = w(o, 0 if self.depthwise else channel[0], *kernel)
            return te.sum(padded(n, inner, *places) * weight, axis=[*channel, *kernel])

        y = te.compute((int(x.shape[0]), self.outputs, *size), element, name=f"sum{name}")
        biased = te.compute(y.shape, lambda n, c, i, j: y(n, c, i, j) + b(c), name=f"biased{name}")
        relu = te.compute(y.shape, lambda *i: te.max(biased(*i), 0.0), name=f"relu{name}")
        return relu, [w, b], int(x.shape[0]) * self.outputs * size[0] * size[1] * inputs * self.kernel**2


CHAINS: dict[str, tuple[tuple[int, ...], tuple[Layer, ...]]] = {
    "pointwise, depthwise": ((1, 16, 12, 12), (Layer(64, 1), Layer(64, 3, 1, True))),
    "pointwise, depthwise with stride": ((1, 16, 24, 24), (Layer(32, 1), Layer(32, 5, 2, True))),
    "convolution, depthwise": ((1, 8, 12, 12), (Layer(32, 3), Layer(32, 3, 1, True))),
    "depthwise, depthwise": ((1, 32, 12, 12), (Layer(32, 3, 1, True), Layer(32, 3, 1, True))),
    "depthwise with stride, depthwise": ((1, 48, 24, 24), (Layer(48, 5, 2, True), Layer(48, 3, 1, True))),
    "depthwise, pointwise": ((1, 32, 12, 12), (Layer(32, 3, 1, True), Layer(48, 1))),
    "pointwise, pointwise": ((1, 16, 8, 14), (Layer(32, 1), Layer(32, 1))),
    "pointwise, convolution with stride": ((2, 16, 28, 28), (Layer(32, 1), Layer(32, 3, 2))),
    "inverted residual": ((1, 16, 12, 12), (Layer(64, 1), Layer(64, 3, 1, True), Layer(16, 1))),
    "inverted residual, two images": ((2, 16, 24, 24), (Layer(64, 1), Layer(64, 3, 2, True), Layer(32, 1))),
    "small maps": ((2, 16, 4, 4), (Layer(64, 1), Layer(64, 3, 1, True), Layer(32, 1))),
    "three windows": ((1, 16, 12, 12), (Layer(32, 3), Layer(32, 5, 1, True), Layer(16, 3))),
}
DECISIONS = {
    "row by row": {"planes": "0", "rows": "1"},
    "all rows in one step": {"planes": "0", "rows": "12"},
    "all rows at once": {"planes": "1"},
    "all channels": {"channels 0": "64"},
    "few channels": {"channels 0": "16", "channels 2": "16"},
}


def function_of(case: str) -> tuple[Any, int]:
    """The chain as a function, and its multiply-adds."""
    shape, layers = CHAINS[case]
    x = te.placeholder(shape, name="x")
    parameters, y, products = [x], x, 0
    for number, layer in enumerate(layers):
        y, weights, more = layer.build(y, str(number))
        parameters, products = [*parameters, *weights], products + more
    return mark_constants(te.create_prim_func([*parameters, y]), tuple(range(1, len(parameters)))), products


def schedule(case: str, device: Any = HOST, threads: int = 1, decisions: dict[str, str] | None = None) -> Scheduled:
    function, _ = function_of(case)
    stored = channels_last(function, {0, len(function.params) - 1})
    scheduled = apply_rule(convolution_chain, Draft.of(stored, device, threads, Trace(decisions or {})))
    assert scheduled is not None
    return scheduled


def check(case: str, scheduled: Scheduled) -> None:
    function, _ = function_of(case)
    arrays = inputs(function)
    expected = run(function, arrays, REFERENCE)
    computed = execute(scheduled, [to_last(arrays[0]), *arrays[1:-1], to_last(arrays[-1])])
    np.testing.assert_allclose(from_last(computed), expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
    assert np.ptp(expected) > 0


@pytest.mark.representatives(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CHAINS)
def test_the_chain_computes_what_its_convolutions_compute(case: str, threads: int) -> None:
    check(case, schedule(case, threads=threads))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("decisions", DECISIONS.values(), ids=DECISIONS)
def test_whatever_is_decided(decisions: dict[str, str]) -> None:
    check("inverted residual", schedule("inverted residual", decisions=decisions))


@pytest.mark.representatives(2)
@pytest.mark.parametrize("device", [SERVER, ARM], ids=lambda device: device.name)
@pytest.mark.parametrize("case", CHAINS)
def test_nothing_is_computed_twice(case: str, device: Any) -> None:
    assert count_multiply_adds(schedule(case, device)) == function_of(case)[1]


@pytest.mark.parametrize("case", ["others read the map too", "one convolution"])
def test_no_chain(case: str) -> None:
    x = te.placeholder((1, 16, 8, 8), name="x")
    middle, weights, _ = Layer(32, 3).build(x, "1")
    if case == "one convolution":
        function = channels_last(mark_constants(te.create_prim_func([x, *weights, middle]), (1, 2)), {0, 3})
    else:
        y, more, _ = Layer(32, 1).build(middle, "2")
        function = mark_constants(te.create_prim_func([x, *weights, *more, middle, y]), (1, 2, 3, 4))
        function = channels_last(function, {0, 5, 6})
    assert apply_rule(convolution_chain, Draft.of(function, HOST)) is None
