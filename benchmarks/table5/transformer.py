"""How long a deep transformer takes to saturate and extract.

Builds a GPT-2-like decoder whose LayerNorm and GELU are spelled out (53 operators a layer), rewrites it, and prints
operators, e-nodes, seconds by phase and what was proven.

    python benchmarks/table5/transformer.py --layers 46 --repeat 5
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import onnx

import eqfuse
from eqfuse.benchmarks.table5.network import Network

LENGTH, WIDTH, HEADS = 64, 128, 4


class Decoder(Network):
    """The network and its layers."""

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """x w + b."""
        return self.add("Add", self.add("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def layer_norm(self, x: str) -> str:
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
        shape = self.integers(1, LENGTH, HEADS, WIDTH // HEADS)
        return self.add("Transpose", self.add("Reshape", self.dense(x, WIDTH, WIDTH), shape), perm=perm)

    def attention(self, x: str, mask: str) -> str:
        """Self-attention with three separate projections."""
        query, key, value = (self.heads(x, perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.add("Div", self.add("MatMul", query, key), self.constant(np.sqrt(WIDTH / HEADS)))
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.dense(self.add("Reshape", mixed, self.integers(1, LENGTH, WIDTH)), WIDTH, WIDTH)

    def layer(self, x: str, mask: str) -> str:
        """One decoder layer."""
        x = self.add("Add", x, self.attention(self.layer_norm(x), mask))
        hidden = self.gelu(self.dense(self.layer_norm(x), WIDTH, 4 * WIDTH))
        return self.add("Add", x, self.dense(hidden, 4 * WIDTH, WIDTH))


def transformer(layers: int) -> onnx.ModelProto:
    """The whole model, opset 17, with random weights."""
    net = Decoder("transformer")
    x, mask = net.input("x", (1, LENGTH, WIDTH)), net.input("mask", (1, 1, LENGTH, LENGTH))
    for _ in range(layers):
        x = net.layer(x, mask)
    return net.model({x: (1, LENGTH, WIDTH)}, opset=17)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=46, help="decoder layers (default 46: 2,438 operators)")
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
