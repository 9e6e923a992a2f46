"""The kernels of a graph as functions of TVM's tensor IR: ``OperatorGraph, steps -> PrimFuncs, calls``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import stmt as s_stmt

from ...extract.partition.placement import (
    Place,
    Places,
    find_in_place,
    has_rows_or_columns,
    parts_and_whole,
    resolve_places,
)
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import OperatorGraph, Value
from ...ir.types import TensorType
from ...support.errors import describe_error
from ..base.exact_pairs import has_exact_pairs
from ..base.interface import known_type
from ..base.target import Target
from ..base.weights import Weights
from ..compute import Extents, Immediate, Operand, Tensor, compute, lowerable, placeholder
from ..schedules import fits_rule, mark_constants, mark_exact_pairs
from ..schedules.base.draft import BOOLEANS
from ..schedules.base.extents import TYPICAL
from ..schedules.base.rewriting import with_body
from .branches import Choice, find_choice
from .channels_last import channels_last, channels_last_values, last_axis
from .fallback import Fallback, LoopCall, fallback, is_constant, without_kernel
from .measured import is_measured
from .messages import Answer, Part
from .steps import InPlace, Kernel, Step, View, steps

_NAMED_OPERATORS = 4
"""Operators in the name of a kernel; more would make it too long to read."""
_KEY_DIGITS = 8
"""Hexadecimal digits of its key in the name of a kernel, which is the same in every model that has this kernel: of a
thousand kernels two have equal ones with a probability of 1 in 10,000, and then a number is added."""

Array = np.ndarray[Any, Any]


# --- one kernel


@dataclass(frozen=True)
class KernelFunction:
    """A function of buffers: first those of the values `inputs`, then those of `outputs`.

    Both are indices of the graph's values. Inputs are values that members read from outside, constants too; outputs are
    those that others read, or whoever runs the graph.
    """

    prim_func: tirx.PrimFunc
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def lower_kernel(
    graph: OperatorGraph,
    members: Iterable[int],
    name: str,
    constants: Mapping[int, Array] | None = None,
) -> KernelFunction:
    """The members (operators of `graph`) as one unscheduled function with the symbol `name`.

    `constants` are values known by now; those of one element are written into the code and are no inputs.
    Blocks are named after operator and node, and carry the attributes that `lowering.compute` describes.
    Raises NotLowered if a member has no lowering, or the shape of a value is not known before the run; sizes that a
    call decides are variables of the function.
    """
    ordered = sorted(members)
    outside, outputs = graph.inputs_of(ordered), graph.outputs_of(ordered)
    immediates = {v: Immediate.of(a) for v, a in (constants or {}).items() if v in outside and a.size == 1}
    inputs = tuple(v for v in outside if v not in immediates)
    extents = Extents.of(graph.values[value].type for value in (*inputs, *outputs))

    def parameter(value: int) -> Tensor:
        type_ = graph.values[value].type or TensorType("float32", ())
        return placeholder(type_ if type_.shape is not None else replace(type_, shape=()), f"v{value}", extents)

    parameters = {value: parameter(value) for value in inputs}
    tensors: dict[int, Operand] = {**immediates, **parameters}
    for operator in (graph.operators[index] for index in ordered):
        sources = [None if v is None else tensors[v] for v in operator.inputs]
        results = zip(operator.outputs, compute(operator, graph, sources, extents), strict=False)
        parameters |= dict(results)
        tensors |= parameters
    inputs = _list_read(inputs, outputs, parameters)
    function = _unwrap_blocks(te.create_prim_func([parameters[v].tensor for v in (*inputs, *outputs)]))
    ports = (graph.values[value].type for value in (*inputs, *outputs))
    if booleans := [place for place, type_ in enumerate(ports) if type_ is not None and type_.dtype == "bool"]:
        function = function.with_attr(BOOLEANS, booleans)
    if extents.variables:
        function = function.with_attr(TYPICAL, extents.typical_sizes(graph.sizes))
    return KernelFunction(function.with_attr("global_symbol", name), inputs, outputs)


def _list_read(inputs: tuple[int, ...], outputs: tuple[int, ...], parameters: Mapping[int, Tensor]) -> tuple[int, ...]:
    """The inputs that outputs are computed from, and those that alone tell a size: the layout of a buffer that no
    block reads cannot be changed."""
    reached: dict[Any, None] = dict.fromkeys(parameters[v].tensor.op for v in outputs)
    pending = list(reached)
    while pending:
        sources = [source.op for source in pending.pop().input_tensors if source.op not in reached]
        reached |= dict.fromkeys(sources)
        pending += sources
    read = [v for v in inputs if parameters[v].tensor.op in reached]

    def free(value: int) -> set[str]:
        return {str(extent) for extent in parameters[value].shape if not isinstance(extent, int)}

    told = set().union(*(free(value) for value in (*read, *outputs)))
    return tuple(v for v in inputs if v in read or free(v) - told)


def _unwrap_blocks(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function without the blocks that TVM puts around blocks which a lowering makes itself (`te.extern`)."""

    def unwrap(nest: Any) -> Any:
        inner = nest.block.body if isinstance(nest, s_stmt.SBlockRealize) else None
        return inner if isinstance(inner, s_stmt.SBlockRealize) else nest

    root = function.body.block
    body = tirx.SeqStmt(list(map(unwrap, root.body.seq))) if isinstance(root.body, tirx.SeqStmt) else unwrap(root.body)
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, with_body(root, body))
    return function.with_body(realized)


