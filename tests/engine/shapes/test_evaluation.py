"""Symbolic shapes and contents against what ONNX Runtime computes at several sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.floats import Ratio
from eqfuse.engine.shapes.inference import Knowledge, infer
from eqfuse.engine.shapes.site import is_unknown
from eqfuse.ir.sizes import Size, parse_size
from eqfuse.support.errors import ModelError

from ..models import model, value


@dataclass
class Graph:
    """A graph under construction: nodes, constants, and names of its values by what they are."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    maps: list[str] = field(default_factory=lambda: ["x"])
    vectors: list[str] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    reals: list[str] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, *numbers: int | float) -> str:
        dtype = np.float32 if any(isinstance(n, float) for n in numbers) else np.int64
        return self.store(np.asarray(numbers, dtype))

    def scalar(self, number: int) -> str:
        return self.store(np.asarray(number, np.int64))

    def store(self, array: np.ndarray[Any, Any]) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def element_type(self, name: str) -> int:
        """The type of a computed value."""
        if name in (*self.maps, *self.reals):
            return TensorProto.FLOAT
        return TensorProto.INT64 if name in (*self.vectors, *self.scalars) else TensorProto.BOOL


def pick(draw: st.DrawFn, values: list[str]) -> str:
    return draw(st.sampled_from(values))


def add_map(draw: st.DrawFn, g: Graph) -> None:
    """A feature map of rank 4 from others."""
    x = pick(draw, g.maps)
    integers = st.integers(0, 3)
    kind = draw(
        st.sampled_from(("MaxPool", "AveragePool", "Pad", "Slice", "Concat", "Resize", "Transpose", "Add", "Relu"))
    )
    if kind in ("MaxPool", "AveragePool"):
        kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        pad = draw(st.integers(0, kernel - 1))
        padding: dict[str, Any] = {"pads": [pad, 0, 0, pad]}
        if draw(st.booleans()):
            padding = {"auto_pad": draw(st.sampled_from(("SAME_UPPER", "VALID")))}
        elif draw(st.booleans()):
            padding["ceil_mode"] = 1
        g.maps.append(g.add(kind, x, kernel_shape=[kernel] * 2, strides=[stride] * 2, **padding))
    elif kind == "Pad":
        g.maps.append(
            g.add(kind, x, g.constant(0, 0, draw(integers), 0, 0, 0, draw(st.integers(-1, 2)), draw(integers)))
        )
    elif kind == "Slice":
        start, end = draw(st.integers(-3, 3)), draw(st.sampled_from((-2, -1, 1, 2, 5, 2**63 - 1)))
        bound = g.constant(end)
        if g.scalars and draw(st.booleans()):
            bound = g.add("Unsqueeze", pick(draw, g.scalars), g.constant(0))
            g.vectors.append(bound)
        axis, step = draw(st.integers(-2, 3)), draw(st.integers(1, 3))
        g.maps.append(g.add(kind, x, g.constant(start), bound, g.constant(axis), g.constant(step)))
    elif kind == "Concat":
        axis = draw(st.integers(0, 3))
        g.maps.append(g.add(kind, x, x, axis=axis))
    elif kind == "Resize":
        scales = [1.0, 1.0, draw(st.sampled_from((2.0, 0.5, 1.0, 3.0, 2.5))), draw(st.sampled_from((0.25, 2.0, 0.75)))]
        g.maps.append(g.add(kind, x, "", g.constant(*scales), mode="nearest"))
    elif kind == "Transpose":
        g.maps.append(g.add(kind, x, perm=draw(st.permutations(range(4)))))
    elif kind == "Add":
        g.maps.append(g.add(kind, x, pick(draw, g.maps)))
    else:
        g.maps.append(g.add(kind, x))


