"""Random small models with bodies: nested Ifs and Loops over matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import onnx
from onnx import TensorProto, helper

SHAPE = (2, 3)
_UNARY = ("Relu", "Neg", "Identity", "Abs", "Tanh")
_BINARY = ("Add", "Mul", "Max", "Sub")


@dataclass
class Scope:
    """The values that nodes of a graph may read, and the nodes."""

    matrices: list[str]
    conditions: list[str]
    counts: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(list(self.matrices), list(self.conditions), list(self.counts))


def matrix(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)


class Builder:
    """Draws a model by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def model(self) -> onnx.ModelProto:
        scope = Scope(["x", "y"], ["c", "d"], ["n"])
        self.fill(scope, depth=2, count=self.random.randint(2, 4))
        outputs = [self.copy(scope, name) for name in scope.matrices[-self.random.randint(1, 3) :]]
        inputs = [matrix("x"), matrix("y")]
        inputs += [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("c", "d")]
        inputs += [helper.make_tensor_value_info("n", TensorProto.INT64, [])]
        infos = [matrix(name) for name in outputs]
        graph = helper.make_graph(scope.nodes, "random", inputs, infos)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def copy(self, scope: Scope, value: str) -> str:
        name = self.name()
        scope.nodes.append(helper.make_node("Neg", [value], [name]))
        return name

    def fill(self, scope: Scope, depth: int, count: int) -> None:
        for _ in range(count):
            draw = self.random.random()
            if depth and draw < 0.3:
                self.add_if(scope, depth - 1)
            elif depth and draw < 0.6:
                self.add_loop(scope, depth - 1)
            else:
                self.add_simple(scope)

    def add_simple(self, scope: Scope) -> None:
        name = self.name()
        draw = self.random.random()
        if draw < 0.15:
            value = helper.make_tensor(name, TensorProto.FLOAT, SHAPE, [self.random.choice((0.0, 1.0, 0.5))] * 6)
            scope.nodes.append(helper.make_node("Constant", [], [name], value=value))
        elif draw < 0.25:
            if self.random.random() < 0.3:
                value = helper.make_tensor(name, TensorProto.BOOL, [], [self.random.random() < 0.5])
                scope.nodes.append(helper.make_node("Constant", [], [name], value=value))
            else:
                scope.nodes.append(helper.make_node("Not", [self.random.choice(scope.conditions)], [name]))
            scope.conditions.append(name)
            return
        elif draw < 0.6:
            operand = self.random.choice(scope.matrices)
            scope.nodes.append(helper.make_node(self.random.choice(_UNARY), [operand], [name]))
        else:
            operands = [self.random.choice(scope.matrices) for _ in range(2)]
            scope.nodes.append(helper.make_node(self.random.choice(_BINARY), operands, [name]))
        scope.matrices.append(name)

    def results(self, scope: Scope, count: int) -> list[str]:
        """Values that a body returns: an Identity of any, for a body must compute what it returns."""
        names = []
        for _ in range(count):
            names.append(self.name())
            scope.nodes.append(helper.make_node("Identity", [self.random.choice(scope.matrices[-4:])], [names[-1]]))
        return names

    def add_if(self, scope: Scope, depth: int) -> None:
        count = self.random.randint(1, 2)
        bodies = {}
        for attribute in ("then_branch", "else_branch"):
            inner = scope.inner()
            self.fill(inner, depth, self.random.randint(1, 3))
            names = self.results(inner, count)
            bodies[attribute] = helper.make_graph(inner.nodes, attribute, [], [matrix(n) for n in names])
        outputs = [self.name() for _ in range(count)]
        scope.nodes.append(helper.make_node("If", [self.random.choice(scope.conditions)], outputs, **bodies))
        scope.matrices += outputs

    def add_loop(self, scope: Scope, depth: int) -> None:
        inner = scope.inner()
        states = [self.name() for _ in range(self.random.randint(0, 2))]
        scans = self.random.randint(0 if states else 1, 1)
        iteration, going = self.name(), self.name()
        inner.matrices += states
        inner.conditions.append(going)
        self.fill(inner, depth, self.random.randint(1, 3))
        condition = self.name()
        inner.nodes.append(helper.make_node("Identity", [self.random.choice(inner.conditions)], [condition]))
        names = self.results(inner, len(states) + scans)
        inputs = [
            helper.make_tensor_value_info(iteration, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            *(matrix(state) for state in states),
        ]
        outputs = [helper.make_tensor_value_info(condition, TensorProto.BOOL, []), *(matrix(n) for n in names)]
        body = helper.make_graph(inner.nodes, "body", inputs, outputs)
        limit = self.random.choice(("n", "n", str(self.random.randint(0, 2))))
        if limit != "n":
            name = self.name()
            value = helper.make_tensor(name, TensorProto.INT64, [], [int(limit)])
            scope.nodes.append(helper.make_node("Constant", [], [name], value=value))
            limit = name
        start = self.random.choice(("", *scope.conditions))
        initial = [self.random.choice(scope.matrices) for _ in states]
        outputs_names = [self.name() for _ in names]
        scope.nodes.append(helper.make_node("Loop", [limit, start, *initial], outputs_names, body=body))
        for scanned in outputs_names[len(states) :]:
            axes, summed = self.name(), self.name()
            value = helper.make_tensor(axes, TensorProto.INT64, [1], [0])
            scope.nodes.append(helper.make_node("Constant", [], [axes], value=value))
            scope.nodes.append(helper.make_node("ReduceSum", [scanned, axes], [summed], keepdims=0))
            scope.matrices.append(summed)
        scope.matrices += outputs_names[: len(states)]
