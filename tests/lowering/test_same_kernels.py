"""The promise of the pipeline: the kernels of the partition, of its certificate, and of the bundle are the same sets of
operators, by every method and for every target."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.driver.compiler.accelerator import AcceleratorKernels
from eqfuse.driver.compiler.compilation import kernels_of
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.choices import PartitionMethod
from eqfuse.extract.partition.annotations.certificate import certificate_of
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.plan.kernel_facts import KERNELS

from .small_models import model, saved, weights

Sets = set[frozenset[str]]
TARGETS = ("host", "arm-cortex-a76")
CUT: tuple[PartitionMethod, ...] = tuple(method for method in get_args(PartitionMethod) if method != "none")


def network() -> onnx.ModelProto:
    """A shuffled inverted residual of two branches, a classifier of its features, and attention over them."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], group=32, pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "groups"], ["d"]),
        helper.make_node("Transpose", ["d"], ["e"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["e", "planes"], ["f"]),
        helper.make_node("Split", ["f"], ["f1", "f2"], axis=1),
        helper.make_node("Conv", ["f1", "w3"], ["g1"]),
        helper.make_node("Conv", ["f2", "w5"], ["g2"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["g1", "g2"], ["g"], axis=1),
        helper.make_node("Add", ["g", "x"], ["h"]),
        helper.make_node("Reshape", ["h", "rows"], ["q"]),
        helper.make_node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["k", "q"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "k"], ["y"]),
        helper.make_node("Clip", ["h", "low", "high"], ["i"]),
        helper.make_node("GlobalAveragePool", ["i"], ["j"]),
        helper.make_node("Flatten", ["j"], ["l"]),
        helper.make_node("MatMul", ["l", "w4"], ["z"]),
    ]
    stored = {
        "w1": weights(32, 16, 1, 1), "w2": weights(32, 1, 3, 3), "w3": weights(8, 16, 1, 1), "w4": weights(16, 10),
        "w5": weights(8, 16, 3, 3),
        "groups": np.array([1, 2, 16, 8, 8]), "planes": np.array([1, 32, 8, 8]), "rows": np.array([1, 16, 64]),
        "low": np.float32(0.0), "high": np.float32(6.0),
    }  # fmt: skip
    return model(nodes, {"x": (1, 16, 8, 8)}, {"y": (1, 64, 16), "z": (1, 10)}, **stored)


def steps(bundle: Path, kinds: Collection[str] = ("kernel", "fallback", "view")) -> Sets:
    """The operators of each step of a bundle."""
    table = json.loads((bundle / KERNELS).read_text(encoding="utf-8"))
    return {frozenset(step["operators"]) for step in table["steps"] if step["kind"] in kinds}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", CUT)
def test_what_is_decided_is_what_is_compiled(method: PartitionMethod, target: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    options = {"threads": 1, "partition": method, "verify": False, "measure": False}
    compiled = eqfuse.compile(network(), bundle, target=target, **options)
    assert compiled.result is not None
    partitioned = compiled.result.partition
    assert partitioned is not None
    decided = {frozenset(names) for names in certificate_of(partitioned.partition).groups}
    assert steps(bundle) == decided
    origin = read_manifest(bundle).provenance
    assert origin.kernels == len(partitioned.kernels) == len(steps(bundle, ("kernel", "fallback")))
    drawn = partitioned.drawn.count if partitioned.drawn is not None else 0
    assert (origin.groups, origin.as_drawn) == (drawn, partitioned.as_drawn if drawn else 0)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("method", CUT)
def test_layers_of_an_accelerator_are_the_groups(method: PartitionMethod) -> None:
    options = Options(verify=False, partition=method, intensive=False)
    result = optimize_model(network(), None, options, lowering=AcceleratorKernels())
    assert result.partition is not None
    graph, layers = kernels_of(result)
    names = {frozenset(graph.operators[m].name for m in layer) for layer in layers}
    decided = {frozenset(group) for group in certificate_of(result.partition.partition).groups}
    assert decided <= names
    assert all(name.startswith("copy of ") for layer in names - decided for name in layer)


@pytest.mark.parametrize("functions", [False, True])
def test_a_recorded_partition_is_compiled_as_it_is(functions: bool, tmp_path: Path) -> None:
    file, certificate = tmp_path / "recorded.onnx", tmp_path / "certificate.json"
    source = saved(network(), tmp_path / "model.onnx")
    eqfuse.optimize(
        source, file, partition="fuseops", as_functions=functions, certificate=certificate, device="host", verify=False
    )
    eqfuse.compile(file, tmp_path / "bundle", threads=1, verify=False, measure=False)
    groups = json.loads(certificate.read_text(encoding="utf-8"))["groups"]
    assert steps(tmp_path / "bundle") == {frozenset(group["operators"]) for group in groups}
    origin = read_manifest(tmp_path / "bundle").provenance
    assert (origin.partition, origin.as_drawn) == ("fuseops", origin.groups)
