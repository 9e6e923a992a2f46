"""Names cut down to the end that tells them apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.tools.explain.readable import shorten


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["/m/query/MatMul_output_0"], ["MatMul_output_0"]),
        (["/m/query/MatMul", "/m/key/MatMul"], ["query/MatMul", "key/MatMul"]),
        (["m.query.bias", "m.key.bias"], ["query.bias", "key.bias"]),
        (["layer.0", "layer.1"], ["layer.0", "layer.1"]),
        (["x", "a/x"], ["x", "a/x"]),
        (["onnx::MatMul_273"], ["onnx::MatMul_273"]),
        (["", "/"], ["", "/"]),
    ],
)
def test_the_shortest_end_of_its_own(names: list[str], short: list[str]) -> None:
    assert list(shorten(names).values()) == short


@given(st.lists(st.text(alphabet="ab/.0", max_size=8)))
def test_no_two_names_become_one(names: list[str]) -> None:
    ends = shorten(names)
    assert len(set(ends.values())) == len(set(names))
    assert all(name.endswith(short) for name, short in ends.items())
