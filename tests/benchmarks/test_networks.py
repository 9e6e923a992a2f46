"""The networks are what their papers say: valid, of the printed size, and with outputs that depend on the inputs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from eqfuse.benchmarks.networks import AGO, NETWORKS
from eqfuse.benchmarks.networks.folded import FoldedNetwork
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.operators.linear import depth
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs

from ..onnx_runtime import outputs_of

QUICK = tuple(name for name in NETWORKS if not name.endswith(("_112", "_224", "50")))
SLOW = tuple(name for name in NETWORKS if name not in QUICK)
PRODUCTS = ("Conv", "Gemm", "MatMul")
ALL = [*QUICK, *(pytest.param(name, marks=pytest.mark.conformance) for name in SLOW)]
MULTIPLY_ADDS = {
    "mobilenet_v2_224": 301e6,
    "mnasnet_224": 314e6,
    "squeezenet_224": 349e6,
    "shufflenet_v2_224": 145e6,
    "resnet50": 4.09e9,
    "efficientnet_b0": 386e6,
}
"""As torchvision documents its networks, which its weights are of."""


@cache
def built(name: str) -> onnx.ModelProto:
    return NETWORKS[name].build()


def outputs(model: onnx.ModelProto, seed: int) -> list[npt.NDArray[Any]]:
    return outputs_of(model, random_inputs(inputs_of(read(model)), seed))


def test_ago_has_four_convolutional_networks_at_three_sizes_and_two_more() -> None:
    families = [network.family for network in AGO.values()]
    assert len(set(families)) == 6
    assert sorted(families.count(family) for family in set(families)) == [1, 1, 3, 3, 3, 3]


@pytest.mark.parametrize("name", ALL)
def test_a_network_is_valid_and_its_outputs_depend_on_the_inputs(name: str) -> None:
    """The outputs have the declared shapes, and numbers of ordinary size."""
    onnx.checker.check_model(built(name), full_check=True)
    declared = [tuple(d.dim_value for d in value.type.tensor_type.shape.dim) for value in built(name).graph.output]
    results = outputs(built(name), 0)
    assert [array.shape for array in results] == declared
    for first, second in zip(results, outputs(built(name), 1), strict=True):
        largest = float(np.abs(first).max())
        assert 0.01 < largest < 100
        assert np.abs(first - second).max() > 0.003 * largest


@pytest.mark.representatives(3)
@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_multiply_adds_are_the_documented_ones(name: str) -> None:
    model = read(built(name))
    products = [o for o in operator_graph(model, infer(model)).operations if o.op in PRODUCTS]
    found = sum(o.output.elements * depth(o) for o in products)
    assert found == pytest.approx(MULTIPLY_ADDS[name], rel=0.02)


@pytest.mark.parametrize("name", QUICK)
def test_batch_normalisation_is_folded(name: str) -> None:
    assert "BatchNormalization" not in {node.op_type for node in built(name).graph.node}


def test_folding_gives_the_convolution_a_bias_and_no_node() -> None:
    net = FoldedNetwork("folded")
    x = net.conv(net.input("x", (1, 3, 8, 8)), 4, bias=False)
    assert net.norm(x) == x
    (node,) = net.nodes
    assert len(node.input) == 3
