"""Every level of x86-64 that this machine has, and all below: schedules made for it compute the same."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import pytest

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.target import target_of
from eqfuse.support.processor import X86

from .functions import check, convolution, layer_norm, matmul, pool

pytestmark = pytest.mark.skipif(platform.machine() != X86, reason="about x86-64")
FUNCTIONS: dict[str, tuple[str, Callable[[], Any]]] = {
    "convolution": ("contraction", lambda: convolution((1, 16, 7, 9), 32, 3, pad=1)),
    "depthwise": ("window", lambda: convolution((1, 32, 9, 9), 32, 3, pad=1, group=32)),
    "product": ("contraction", lambda: matmul(5, 24, 40)),
    "reduction": ("rows", lambda: layer_norm((6, 40))),
    "pool": ("window", lambda: pool((1, 16, 9, 9), 3, 2, 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_a_schedule_for_a_level_computes_the_same(level: str, name: str) -> None:
    target = target_of(level, threads=1)
    if target.missing:
        pytest.skip(f"this machine has no {', '.join(target.missing)}")
    rule, function = FUNCTIONS[name]
    check(function(), rule, load_device(level), target=target.description)
