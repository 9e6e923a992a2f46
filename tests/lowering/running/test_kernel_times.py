"""What a bundle says of its kernels, and their times in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.base.errors import BundleError
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.bundle.bundle import copy_bundle, read_manifest
from eqfuse.lowering.kernels.table import roofline
from eqfuse.lowering.plan.kernel_facts import KERNELS, read_table
from eqfuse.lowering.running.kernel_times import Breakdown, kernel_times
from eqfuse.support.errors import UsageError


def time_kernels(bundle: Path, repeat: int = 3) -> Breakdown:
    return kernel_times(bundle, random_inputs(read_manifest(bundle).inputs, 0), 1, repeat)


def test_table_counts_calls_multiply_adds_and_bytes(plain_bundle: Path) -> None:
    (facts,) = read_table(plain_bundle)
    assert facts.operators == ("MatMul", "Relu")
    assert facts.calls == 2
    assert facts.multiply_adds == 4 * 8 * 8
    assert facts.bytes == 4 * (4 * 8 + 8 * 8 + 4 * 8)
    assert facts.rule
    assert facts.roofline > 0


def test_the_manifest_guards_the_table(plain_bundle: Path) -> None:
    assert KERNELS in read_manifest(plain_bundle).files


def test_bundle_without_a_table_is_to_be_compiled_again(plain_bundle: Path, tmp_path: Path) -> None:
    copy_bundle(plain_bundle, tmp_path)
    (tmp_path / KERNELS).unlink()
    with pytest.raises(BundleError, match="compile the model again"):
        read_table(tmp_path)


def test_table_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / KERNELS).write_text('{"kernels": [{"symbol": "k"}]}')
    with pytest.raises(BundleError, match="no table of kernels"):
        read_table(tmp_path)


def test_roofline_is_the_longer_of_computing_and_moving() -> None:
    device = load_device("host")
    assert roofline(device.peak_flops, 0, device, 1) == pytest.approx(1.0)
    assert roofline(0, 1 << 10, device, 1) == pytest.approx((1 << 10) / device.bandwidth(1 << 10))


def test_roofline_of_several_threads_shares_the_work() -> None:
    device = load_device("host")
    assert roofline(device.peak_flops, 0, device, 2) == pytest.approx(0.5)


def test_every_kernel_is_timed(plain_bundle: Path) -> None:
    breakdown = time_kernels(plain_bundle)
    (kernel,) = breakdown.kernels
    assert 0 < kernel.per_call < kernel.seconds
    assert kernel.distance > 0
    assert breakdown.fallbacks == 0


def test_what_onnx_runtime_runs_is_counted_apart(mixed_bundle: Path) -> None:
    assert time_kernels(mixed_bundle).fallbacks > 0


def test_plain_loops_are_counted_apart(loops_bundle: Path) -> None:
    breakdown = time_kernels(loops_bundle)
    ((symbol, seconds),) = breakdown.loops.items()
    assert symbol.endswith("topk")
    assert 0 < seconds < breakdown.whole - breakdown.between


def test_not_timing_at_all_is_refused(plain_bundle: Path) -> None:
    with pytest.raises(UsageError, match="at least once"):
        time_kernels(plain_bundle, 0)
