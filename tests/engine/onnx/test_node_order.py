"""Nodes in any order are sorted, in bodies too; a circle is named."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.support.errors import ModelError

from ...lowering.small_models import expected

TEXT = """<ir_version: 8, opset_import: ["": 17]> shuffled
    (float[N, 2] x, bool c) => (float[N, 2] y) <float[2] w = {0.5, 2}> {
        a = Mul(x, w)
        s = Sin(a)
        b = If(c) <
            then_branch = t () => (float[N, 2] q) { h = Relu(s) g = Neg(h) q = Add(g, a) },
            else_branch = e () => (float[N, 2] q) { h = Exp(s) q = Mul(h, s) }
        >
        d = Sub(b, s)
        y = Softmax(d)
    }"""
FEEDS = {"x": np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32), "c": np.array(True)}


def shuffled(seed: int) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT)
    generator = random.Random(seed)

    def shuffle(graph: GraphProto) -> None:
        nodes = list(graph.node)
        generator.shuffle(nodes)
        del graph.node[:]
        graph.node.extend(nodes)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    shuffle(attribute.g)

    shuffle(proto.graph)
    return proto


@pytest.mark.representatives(3)
@pytest.mark.parametrize("seed", range(5))
def test_nodes_in_any_order_are_optimised(seed: int) -> None:
    proto = shuffled(seed)
    before = proto.SerializeToString()
    result = eqfuse.optimize(proto)
    assert proto.SerializeToString() == before
    onnx.checker.check_model(result, full_check=True)
    wanted = expected(onnx.parser.parse_model(TEXT), FEEDS)["y"]
    np.testing.assert_allclose(expected(result, FEEDS)["y"], wanted, rtol=1e-5)


def test_a_file_of_unsorted_nodes_is_verified_and_inspected(tmp_path: Path) -> None:
    paths = tmp_path / "unsorted.onnx", tmp_path / "out.onnx"
    onnx.save(shuffled(0), paths[0])
    eqfuse.optimize(*paths)
    assert eqfuse.verify(*paths).status == "passed"
    assert eqfuse.verify(*paths[::-1]).status == "passed"
    assert eqfuse.inspect(paths[0]).summary.nodes == 10


@pytest.mark.conformance
def test_a_file_of_unsorted_nodes_is_compiled(tmp_path: Path) -> None:
    onnx.save(shuffled(0), tmp_path / "unsorted.onnx")
    eqfuse.compile(tmp_path / "unsorted.onnx", tmp_path / "bundle", threads=1, measure=False)
    wanted = expected(onnx.parser.parse_model(TEXT), FEEDS)["y"]
    np.testing.assert_allclose(eqfuse.load(tmp_path / "bundle").run(FEEDS)["y"], wanted, rtol=1e-5)


def test_what_a_body_reads_may_be_part_of_a_circle() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> circle (float[2] x, bool c) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] q) { q = Relu(z) },
            else_branch = e () => (float[2] q) { q = Exp(x) }
        >
        z = Neg(y)
    }"""
    with pytest.raises(ModelError, match=r"^circle: nodes read each other's results in a circle: .*'z' \(Neg\)"):
        read(onnx.parser.parse_model(text))
