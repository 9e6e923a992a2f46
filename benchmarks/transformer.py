"""How long a deep transformer takes to saturate and extract.

Builds a GPT-2-like decoder whose LayerNorm and GELU are spelled out (54 operators a layer), rewrites it, and prints
operators, e-nodes, seconds by phase and what was proven.

    python benchmarks/transformer.py --layers 46 --repeat 5
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import eqfuse

LENGTH, WIDTH, HEADS = 64, 128, 4


@dataclass
class Builder:
    """Collects nodes and weights; every method returns the name of the value it made."""

    generator: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """One node."""
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))  # type: ignore[arg-type]
        return output

    def constant(self, values: object, kind: type = np.float32) -> str:
        """One stored constant."""
        name = f"c_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def weight(self, *shape: int, around: float = 0.0) -> str:
        """One random weight."""
        scale = 0.5 / np.sqrt(shape[0])
        return self.constant(around + scale * self.generator.standard_normal(shape))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """x w + b."""
        return self.add("Add", self.add("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def norm(self, x: str) -> str:
        """LayerNorm, spelled out."""
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1], keepdims=1))
        variance = self.add("ReduceMean", self.add("Pow", centred, self.constant(2.0)), axes=[-1], keepdims=1)
        scaled = self.add("Div", centred, self.add("Sqrt", self.add("Add", variance, self.constant(1e-5))))
        return self.add("Add", self.add("Mul", scaled, self.weight(WIDTH, around=1.0)), self.weight(WIDTH))

    def gelu(self, x: str) -> str:
        """GELU by tanh, spelled out."""
        cubic = self.add("Mul", self.add("Pow", x, self.constant(3.0)), self.constant(0.044715))
        inner = self.add("Mul", self.add("Add", x, cubic), self.constant(0.7978845608))
        outer = self.add("Add", self.add("Tanh", inner), self.constant(1.0))
        return self.add("Mul", self.add("Mul", x, self.constant(0.5)), outer)

    def heads(self, x: str, perm: list[int]) -> str:
        """(1, length, width) to heads."""
        shape = self.constant([1, LENGTH, HEADS, WIDTH // HEADS], np.int64)
        return self.add("Transpose", self.add("Reshape", self.linear(x, WIDTH, WIDTH), shape), perm=perm)

    def attention(self, x: str, mask: str) -> str:
        """Self-attention with three separate projections."""
        query, key, value = (self.heads(x, perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.add("Div", self.add("MatMul", query, key), self.constant(np.sqrt(WIDTH / HEADS)))
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = self.add("Reshape", mixed, self.constant([1, LENGTH, WIDTH], np.int64))
        return self.linear(joined, WIDTH, WIDTH)

    def layer(self, x: str, mask: str) -> str:
        """One decoder layer."""
        x = self.add("Add", x, self.attention(self.norm(x), mask))
        hidden = self.gelu(self.linear(self.norm(x), WIDTH, 4 * WIDTH))
        return self.add("Add", x, self.linear(hidden, 4 * WIDTH, WIDTH))


def transformer(layers: int) -> onnx.ModelProto:
    """The whole model, opset 17, with random weights."""
    builder = Builder(np.random.default_rng(0))
    x = "x"
    for _ in range(layers):
        x = builder.layer(x, "mask")
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, LENGTH, WIDTH]),
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, LENGTH, LENGTH]),
    ]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, LENGTH, WIDTH])]
    graph = helper.make_graph(builder.nodes, "transformer", inputs, outputs, builder.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=46, help="decoder layers (default 46: 2,484 operators)")
    parser.add_argument("--repeat", type=int, default=5, help="runs, of which the median counts (default 5)")
    arguments = parser.parse_args()
    model = transformer(arguments.layers)
    results = [eqfuse.optimize_with_result(model, verify=False) for _ in range(arguments.repeat)]
    last = results[-1]
    print(f"{last.before.layers} operators -> {last.after.layers}; {last.classes} e-classes, {last.enodes} e-nodes")
    print(f"{last.saturation.stop_reason} after {last.saturation.iterations} iterations; {last.extraction.status}")
    for phase in last.phases:
        print(f"{phase:10} {statistics.median(r.phases[phase] for r in results):.3f} s")
    both = statistics.median(r.phases["saturate"] + r.phases["extract"] for r in results)
    print(f"saturate and extract: {both:.3f} s")


if __name__ == "__main__":
    main()