def task_key(function: Any) -> str:
    """A name for a kernel that stays the same in every process: 64 hex digits of its computation and its tensors.

    TVM's structural hash, which is the same in every process of a version, has but 64 bits; the tensors are added.
    """
    nameless = function.without_attr("global_symbol")
    tensors = [(str(b.dtype), tuple(map(str, b.shape))) for b in function.params]
    return sha256(f"{tvm_ffi.structural_hash(nameless)} {tensors}".encode()).hexdigest()


# --- all kernels of a graph


LoweredKernels = dict[tuple[Members, frozenset[int]], KernelFunction | str]
"""Functions by the operators of the kernel and those of its values that have their channels last."""


@dataclass(frozen=True)
class KernelCall:
    """A kernel as the model calls it: `symbol` among the objects, on values of the graph."""

    symbol: str
    members: Members
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


LoweredStep = View | InPlace | KernelCall | Choice | LoopCall | Fallback
"""A step as it is run."""


@dataclass
class DistinctKernels:
    """The kernels of a graph, each distinct one once. Make one by `of`; `last` are values with their channels last.

    `lowered` keeps functions, or why there is none, for other partitions of the same graph.
    """

    graph: OperatorGraph
    weights: Weights
    last: frozenset[int]
    lowered: LoweredKernels
    functions: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    """Parameters of the functions that are parts of wider tensors, by name; the functions know nothing of these."""
    places: Places = field(default_factory=dict)
    """The values that are parts of others, and where in memory."""
    in_place: frozenset[int] = frozenset()
    """The operators that make or take these parts, and are no kernels."""
    _by_hash: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: OperatorGraph,
        kernels: Iterable[Sequence[int]],
        weights: Weights,
        lowered: LoweredKernels | None = None,
        last: frozenset[int] | None = None,
    ) -> DistinctKernels:
        """None yet; `kernels`, in running order, decide how feature maps are stored if `last`
        does not say.

        Constants that nodes compute get their types, which are known once they are computed.
        """

        def with_type(number: int, value: Value) -> Value:
            if value.type is not None or not is_constant(graph, number, weights.model):
                return value
            array = weights[value.name]
            return replace(value, type=TensorType(array.dtype.name, array.shape))

        values = tuple(with_type(number, value) for number, value in enumerate(graph.values))
        typed = replace(graph, values=values)
        if last is None:
            last = channels_last_values(typed, tuple(steps(typed, kernels)))
        return cls(typed, weights, last, {} if lowered is None else lowered)

    def lower_step(self, step: Step, runtime: Mapping[int, str] | None = None) -> LoweredStep:
        """The step as it is run: as a call of a kernel or of plain loops, by ONNX Runtime, or not at all.

        Loops are what has no lowering. ONNX Runtime gets what has no loop either, and kernels all of whose operators
        have a reason in `runtime`.
        """
        if isinstance(step, View):
            return step
        if choice := find_choice(self.graph, step.members, self.weights.model):
            return choice
        if self._is_left_to_runtime(step, runtime):
            assert runtime is not None
            return fallback(self.graph, step.members, self.weights, runtime[step.members[0]], self.last)
        if self.in_place.issuperset(step.members):
            operator = self.graph.operators[step.members[0]]
            inputs = tuple(value for value in operator.inputs if value is not None)
            return InPlace(step.members, inputs, operator.outputs)
        function = self._function_or_reason(step)
        if isinstance(function, str):
            return without_kernel(self.graph, step.members, self.weights, function, self.last)
        return self.call(step.members, function)

    def _is_left_to_runtime(self, step: Kernel, runtime: Mapping[int, str] | None) -> bool:
        return bool(runtime) and all(member in (runtime or {}) for member in step.members)

    def _function_or_reason(self, step: Kernel) -> KernelFunction | str:
        results = (result for member in step.members for result in self.graph.operators[member].outputs)
        if any(is_measured(self.graph.values[result]) for result in results):
            return "a size of its result is not known before the run"
        reasons = (lowerable(self.graph.operators[member], self.graph) for member in step.members)
        return next((reason for reason in reasons if reason is not None), None) or self.lower(step)

    def find_places(
        self, planned: Sequence[Step], runtime: Mapping[int, str] | None, refused: Collection[int]
    ) -> None:
        """Find operators that are steps by themselves, but none of those `refused`, whose parts kernels make or read in
        place, in the order that the whole has in memory."""
        kernels = [step for step in planned if isinstance(step, Kernel)]
        alone = {
            member for step in kernels
            if self._is_left_to_runtime(step, runtime) or isinstance(self._function_or_reason(step), str)
            for member in step.members
        }  # fmt: skip
        single = {step.members[0] for step in kernels if len(step.members) == 1} - set(refused)
        found = find_in_place(self.graph, alone)
        chosen = {n: places for n, places in found.items() if n in single and self._are_cuts(n, places)}
        places = resolve_places(chosen.values())
        self.places = {value: self._in_memory(value, place) for value, place in places.items()}
        self.in_place = frozenset(chosen)

    def _are_cuts(self, number: int, places: Places) -> bool:
        """Whether the parts are rows or columns of the whole, in the order that both really have in memory."""
        parts, whole = parts_and_whole(self.graph.operators[number])
        assert whole is not None
        orders, shape = {value in self.last for value in (*parts, whole)}, known_type(self.graph, whole).shape or ()
        is_last = whole in self.last
        return len(orders) == 1 and all(has_rows_or_columns(shape, p.axis, is_last=is_last) for p in places.values())

    def _in_memory(self, value: int, place: Place) -> Place:
        rank = len(known_type(self.graph, value).shape or ())
        return replace(place, axis=last_axis(place.axis, rank)) if value in self.last else place

    def call(self, members: Members, function: KernelFunction) -> KernelCall:
        """The call of a function, which is noted."""
        values = enumerate((*function.inputs, *function.outputs))
        parts = tuple(
            Part(position, place.axis, place.first, place.extent)
            for position, value in values if (place := self.places.get(value)) is not None
        )  # fmt: skip
        return KernelCall(self._find_equal(function, parts), members, function.inputs, function.outputs)

    def within(self, graph: OperatorGraph, weights: Weights, last: frozenset[int]) -> DistinctKernels:
        """The kernels of another graph: those that are equal are the same ones."""
        return DistinctKernels(graph, weights, last, {}, self.functions, self.parts, _by_hash=self._by_hash)

    def lower(self, kernel: Kernel) -> KernelFunction | str:
        """The kernel as a function, or the reason why the lowering failed."""
        operators = [self.graph.operators[member] for member in kernel.members]
        last = self.last.intersection(v for o in operators for v in (*o.inputs, *o.outputs) if v is not None)
        if (kernel.members, last) not in self.lowered:
            self.lowered[kernel.members, last] = self._lower(kernel)
        return self.lowered[kernel.members, last]

    def _lower(self, kernel: Kernel) -> KernelFunction | str:
        try:
            function = lower_kernel(self.graph, kernel.members, "kernel", self._scalars(kernel))
        except Exception as error:  # TVM raises many kinds; the kernel still runs, elsewhere
            return describe_error(error)
        positions = tuple(position for position, value in enumerate(function.inputs) if self._is_constant(value))
        stored = {n for n, value in enumerate((*function.inputs, *function.outputs)) if value in self.last}
        prim_func = channels_last(mark_constants(function.prim_func, positions), stored)
        if self._has_exact_pairs(function, positions):
            prim_func = mark_exact_pairs(prim_func)
        operators = "_".join(self.graph.operators[m].op.lower() for m in kernel.members[:_NAMED_OPERATORS])
        name = f"kernel_{task_key(prim_func)[:_KEY_DIGITS]}_{operators}"
        return replace(function, prim_func=prim_func.with_attr("global_symbol", name))

    def _has_exact_pairs(self, function: KernelFunction, constants: Sequence[int]) -> bool:
        """Whether all tensors of int8 that the function reads or computes are constants, with exact pairs."""
        params, inside = function.prim_func.params, function.prim_func.body.block.alloc_buffers
        signed = [position for position, buffer in enumerate(params) if str(buffer.dtype) == "int8"]
        if not signed or not set(signed) <= set(constants) or any(str(b.dtype) == "int8" for b in inside):
            return False
        names = (self.graph.values[function.inputs[position]].name for position in signed)
        return all(has_exact_pairs(self.weights[name]) for name in names)

    def replace_failed(self, step: LoweredStep, answers: Mapping[str, Answer]) -> LoweredStep:
        """The step, or for a kernel that TVM could not compile what runs without one."""
        problem = answers[step.symbol].problem if isinstance(step, KernelCall) else None
        if problem is None or not isinstance(step, KernelCall):
            return step
        return without_kernel(self.graph, step.members, self.weights, f"{step.symbol}: {problem}", self.last)

    def _scalars(self, kernel: Kernel) -> dict[int, Array]:
        """Constants of one element: they are written into the code."""
        read = {v for m in kernel.members for v in self.graph.operators[m].inputs if v is not None}
        constants = [self.graph.values[value] for value in sorted(read) if self._is_constant(value)]
        single = {v.name for v in constants if v.type is not None and v.type.is_static and v.type.elements() == 1}
        return {v: self.weights[name] for v in read if (name := self.graph.values[v].name) in single}

    def _is_constant(self, value: int) -> bool:
        return is_constant(self.graph, value, self.weights.model)

    def _find_equal(self, function: KernelFunction, parts: tuple[Part, ...]) -> str:
        """The name of an equal kernel that came before, or its own."""
        name = str(function.prim_func.attrs["global_symbol"])
        name += "".join(f"_{part.first}of{part.extent}" for part in parts)
        nameless = function.prim_func.without_attr("global_symbol")
        alike = self._by_hash.setdefault(int(tvm_ffi.structural_hash(nameless)), [])
        for other in alike:
            is_equal = tvm_ffi.structural_equal(nameless, self.functions[other].without_attr("global_symbol"))
            if is_equal and self.parts[other] == parts:
                return other
        name = name if name not in self.functions else f"{name}_{len(self.functions)}"
        alike.append(name)
        self.parts[name] = parts
        self.functions[name] = function.prim_func.with_attr("global_symbol", name)
        return name


@dataclass
class ScheduleCheck:
    """Whether a rule schedules operators as one kernel on a target; each kernel is tried once with each rule."""

    kernels: DistinctKernels
    target: Target
    answers: dict[tuple[str, str], bool] = field(default_factory=dict)

    def __call__(self, members: Members, rule: str) -> bool:
        function = self.kernels.lower(Kernel(members))
        if isinstance(function, str):
            return False
        key = task_key(function.prim_func), rule
        if key not in self.answers:
            self.answers[key] = fits_rule(rule, function.prim_func, self.target.device, self.target.threads)
        return self.answers[key]
