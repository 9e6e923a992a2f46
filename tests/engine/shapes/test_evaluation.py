"""Symbolic shapes and contents against what ONNX Runtime computes at several sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from eqfuse.engine.onnx.inference import Knowledge, infer
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.floats import Ratio
from eqfuse.engine.shapes.site import is_unknown
from eqfuse.errors import ModelError
from eqfuse.ir.size_names import parse_size
from eqfuse.ir.sizes import Size

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
        scales = [1.0, 1.0, draw(st.sampled_from((2.0, 0.5, 1.0, 3.0))), draw(st.sampled_from((0.25, 2.0)))]
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


def test_a_strided_network_has_the_shapes_of_its_windows() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Slice", ["s", "two", "four"], ["hw"]),
        helper.make_node("Resize", ["p", "", "scales"], ["r"]),
        helper.make_node("Concat", ["r", "c"], ["y"], axis=1),
    ]
    weights = {
        "w": np.ones((8, 3, 3, 3), np.float32), "scales": np.asarray([1, 1, 2, 2], np.float32),
        "two": np.asarray([2]), "four": np.asarray([4]),
    }  # fmt: skip
    knowledge = infer(read(model(nodes, [value("x", ["N", 3, "H", "W"])], ["y", "hw"], weights)))
    assert knowledge.types["c"].shape == ("N", 8, "(H + 1)//2", "(W + 1)//2")
    assert knowledge.types["p"].shape == ("N", 8, "(H + 3)//4", "(W + 3)//4")
    assert [str(size) for size in knowledge.symbolic.contents["hw"]] == ["(H + 3)//4", "(W + 3)//4"]
    # both maps are joined, so that their sizes are equal
    assert knowledge.types["r"].shape == ("N", 8, "(H + 1)//2", "(W + 1)//2")
    assert knowledge.types["y"].shape == ("N", 16, "(H + 1)//2", "(W + 1)//2")


@pytest.mark.parametrize(("op", "is_known"), [("Conv", True), ("MaxPool", False)])
def test_a_convolution_has_room_for_its_window(op: str, is_known: bool) -> None:
    """Division rounds towards zero, which is down where what is divided is not negative."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1], strides=[4]),
        helper.make_node(op, ["p", "w"] if op == "Conv" else ["p"], ["c"], kernel_shape=[8], strides=[8]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "last"], ["size"]),
        helper.make_node("Sub", ["size", "most"], ["room"]),
        helper.make_node("Div", ["room", "steps"], ["y"]),
    ]
    weights = {name: np.asarray([number]) for name, number in {"last": 2, "most": 29, "steps": 32}.items()}
    weights["w"] = np.ones((4, 3, 8), np.float32)
    proto = model(nodes, [value("x", ["N", 3, "H"])], ["y", "c"], weights)
    (element,) = infer(read(proto)).symbolic.contents["y"]
    assert (str(element) == "(H + 3)//32 - 1") == is_known


@pytest.mark.parametrize(("most", "is_equal"), [(512, True), (2, True), (1, False)])
def test_a_row_for_each_of_at_most_so_many_positions(most: int, is_equal: bool) -> None:
    """Where positions are taken from a table, more than it has cannot be added."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["table", "zero", "s"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    weights = {"table": np.ones(most, np.float32), "zero": np.asarray([0])}
    knowledge = infer(read(model(nodes, [value("x", ["T"])], ["y"], weights)))
    assert (knowledge.types["y"].shape == ("T",)) == is_equal


@pytest.mark.parametrize(
    ("declared", "is_same"), [("(H + 1)//2", True), ("H/2", False), ("`H`", False), ("H-A", False)]
)
def test_declared_expressions_of_declared_names(declared: str, is_same: bool) -> None:
    """An input may have a dimension that follows from others; what only looks like that is a name."""
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1], strides=[2])
    join = helper.make_node("Add", ["y", "z"], ["s"])
    inputs = [value("x", [1, 1, "H"]), value("z", [declared])]
    knowledge = infer(read(model([pool, join], inputs, ["s"])))
    (_, _, halved), (size,) = knowledge.symbolic.shapes["y"], knowledge.symbolic.shapes["z"]
    assert str(halved) == "(H + 1)//2"
    assert (halved == size) == is_same


def test_free_sizes_that_broadcast_are_equal_or_one_is_1() -> None:
    """Scores over the positions that are past and new, and a bias as long as the mask."""
    inputs = [value("x", ["S", "A"]), value("z", ["B"]), value("v", ["B", 4])]
    nodes = [helper.make_node("Add", ["x", "z"], ["y"]), helper.make_node("MatMul", ["y", "v"], ["p"])]
    (_, longest) = infer(read(model(nodes[:1], inputs, ["y"]))).symbolic.shapes["y"]
    for a, b, wanted in ((1, 1, 1), (5, 5, 5), (1, 7, 7), (7, 1, 7), (0, 1, 0), (1, 0, 0), (0, 0, 0)):
        assert longest is not None
        assert longest.value({"A": a, "B": b}.__getitem__) == wanted
    demanded = infer(read(model(nodes, inputs, ["p"]))).types["y"].shape
    assert demanded == ("S", "B")


def test_unknown_dimensions_are_equal_to_nothing() -> None:
    add = helper.make_node("Identity", ["x"], ["y"])
    inputs = [value("x", ["?", -1, None]), value("z", ["?"])]
    knowledge = infer(read(model([add], inputs, ["y"])))
    assert knowledge.types["y"].shape == ("x.0", "x.1", "x.2")
    assert knowledge.types["z"].shape == ("z.0",)


def test_truth_values_are_no_sizes() -> None:
    """ONNX's checker lets a Tile be repeated so often."""
    tile, weights = helper.make_node("Tile", ["x", "often"], ["y"]), {"often": np.array([True, True])}
    type_ = infer(read(model([tile], [value("x", ["N", 3])], ["y"], weights))).types.get("y")
    assert type_ is None or type_.shape is None or set(type_.shape) == {"?"}


