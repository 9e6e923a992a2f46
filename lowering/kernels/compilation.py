"""The kernels of a partitioned graph as object files: ``OperatorGraph, kernels -> CompiledKernels``.

Each kernel becomes a PrimFunc, those that are equal but for their weights the same one; it is scheduled and compiled in
a process of its own. Operators without a lowering, and kernels that TVM cannot compile, are plain C loops,
or left to ONNX Runtime.

Objects of kernels that were compiled before, for any model, come from a store. The key is a digest of all that they
depend on: what the kernel computes, its name, the target, the device, threads, decisions, parameters that are parts,
and the versions of TVM and of the sources that schedule it.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import tvm

from ...extract.partition.placement import Place
from ...ir.graph import OperatorGraph
from ...ir.types import Dimension
from ...support.store import Store, source_digest
from ..base.errors import LoweringError
from ..base.interface import known_type
from ..base.linking import Linker
from ..base.target import Target
from ..base.toolchain import machine_options, versions
from ..base.weights import Weights
from ..plan.plan import CALLBACK
from .bodies import call_kernels, find_kernels
from .channels_last import last_shape
from .fallback import Fallback, LoopCall
from .messages import Answer, Choices, Request
from .pool import compile_requests
from .prim_funcs import Array, DistinctKernels, KernelCall, LoweredKernels, LoweredStep, task_key
from .steps import InPlace, steps
from .variants import Members

Observer = Callable[[str], None]
"""Called with a line about each kernel that was compiled."""


KEPT = 2000
"""How many objects stay, of some 30 kB each; the ones that were not used for the longest time go."""
_SOURCES = ("lowering/schedules", "lowering/kernels")
"""The packages that make an object of a function."""
@dataclass(frozen=True)
class SpecialKernels:
    """Kernels for a call of these `sizes`, by the names of dynamic dimensions; as many steps as those for all calls."""

    sizes: Mapping[str, int]
    kernels: CompiledKernels


@dataclass(frozen=True)
class CompiledKernels:
    """Steps in running order, and the object file of each distinct kernel, and of plain loops, by its symbol.

    `answers` of the compiler are by symbol too.
    """

    graph: OperatorGraph
    weights: Weights
    steps: tuple[LoweredStep, ...]
    objects: Mapping[str, Path]
    answers: Mapping[str, Answer]
    channels_last: frozenset[int] = frozenset()
    """Values that are stored with their channels last (see the module of that name)."""
    places: Mapping[int, Place] = field(default_factory=dict)
    """Values that are parts of others, and where in memory."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of the kernels' tasks (`task_key`), by symbol."""
    special: tuple[SpecialKernels, ...] = ()
    """The same steps, with kernels for calls of certain sizes alone."""

    def stored_shape(self, value: int) -> tuple[Dimension, ...]:
        """The shape of a value in memory: numbers, and texts of sizes. Raises LoweringError if one does not follow
        from those of the inputs."""
        shape = known_type(self.graph, value).shape or ()
        return last_shape(shape) if value in self.channels_last else shape

    def whole_shape(self, value: int) -> tuple[Dimension, ...]:
        """The shape in memory of the tensor that a value is, or is a part of."""
        shape, place = self.stored_shape(value), self.places.get(value)
        return shape if place is None else (*shape[: place.axis], place.extent, *shape[place.axis + 1 :])

    @property
    def in_place(self) -> frozenset[int]:
        """The operators whose parts kernels make or read in place."""
        return frozenset(member for step in self.steps if isinstance(step, InPlace) for member in step.members)

    @property
    def calls(self) -> tuple[KernelCall, ...]:
        """The steps that are compiled kernels."""
        return tuple(step for step in self.steps if isinstance(step, KernelCall))

    @property
    def all_objects(self) -> list[Path]:
        """The object files, those of special kernels too; of equal kernels one."""
        objects = {name: path for special in self.special for name, path in special.kernels.objects.items()}
        return list({**objects, **self.objects}.values())

    @property
    def recovered(self) -> tuple[str, ...]:
        """The kernels that got a plain schedule since the compiler crashed on theirs or took too long, those that got
        the schedule of another rule since TVM could not compile that of the first, and why."""
        compiled = [answer for answer in self.answers.values() if not answer.problem]
        plain = (f"{each.name}: {each.recovered}; now a plain schedule" for each in compiled if each.recovered)
        others = (f"{each.name}: {'; '.join(each.failed)}; now {each.rule}" for each in compiled if each.failed)
        return (*plain, *others)

    @property
    def loops(self) -> dict[str, list[Members]]:
        """The operators of each call of each program of plain loops, by its symbol."""
        found: dict[str, list[Members]] = {}
        for step in self.steps:
            if isinstance(step, LoopCall):
                found.setdefault(step.symbol, []).append(step.members)
        return found

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The steps that ONNX Runtime runs, numbered by their place here."""
        return tuple(step for step in self.steps if isinstance(step, Fallback))

    def named_steps(self) -> Iterator[tuple[str, Members]]:
        """The steps in running order: the symbol of a kernel or the name of a fallback, and its operators."""
        numbers = itertools.count()
        for step in self.steps:
            if isinstance(step, KernelCall | LoopCall):
                yield step.symbol, step.members
            elif isinstance(step, Fallback):
                yield f"{CALLBACK}{next(numbers)}", step.members

    def constant(self, call: KernelCall, position: int) -> Array:
        """The elements of a constant input of a kernel, packed the way its schedule reads them."""
        array = self.weights[self.graph.values[call.inputs[position]].name]
        for repack in self.packing(call, position):
            array = repack(array)
        return array

    def packing(self, call: KernelCall, position: int) -> tuple[Any, ...]:
        """How an input is to be packed, in order; values (not identities) that compare and hash."""
        return tuple(repack for repack in self.answers[call.symbol].repack if repack.parameter == position)


def compile_kernels(
    graph: OperatorGraph,
    kernels: Iterable[Sequence[int]],
    weights: Weights,
    target: Target,
    folder: Path,
    processes: int,
    observer: Observer = lambda line: None,
    choices: Choices | None = None,
    lowered: LoweredKernels | None = None,
    alike: CompiledKernels | None = None,
    refused: frozenset[int] = frozenset(),
) -> CompiledKernels:
    """Compile the kernels of a graph into `folder`, in several processes at once; those of the object store are copied.

    `kernels` are the graph's operators in groups, in an order in which they can run; the device model chooses
    their schedules unless the `choices` do. `lowered` keeps functions for other partitions of the graph.
    Values are stored as by the kernels `alike` if there are any, which are for calls of any size. The operators
    `refused` are kernels, whatever makes or reads their parts. Raises LoweringError if something has no fixed shape,
    or if an operator without a lowering cannot run elsewhere either.
    """
    choices = choices or Choices()
    groups = [tuple(kernel) for kernel in kernels]
    distinct = DistinctKernels.of(graph, groups, weights, lowered, alike.channels_last if alike else None)
    distinct.last -= choices.plain
    runtime = {} if target.is_alone else choices.runtime
    planned = list(steps(distinct.graph, groups))
    if alike:
        distinct.places, distinct.in_place = alike.places, alike.in_place
    else:
        distinct.find_places(planned, runtime, refused)
    lowered_steps = [distinct.lower_step(step, runtime) for step in planned]
    inner = {
        step.symbol: calls
        for step in lowered_steps
        if isinstance(step, LoopCall) and (calls := find_kernels(step, distinct, target))
    }
    keys = {name: task_key(function) for name, function in distinct.functions.items()}
    answers = _compile_all(_make_requests(distinct, keys, choices, target, folder), keys, processes, observer)
    if failed := _touched_by_failed(lowered_steps, distinct, answers) if alike is None else None:
        return compile_kernels(
            graph, groups, weights, target, folder, processes, observer, choices, lowered, refused=refused | failed
        )
    compiled_steps = tuple(
        call_kernels(step, inner[step.symbol], answers, distinct.graph)
        if isinstance(step, LoopCall) and step.symbol in inner
        else distinct.replace_failed(step, answers)
        for step in lowered_steps
    )
    objects = {name: folder / f"{name}.o" for name, answer in answers.items() if answer.problem is None}
    objects |= _compile_loops(compiled_steps, target, folder)
    compiled = CompiledKernels(
        distinct.graph, weights, compiled_steps, objects, answers, distinct.last, distinct.places, keys
    )
    if compiled.fallbacks and target.is_alone:
        reasons = "; ".join(dict.fromkeys(f"{', '.join(f.operators)}: {f.reason}" for f in compiled.fallbacks))
        count = len(compiled.fallbacks)
        raise LoweringError(f"--target {target.name}: {count} kernel(s) cannot be compiled: {reasons}")
    return compiled


def _make_requests(
    distinct: DistinctKernels, keys: Mapping[str, str], choices: Choices, target: Target, folder: Path
) -> list[Request]:
    """The requests to the compiling processes: an object file in `folder` for each function."""
    return [
        Request(
            name, tvm.ir.save_json(function), target.device, target.description, str(folder / f"{name}.o"),
            target.threads,
            decisions=choices.decisions.get(keys[name], {}),
            without=choices.without.get(keys[name], frozenset()),
            parts=distinct.parts[name],
        )
        for name, function in distinct.functions.items()
    ]  # fmt: skip


def _touched_by_failed(
    lowered: Sequence[LoweredStep], distinct: DistinctKernels, answers: Mapping[str, Answer]
) -> frozenset[int]:
    """The operators whose parts kernels make or read that TVM could not compile: loops take dense tensors."""
    failed = [step for step in lowered if isinstance(step, KernelCall) and answers[step.symbol].problem is not None]
    values = {value for step in failed for value in (*step.inputs, *step.outputs)} & distinct.places.keys()
    touched = (s for s in lowered if isinstance(s, InPlace) and not values.isdisjoint((*s.inputs, *s.outputs)))
    return frozenset(member for step in touched for member in step.members)


def _compile_all(
    requests: Sequence[Request], keys: Mapping[str, str], processes: int, observer: Observer
) -> dict[str, Answer]:
    """The answers by name, in the order of the requests; the observer hears of each as it comes in."""
    answers: dict[str, Answer] = {}
    for answer in _compile(requests, keys, processes):
        answers[answer.name] = answer
        said = answer.problem or answer.recovered
        outcome = f" ({said})" if said else ""
        observer(f"kernel {len(answers)} of {len(requests)}: {answer.name}{outcome}")
    return {request.name: answers[request.name] for request in requests}


def _compile_loops(steps: Iterable[LoweredStep], target: Target, folder: Path) -> dict[str, Path]:
    """The object file of each distinct plain loop, by its symbol."""
    programs = {step.symbol: step.program for step in steps if isinstance(step, LoopCall)}
    if not programs:
        return {}
    linker = Linker.of(target.architecture, machine_options(target.triple, target.cpu))
    return {name: program.compile(linker, folder / f"{name}.o") for name, program in programs.items()}


def _compile(requests: Sequence[Request], keys: Mapping[str, str], processes: int) -> Iterator[Answer]:
    """An answer for each request, first those of the object store, then others in the order they come in."""
    store, rest = ObjectStore.in_cache(), []
    for request in requests:
        answer = store.fetch(request, keys[request.name])
        if answer is None:
            rest.append(request)
        else:
            yield answer
    by_name = {request.name: request for request in rest}
    for answer in compile_requests(rest, processes) if rest else ():
        store.keep(by_name[answer.name], keys[answer.name], answer)
        yield answer
    if rest:
        store.trim()




@dataclass(frozen=True)
class ObjectStore:
    """Objects in the user's cache folder. One that cannot be read is compiled again."""

    store: Store

    @staticmethod
    def in_cache() -> ObjectStore:
        """The store in ``$XDG_CACHE_HOME/eqfuse/objects``, by default under ``~/.cache``."""
        return ObjectStore(Store.in_cache("objects"))

    def fetch(self, request: Request, task: str) -> Answer | None:
        """Write the object of a request, whose function has the key `task`, and return its answer; None if there is
        none."""
        stored = self.store.read_bytes(_key(request, task))
        if stored is None:
            return None
        answer, content = pickle.loads(stored)
        Path(request.object_file).parent.mkdir(exist_ok=True)
        Path(request.object_file).write_bytes(content)
        kept: Answer = replace(answer, seconds=0.0)
        return kept

    def keep(self, request: Request, task: str, answer: Answer) -> None:
        """Keep an object that was compiled; not one for which another schedule had to be given up."""
        if answer.problem is None and answer.recovered is None:
            content = pickle.dumps((answer, Path(request.object_file).read_bytes()))
            self.store.keep_bytes(_key(request, task), content)

    def trim(self) -> None:
        """Remove the oldest objects beyond those that stay."""
        self.store.trim(KEPT)


def _key(request: Request, task: str) -> str:
    chosen = (
        request.name, request.device, sorted(request.target.items()), request.threads, request.with_rules,
        sorted(request.decisions.items()), sorted(request.without), request.parts, task, _software(),
    )  # fmt: skip
    return sha256(repr(chosen).encode()).hexdigest()


@cache
def _software() -> str:
    return repr(sorted(versions().items())) + source_digest(*_SOURCES)
