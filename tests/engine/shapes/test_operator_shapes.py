"""Symbolic shapes and contents of single operators, and of declared sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.sizes import dimension_as_size

from ..models import model, value


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


@pytest.mark.parametrize(("op", "is_known"), [("Conv", True), ("ConvInteger", True), ("MaxPool", False)])
def test_a_convolution_has_room_for_its_window(op: str, is_known: bool) -> None:
    """Division rounds towards zero, which is down where what is divided is not negative."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1], strides=[4]),
        helper.make_node(op, ["p"] if op == "MaxPool" else ["p", "w"], ["c"], kernel_shape=[8], strides=[8]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "last"], ["size"]),
        helper.make_node("Sub", ["size", "most"], ["room"]),
        helper.make_node("Div", ["room", "steps"], ["y"]),
    ]
    weights = {name: np.asarray([number]) for name, number in {"last": 2, "most": 29, "steps": 32}.items()}
    weights["w"] = np.ones((4, 3, 8), np.uint8 if op == "ConvInteger" else np.float32)
    dtype = TensorProto.UINT8 if op == "ConvInteger" else TensorProto.FLOAT
    proto = model(nodes, [value("x", ["N", 3, "H"], dtype)], ["y", "c"], weights)
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


def test_what_broadcasts_again_has_the_same_size() -> None:
    names = [f"y{number}" for number in range(30)]
    nodes = [
        helper.make_node("Add", [before, other], [name])
        for before, other, name in zip(["x", *names], ["z", "x"] * 15, names, strict=False)
    ]
    shapes = infer(read(model(nodes, [value("x", ["A"]), value("z", ["B"])], names[-1:]))).symbolic.shapes
    assert shapes[names[-1]] == shapes[names[0]]


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


@pytest.mark.parametrize(("size", "kept"), [(3, 6), (8, 16), (9, 1), (17, 9), (40, 16)])
def test_a_bound_that_sizes_make_negative_counts_from_the_end(size: int, kept: int) -> None:
    """As a table of 16 relative positions is cut: `table[8 - H : 8 + H]`."""
    nodes = [
        helper.make_node("Shape", ["x"], ["h"]),
        helper.make_node("Sub", ["middle", "h"], ["start"]),
        helper.make_node("Add", ["middle", "h"], ["end"]),
        helper.make_node("Slice", ["table", "start", "end"], ["y"]),
    ]
    weights = {"middle": np.array([8]), "table": np.arange(16, dtype=np.float32)}
    shape = infer(read(model(nodes, [value("x", ["H"])], ["y"], weights))).types["y"].shape
    counted = dimension_as_size((shape or ("?",))[0])
    assert counted is not None
    assert counted.value(lambda name: size) == len(weights["table"][8 - size : 8 + size]) == kept


@pytest.mark.parametrize("size", range(1, 11))
def test_a_side_is_padded_to_a_multiple(size: int) -> None:
    """By `-H % 4`, as windows of attention are."""
    nodes = [
        helper.make_node("Shape", ["x"], ["h"]),
        helper.make_node("Neg", ["h"], ["n"]),
        helper.make_node("Mod", ["n", "four"], ["more"]),
        helper.make_node("Concat", ["zero", "more"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["y"]),
        helper.make_node("Reshape", ["y", "rows"], ["z"]),
    ]
    weights = {"four": np.array([4]), "zero": np.array([0]), "rows": np.array([-1, 4])}
    types = infer(read(model(nodes, [value("x", ["H"])], ["y", "z"], weights))).types
    for name, wanted in (("y", -(-size // 4) * 4), ("z", -(-size // 4))):
        counted = dimension_as_size((types[name].shape or ("?",))[0])
        assert counted is not None
        assert counted.value(lambda name: size) == wanted


@pytest.mark.parametrize("most", [3, 64])
def test_the_last_positions_of_at_most_so_many_are_all(most: int) -> None:
    """As XLM cuts `positions[-T:]` of `table[:T]`: a bound of 0 keeps all, and so does one before the first."""
    nodes = [
        helper.make_node("Shape", ["x"], ["t"]),
        helper.make_node("Neg", ["t"], ["start"]),
        helper.make_node("Slice", ["table", "zero", "t"], ["known"]),
        helper.make_node("Slice", ["known", "start", "end"], ["y"]),
        helper.make_node("Slice", ["x", "start", "end"], ["z"]),
    ]
    weights = {"zero": np.array([0]), "end": np.array([2**63 - 1]), "table": np.arange(most, dtype=np.float32)}
    types = infer(read(model(nodes, [value("x", ["T"])], ["y", "z"], weights))).types
    assert (types["y"].shape, types["z"].shape) == ((f"min({most}, T)",), ("T",))


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
