"""The kernels of a cut graph as object files: ``OperatorGraph, kernels -> Prepared``.

Each kernel becomes a PrimFunc, those that are equal but for their weights the same one; it is scheduled and compiled in
a process of its own. What has no lowering, or is more than TVM can compile, is left to ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from ..costmodels.types import TensorType
from ..extract.partition.graph import OperatorGraph, Value
from .channels_last import channels_last, channels_last_values, last_shape
from .compute import lowerable
from .errors import LoweringError
from .fallback import Fallback, fallback, is_constant, static_type
from .intensive import joined
from .kernel_function import KernelFunction, kernel_function
from .kernel_messages import Answer, Request
from .kernel_pool import compile_kernels
from .product_chains import with_chains
from .schedules import constants, is_intensive
from .steps import Kernel, Step, View, steps
from .target import Target
from .weights import Weights

_NAMED_OPERATORS = 4

Array = np.ndarray[Any, Any]
Observer = Callable[[str], None]
"""Called with a line on what was just done."""


@dataclass(frozen=True)
class Call:
    """A kernel as the model calls it: `symbol` among the objects, on values of the graph."""

    symbol: str
    members: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Prepared:
    """Steps in running order, and the object file of each distinct kernel by its symbol.

    `answers` are what the compiler said of each, by symbol too.
    """

    graph: OperatorGraph
    weights: Weights
    steps: tuple[View | Call | Fallback, ...]
    objects: Mapping[str, Path]
    answers: Mapping[str, Answer]
    channels_last: frozenset[int] = frozenset()
    """Values that are stored with their channels last (see the module of that name)."""

    def stored_shape(self, value: int) -> tuple[int, ...]:
        """The shape of a value in memory. Raises LoweringError where it is not known before the run."""
        shape = tuple(int(d) for d in static_type(self.graph, value).shape or ())
        return last_shape(shape) if value in self.channels_last else shape

    @property
    def calls(self) -> tuple[Call, ...]:
        """The steps that are compiled kernels."""
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def recovered(self) -> tuple[str, ...]:
        """The kernels that got a plain schedule since the compiler crashed on theirs or took too long, and why."""
        return tuple(f"{a.name}: {a.recovered}" for a in self.answers.values() if a.recovered and not a.problem)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The steps that ONNX Runtime runs, numbered by their place here."""
        return tuple(step for step in self.steps if isinstance(step, Fallback))

    def constant(self, call: Call, position: int) -> Array:
        """The elements of a constant input of a kernel, packed the way its schedule reads them."""
        array = self.weights[self.graph.values[call.inputs[position]].name]
        for repack in self.packing(call, position):
            array = repack(array)
        return array

    def packing(self, call: Call, position: int) -> tuple[Any, ...]:
        """How an input is to be packed, in order; values (not identities) that compare and hash."""
        return tuple(repack for repack in self.answers[call.symbol].repack if repack.parameter == position)


def prepare(
    graph: OperatorGraph,
    kernels: Iterable[Sequence[int]],
    weights: Weights,
    target: Target,
    folder: Path,
    processes: int,
    observer: Observer = lambda line: None,
    plain: Collection[str] = (),
) -> Prepared:
    """Compile the kernels of a graph into `folder`, in several processes at once.

    `kernels` are the graph's operators in groups, in an order in which they can run; the `plain` ones, by symbol, get
    the plainest schedule. Raises LoweringError where something has no fixed shape, and where what has no lowering
    cannot run elsewhere either.
    """
    graph = _with_constant_types(graph, weights)
    order = tuple(steps(graph, kernels))
    table = _Kernels(graph, weights, channels_last_values(graph, order))
    plan = [table.settle(step) for step in order]
    answers = _compiled(table.functions, target, folder, processes, observer, plain)
    settled = tuple(table.resettle(step, answers) for step in plan)
    objects = {name: folder / f"{name}.o" for name, answer in answers.items() if answer.problem is None}
    made = Prepared(graph, weights, settled, objects, answers, table.last)
    _require_supported(made.fallbacks, target)
    return made


def intensive_kernels(
    graph: OperatorGraph, kernels: Iterable[Sequence[int]], weights: Weights, target: Target
) -> tuple[tuple[int, ...], ...]:
    """The kernels, those joined to one with several anchor ops that have a schedule as such and save time."""
    graph = _with_constant_types(graph, weights)
    apart = [tuple(kernel) for kernel in kernels]
    table = _Kernels(graph, weights, channels_last_values(graph, tuple(steps(graph, apart))))

    known: dict[int, bool] = {}

    def fits(members: tuple[int, ...]) -> bool:
        (kernel,) = (step for step in steps(graph, [members]) if isinstance(step, Kernel))
        made = table.function(kernel)
        if isinstance(made, str):
            return False
        key = int(tvm_ffi.structural_hash(made.prim_func.without_attr("global_symbol")))
        if key not in known:
            known[key] = is_intensive(made.prim_func, target.device, target.threads)
        return known[key]

    pairs = joined(graph, apart, target.device, fits)
    return with_chains(graph, pairs, target.device, target.threads, fits)


