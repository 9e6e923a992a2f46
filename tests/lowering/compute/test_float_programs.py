"""Floats are no real numbers: compiled code rounds each sum, and has NaN, infinities and zeros as IEEE 754 says.

TVM simplifies as if they were real (x + y - y, x * 0, x == x, "less or not less"), so that faults are in kernels of
several operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model

from ..in_tvm import Call, in_tvm

Array = np.ndarray
LENGTH = 64
NUMBERS = (0.0, -0.0, 1.0, -1.0, 12582912.0, 1e30, 0.1)
_ARITHMETIC = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Neg": np.negative, "Abs": np.abs,
    "Min": np.minimum, "Max": np.maximum, "PRelu": lambda x, slope: np.where(x < 0, x * slope, x),
    "LeakyRelu": lambda x: np.where(x < 0, x * np.float32(0), x),
    "Elu": lambda x: np.where(x < 0, np.float32(0) * (np.exp(x) - np.float32(1)), x),
    "HardSigmoid": lambda x: np.clip(x * np.float32(0) + np.float32(0.25), np.float32(0), np.float32(1)),
}  # fmt: skip
_ATTRIBUTES = {"LeakyRelu": {"alpha": 0.0}, "Elu": {"alpha": 0.0}, "HardSigmoid": {"alpha": 0.0, "beta": 0.25}}
_COMPARISONS = {
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
_LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Not": np.logical_not}
_FUNCTIONS: dict[str, Callable[..., Array]] = {**_ARITHMETIC, **_COMPARISONS, **_LOGIC, "Where": np.where}
_ONE_OPERAND = frozenset({"Neg", "Abs", "Not", *_ATTRIBUTES})
_FIRST_VARIES = frozenset({"PRelu"})
"""Operators whose result has the shape of the first operand."""


def _draw_inputs() -> dict[str, Array]:
    generator = np.random.default_rng(3)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e30, -1e30, 1e-30, 8388609.0, 0.3]
    random = generator.standard_normal(LENGTH) * 10.0 ** generator.integers(-9, 9, LENGTH)
    return {name: generator.permutation(np.array([*special, *random])[:LENGTH]).astype(np.float32) for name in "xy"}


INPUTS = _draw_inputs()


@dataclass(frozen=True)
class Program:
    """Operators, each with the names of its operands: inputs, written numbers, and earlier results r0, r1, ..."""

    steps: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def result(self) -> Array:
        """The last operator's value for the inputs, by numpy."""
        values: dict[str, Array] = {**INPUTS, **{str(n): np.array(n, np.float32) for n in NUMBERS}}
        with np.errstate(all="ignore"):
            for number, (op, operands) in enumerate(self.steps):
                values[f"r{number}"] = np.asarray(_FUNCTIONS[op](*(values[name] for name in operands)))
        return values[f"r{len(self.steps) - 1}"]


def draw_programs(seed: int, size: int) -> list[Program]:
    """Programs whose results depend on the inputs."""
    generator = np.random.default_rng(seed)
    programs: list[Program] = []
    while len(programs) < size:
        program = _draw_program(generator)
        if program.result.shape == (LENGTH,) and len(np.unique(program.result)) > 1:
            programs.append(program)
    return programs


def _draw_program(generator: np.random.Generator) -> Program:
    floats, truths, steps = ["x", "y", "x", "y"], list[str](), list[tuple[str, tuple[str, ...]]]()
    for number in range(generator.integers(2, 6)):
        ops = [*_ARITHMETIC, "Add", "Sub", "Sub", *_COMPARISONS, *(["Where", *_LOGIC] * 2 if truths else [])]
        op = str(generator.choice(ops))
        operands = truths if op in _LOGIC else [*floats, *floats, str(generator.choice(NUMBERS))]
        chosen = [str(generator.choice(truths if op in _LOGIC else floats))]
        if op not in _ONE_OPERAND:
            place = 1 if op in _FIRST_VARIES else int(generator.integers(2))
            chosen.insert(place, str(generator.choice(operands)))
        if op == "Where":
            chosen.insert(0, str(generator.choice(truths)))
        steps.append((op, tuple(chosen)))
        (truths if op in _COMPARISONS or op in _LOGIC else floats).extend([f"r{number}"] * 2)
    return Program(tuple(steps))


