"""Partitions of a model whose kernels take made-up times, and the partition of the fastest part of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from onnx import helper

from eqfuse.driver.compiler.kernel_choice import Attempt
from eqfuse.driver.compiler.tune import CLEARLY, combine_partitions, list_regions
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.compilation import CompiledKernels
from eqfuse.lowering.kernels.messages import Choices
from eqfuse.lowering.kernels.prim_funcs import KernelCall
from eqfuse.lowering.kernels.variants import KernelPartition, Members
from eqfuse.lowering.running.kernel_times import CallTime

from ..lowering.small_models import graph_of, model

_NODES = [helper.make_node("Relu" if n % 2 else "Exp", [f"v{n}"], [f"v{n + 1}"]) for n in range(4)]
GRAPH = graph_of(model(_NODES, {"v0": (4, 8)}, {"v4": (4, 8)}))
APART = KernelPartition(((0,), (1,), (2,), (3,)))
JOINED = KernelPartition(((0, 1), (2, 3)))


@dataclass
class Stopwatch:
    """A builder: `seconds` of kernels by their operators, of which those with decisions take `tuned` times as many.

    Kernels of which one is a key and the other its value have the same code.
    """

    seconds: Mapping[Members, float]
    tuned: float = 1.0
    equal: Mapping[Members, Members] = field(default_factory=dict)

    def build(self, partition: KernelPartition) -> Attempt:
        tasks = {kernel: name_of(self.equal.get(kernel, kernel)) for kernel in partition.kernels}
        steps = tuple(KernelCall(tasks[kernel], kernel, (), ()) for kernel in partition.kernels)
        keys = {name: name for name in tasks.values()}
        return Attempt(partition, Path(), CompiledKernels(GRAPH, cast(Weights, None), steps, {}, {}, keys=keys), ())

    def time(self, attempts: Sequence[Attempt]) -> Sequence[Mapping[str, CallTime]]:
        return [{call.symbol: self._time(attempt, call) for call in attempt.prepared.calls} for attempt in attempts]

    def _time(self, attempt: Attempt, call: KernelCall) -> CallTime:
        is_tuned = call.symbol in attempt.partition.choices.decisions
        return CallTime(self.seconds[call.members] * (self.tuned if is_tuned else 1.0), 0.0, 9)

    def find_wrong(self, attempt: Attempt, symbols: object, strict: object, *, may_round: bool) -> Mapping[str, str]:
        raise NotImplementedError


def name_of(kernel: Members) -> str:
    return "kernel_" + "_".join(map(str, kernel))


def decide(partition: KernelPartition, *kernels: Members) -> KernelPartition:
    """The partition with decisions about these kernels."""
    return replace(partition, choices=Choices({name_of(kernel): {"tile": "8x2"} for kernel in kernels}))


def test_each_region_has_the_kernels_that_are_fastest_there() -> None:
    table = {(0,): 1.0, (1,): 1.0, (2,): 1.0, (3,): 1.0, (0, 1): 1.5, (2, 3): 2.5}
    assert combine_partitions(Stopwatch(table), [APART, JOINED]).kernels == ((0, 1), (2,), (3,))


def test_the_first_partition_stays_if_others_are_hardly_faster() -> None:
    table = {(0,): 1.0, (1,): 1.0, (2,): 1.0, (3,): 1.0, (0, 1): 2.0 * (CLEARLY + 1.0) / 2.0, (2, 3): 2.0}
    assert combine_partitions(Stopwatch(table), [APART, JOINED]) == APART


def test_decisions_are_those_of_the_partition_that_a_kernel_is_taken_from() -> None:
    table = {(0,): 1.0, (1,): 1.0, (2,): 1.0, (3,): 1.0}
    tuned = decide(APART, (0,), (2,))
    assert combine_partitions(Stopwatch(table, tuned=0.5), [APART, tuned]) == tuned
    assert combine_partitions(Stopwatch(table, tuned=1.5), [APART, tuned]) == APART


def test_kernels_of_equal_code_are_of_one_region() -> None:
    """They have one schedule, so the second cannot be apart while the first is joined."""
    table = {(0,): 1.0, (1,): 1.0, (2,): 1.0, (3,): 1.0, (0, 1): 1.0, (2, 3): 2.5}
    shop = Stopwatch(table, equal={(2,): (0,)})
    assert list_regions([shop.build(APART), shop.build(JOINED)]) == [frozenset(range(4))]
    shop = Stopwatch(table)
    assert list_regions([shop.build(APART), shop.build(JOINED)]) == [frozenset({0, 1}), frozenset({2, 3})]


def test_parts_that_wait_for_each_other_are_not_combined() -> None:
    """The first partition is faster in one region, the second in the other; each has a kernel that needs the
    other's."""
    crossed, straight = KernelPartition(((0, 2), (1,), (3,))), KernelPartition(((0,), (2,), (1, 3)))
    table = {(0, 2): 1.0, (1,): 2.0, (3,): 2.0, (0,): 2.0, (2,): 2.0, (1, 3): 1.0}
    assert combine_partitions(Stopwatch(table), [crossed, straight]) in (crossed, straight)
