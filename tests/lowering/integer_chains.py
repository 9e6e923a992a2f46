"""Chains of operators at the ends of integer types, with floats and truth values on the way, and their results by
Python's numbers: in two's complement, and as ONNX Runtime has them if ONNX does not say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count as count_from
from itertools import islice, pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
FLOATS = ("float32", "float64")
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LENGTH = 96
"""Elements of an input: all extreme values, and as many random ones; several vectors of a register and a rest."""
OPSET = 18
MOST_OPERATORS = 4


@dataclass(frozen=True)
class Step:
    """An operator of the chain's value, and of further operands: names of inputs or numbers of the same type."""

    op: str
    operands: tuple[str | float | None, ...] = ()
    attributes: tuple[tuple[str, int | str], ...] = ()
    place: int = 0
    """The position of the chain's value among the operands."""

    def result_type(self, dtype: str) -> str:
        """The element type of the result, by that of the chain's value."""
        if self.op == "Cast":
            return str(dict(self.attributes)["to"])
        if self.op == "Where" and self.place == 0:
            return str(self.operands[0]).split("_")[1]
        return "bool" if self.op in _COMPARISONS else dtype

    def is_open(self, dtype: str) -> bool:
        """Whether ONNX Runtime refuses some of the numbers, or adds and multiplies them as float64, or what it makes of
        them depends on the place of an element."""
        divides = self.op in ("Div", "Mod") and (self.operands[0] in (0, -1) or str(self.operands[0]).startswith("y"))
        accumulates = self.op in ("ReduceSum", "ReduceProd")
        return divides or accumulates or (dtype in FLOATS and self.result_type(dtype) == "uint32")


