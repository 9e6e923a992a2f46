"""Chains of integer operators at the ends of their types, and their results in two's complement by Python's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LENGTH = 96
"""Elements of an input: all extreme values, and as many random ones; several vectors of a register and a rest."""
OPSET = 18
MOST_OPERATORS = 4


@dataclass(frozen=True)
class Step:
    """An operator of the chain's value, and of further operands: names of inputs or numbers of the same type."""

    op: str
    operands: tuple[str | int | None, ...] = ()
    attributes: tuple[tuple[str, int | str], ...] = ()
    swaps: bool = False
    """Whether the chain's value is the second operand."""


@dataclass(frozen=True)
class Chain:
    """Operators one behind the other, from the input of its type on."""

    dtype: str
    steps: tuple[Step, ...]

    @cached_property
    def result(self) -> Array:
        """The values of the chain for the inputs."""
        value = INPUTS[f"x_{self.dtype}"]
        for step in self.steps:
            value = _apply(step, value)
        return value

    def depends_on_inputs(self) -> bool:
        """Whether the elements of the result differ."""
        return len(np.unique(self.result)) > 1


def extremes(dtype: str) -> list[int]:
    """The numbers of a type beside which arithmetic goes wrong."""
    limits = np.iinfo(dtype)
    powers = [1 << bit for bit in (limits.bits // 2 - 1, limits.bits // 2, limits.bits - 2, limits.bits - 1)]
    near = [sign * power + step for power in powers for sign in (1, -1) for step in (-1, 0, 1)]
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, -3, -2, -1, 0, 1, 2, 3, 7]
    return sorted({number for number in (*near, *ends) if limits.min <= number <= limits.max})


def _draw_inputs() -> dict[str, Array]:
    generator = np.random.default_rng(5)
    inputs = {}
    for dtype in DTYPES:
        limits = np.iinfo(dtype)
        for name in ("x", "y"):
            random = generator.integers(limits.min, limits.max, LENGTH, dtype=dtype, endpoint=True)
            known = np.array(extremes(dtype), dtype)
            inputs[f"{name}_{dtype}"] = generator.permutation(np.concatenate([known, random])[:LENGTH])
        divisors = generator.permutation(inputs[f"y_{dtype}"])
        divisors[(divisors == 0) | (divisors == limits.max if limits.min == 0 else divisors == -1)] = 3
        inputs[f"d_{dtype}"] = divisors
        inputs[f"s_{dtype}"] = generator.integers(0, limits.bits, LENGTH).astype(dtype)
    return inputs


INPUTS = _draw_inputs()
"""By name: x and y of each type, d without the divisors at which processors stop, s of less than the type's bits."""


def _wrap(numbers: Iterable[int], dtype: str) -> Array:
    bits = np.iinfo(dtype).bits
    unsigned = np.array([number % (1 << bits) for number in numbers], f"uint{bits}")
    return unsigned.view(dtype)


def _quotient(a: int, b: int) -> int:
    """Towards zero, as processors divide; 0 by zero."""
    return (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)) if b else 0


def _remainder(a: int, b: int, fmod: int) -> int:
    return (a - b * _quotient(a, b) if fmod else a % b) if b else 0


def _clip(a: int, low: int | None, high: int | None) -> int:
    a = a if low is None else max(a, low)
    return a if high is None else min(a, high)