def model_of(programs: list[Program]) -> onnx.ModelProto:
    """A model with an output y0, y1, ... for each program; written numbers are its constants."""
    nodes, places = [], count()
    for number, program in enumerate(programs):
        names: dict[str, str] = {}
        for place, (op, read) in enumerate(program.steps):
            result = f"y{number}" if place == len(program.steps) - 1 else f"v{number}_{place}"
            operands = [names.get(name, name) for name in read]
            nodes.append(helper.make_node(op, operands, [result], f"n{next(places)}", **_ATTRIBUTES.get(op, {})))
            names[f"r{place}"] = result
    stored = [numpy_helper.from_array(np.array(n, np.float32), str(n)) for n in NUMBERS]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [LENGTH]) for name in INPUTS]
    outputs = [
        helper.make_tensor_value_info(f"y{n}", helper.np_dtype_to_tensor_dtype(program.result.dtype), [LENGTH])
        for n, program in enumerate(programs)
    ]
    graph = helper.make_graph(nodes, "programs", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_bits(programs: list[Program], immediates: bool) -> None:
    """The kernels give the numbers of numpy, and NaN where it has NaN; zeros have their sign but behind Min and Max, of
    which 0 and -0 are both results."""
    (results,) = in_tvm([Call(model_of(programs), INPUTS)], immediates)
    wrong = []
    for number, program in enumerate(programs):
        found, wanted = results[f"y{number}"], program.result
        is_nan = np.isnan(wanted) if wanted.dtype.kind == "f" else np.zeros(LENGTH, bool)
        pair = found[~is_nan], wanted[~is_nan]
        if wanted.dtype.kind == "f" and {op for op, _ in program.steps}.isdisjoint({"Min", "Max"}):
            pair = pair[0].view("u4"), pair[1].view("u4")
        same = found.dtype == wanted.dtype and np.array_equal(*pair)
        if not same or not np.isnan(found[is_nan]).all():
            wrong.append(program)
    assert not wrong, f"{len(wrong)} of {len(programs)} are wrong: {wrong[:3]}"


MAGIC = "12582912.0"
REPRESENTATIVES = [
    Program((("Add", ("x", MAGIC)), ("Sub", ("r0", MAGIC)))),
    Program((("Sub", (MAGIC, "x")), ("Sub", (MAGIC, "r0")))),
    Program((("Add", ("x", "y")), ("Sub", ("r0", "x")))),
    Program((("Add", ("x", "y")), ("Sub", ("x", "r0")))),
    Program((("Neg", ("x",)), ("Add", ("r0", "y")), ("Sub", ("r1", "y")))),
    Program((("Sub", ("x", "x")),)),
    Program((("Mul", ("x", "0.0")),)),
    Program((("Mul", ("-0.0", "x")),)),
    Program((("LeakyRelu", ("x",)),)),
    Program((("PRelu", ("x", "-0.0")),)),
    Program((("Elu", ("x",)),)),
    Program((("HardSigmoid", ("x",)), ("Add", ("r0", "y")))),
    Program((("Div", ("0.0", "x")),)),
    Program((("Div", ("x", "-0.0")),)),
    Program((("Div", ("x", "x")),)),
    Program((("Equal", ("x", "x")),)),
    Program((("LessOrEqual", ("x", "x")),)),
    Program((("Abs", ("x",)), ("GreaterOrEqual", ("r0", "r0")))),
    Program((("Less", ("x", "y")), ("GreaterOrEqual", ("x", "y")), ("Or", ("r0", "r1")))),
    Program((("Min", ("x", "1.0")), ("Max", ("-1.0", "r0")))),
    Program((("Max", ("x", "y")),)),
    Program((("Less", ("x", "0.0")), ("Not", ("r0",)))),
    Program((("Less", ("x", "y")), ("Where", ("r0", "x", "y")), ("Sub", ("r1", "x")))),
]
"""One for each thing that a compiler takes for granted of numbers."""


@pytest.mark.parametrize("immediates", [True, False])
def test_kernels_compute_floats(immediates: bool) -> None:
    assert_bits(REPRESENTATIVES, immediates)


@pytest.mark.conformance
@pytest.mark.parametrize("immediates", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_drawn_programs_compute_floats(seed: int, immediates: bool) -> None:
    assert_bits(draw_programs(seed, 100), immediates)


@pytest.mark.parametrize(
    "node",
    [
        "y = Conv (x, zero)", "y = ConvTranspose (x, zero)", "y = MatMul (x, zero)",
        "m = Flatten (x) k = Transpose (m) n = Gemm <alpha = 0.0> (k, m) y = Reshape (n, shape)",
        "m = Flatten (x) k = Transpose (m) o = Flatten (zero) n = Gemm (k, o) y = Reshape (n, small)",
    ],
)  # fmt: skip
def test_products_with_a_written_zero_are_not_numbers_where_an_operand_is_not_finite(node: str) -> None:
    model = parse_model(f"""<ir_version: 9, opset_import: ["": 18]>
        agraph (float[1,1,64,1] x) => (float[N,M,H,W] y)
        <float[1,1,1,1] zero = {{0}}, int64[4] shape = {{1,1,64,64}}, int64[4] small = {{1,1,64,1}}> {{ {node} }}""")
    x = INPUTS["x"].reshape(1, 1, 64, 1)
    with np.errstate(all="ignore"):
        wanted = (x * (x.reshape(1, 64) if "alpha" in node else 1)) * np.float32(0)
    (results,) = in_tvm([Call(model, {"x": x})], True)
    np.testing.assert_array_equal(np.isnan(results["y"]), np.isnan(wanted))
