"""Every schedule reads and writes parts of wider tensors as it does dense ones, and nothing beside them.

The wider tensors hold NaN beside what is read, and a mark beside what is written; both lie among as many marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import topi

from eqfuse.lowering.kernels.build import build, place_parts
from eqfuse.lowering.kernels.channels_last import channels_last
from eqfuse.lowering.kernels.messages import Part
from eqfuse.lowering.schedules import CONSTANTS, RULES, Draft, Scheduled, apply_rule, list_candidates
from eqfuse.lowering.schedules.base.blocks import PARTS
from eqfuse.lowering.schedules.passes import REFUSALS

from .functions import HOST, REFERENCE, TARGET, convolution, inputs, layer_norm, matmul, of_one, pool, run
from .intensive.test_convolution_chain import function_of
from .passes.test_borders import depthwise
from .product_models import perceptron, two_products
from .rules.test_joins import concat, shuffle
from .rules.test_transposition import transpose
from .test_stages import colours, exchanged_sum, gated_product
from .winograd.test_pooled_convolution import pooled

pytestmark = pytest.mark.usefixtures("shared_by_threads")
Array = np.ndarray[Any, Any]
Function = Callable[[], Any]
MARK = np.float32(-12345.0)
"""Beside what is written; no function computes it."""
BESIDE = 256
"""Elements in front of and behind a tensor: more than the vectors of any tile."""


def last(function: Any) -> Any:
    """The function with channels last in its first parameter and its result."""
    return channels_last(function, {0, len(function.params) - 1})


FUNCTIONS: Mapping[str, Function] = {
    "transposition": lambda: transpose((1, 16, 40), (0, 2, 1)),
    "transposition of planes": lambda: transpose((1, 24, 14, 14), (0, 2, 3, 1)),
    "transposition of three": lambda: transpose((5, 17, 4, 19), (1, 3, 0, 2)),
    "pointwise": lambda: of_one((1, 6, 7, 12), topi.nn.relu, topi.negative, topi.exp),
    "pointwise of one column": lambda: of_one((9, 1), topi.exp),
    "shuffle": lambda: of_one((1, 7, 7, 24), lambda x: shuffle(x, 3)),
    "concat of columns": lambda: concat([(7, 64), (7, 12), (7, 20)], 1),
    "concat of rows": lambda: concat([(3, 20), (2, 20)], 0),
    "softmax": lambda: of_one((9, 45), lambda x: topi.nn.softmax(x, -1)),
    "layer norm": lambda: layer_norm((7, 48)),
    "sums of columns": lambda: of_one((1, 12, 20), lambda x: topi.sum(x, 1)),
    "sums of rows": lambda: of_one((13, 37), lambda x: topi.sum(x, 1)),
    "product": lambda: matmul(13, 20, 28),
    "product of one row": lambda: matmul(1, 40, 32),
    "product of parts": lambda: matmul(13, 20, 28, constant=False),
    "product of a part, flipped": lambda: matmul(13, 20, 28, constant=False, flip=True),
    "products of a batch": lambda: matmul(5, 16, 24, batch=(3,), constant=False),
    "convolution": lambda: convolution((1, 8, 12, 12), 16, 3, pad=1),
    "convolution, last": lambda: last(convolution((1, 8, 12, 12), 16, 3, pad=1)),
    "convolution by points": lambda: last(convolution((1, 16, 12, 12), 16, 1)),
    "convolution to one channel": lambda: last(convolution((1, 16, 16, 16), 1, 1)),
    "convolution with stride": lambda: last(convolution((2, 8, 13, 11), 24, 3, 2, 1)),
    "minimal filter": lambda: last(convolution((1, 64, 16, 16), 64, 3, pad=1)),
    "minimal filter, max pool": lambda: pooled((2, 16, 13, 11), 32, (2, 2)),
    "minimal filter, mean pool": lambda: pooled((1, 16, 12, 16), 32, (2, 4), "avg"),
    "colours": lambda: colours(35, 37, 16, 3, 5),
    "grouped convolution": lambda: convolution((1, 8, 10, 10), 8, 3, pad=1, group=4),
    "depthwise": lambda: convolution((1, 12, 11, 13), 12, 3, pad=1, group=12),
    "depthwise, last": lambda: depthwise((1, 12, 14, 24), 3),
    "pool": lambda: pool((1, 12, 11, 13), 3, 2, 1),
    "pool, last": lambda: last(pool((1, 12, 11, 13), 3, 2, 1)),
    "mean pool, last": lambda: last(pool((1, 12, 12, 12), 2, 2, 0, "avg")),
    "stages of exchanges": lambda: exchanged_sum((4, 48, 128)),
    "stages of a gate": lambda: gated_product(40, 33, 41),
    "chain of convolutions": lambda: last(function_of("inverted residual")[0]),
    "chain of depthwise convolutions": lambda: last(function_of("depthwise, depthwise")[0]),
    "chain with stride": lambda: last(function_of("pointwise, convolution with stride")[0]),
    "chain of products": lambda: perceptron(37, 17, 45).kernel[0],
    "chain of products in a batch": lambda: two_products(19, 8, 21, 33, batch=(3,)).kernel[0],
}
NOT_OF_PARTS = {"recurrence"}
"""Rules of operators that take dense tensors only."""


@dataclass(frozen=True)
class Placed:
    """A function whose parameters `parts` are parts of wider tensors."""

    function: Any
    parts: tuple[Part, ...]

    @staticmethod
    def drawn(function: Any, seed: int) -> Placed:
        """The parameters, constants aside, as columns; of a seed above 0 some of them, as columns or rows."""
        generator = np.random.default_rng(seed)
        constants = {int(n) for n in (function.attrs or {}).get(CONSTANTS, ())}
        able = [n for n in range(len(function.params)) if n not in constants]
        chosen = [n for n in able if seed == 0 or generator.random() < 0.7] or [int(generator.choice(able))]
        parts = []
        for number in chosen:
            shape = [int(extent) for extent in function.params[number].shape]
            is_columns = seed == 0 or generator.random() < 0.75
            axis = len(shape) - 1 if is_columns else next((a for a, n in enumerate(shape) if n > 1), 0)
            before, behind = (int(n) for n in generator.choice([1, 3, 16, 17] if seed == 0 else [0, 1, 3, 16, 17], 2))
            parts.append(Part(number, axis, before, before + shape[axis] + behind))
        widths = {
            str(function.params[part.parameter].name): part.extent
            for part in parts if part.axis == len(function.params[part.parameter].shape) - 1
        }  # fmt: skip
        return Placed(function.with_attr(PARTS, widths), tuple(parts))

    def check(self, scheduled: Scheduled, arrays: Sequence[Array], expected: Array) -> None:
        """Compare what the schedule computes with the parts in place with what is `expected`."""
        packed = list(arrays)
        for repack in scheduled.repack:
            packed[repack.parameter] = repack(packed[repack.parameter])
        module = tvm.IRModule({"main": self._place(scheduled.schedule.mod["main"])})
        compiled = build(module, tvm.target.Target(TARGET))["main"]
        output = len(packed) - 1
        memories = [Memory.around(each, self._find(n), n == output) for n, each in enumerate(packed)]
        compiled(*(memory.tensor for memory in memories))
        np.testing.assert_allclose(memories[output].part, expected, rtol=2e-4, atol=1e-5 * np.abs(expected).max())
        for memory in memories:
            memory.check_beside()

    def _place(self, function: Any) -> Any:
        return place_parts(function, self.parts).with_attr("global_symbol", "main")

    def _find(self, parameter: int) -> Part | None:
        return next((part for part in self.parts if part.parameter == parameter), None)


@dataclass(frozen=True)
class Memory:
    """A tensor in the midst of a larger piece of `memory`, the `part` of it that a kernel takes, and a `copy` of all of
    it before the call."""

    memory: Array
    whole: Array
    part: Array
    copy: Array
    is_output: bool

    @staticmethod
    def around(array: Array, part: Part | None, is_output: bool) -> Memory:
        shape = list(array.shape)
        place = [slice(None)] * len(shape)
        if part is not None:
            place[part.axis] = slice(part.first, part.first + shape[part.axis])
            shape[part.axis] = part.extent
        size, itemsize = prod(shape), array.dtype.itemsize
        buffer = np.zeros((size + 2 * BESIDE) * itemsize + 64, np.uint8)
        start = -buffer.ctypes.data % 64
        memory = buffer[start : start + (size + 2 * BESIDE) * itemsize].view(array.dtype)
        memory[:] = (MARK if is_output else np.nan) if array.dtype.kind == "f" else True
        whole = memory[BESIDE : BESIDE + size].reshape(shape)
        whole[tuple(place)] = array
        return Memory(memory, whole, whole[tuple(place)], memory.copy(), is_output)

    @property
    def tensor(self) -> Any:
        """The whole tensor as TVM takes it, where it is."""
        return tvm.runtime.from_dlpack(self.whole)

    def check_beside(self) -> None:
        """Assert that nothing was written but the part of an output."""
        if self.is_output:
            self.part[...] = np.nan
        np.testing.assert_array_equal(self.memory, self.copy)


def schedules_of(function: Any, threads: int) -> Iterator[Scheduled]:
    """By all rules that match, in stages, and without any."""
    for candidate in list_candidates(function, HOST, threads, with_rules=True):
        try:
            scheduled = candidate(Draft.of(function, HOST, threads).trace)
        except REFUSALS:
            continue
        if scheduled is not None:
            yield scheduled


def check_parts(name: str, seed: int, threads: int) -> list[str]:
    """Check all schedules of a function with parts that are drawn; the names of these schedules."""
    function = FUNCTIONS[name]()
    arrays = inputs(function)
    expected = run(function, arrays, REFERENCE)
    assert np.isfinite(expected).all()
    assert np.ptp(expected) > 0
    placed = Placed.drawn(function, seed)
    rules = []
    for scheduled in schedules_of(placed.function, threads):
        placed.check(scheduled, arrays, expected)
        rules.append(scheduled.rule)
    return rules


@pytest.mark.parametrize("name", ["transposition", "shuffle"])
def test_parts_are_read_and_written_in_place(name: str) -> None:
    check_parts(name, 0, 1)


@pytest.mark.conformance
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_under_every_schedule(name: str, threads: int) -> None:
    for seed in range(2):
        check_parts(name, seed, threads)


@pytest.mark.conformance
def test_every_rule_schedules_parts() -> None:
    matched = set()
    for build_function in FUNCTIONS.values():
        placed = Placed.drawn(build_function(), 0)
        for rule in RULES:
            try:
                scheduled = apply_rule(rule, Draft.of(placed.function, HOST))
            except REFUSALS:
                continue
            if scheduled is not None:
                matched.add(rule.__name__)
    assert {rule.__name__ for rule in RULES} - matched == NOT_OF_PARTS
