"""The table of kernels and their times."""

from __future__ import annotations

import pytest

from eqfuse.cli.bench import operators_text, print_breakdown
from eqfuse.driver.bench import breakdown_as_dict
from eqfuse.lowering.kernels.table import KernelFacts
from eqfuse.lowering.running.kernel_times import Breakdown, KernelTime


def kernel(number: int, seconds: float, calls: int = 1) -> KernelTime:
    facts = KernelFacts(
        f"kernel_{number}_conv_relu", ("Conv", "Relu"), "window", calls, 10**6, 2 * 10**6, 4000, 1e-6, None
    )
    return KernelTime(facts, seconds)


def rows(found: Breakdown, most: int, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    print_breakdown("small", found, most)
    return [line.split() for line in capsys.readouterr().out.splitlines() if line]


def test_slowest_come_first_and_the_rest_is_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    found = Breakdown(10e-6, (kernel(0, 1e-6), kernel(1, 6e-6, calls=2), kernel(2, 2e-6)), 0.0)
    first = [row[0] for row in rows(found, 1, capsys)]
    assert first[3:6] == ["kernel_1", "2", "all"]


def test_a_row_has_the_time_of_a_call_its_share_and_its_distance(capsys: pytest.CaptureFixture[str]) -> None:
    row = rows(Breakdown(12e-6, (kernel(1, 6e-6, calls=2),), 0.0), 5, capsys)[3]
    assert row == ["kernel_1", "Conv", "Relu", "window", "2", "3.0", "50.0%", "1.00", "4", "1.0", "3.0"]


def test_what_is_spent_in_no_kernel_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    last = rows(Breakdown(10e-6, (kernel(0, 6e-6),), 1e-6), 5, capsys)[-2:]
    assert last == [["ONNX", "Runtime", "1.0", "10.0%"], ["between", "kernels", "3.0", "30.0%"]]


def test_long_lists_of_operators_are_cut() -> None:
    assert operators_text(["Add"] * 7) == "Add Add Add Add Add +2"


def test_plain_data_has_the_facts_and_the_times() -> None:
    (found,) = breakdown_as_dict(Breakdown(1e-5, (kernel(0, 6e-6, calls=3),), 0.0))["kernels"]
    assert found["symbol"] == "kernel_0_conv_relu"
    assert found["seconds_per_call"] == pytest.approx(2e-6)