def _with_constant_types(graph: OperatorGraph, weights: Weights) -> OperatorGraph:
    """The graph with the types of constants that nodes compute, which are known once they are."""

    def typed(number: int, value: Value) -> Value:
        if value.type is not None or not is_constant(graph, number, weights.model):
            return value
        array = weights[value.name]
        return replace(value, type=TensorType(array.dtype.name, array.shape))

    return replace(graph, values=tuple(typed(number, value) for number, value in enumerate(graph.values)))


@dataclass
class _Kernels:
    """The kernels of a graph, each distinct one once."""

    graph: OperatorGraph
    weights: Weights
    last: frozenset[int]
    functions: dict[str, Any] = field(default_factory=dict)
    by_hash: dict[int, list[str]] = field(default_factory=dict)

    def settle(self, step: Step) -> View | Call | Fallback:
        """How a step is to be run."""
        if isinstance(step, View):
            return step
        made = _obstacle(self.graph, step) or self.function(step)
        if isinstance(made, str):
            return fallback(self.graph, step.members, self.weights, made, self.last)
        return Call(self._distinct(made), step.members, made.inputs, made.outputs)

    def function(self, kernel: Kernel) -> KernelFunction | str:
        """Its PrimFunc, or what the lowering stumbled over."""
        try:
            made = kernel_function(self.graph, kernel.members, self._name(kernel), self._scalars(kernel))
        except Exception as error:  # TVM raises many kinds; the kernel still runs, elsewhere
            return " ".join(f"{type(error).__name__}: {error}".split())[:200]
        positions = tuple(position for position, value in enumerate(made.inputs) if self._is_constant(value))
        stored = {n for n, value in enumerate((*made.inputs, *made.outputs)) if value in self.last}
        return replace(made, prim_func=channels_last(constants(made.prim_func, positions), stored))

    def resettle(self, step: View | Call | Fallback, answers: Mapping[str, Answer]) -> View | Call | Fallback:
        """The step, or a fallback for a kernel that TVM could not compile."""
        problem = answers[step.symbol].problem if isinstance(step, Call) else None
        if problem is None or not isinstance(step, Call):
            return step
        return fallback(self.graph, step.members, self.weights, f"{step.symbol}: {problem}", self.last)

    def _scalars(self, kernel: Kernel) -> dict[int, Array]:
        """Constants of one element: they are written into the code."""
        read = {v for m in kernel.members for v in self.graph.operators[m].inputs if v is not None}
        known = [self.graph.values[value] for value in sorted(read) if self._is_constant(value)]
        single = {v.name for v in known if v.type is not None and v.type.is_static and v.type.elements() == 1}
        return {v: self.weights[name] for v in read if (name := self.graph.values[v].name) in single}

    def _is_constant(self, value: int) -> bool:
        return is_constant(self.graph, value, self.weights.model)

    def _name(self, kernel: Kernel) -> str:
        """``kernel_3_conv_relu``, a C identifier."""
        operators = "_".join(self.graph.operators[m].op.lower() for m in kernel.members[:_NAMED_OPERATORS])
        return f"kernel_{len(self.functions)}_{operators}"

    def _distinct(self, made: KernelFunction) -> str:
        """The name of an equal kernel that came before, or its own."""
        name = str(made.prim_func.attrs["global_symbol"])
        nameless = made.prim_func.without_attr("global_symbol")
        alike = self.by_hash.setdefault(int(tvm_ffi.structural_hash(nameless)), [])
        for other in alike:
            if tvm_ffi.structural_equal(nameless, self.functions[other].without_attr("global_symbol")):
                return other
        alike.append(name)
        self.functions[name] = made.prim_func
        return name


def _obstacle(graph: OperatorGraph, kernel: Kernel) -> str | None:
    """Why a kernel has no lowering; None where it has one."""
    reasons = (lowerable(graph.operators[member], graph) for member in kernel.members)
    return next((reason for reason in reasons if reason is not None), None)


def _compiled(
    functions: Mapping[str, Any],
    target: Target,
    folder: Path,
    processes: int,
    observer: Observer,
    plain: Collection[str],
) -> dict[str, Answer]:
    """What the compiler says of each function, in their order; those that went well are object files in `folder`."""
    requests = [
        Request(
            name, tvm.ir.save_json(function), target.device, target.description, str(folder / f"{name}.o"),
            target.threads,
            name not in plain,
        )
        for name, function in functions.items()
    ]  # fmt: skip
    answers: dict[str, Answer] = {}
    for answer in compile_kernels(requests, processes):
        answers[answer.name] = answer
        said = answer.problem or answer.recovered
        outcome = f" ({said})" if said else ""
        observer(f"kernel {len(answers)} of {len(requests)}: {answer.name}{outcome}")
    return {request.name: answers[request.name] for request in requests}


def _require_supported(fallbacks: Sequence[Fallback], target: Target) -> None:
    if fallbacks and not target.is_host:
        reasons = "; ".join(dict.fromkeys(f"{', '.join(f.operators)}: {f.reason}" for f in fallbacks))
        raise LoweringError(f"--target {target.name}: {len(fallbacks)} kernel(s) cannot be compiled: {reasons}")
