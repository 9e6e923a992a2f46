"""Two convolutions as one kernel: the same numbers, nothing computed twice, no plane of all channels between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

from eqfuse.lowering.kernels.channels_last import channels_last, from_last, to_last
from eqfuse.lowering.schedules import Draft, Scheduled, mark_constants
from eqfuse.lowering.schedules.intensive.convolution_pair import convolution_pair

from ..functions import ARM, HOST, SERVER, count_multiply_adds, execute, inputs, run

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

        y = te.compute((1, self.outputs, *size), element, name=f"sum{name}")
        biased = te.compute(y.shape, lambda n, c, i, j: y(n, c, i, j) + b(c), name=f"biased{name}")
        relu = te.compute(y.shape, lambda *i: te.max(biased(*i), 0.0), name=f"relu{name}")
        return relu, [w, b], self.outputs * size[0] * size[1] * inputs * self.kernel**2


PAIRS = {
    "pointwise, depthwise": ((16, 12, 12), Layer(64, 1), Layer(64, 3, 1, True)),
    "pointwise, depthwise with stride": ((16, 12, 12), Layer(32, 1), Layer(32, 5, 2, True)),
    "convolution, depthwise": ((8, 10, 10), Layer(32, 3), Layer(32, 3, 1, True)),
    "depthwise, depthwise": ((32, 12, 12), Layer(32, 3, 1, True), Layer(32, 3, 1, True)),
    "depthwise with stride, depthwise": ((48, 15, 15), Layer(48, 5, 2, True), Layer(48, 3, 1, True)),
    "depthwise, pointwise": ((32, 12, 12), Layer(32, 3, 1, True), Layer(48, 1)),
    "depthwise with stride, pointwise": ((32, 15, 15), Layer(32, 3, 2, True), Layer(16, 1)),
    "pointwise, pointwise": ((16, 8, 14), Layer(32, 1), Layer(32, 1)),
    "convolution, pointwise": ((8, 8, 8), Layer(32, 3), Layer(64, 1)),
}
PARAMETERS = (1, 2, 3, 4)


def function_of(case: str) -> tuple[Any, int]:
    """The pair as a function on maps with their channels last, and its multiply-adds."""
    shape, first, second = PAIRS[case]
    x = te.placeholder((1, *shape), name="x")
    middle, weights, products = first.build(x, "1")
    y, more, others = second.build(middle, "2")
    return mark_constants(te.create_prim_func([x, *weights, *more, y]), PARAMETERS), products + others


def schedule(case: str, device: Any = HOST, threads: int = 1) -> Scheduled:
    scheduled = convolution_pair(Draft.of(channels_last(function_of(case)[0], {0, 5}), device, threads))
    assert scheduled is not None
    return scheduled


@pytest.mark.representatives(5)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", PAIRS)
def test_the_pair_computes_what_both_compute(case: str, threads: int) -> None:
    function, _ = function_of(case)
    arrays = inputs(function)
    expected = run(function, arrays)
    stored = [to_last(arrays[0]), *arrays[1:5], to_last(arrays[5])]
    computed = execute(schedule(case, threads=threads), stored)
    np.testing.assert_allclose(from_last(computed), expected, rtol=1e-4, atol=1e-4)
    assert np.ptp(expected) > 0


@pytest.mark.representatives(5)
@pytest.mark.parametrize("device", [SERVER, ARM], ids=lambda device: device.name)
@pytest.mark.parametrize("case", PAIRS)
def test_nothing_is_computed_twice(case: str, device: Any) -> None:
    assert count_multiply_adds(schedule(case, device)) == function_of(case)[1]


@pytest.mark.parametrize("case", ["others read the map too", "one convolution"])
def test_no_pair(case: str) -> None:
    x = te.placeholder((1, 16, 8, 8), name="x")
    middle, weights, _ = Layer(32, 3).build(x, "1")
    if case == "one convolution":
        function = channels_last(mark_constants(te.create_prim_func([x, *weights, middle]), (1, 2)), {0, 3})
    else:
        y, more, _ = Layer(32, 1).build(middle, "2")
        function = mark_constants(te.create_prim_func([x, *weights, *more, middle, y]), PARAMETERS)
        function = channels_last(function, {0, 5, 6})
    assert convolution_pair(Draft.of(function, HOST)) is None