_FUNCTIONS: Mapping[str, Callable[..., int | bool]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _quotient,
    "Min": min,
    "Max": max,
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "BitwiseNot": lambda a: ~a,
    "Abs": abs,
    "Neg": lambda a: -a,
    "Sign": lambda a: (a > 0) - (a < 0),
    "Clip": _clip,
}
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_PAIRS = ("Add", "Sub", "Mul", "Min", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor")


def _apply(step: Step, value: Array) -> Array:
    dtype = value.dtype.name
    attributes = dict(step.attributes)
    operands = [value.tolist(), *(_values(operand, len(value)) for operand in step.operands)]
    operands = operands[::-1] if step.swaps else operands
    rows = zip(*operands, strict=True)
    match step.op:
        case "Cast":
            target = str(attributes["to"])
            return _wrap(map(int, operands[0]), target)
        case "Mod":
            return _wrap((_remainder(a, b, int(attributes.get("fmod", 0))) for a, b in rows), dtype)
        case "BitShift" if attributes["direction"] == "LEFT":
            return _wrap((a << b for a, b in rows), dtype)
        case "BitShift":
            return _wrap((a >> b for a, b in rows), dtype)
        case op:
            results = [_FUNCTIONS[op](*row) for row in rows]
            return np.array(results, bool) if op in _COMPARISONS else _wrap(map(int, results), dtype)


def _values(operand: str | int | None, count: int) -> list[int | None]:
    return INPUTS[operand].tolist() if isinstance(operand, str) else [operand] * count


def draw_chain(generator: np.random.Generator) -> Chain:
    """A chain of a random type whose result depends on the inputs."""
    while True:
        dtype = str(generator.choice(DTYPES))
        steps: list[Step] = []
        current = dtype
        for _ in range(generator.integers(2, MOST_OPERATORS, endpoint=True)):
            before = [number for step in steps for number in step.operands if isinstance(number, int)]
            steps.append(_draw_step(generator, current, before))
            attributes = dict(steps[-1].attributes)
            current = str(attributes["to"]) if steps[-1].op == "Cast" else current
            current = "bool" if steps[-1].op in _COMPARISONS else current
        chain = Chain(dtype, tuple(steps))
        if chain.depends_on_inputs():
            return chain


def draw_chains(seed: int, count: int) -> list[Chain]:
    """Chains by a seed."""
    generator = np.random.default_rng(seed)
    return [draw_chain(generator) for _ in range(count)]


def _draw_step(generator: np.random.Generator, dtype: str, before: Sequence[int]) -> Step:
    """An operator of a value of that type; numbers are often those `before` it, as where 4 x / 4 was x."""
    if dtype == "bool":
        return Step("Cast", attributes=(("to", str(generator.choice(DTYPES))),))
    signed = dtype.startswith("int")
    known = extremes(dtype)
    again = [number for number in before if number in known] * bool(generator.integers(2))
    kind = generator.choice(
        ["pair", "comparison", "division", "one", "clip", "cast", "shift"], p=[0.4, 0.2, 0.14, 0.08, 0.05, 0.08, 0.05]
    )
    swaps = bool(generator.integers(2))
    match kind:
        case "pair" | "comparison":
            choice = generator.integers(4)
            number: str | int = _pick(generator, again or known) if choice < 2 else f"{'xy'[choice - 2]}_{dtype}"
            return Step(str(generator.choice(_PAIRS if kind == "pair" else _COMPARISONS)), (number,), swaps=swaps)
        case "division":
            divisors = [number for number in again if number not in (0, -1)]
            divisors = divisors or [number for number in known if number not in (0, -1)]
            divisor: str | int = _pick(generator, divisors) if generator.integers(3) else f"d_{dtype}"
            is_modulo = bool(generator.integers(2))
            fmod = (("fmod", int(generator.integers(2))),) if is_modulo else ()
            return Step("Mod" if is_modulo else "Div", (divisor,), fmod)
        case "one":
            ops = ["Abs", "BitwiseNot", "Sign", *(["Neg"] * signed)]
            return Step(str(generator.choice(ops)))
        case "clip":
            low, high = sorted(_pick(generator, known) for _ in range(2))
            left = generator.integers(3)
            return Step("Clip", (None if left == 1 else low, None if left == 2 else high))
        case "shift" if not signed:
            amount: str | int = f"s_{dtype}" if swaps else int(generator.integers(np.iinfo(dtype).bits))
            return Step("BitShift", (amount,), (("direction", str(generator.choice(["LEFT", "RIGHT"]))),))
        case _:
            return Step("Cast", attributes=(("to", str(generator.choice(DTYPES))),))


def _pick(generator: np.random.Generator, numbers: Sequence[int]) -> int:
    """One of the numbers, of which numpy would make floats where no type of its own holds all."""
    return numbers[int(generator.integers(len(numbers)))]


def model_of(chains: Sequence[Chain]) -> onnx.ModelProto:
    """A model with an output y0, y1, ... for each chain; the numbers are its constants."""
    nodes, constants, used = [], dict[str, onnx.TensorProto](), dict[str, None]()
    for number, chain in enumerate(chains):
        value = f"x_{chain.dtype}"
        used[value] = None
        dtype = chain.dtype
        for place, step in enumerate(chain.steps):
            names = [value]
            for operand in step.operands:
                if isinstance(operand, int):
                    name = f"{dtype}_{operand}".replace("-", "minus_")
                    constants[name] = numpy_helper.from_array(np.array(operand, dtype), name)
                elif operand is not None:
                    name = operand
                    used[name] = None
                names.append("" if operand is None else name)
            names = names[::-1] if step.swaps else names
            attributes = dict(step.attributes)
            if step.op == "Cast":
                dtype = str(attributes["to"])
                attributes["to"] = _element_type(dtype)
            value = f"y{number}" if place == len(chain.steps) - 1 else f"v{number}_{place}"
            nodes.append(helper.make_node(step.op, names, [value], f"n{number}_{place}", **attributes))
            dtype = "bool" if step.op in _COMPARISONS else dtype
    inputs = [helper.make_tensor_value_info(n, _element_type(n.split("_")[1]), [LENGTH]) for n in used]
    outputs = [
        helper.make_tensor_value_info(f"y{n}", _element_type(c.result.dtype.name), [LENGTH])
        for n, c in enumerate(chains)
    ]
    graph = helper.make_graph(nodes, "chains", inputs, outputs, list(constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _element_type(dtype: str) -> int:
    return TensorProto.BOOL if dtype == "bool" else int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def assert_wrapped(chains: Sequence[Chain], found: Sequence[Array]) -> None:
    """All results are those of two's complement; the message has the chains that are not."""
    wrong = [chain for chain, array in zip(chains, found, strict=True) if not np.array_equal(array, chain.result)]
    assert not wrong, f"{len(wrong)} of {len(chains)} are wrong: {wrong[:3]}"
    assert all(array.dtype == chain.result.dtype for chain, array in zip(chains, found, strict=True))


def inputs_of(model: onnx.ModelProto) -> dict[str, Array]:
    """The values of a model's inputs."""
    return {port.name: INPUTS[port.name] for port in model.graph.input}


SHIFT = Step("BitShift", (200,), (("direction", "LEFT"),), swaps=True)
REPRESENTATIVES = (
    Chain("int32", (Step("Mul", (4,)), Step("Div", (4,)))),
    Chain("uint32", (Step("Add", (2**32 - 5,)), Step("Less", ("x_uint32",)))),
    Chain("int64", (Step("Add", (1,)), Step("Greater", ("x_int64",)))),
    Chain("int32", (Step("Sub", (1,)), Step("Less", ("x_int32",)))),
    Chain("int8", (Step("Add", (5,)), Step("Less", (-123,)))),
    Chain("uint8", (Step("BitwiseAnd", (7,)), SHIFT, Step("Less", (100,)))),
    Chain("uint64", (Step("Mul", (2**63,)), Step("Div", (2,)), Step("Greater", (0,)))),
    Chain("int32", (Step("LessOrEqual", (-(2**31),)),)),
    Chain("int32", (Step("Max", (1 - 2**31,)),)),
    Chain("int32", (Step("Abs"), Step("Less", (0,)))),
    Chain("int64", (Step("Neg"), Step("Equal", ("x_int64",)))),
    Chain("int32", (Step("Cast", attributes=(("to", "int64"),)), Step("Equal", (-(2**31),)))),
)
"""One chain for each thing that a compiler takes for granted of integers."""
