"""Attention block by block of keys: as by whole rows, with scores of a block only, and where it is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eqfuse.costmodels.device import Device
from eqfuse.lowering.base.decisions import Trace
from eqfuse.lowering.schedules import Draft, apply_rule
from eqfuse.lowering.schedules.intensive.product_chain import product_chain

from ....properties import examples
from ..functions import ARM, HOST, SERVER, count_multiply_adds, execute
from ..product_models import Case, attention, kept_bytes

Array = np.ndarray[Any, Any]
BLOCKS, WHOLE = ({"scores": way} for way in ("blocks of keys", "whole rows"))
KEYS = 320
INFINITE = np.float32(np.inf)
MASKS = {
    "none": np.zeros(KEYS),
    "the first half": np.where(np.arange(KEYS) < KEYS // 2, -INFINITE, 0),
    "all but one": np.where(np.arange(KEYS) == KEYS - 1, 0, -INFINITE),
    "all": np.full(KEYS, -INFINITE),
    "far below": np.where(np.arange(KEYS) < 100, -1e9, 0),
    "far apart": np.linspace(-1e4, 1e4, KEYS),
    "infinity": np.where(np.arange(KEYS) == 3, INFINITE, 0),
    "no number": np.where(np.arange(KEYS) == 100, np.nan, 0),
}


def chosen(case: Case) -> str:
    """How a case is scheduled for a device that is the same everywhere."""
    trace = Trace()
    assert apply_rule(product_chain, Draft.of(case.kernel[0], SERVER, 1, trace)) is not None
    return next((site.option.label for site in trace.sites if site.name == "scores"), "whole rows")


@pytest.mark.representatives(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "case",
    [
        attention(2, 64, 256, 32), attention(1, 50, 257, 16, mask=False), attention(3, 41, 320, 24),
        attention(1, 9, 577, 8),
    ],
)
def test_as_onnx_runtime(case: Case, threads: int) -> None:
    computed = execute(case.schedule(threads, wanted=BLOCKS), case.kernel[1])
    np.testing.assert_allclose(computed, case.reference(), rtol=2e-4, atol=2e-5)


@examples(4)
@given(
    heads=st.integers(1, 3), rows=st.integers(8, 60), keys=st.integers(256, 330), size=st.integers(8, 40),
    device=st.sampled_from([ARM, HOST, SERVER]),
)  # fmt: skip
@example(heads=2, rows=47, keys=263, size=16, device=ARM)
@example(heads=3, rows=41, keys=320, size=24, device=SERVER)
def test_any_size_for_vectors_of_any_width(heads: int, rows: int, keys: int, size: int, device: Device) -> None:
    case = attention(heads, rows, keys, size)
    by_blocks = execute(case.schedule(device=device, wanted=BLOCKS), case.kernel[1])
    np.testing.assert_allclose(by_blocks, case.reference(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("mask", MASKS)
def test_masks_as_by_whole_rows(mask: str) -> None:
    case = attention(2, 40, KEYS, 24)
    arrays = [
        MASKS[mask].astype(np.float32).reshape(array.shape) if array.shape == (1, 1, 1, KEYS) else array
        for array in case.kernel[1]
    ]
    by_blocks, by_rows = (execute(case.schedule(wanted=way), arrays) for way in (BLOCKS, WHOLE))
    np.testing.assert_allclose(by_blocks, by_rows, rtol=1e-5, atol=1e-6)


def test_scores_of_a_block_are_kept() -> None:
    case = attention(1, 64, 2048, 16)
    tile = {"rows": "32 rows", "block": "256 keys 32 rows"}
    by_blocks, by_rows = (kept_bytes(case.schedule(wanted=way | tile)) for way in (BLOCKS, WHOLE))
    assert by_blocks < by_rows / 2


def test_products_are_computed_once_and_added_up_once_for_a_block() -> None:
    scheduled = attention(2, 64, 512, 32).schedule(wanted={**BLOCKS, "block": "128 keys 64 rows"})
    assert count_multiply_adds(scheduled) == 2 * 64 * 512 * 32 * 2 + 2 * 64 * 4 * (32 + 1)


def test_of_odd_sizes_little_is_computed_twice() -> None:
    scheduled = attention(1, 577, 577, 32).schedule(wanted=BLOCKS)
    assert 1 <= count_multiply_adds(scheduled) / (577 * 577 * 32 * 2) < 1.2


def test_many_keys_are_taken_by_blocks_and_few_at_once() -> None:
    assert [chosen(attention(4, keys, keys, 64)) for keys in (128, 2048)] == ["whole rows", "blocks of keys"]


@pytest.mark.parametrize(("keys", "copies"), [(1024, 1), (577, 1), (480, 0)])
def test_keys_that_share_sets_of_the_cache_or_lie_across_its_lines_are_copied(keys: int, copies: int) -> None:
    case = attention(1, 32, keys, 64)
    text = str(case.schedule(device=SERVER, wanted=BLOCKS).schedule.mod["main"])
    assert text.count('T.sblock("MatMul_of_s_2_packed")') == copies
