"""ONNX Runtime's LSTM of weights of 8 bits as one kernel: its states are rounded before each step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.costmodels.device import Device, load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels, KernelFunction
from eqfuse.lowering.kernels.steps import Kernel
from eqfuse.lowering.schedules import schedule

from ...onnx_runtime import outputs_of
from ..small_models import graph_of, saved

TARGETS = [target for target in (target_of(name, 1) for name in ("host", "x86-64-v3")) if not target.missing]
"""Those whose code this machine runs."""


@dataclass(frozen=True)
class Network:
    """An LSTM, and what it is given: ``b`` (a bias), ``s`` (states), ``z`` (zero points), ``c`` (a scale a column).

    ``p``: peepholes, a clip and other activations. ``l``: lengths of the sequences, for which there is no kernel.
    """

    steps: int
    batch: int
    inputs: int
    units: int
    directions: int = 1
    parts: str = ""

    @property
    def model(self) -> onnx.ModelProto:
        """With weights that differ everywhere."""
        generator, columns, count = np.random.default_rng(3), 4 * self.units, self.directions
        listed = (count, columns) if "c" in self.parts else (count,)
        stored: dict[str, np.ndarray[Any, Any]] = {
            "w": generator.integers(-128, 128, (count, self.inputs, columns)).astype(np.int8),
            "r": generator.integers(-128, 128, (count, self.units, columns)).astype(np.int8),
            "ws": generator.uniform(0.002, 0.01, listed).astype(np.float32),
            "rs": generator.uniform(0.002, 0.01, listed).astype(np.float32),
            "wz": np.full(listed, 3 if "z" in self.parts else 0, np.int8),
            "rz": np.full(listed, -5 if "z" in self.parts else 0, np.int8),
            "b": generator.standard_normal((count, 2 * columns)).astype(np.float32),
            "h": generator.uniform(-1, 1, (count, self.batch, self.units)).astype(np.float32),
            "c": generator.standard_normal((count, self.batch, self.units)).astype(np.float32),
        }
        if "l" in self.parts:
            stored["l"] = np.arange(1, self.batch + 1, dtype=np.int32)
        if "p" in self.parts:
            stored["p"] = generator.standard_normal((count, 3 * self.units)).astype(np.float32)
        other: dict[str, Any] = {}
        if "p" in self.parts:
            other = {"clip": 0.7, "activations": ["HardSigmoid", "Tanh", "Softsign"] * count}
        states = ["h", "c"] if "s" in self.parts else ["", ""]
        bias, lengths, peepholes = (name if name in self.parts else "" for name in "blp")
        names = ["x", "w", "r", bias, lengths, *states, peepholes, "ws", "wz", "rs", "rz"]
        way = "bidirectional" if count > 1 else "forward"
        node = helper.make_node(
            "DynamicQuantizeLSTM", names, ["y", "last", "cell"], domain="com.microsoft", hidden_size=self.units,
            direction=way, **other,
        )  # fmt: skip
        last = [count, self.batch, self.units]
        shapes = {"y": [self.steps, *last], "last": last, "cell": last}
        graph = helper.make_graph(
            [node], "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.steps, self.batch, self.inputs])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
            [numpy_helper.from_array(array, name) for name, array in stored.items() if name in names],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def kernel(self) -> KernelFunction:
        """The one kernel of the network, with the names of what it reads."""
        function = DistinctKernels.of(graph_of(self.model), [(0,)], Weights(read(self.model))).lower(Kernel((0,)))
        assert isinstance(function, KernelFunction)
        return function


NETWORKS = [
    Network(4, 1, 8, 32, parts="b"),
    Network(3, 3, 10, 22, directions=2, parts="bsc"),
    Network(3, 5, 6, 19, directions=2, parts="z"),
    Network(1, 2, 4, 3, parts="sz"),
    Network(3, 2, 8, 16, directions=2, parts="bp"),
]


def check(network: Network, device: Device, description: dict[str, Any]) -> None:
    """Compare a kernel with ONNX Runtime."""
    function = network.kernel()
    scheduled = schedule(function.prim_func.with_attr("global_symbol", "main"), device, 1)
    assert "recurrence" in scheduled.rule
    code = build(scheduled.schedule.mod, tvm.target.Target(description))
    x = np.random.default_rng(5).standard_normal((network.steps, network.batch, network.inputs)).astype(np.float32)
    graph, stored = graph_of(network.model), Weights(read(network.model))
    names = [graph.values[value].name for value in function.inputs]
    operands = [x if name == "x" else stored[name] for name in names]
    for repack in scheduled.repack:
        operands[repack.parameter] = repack(operands[repack.parameter])
    expected = outputs_of(network.model, {"x": x})
    results = [tvm.runtime.tensor(np.zeros_like(array)) for array in expected]
    code["main"](*map(tvm.runtime.tensor, operands), *results)
    for result, wanted in zip(results, expected, strict=True):
        assert len(np.unique(wanted)) > 2
        np.testing.assert_allclose(result.numpy(), wanted, atol=2e-6)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("network", NETWORKS[:2], ids=str)
def test_a_rounded_recurrence_gives_what_onnx_runtime_gives(network: Network, target: Any) -> None:
    check(network, target.device, target.description)


@pytest.mark.conformance
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("network", NETWORKS[2:], ids=str)
def test_rounded_recurrences_of_all_forms_do(network: Network, target: Any) -> None:
    check(network, target.device, target.description)


def test_rounded_states_are_multiplied_by_dot_products() -> None:
    description = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "icelake-server", "num-cores": 1}
    words = replace(load_device("x86-64-v4"), dot_product="vpdpbusd")
    arm = target_of("arm-cortex-a76", 1)
    for device, given, instruction in ((words, description, "vpdpbusd"), (arm.device, arm.description, "sdot")):
        main = NETWORKS[0].kernel().prim_func.with_attr("global_symbol", "main")
        code = build(schedule(main, device, 1).schedule.mod, tvm.target.Target(given)).mod.inspect_source("asm")
        assert code.count(f"\t{instruction}\t") >= 16


def test_what_is_left_to_onnx_runtime_does_not_saturate(tmp_path: Path) -> None:
    """It would without VNNI, and verification, which compares with exact products, would refuse the model.

    On several threads ONNX Runtime rounds the states of each thread's sequences by a range of their own.
    """
    network = Network(4, 3, 8, 32, parts="bl")
    path = saved(network.model, tmp_path / "network.onnx")
    eqfuse.compile(path, tmp_path / "build", measure=False, threads=1)
    model = eqfuse.load(tmp_path / "build")
    assert [entry.operators for entry in model.manifest.fallbacks] == [("DynamicQuantizeLSTM",)]
    x = np.random.default_rng(5).standard_normal((4, 3, 8)).astype(np.float32)
    for result, wanted in zip(model.run({"x": x}).values(), outputs_of(network.model, {"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, atol=2e-6)