@pytest.mark.parametrize(
    ("factor", "rounding", "expected"),
    [(0.5, "Floor", "H//2"), (0.5, "Ceil", "(H + 1)//2"), (0.5, "", "H//2"), (3.0, "", "3*H"), (0.1, "Floor", None)],
)
def test_sizes_that_floating_point_numbers_scale(factor: float, rounding: str, expected: str | None) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "factor"], ["m"]),
        helper.make_node(rounding or "Identity", ["m"], ["r"]),
        helper.make_node("Cast", ["r"], ["t"], to=TensorProto.INT64),
        helper.make_node("Expand", ["one", "t"], ["y"]),
    ]
    weights = {"factor": np.float32([factor]), "one": np.ones(1, np.float32)}
    shape = infer(read(model(nodes, [value("x", ["H"])], ["y"], weights))).types["y"].shape
    assert shape == ((expected,) if expected else ("?",))


@pytest.mark.parametrize(("step", "expected"), [(-1, "max(1, 2*T) - 1"), (-3, "(max(1, 2*T) + 1)//3"), (0, "?")])
def test_positions_that_are_counted_backwards(step: int, expected: str) -> None:
    """As relative positions are: from T - 1 down to 1 - T."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Squeeze", ["s"], ["T"]),
        helper.make_node("Sub", ["T", "one"], ["start"]),
        helper.make_node("Neg", ["T"], ["limit"]),
        helper.make_node("Range", ["start", "limit", "step"], ["y"]),
    ]
    weights = {"one": np.asarray(1), "step": np.asarray(step)}
    knowledge = infer(read(model(nodes, [value("x", ["T"])], [value("y", [None], TensorProto.INT64)], weights)))
    assert knowledge.types["y"].shape == (expected,)


def test_frames_that_a_last_window_is_padded_to() -> None:
    """As audio codecs compute them: ceil((T - 4) / 4 + 1) windows, where T - 4 may be negative."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Sub", ["s", "reach"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["f", "four"], ["q"]),
        helper.make_node("Add", ["q", "one"], ["m"]),
        helper.make_node("Ceil", ["m"], ["c"]),
        helper.make_node("Cast", ["c"], ["t"], to=TensorProto.INT64),
        helper.make_node("Expand", ["one", "t"], ["y"]),
    ]
    weights = {"reach": np.array([4]), "four": np.float32([4]), "one": np.ones(1, np.float32)}
    assert infer(read(model(nodes, [value("x", ["T"])], ["y"], weights))).types["y"].shape == ("(T + 3)//4",)


def test_contents_that_are_the_same_for_all_sizes_are_constants() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "last"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["m"]),
        helper.make_node("Div", ["m", "n"], ["q"]),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.INT32),
    ]
    weights = {"last": np.asarray([-1]), "two": np.asarray([2])}
    knowledge = infer(read(model(nodes, [value("x", ["N", "H"])], [value("y", [1], TensorProto.INT32)], weights)))
    assert knowledge.constants["y"].tolist() == [2]
    assert knowledge.constants["y"].dtype == np.int32


def test_the_largest_of_a_free_axis_are_as_many_as_are_asked_for() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "places"])
    outputs = [value("y", None), value("places", None, TensorProto.INT64)]
    knowledge = infer(read(model([node], [value("x", ["N", "H"])], outputs, {"k": np.asarray([5])})))
    assert [knowledge.types[name].shape for name in ("y", "places")] == [("N", 5)] * 2
    assert dict(knowledge.symbolic.equations.lowest) == {"H": 5}
