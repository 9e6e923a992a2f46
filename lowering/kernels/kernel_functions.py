"""The PrimFunc of each distinct kernel of a graph: ``OperatorGraph, steps -> PrimFuncs, calls``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np
import tvm_ffi

from ...ir.graph import OperatorGraph, Value
from ...ir.types import TensorType
from ..compute import lowerable
from ..schedules import is_intensive, mark_constants
from ..target import Target
from ..weights import Weights
from .channels_last import channels_last, channels_last_values
from .fallback import Fallback, fallback, is_constant
from .kernel_function import KernelFunction, kernel_function
from .kernel_messages import Answer
from .steps import Kernel, Step, View, steps

_NAMED_OPERATORS = 4

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """A kernel as the model calls it: `symbol` among the objects, on values of the graph."""

    symbol: str
    members: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass
class KernelFunctions:
    """The kernels of a graph, each distinct one once. Make one by `of`."""

    graph: OperatorGraph
    weights: Weights
    last: frozenset[int]
    functions: dict[str, Any] = field(default_factory=dict)
    by_hash: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: OperatorGraph, kernels: Iterable[Sequence[int]], weights: Weights) -> KernelFunctions:
        """None yet; `kernels`, in running order, decide how feature maps are stored."""
        graph = _with_constant_types(graph, weights)
        return cls(graph, weights, channels_last_values(graph, tuple(steps(graph, kernels))))

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
        return replace(made, prim_func=channels_last(mark_constants(made.prim_func, positions), stored))

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


@dataclass
class Fitting:
    """Whether operators have a schedule as one kernel of several anchor ops on a target; each kernel is tried once."""

    table: KernelFunctions
    target: Target
    known: dict[str, bool] = field(default_factory=dict)

    def __call__(self, members: tuple[int, ...]) -> bool:
        (kernel,) = (step for step in steps(self.table.graph, [members]) if isinstance(step, Kernel))
        made = self.table.function(kernel)
        if isinstance(made, str):
            return False
        key = task_key(made.prim_func)
        if key not in self.known:
            self.known[key] = is_intensive(made.prim_func, self.target.device, self.target.threads)
        return self.known[key]


def _obstacle(graph: OperatorGraph, kernel: Kernel) -> str | None:
    """Why a kernel has no lowering; None where it has one."""
    reasons = (lowerable(graph.operators[member], graph) for member in kernel.members)
    return next((reason for reason in reasons if reason is not None), None)


def task_key(function: Any) -> str:
    """What names a kernel for ever, whatever it is called: 64 hex digits of what it computes on which tensors.

    TVM's structural hash, which is the same in every process of a version, has but 64 bits; the tensors are added.
    """
    nameless = function.without_attr("global_symbol")
    tensors = [(str(b.dtype), tuple(map(int, b.shape))) for b in function.params]
    return sha256(f"{tvm_ffi.structural_hash(nameless)} {tensors}".encode()).hexdigest()


def _with_constant_types(graph: OperatorGraph, weights: Weights) -> OperatorGraph:
    """The graph with the types of constants that nodes compute, which are known once they are."""

    def typed(number: int, value: Value) -> Value:
        if value.type is not None or not is_constant(graph, number, weights.model):
            return value
        array = weights[value.name]
        return replace(value, type=TensorType(array.dtype.name, array.shape))

    return replace(graph, values=tuple(typed(number, value) for number, value in enumerate(graph.values)))
