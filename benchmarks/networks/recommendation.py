"""DLRM (Naumov et al. 2019) as MLPerf runs it on Criteo's terabyte data set, with shorter tables."""

from __future__ import annotations

from itertools import pairwise

import onnx
from onnx import TensorProto

from .folded import FoldedNetwork

NUMBERS = 13
_COLUMNS = 128
_BOTTOM = (NUMBERS, 512, 256, _COLUMNS)
_TOP = (1024, 1024, 512, 256)
_CATEGORIES = (
    39_884_406, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63, 38_532_951, 2_953_546, 403_346, 10, 2_208, 11_938,
    155, 4, 976, 14, 39_979_771, 25_641_295, 39_664_984, 585_935, 12_972, 108, 36,
)  # fmt: skip
"""Rows of the tables."""
ROWS = 40_000
"""Rows at most in a table. Which row is read does not change the work; 96 GB of tables become 226 MB."""


def dlrm(batch: int = 1) -> onnx.ModelProto:
    """Queries of 13 numbers and 26 categories to the probability of a click."""
    net = FoldedNetwork("dlrm")
    x = net.input("numbers", (batch, NUMBERS))
    categories = net.input("categories", (batch, len(_CATEGORIES)), TensorProto.INT64)
    for inputs, outputs in pairwise(_BOTTOM):
        x = _layer(net, x, inputs, outputs)
    x, width = _interaction(net, x, _embedded(net, categories), batch)
    for inputs, outputs in pairwise((width, *_TOP)):
        x = _layer(net, x, inputs, outputs)
    return net.model({net.add("Sigmoid", net.linear(x, _TOP[-1], 1)): (batch, 1)})


def _layer(net: FoldedNetwork, x: str, inputs: int, outputs: int) -> str:
    weight = net.weight(outputs, inputs, variance=2 / inputs)
    return net.relu(net.add("Gemm", x, weight, net.weight(outputs), transB=1))


def _embedded(net: FoldedNetwork, categories: str) -> list[str]:
    """A row of each table, (batch, 1, columns). Their variance gives products of two of them a variance of 1."""
    columns = net.split("Split", len(_CATEGORIES), categories, net.integers(*[1] * len(_CATEGORIES)), axis=1)
    tables = [net.weight(min(rows, ROWS), _COLUMNS, variance=_COLUMNS**-0.5) for rows in _CATEGORIES]
    return [net.add("Gather", table, column, axis=0) for table, column in zip(tables, columns, strict=True)]


def _interaction(net: FoldedNetwork, x: str, rows: list[str], batch: int) -> tuple[str, int]:
    """x beside the inner products of every two of x and the rows; and how many numbers that are."""
    count = len(rows) + 1
    stacked = net.concat(net.add("Unsqueeze", x, net.integers(1)), *rows)
    products = net.add("MatMul", stacked, net.add("Transpose", stacked, perm=[0, 2, 1]))
    flat = net.add("Reshape", products, net.integers(batch, count**2))
    below = [count * row + column for row in range(count) for column in range(row)]
    return net.concat(x, net.add("Gather", flat, net.integers(*below), axis=1)), _COLUMNS + len(below)
