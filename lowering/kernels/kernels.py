"""The kernels of a cut graph as object files: ``OperatorGraph, kernels -> Prepared``.

Each kernel becomes a PrimFunc, those that are equal but for their weights the same one; it is scheduled and compiled in
a process of its own. What has no lowering, or is more than TVM can compile, is left to ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from ...ir.graph import OperatorGraph
from ..errors import LoweringError
from ..interface import static_type
from ..schedules.decisions import Decisions
from ..target import Target
from ..weights import Weights
from .channels_last import last_shape
from .fallback import Fallback
from .intensive import joined
from .kernel_functions import Array, Call, Fitting, KernelFunctions, task_key
from .kernel_messages import Answer, Request
from .kernel_pool import compile_kernels
from .product_chains import with_chains
from .steps import View, steps

Observer = Callable[[str], None]
"""Called with a line on what was just done."""


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
    decisions: Mapping[str, Decisions] | None = None,
) -> Prepared:
    """Compile the kernels of a graph into `folder`, in several processes at once.

    `kernels` are the graph's operators in groups, in an order in which they can run. The `plain` ones, by symbol, get
    the plainest schedule, others that of their `decisions`, by `task_key`. Raises LoweringError where something has no
    fixed shape, and where what has no lowering cannot run elsewhere either.
    """
    groups = [tuple(kernel) for kernel in kernels]
    table = KernelFunctions.of(graph, groups, weights)
    plan = [table.settle(step) for step in steps(table.graph, groups)]
    answers = _compiled(table.functions, target, folder, processes, observer, plain, decisions)
    settled = tuple(table.resettle(step, answers) for step in plan)
    objects = {name: folder / f"{name}.o" for name, answer in answers.items() if answer.problem is None}
    made = Prepared(table.graph, weights, settled, objects, answers, table.last)
    _require_supported(made.fallbacks, target)
    return made


def intensive_kernels(
    graph: OperatorGraph, kernels: Iterable[Sequence[int]], weights: Weights, target: Target
) -> tuple[tuple[int, ...], ...]:
    """The kernels, those joined to one with several anchor ops that have a schedule as such and save time."""
    apart = [tuple(kernel) for kernel in kernels]
    table = KernelFunctions.of(graph, apart, weights)
    fits = Fitting(table, target)
    pairs = joined(table.graph, apart, target.device, fits)
    return with_chains(table.graph, pairs, target.device, target.threads, fits)


def _compiled(
    functions: Mapping[str, Any],
    target: Target,
    folder: Path,
    processes: int,
    observer: Observer,
    plain: Collection[str],
    decisions: Mapping[str, Decisions] | None,
) -> dict[str, Answer]:
    """What the compiler says of each function, in their order; those that went well are object files in `folder`."""
    requests = [
        Request(
            name, tvm.ir.save_json(function), target.device, target.description, str(folder / f"{name}.o"),
            target.threads,
            name not in plain,
            decisions.get(task_key(function), {}) if decisions else {},
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
    if fallbacks and not target.is_library:
        reasons = "; ".join(dict.fromkeys(f"{', '.join(f.operators)}: {f.reason}" for f in fallbacks))
        raise LoweringError(f"--target {target.name}: {len(fallbacks)} kernel(s) cannot be compiled: {reasons}")
