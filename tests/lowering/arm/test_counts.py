"""Counts: reading the report, adding, and the cycle estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from eqfuse.costmodels.device import Cache, Device
from eqfuse.lowering.arm.counts import (
    CallCounts,
    Counts,
    ModelCounts,
    by_call,
    by_kernel,
    estimate_cycles,
    parse_report,
)
from eqfuse.support.processes.program import ToolError

from ..plan.plans import chain

REPORT = """region instructions fused multiply_adds vector loads stores branches other stack misses1 misses2
0 9 0 0 0 0 0 0 9 0 1 1
1 30 10 40 5 6 4 2 3 1 8 2
"""
CALL = Counts(30, 10, 40, 5, 6, 4, 2, 3, 1, (8, 2))
DEVICE = Device(
    "d", 1, 128, 2, 1e9, (Cache(1, 4096, 64e9, False), Cache(2, 8192, 32e9, False)), 8e9, 0.0, 0.0,
    issue_width=3, load_ports=1, store_ports=1,
)  # fmt: skip


def test_regions_are_steps_from_1_and_0_is_outside() -> None:
    outside = Counts(instructions=9, other=9, misses=(1, 1))
    counted = by_call(parse_report(REPORT), chain(1, 1, 1))
    assert counted == ModelCounts((CallCounts("k0", CALL), CallCounts("k1", Counts())), outside)


@pytest.mark.parametrize("text", ["", "hello\n"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="left no report"):
        parse_report(text)


def test_an_example_that_marks_nothing_is_refused() -> None:
    with pytest.raises(ToolError, match="build it for emulation"):
        by_call({0: CALL}, chain(1, 1))


def test_the_model_is_the_sum_of_its_calls() -> None:
    counted = ModelCounts((CallCounts("a", CALL), CallCounts("b", CALL)), Counts(instructions=5))
    assert counted.model == Counts(60, 20, 80, 10, 12, 8, 4, 6, 2, (16, 4))


def test_the_inference_is_the_model_and_what_lies_outside() -> None:
    counted = ModelCounts((CallCounts("a", CALL),), Counts(instructions=5, other=5, misses=(1, 0)))
    assert counted.inference == Counts(35, 10, 40, 5, 6, 4, 2, 8, 1, (9, 2))


def test_the_calls_of_a_kernel_are_added_up_and_the_largest_kernel_comes_first() -> None:
    plan = chain(1, 1, 1, 1)
    relu = structs.replace(plan.calls[0], operators=("Relu",))
    conv = structs.replace(plan.calls[1], kernel="k2", operators=("Conv", "Add"))
    plan = replace(plan, steps=(relu, conv, plan.calls[2]))
    counted = ModelCounts((CallCounts("k0", Counts(50)), CallCounts("k2", CALL), CallCounts("k2", CALL)), Counts())
    first, second = by_kernel(counted, plan, DEVICE)
    assert (first.kernel, first.operators, first.calls, first.counts) == ("k2", ("Conv", "Add"), 2, CALL + CALL)
    assert (second.kernel, second.calls) == ("k0", 1)
    assert second.cycles == pytest.approx(50 / 3)


def test_the_busiest_part_bounds_the_issue() -> None:
    """30 instructions at 3 a cycle take 10; 15 vector ones on 2 pipes 7.5; 6 loads 6; 4 stores 4."""
    assert estimate_cycles(CALL, DEVICE).issue == 10


def test_misses_move_lines_at_the_bandwidth_of_the_next_level() -> None:
    """8 lines of 64 bytes at 32 bytes a cycle and 2 at 8."""
    assert estimate_cycles(CALL, DEVICE).memory == pytest.approx(8 * 2 + 2 * 8)