def add_scalar(draw: st.DrawFn, g: Graph) -> None:
    """A number that is computed from sizes."""
    kind = draw(
        st.sampled_from(
            ("Gather", "Size", "Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Where", "ReduceProd")
        )
    )
    if kind == "Size" or not g.scalars:
        g.scalars.append(g.add("Size", pick(draw, g.maps)))
    elif kind == "Gather" and g.vectors:
        g.scalars.append(g.add(kind, pick(draw, g.vectors), g.scalar(draw(st.integers(-1, 0))), axis=0))
    elif kind == "ReduceProd" and g.vectors:
        g.scalars.append(g.add(kind, pick(draw, g.vectors), keepdims=0))
    elif kind == "Neg":
        g.scalars.append(g.add(kind, pick(draw, g.scalars)))
    elif kind == "Where":
        one, other = pick(draw, g.scalars), pick(draw, g.scalars)
        order = draw(st.sampled_from(("Less", "Equal", "GreaterOrEqual")))
        g.scalars.append(g.add(kind, g.add(order, one, other), one, other))
    elif kind in ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"):
        small = draw(st.booleans())
        other = g.scalar(draw(st.integers(1, 4))) if small else pick(draw, g.scalars)
        if kind != "Mul" or small:  # products of products wrap around
            g.scalars.append(g.add(kind, pick(draw, g.scalars), other))


def add_real(draw: st.DrawFn, g: Graph) -> None:
    """A floating-point number that is computed from sizes, or an integer from that."""
    kinds = ("Mul", "Div", "Add", "Sub", "Floor", "Ceil", "Round", "Divide sizes", "Where", "Range", "back", "Cast")
    kind = draw(st.sampled_from(kinds)) if g.reals else "Cast"
    if kind == "Cast":
        if not g.scalars:
            add_scalar(draw, g)
        g.reals.append(g.add("Cast", pick(draw, g.scalars), to=TensorProto.FLOAT))
    elif kind == "back":
        g.scalars.append(g.add("Cast", pick(draw, g.reals), to=TensorProto.INT64))
    elif kind in ("Floor", "Ceil", "Round"):
        g.reals.append(g.add(kind, pick(draw, g.reals)))
    elif kind == "Divide sizes":
        g.reals.append(g.add("Div", pick(draw, g.reals), pick(draw, g.reals)))
    elif kind == "Where":
        one, other = pick(draw, g.reals), pick(draw, g.reals)
        g.reals.append(g.add(kind, g.add("Less", one, other), one, other))
    elif kind == "Range":
        g.add(kind, g.store(np.float32(0)), pick(draw, g.reals), g.store(np.float32(1)))
        g.reals.append(g.nodes[-1].output[0])
    elif g.reals:
        factor = g.store(np.float32(draw(st.sampled_from((0.5, 2, 3, 7, 0.75, 0.3, -1, 1.5, 0)))))
        g.reals.append(g.add(kind, pick(draw, g.reals), draw(st.sampled_from((factor, g.reals[-1])))))


def add_vector(draw: st.DrawFn, g: Graph) -> None:
    """A vector that is computed from sizes."""
    kind = draw(st.sampled_from(("Shape", "Slice", "Concat", "Unsqueeze", "Range", "Mul", "ConstantOfShape", "Expand")))
    if kind == "Shape" or not g.vectors:
        g.vectors.append(g.add("Shape", pick(draw, g.maps)))
    elif kind == "Slice":
        g.vectors.append(
            g.add(kind, pick(draw, g.vectors), g.constant(draw(st.integers(-2, 1))), g.constant(9), g.constant(0))
        )
    elif kind == "Concat":
        g.vectors.append(g.add(kind, pick(draw, g.vectors), pick(draw, g.vectors), axis=0))
    elif kind == "Unsqueeze" and g.scalars:
        g.vectors.append(g.add(kind, pick(draw, g.scalars), g.constant(0)))
    elif kind == "Range" and g.scalars:
        start, step = pick(draw, g.scalars), draw(st.sampled_from((1, 2, -1, -2)))
        g.scalars.append(g.add("Add", start, g.scalar(3 if step > 0 else -3)))
        g.vectors.append(g.add(kind, start, g.scalars[-1], g.scalar(step)))
    elif kind == "Mul":
        g.vectors.append(g.add(kind, pick(draw, g.vectors), g.constant(draw(st.integers(-1, 2)))))
    elif kind == "ConstantOfShape":
        g.vectors.append(
            g.add(kind, g.constant(2), value=numpy_helper.from_array(np.asarray([draw(st.integers(-1, 3))])))
        )
    elif kind == "Expand":
        g.vectors.append(g.add(kind, pick(draw, g.vectors), g.constant(1)))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph = Graph()
    for _ in range(draw(st.integers(3, 14))):
        draw(st.sampled_from((add_map, add_scalar, add_vector, add_real)))(draw, graph)
    source = pick(draw, graph.maps)
    graph.vectors.append(graph.add("Shape", source))
    graph.vectors.append(
        graph.add("Slice", graph.vectors[-1], graph.constant(0), graph.constant(draw(st.integers(1, 3))))
    )
    graph.vectors.append(graph.add("Concat", graph.vectors[-1], graph.constant(-1), axis=0))
    graph.maps.append(graph.add("Reshape", source, graph.vectors[-1]))
    return graph