@dataclass(frozen=True)
class Chain:
    """Operators one behind the other, from the input of its type on."""

    dtype: str
    steps: tuple[Step, ...]

    @property
    def types(self) -> list[str]:
        """The element types of the input and of what each operator returns."""
        types = [self.dtype]
        for step in self.steps:
            types.append(step.result_type(types[-1]))
        return types

    @cached_property
    def result(self) -> Array:
        """The values of the chain for the inputs."""
        value = INPUTS[f"x_{self.dtype}"]
        for step in self.steps:
            value = _apply(step, value)
        return value

    @property
    def depends_on_inputs(self) -> bool:
        """Whether the elements of the result differ, or are one that is reduced from many."""
        return self.result.size == 1 or len(np.unique(self.result)) > 1

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of the result depends on the elements at its place alone."""
        return not any(step.op in _REDUCTIONS for step in self.steps)

    @property
    def is_open(self) -> bool:
        """Whether ONNX Runtime has no result, or not always the same: of two casts in a row it leaves out the first."""
        casts_twice = any(first.op == second.op == "Cast" for first, second in pairwise(self.steps))
        return casts_twice or any(step.is_open(dtype) for step, dtype in zip(self.steps, self.types, strict=False))


def extremes(dtype: str) -> list[int]:
    """The numbers of a type beside which arithmetic goes wrong."""
    limits = np.iinfo(dtype)
    powers = [1 << bit for bit in (limits.bits // 2 - 1, limits.bits // 2, limits.bits - 2, limits.bits - 1)]
    near = [sign * power + step for power in powers for sign in (1, -1) for step in (-1, 0, 1)]
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, -3, -2, -1, 0, 1, 2, 3, 7]
    return sorted({number for number in (*near, *ends) if limits.min <= number <= limits.max})


def _draw_inputs() -> dict[str, Array]:
    generator = np.random.default_rng(5)
    inputs = {"b_bool": generator.random(LENGTH) < 0.5}
    for dtype in DTYPES:
        limits = np.iinfo(dtype)
        for name in ("x", "y"):
            random = generator.integers(limits.min, limits.max, LENGTH, dtype=dtype, endpoint=True)
            known = np.array(extremes(dtype), dtype)
            inputs[f"{name}_{dtype}"] = generator.permutation(np.concatenate([known, random])[:LENGTH])
        divisors = generator.permutation(inputs[f"y_{dtype}"])
        divisors[(divisors == 0) | (divisors == limits.max if limits.min == 0 else divisors == -1)] = 3
        inputs[f"d_{dtype}"] = divisors
        inputs[f"s_{dtype}"] = generator.integers(0, 2 * limits.bits, LENGTH).astype(dtype)
        exponents = [-2, -1, 0, 1, 2, 3, 4, 5, 9][2 * (limits.min == 0) :]
        inputs[f"e_{dtype}"] = generator.choice(exponents, LENGTH).astype(dtype)
    ends = [2.0**bits + step for bits in (7, 8, 15, 16, 31, 32, 63, 64) for step in (-1, -0.5, 0, 0.5, 1)]
    special = [*ends, *(-end for end in ends), math.inf, -math.inf, math.nan, 0.5, -0.5, 1e30]
    for dtype in FLOATS:
        for name in ("x", "y"):
            random = generator.standard_normal(LENGTH) * 2.0 ** generator.integers(0, 66, LENGTH)
            inputs[f"{name}_{dtype}"] = generator.permutation(np.array([*special, *random])[:LENGTH]).astype(dtype)
    return inputs


INPUTS = _draw_inputs()
"""By name: x and y of each type, d without the divisors at which processors stop, s of less than twice the type's bits,
e of small exponents, b of truth values."""


def _wrap(numbers: Iterable[int], dtype: str) -> Array:
    bits = np.iinfo(dtype).bits
    unsigned = np.array([number % (1 << bits) for number in numbers], f"uint{bits}")
    return unsigned.view(dtype)


def _quotient(a: int, b: int) -> int:
    """Towards zero, as processors divide; 0 by zero."""
    return (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)) if b else 0


def _power(a: int, b: int, shared: bool, dtype: str) -> int:
    """As a float64 that is cut; whole rows of squares and cubes are products."""
    if shared and b in (2, 3):
        return a * a if b == 2 else a * a * a
    try:
        return _cut(math.pow(a, b), dtype)
    except (OverflowError, ValueError):
        return _cut(math.inf, dtype)


def _cut(number: float, dtype: str) -> int:
    """What x86-64 makes of a float: what does not fit is the least word, of which narrow types keep the last bits."""
    if dtype == "uint64" and number >= 2**63:
        return 2**63 + _cut(number - 2.0**63, "int64")
    bits = 64 if dtype in ("int64", "uint64", "uint32") else 32
    fits = math.isfinite(number) and -(2 ** (bits - 1)) <= int(number) < 2 ** (bits - 1)
    return int(number) if fits else -(2 ** (bits - 1))


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
_REDUCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "ReduceSum": np.add.reduce, "ReduceProd": np.multiply.reduce, "ReduceMin": np.minimum.reduce,
    "ReduceMax": np.maximum.reduce,
}  # fmt: skip
_OF_ARRAYS: Mapping[str, Callable[..., Array]] = {
    "Where": np.where, "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}  # fmt: skip
_OF_FLOATS: Mapping[str, Callable[..., Array]] = {
    "Mul": np.multiply, "Neg": np.negative, "Abs": np.abs, "Less": np.less, "GreaterOrEqual": np.greater_equal,
}  # fmt: skip


def _apply(step: Step, value: Array) -> Array:
    dtype = value.dtype.name
    attributes = dict(step.attributes)
    own = [INPUTS[o] if isinstance(o, str) else np.array([o], None if o is None else dtype) for o in step.operands]
    own.insert(step.place, value)
    count = max(len(array) for array in own)
    with np.errstate(all="ignore"):
        if step.op in _REDUCTIONS:
            return np.asarray(_REDUCTIONS[step.op](value)).astype(dtype).reshape(1)
        if step.op in _OF_ARRAYS:
            return _OF_ARRAYS[step.op](*own)
        if step.op == "Cast":
            target = str(attributes["to"])
            if target in DTYPES:
                return _wrap((_cut(n, target) if isinstance(n, float) else int(n) for n in value.tolist()), target)
            return value.astype(target)
        if dtype in FLOATS:
            return _OF_FLOATS[step.op](*own)
    operands = [array.tolist() * (count // len(array)) for array in own]
    rows = zip(*operands, strict=True)
    match step.op:
        case "Mod":
            return _wrap((_remainder(a, b, int(attributes.get("fmod", 0))) for a, b in rows), dtype)
        case "Pow":
            shared = len(own[1]) == 1 < len(own[0])
            return _wrap((_power(a, b, shared, dtype) for a, b in rows), dtype)
        case "BitShift":
            bits, leftwards = np.iinfo(dtype).bits, attributes["direction"] == "LEFT"
            return _wrap(((a << b if leftwards else a >> b) if b < bits else 0 for a, b in rows), dtype)
        case op:
            results = [_FUNCTIONS[op](*row) for row in rows]
            return np.array(results, bool) if op in _COMPARISONS else _wrap(map(int, results), dtype)


def draw_chain(generator: np.random.Generator) -> Chain:
    """A chain of a random type whose result depends on the inputs."""
    while True:
        dtype = str(generator.choice([*DTYPES, *DTYPES, *FLOATS]))
        steps: list[Step] = []
        current = dtype
        for _ in range(generator.integers(2, MOST_OPERATORS, endpoint=True)):
            before = [number for step in steps for number in step.operands if isinstance(number, int)]
            steps.append(_draw_step(generator, current, before))
            current = steps[-1].result_type(current)
        chain = Chain(dtype, tuple(steps))
        if chain.depends_on_inputs:
            return chain


def draw_chains(seed: int, count: int, keep: Callable[[Chain], bool] = lambda chain: True) -> list[Chain]:
    """Chains by a seed, those that are to be kept."""
    generator = np.random.default_rng(seed)
    chains = (draw_chain(generator) for _ in count_from(0))
    return list(islice(filter(keep, chains), count))


def _draw_step(generator: np.random.Generator, dtype: str, before: Sequence[int]) -> Step:
    """An operator of a value of that type; numbers are often those `before` it, as where 4 x / 4 was x."""
    if dtype == "bool":
        return _draw_logic(generator)
    if dtype in FLOATS:
        return _draw_float(generator, dtype)
    signed = dtype.startswith("int")
    known = extremes(dtype)
    again = [number for number in before if number in known] * bool(generator.integers(2))
    shares = {
        "pair": 0.36, "comparison": 0.17, "division": 0.12, "one": 0.07, "clip": 0.05, "cast": 0.09, "shift": 0.04,
        "power": 0.03, "choice": 0.04, "reduction": 0.03,
    }  # fmt: skip
    place = int(generator.integers(2))
    match generator.choice(list(shares), p=list(shares.values())):
        case "pair" | "comparison" as kind:
            ops = _PAIRS if kind == "pair" else _COMPARISONS
            op = str(generator.choice(ops))
            more = generator.integers(1, 3) if op in ("Min", "Max") else 1
            return Step(op, tuple(_draw_operand(generator, again or known, dtype) for _ in range(more)), place=place)
        case "division":
            divisors = [number for number in again or known if number not in (0, -1)] or [3]
            divisor: str | int = f"{generator.choice(['d', 'y'])}_{dtype}"
            divisor = _pick(generator, divisors) if generator.integers(3) else divisor
            is_modulo = bool(generator.integers(2))
            fmod = (("fmod", int(generator.integers(2))),) if is_modulo else ()
            return Step("Mod" if is_modulo else "Div", (divisor,), fmod)
        case "one":
            return Step(str(generator.choice(["Abs", "BitwiseNot", "Sign", *(["Neg"] * signed)])))
        case "clip":
            low, high = sorted(_pick(generator, known) for _ in range(2))
            left = generator.integers(4)
            return Step("Clip", (None if left in (1, 3) else low, None if left in (2, 3) else high))
        case "shift" if not signed:
            amount: str | int = f"s_{dtype}" if place else int(generator.integers(2 * np.iinfo(dtype).bits))
            return Step("BitShift", (amount,), (("direction", str(generator.choice(["LEFT", "RIGHT"]))),))
        case "power" if dtype in ("int32", "int64"):
            exponent = int(generator.choice([-2, -1, 0, 1, 2, 3, 4, 5, 9, 33, 62]))
            return Step("Pow", (f"e_{dtype}" if place else exponent,))
        case "choice":
            return Step("Where", ("b_bool", _draw_operand(generator, again or known, dtype)), place=1 + place)
        case "reduction" if dtype in ("int32", "int64", "uint32", "uint64"):
            return Step(str(generator.choice(list(_REDUCTIONS))))
        case _:
            return _draw_cast(generator)


def _draw_operand(generator: np.random.Generator, numbers: Sequence[int], dtype: str) -> str | int:
    choice = generator.integers(4)
    return _pick(generator, numbers) if choice < 2 else f"{'xy'[choice - 2]}_{dtype}"


def _draw_cast(generator: np.random.Generator) -> Step:
    return Step("Cast", attributes=(("to", str(generator.choice([*DTYPES, *FLOATS, "bool"]))),))


def _draw_logic(generator: np.random.Generator) -> Step:
    dtype = generator.choice(DTYPES)
    match generator.integers(4):
        case 0:
            return Step("Not")
        case 1:
            return Step(str(generator.choice(["And", "Or", "Xor"])), ("b_bool",), place=int(generator.integers(2)))
        case 2:
            return Step("Where", (f"x_{dtype}", f"y_{dtype}"))
        case _:
            return _draw_cast(generator)


def _draw_float(generator: np.random.Generator, dtype: str) -> Step:
    match generator.integers(5):
        case 0:
            # Products by these are exact, so that rules which join several change no bits.
            return Step("Mul", (float(generator.choice([-0.5, 0.25, 16.0])),))
        case 1:
            return Step(str(generator.choice(["Neg", "Abs"])))
        case 2:
            return Step(str(generator.choice(["Less", "GreaterOrEqual"])), (f"y_{dtype}",))
        case _:
            return _draw_cast(generator)


def _pick(generator: np.random.Generator, numbers: Sequence[int]) -> int:
    """One of the numbers, of which numpy would make floats if no type of its own holds all."""
    return numbers[int(generator.integers(len(numbers)))]


def model_of(chains: Sequence[Chain]) -> onnx.ModelProto:
    """A model with an output y0, y1, ... for each chain; the numbers are its constants."""
    nodes, constants, used = [], dict[str, onnx.TensorProto](), dict[str, None]()
    for number, chain in enumerate(chains):
        value = f"x_{chain.dtype}"
        used[value] = None
        for place, (step, dtype) in enumerate(zip(chain.steps, chain.types, strict=False)):
            names = []
            for operand in step.operands:
                if isinstance(operand, str):
                    used[operand] = None
                elif operand is not None:
                    name = f"{dtype}_{operand}".replace("-", "minus_")
                    constants[name] = numpy_helper.from_array(np.array(operand, dtype), name)
                    operand = name
                names.append(operand or "")
            names.insert(step.place, value)
            attributes = dict(step.attributes)
            if step.op == "Cast":
                attributes["to"] = _element_type(str(attributes["to"]))
            value = f"y{number}" if place == len(chain.steps) - 1 else f"v{number}_{place}"
            nodes.append(helper.make_node(step.op, names, [value], f"n{number}_{place}", **attributes))
    inputs = [helper.make_tensor_value_info(n, _element_type(n.split("_")[1]), [LENGTH]) for n in used]
    outputs = [
        helper.make_tensor_value_info(f"y{n}", _element_type(c.result.dtype.name), c.result.shape)
        for n, c in enumerate(chains)
    ]
    graph = helper.make_graph(nodes, "chains", inputs, outputs, list(constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _element_type(dtype: str) -> int:
    return TensorProto.BOOL if dtype == "bool" else int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def assert_wrapped(chains: Sequence[Chain], found: Sequence[Array]) -> None:
    """All results are those of two's complement; the message has the chains that are not."""
    wrong = [chain for chain, array in zip(chains, found, strict=True) if not _is_equal(array, chain.result)]
    assert not wrong, f"{len(wrong)} of {len(chains)} are wrong: {wrong[:3]}"
    assert all(array.dtype == chain.result.dtype for chain, array in zip(chains, found, strict=True))


def _is_equal(found: Array, wanted: Array) -> bool:
    return np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f")


def inputs_of(model: onnx.ModelProto) -> dict[str, Array]:
    """The values of a model's inputs."""
    return {port.name: INPUTS[port.name] for port in model.graph.input}


SHIFT = Step("BitShift", (200,), (("direction", "LEFT"),), place=1)
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