SIZES = ((1, 5, 4), (2, 1, 3), (3, 8, 7), (2, 12, 9))


def run(proto: onnx.ModelProto, names: list[str], shape: tuple[int, ...]) -> dict[str, np.ndarray[Any, Any]]:
    """Every value that the runtime can compute at a size; {} if the model does not run at that size."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        return dict(zip(names, session.run(names, {"x": np.ones(shape, np.float32)}), strict=True))
    except Exception:  # sizes that do not fit, in any of the runtime's own kinds of errors
        return {}


def windows_fit(graph: Graph, values: dict[str, np.ndarray[Any, Any]]) -> bool:
    """Whether every window fits in its input: ONNX has no sizes for others, and the runtime sometimes computes some."""
    for node in graph.nodes:
        if node.op_type in ("MaxPool", "AveragePool"):
            settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            before, _, _, behind = settings.get("pads", (0, 0, 0, 0))
            height, width = values[node.input[0]].shape[2:]
            if settings["kernel_shape"][0] > min(height + before, width + behind):
                return False
    return True


def check(knowledge: Knowledge, values: dict[str, np.ndarray[Any, Any]], sizes: dict[str, int]) -> None:
    for name, array in values.items():
        shape = knowledge.symbolic.shapes.get(name)
        if shape is not None:
            assert [s if is_unknown(s) else s.value(sizes.__getitem__) for s in shape if s] == [
                s if is_unknown(s) else d for s, d in zip(shape, array.shape, strict=True) if s
            ], name
        content = knowledge.symbolic.contents.get(name)
        for element, number in zip(() if content is None else content.flat, array.flat, strict=False):
            expected: Any
            if isinstance(element, Ratio) and not is_unknown(element.numerator):
                expected = np.float32(element.numerator.value(sizes.__getitem__) / element.denominator)
                assert expected == number, (name, str(element))
            elif isinstance(element, bool) or (isinstance(element, Size) and not is_unknown(element)):
                expected = element if isinstance(element, bool) else element.value(sizes.__getitem__)
                assert expected == number, (name, str(element))
                assert number.dtype.kind != "f" or not np.signbit(number) or number, (name, str(element))
        type_ = knowledge.types.get(name)
        for dimension, size in zip((type_ and type_.shape) or (), array.shape, strict=False):
            symbolic = parse_size(dimension) if isinstance(dimension, str) and dimension != "?" else None
            assert dimension == size or symbolic is None or symbolic.value(sizes.__getitem__) == size


@given(graph=graphs(), fixed=st.booleans())
def test_sizes_and_contents_are_those_of_every_run(graph: Graph, fixed: bool) -> None:
    names = [node.output[0] for node in graph.nodes]
    outputs = [value(name, None, graph.element_type(name)) for name in names]
    proto = model(graph.nodes, [value("x", ["N", 2 if fixed else "C", "H", "W"])], outputs, graph.weights, opset=18)
    try:
        knowledge = infer(read(proto))
    except ModelError:  # ranks or fixed sizes that do not fit
        return
    for batch, height, width in SIZES:
        values = run(proto, names, (batch, 2, height, width))
        if values and windows_fit(graph, values | {"x": np.empty((batch, 2, height, width))}):
            check(knowledge, values, {"N": batch, "C": 2, "H": height, "W": width})
