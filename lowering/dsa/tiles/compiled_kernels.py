"""The kernels of tiles as functions on arrays: compiled by TVM, all of a process's as one module.

Schedules are those that match every function: searching for better ones takes longer than the simulated program runs.
What has no lowering, or is more than TVM can compile, ONNX Runtime runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....engine.summary import VIEWS
from ....ir.graph import OperatorGraph, Value
from ....ir.types import TensorType
from ....support.processor import available_cores
from ....support.scratch import scratch_folder
from ....support.worker_process import WorkerDiedError, WorkerProcess
from ..errors import DsaError
from ..program.instructions import Kernel
from .compile_messages import TileJob, TileResult
from .runtime_kernel import RuntimeTile

Array = np.ndarray[Any, Any]
Observer = Callable[[str], None]
_SECONDS = 20.0
"""How long a kernel may take, at most, beside those that are compiled with it."""
_NARROW = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class TileLibrary:
    """What a library of tile kernels holds: per function the values that are its inputs and outputs.

    `left` are the kernels that it does not hold, for ONNX Runtime, and why. What only copies is in neither.
    """

    functions: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    left: Mapping[str, str]


def compiled_kernels(
    graphs: Mapping[str, OperatorGraph],
    observer: Observer = lambda line: None,
    opset: int | None = None,
    processes: int | None = None,
) -> dict[str, Kernel]:
    """A function for each tile's graph, by name. Narrow floats are computed as float32, whatever arrays hold them.

    `opset` is the one of the network: it says what attributes mean that the rules do not know. Raises DsaError for an
    operator that neither TVM nor ONNX Runtime runs.
    """
    with scratch_folder("tiles") as folder:
        library = Path(folder) / "tiles.so"
        return loaded_kernels(graphs, build_kernels(graphs, library, observer, processes), library, opset)


def build_kernels(
    graphs: Mapping[str, OperatorGraph],
    library: Path,
    observer: Observer = lambda line: None,
    processes: int | None = None,
) -> TileLibrary:
    """Compile what TVM can into the file `library`, which is not written where there is nothing to compile."""
    wide = {name: _widened(graph) for name, graph in graphs.items() if not _only_copies(graph)}
    functions, reasons = _functions(wide)
    with scratch_folder("tiles") as folder:
        objects, problems = _objects(functions, Path(folder), processes or available_cores())
        if objects:
            _link(objects, library)
    observer(f"{len(functions) - len(problems)} tile kernels compiled, {len(graphs) - len(wide)} only copy")
    for name, reason in (reasons | problems).items():
        observer(f"tile kernel {name} ({_operators(wide[name])}) is left to ONNX Runtime: {reason}")
    held = {name: (tuple(f.inputs), tuple(f.outputs)) for name, f in functions.items() if name not in problems}
    return TileLibrary(held, reasons | problems)


def loaded_kernels(
    graphs: Mapping[str, OperatorGraph], built: TileLibrary, library: Path, opset: int | None = None
) -> dict[str, Kernel]:
    """The kernels of a library that `build_kernels` made of these graphs. Raises DsaError as `compiled_kernels`."""
    wide = {name: _widened(graph) for name, graph in graphs.items()}
    module = _module(library) if built.functions else {}

    def kernel(name: str) -> Kernel:
        graph = wide[name]
        if name in built.functions:
            return _Compiled(module[name], *built.functions[name], graph)
        return _InRuntime(graph, RuntimeTile(graph, opset)) if name in built.left else _View(graph)

    return {name: kernel(name) for name in graphs}


def _only_copies(graph: OperatorGraph) -> bool:
    return {operator.op for operator in graph.operators} <= VIEWS


def _operators(graph: OperatorGraph) -> str:
    return ", ".join(dict.fromkeys(operator.op for operator in graph.operators))


def _widened(graph: OperatorGraph) -> OperatorGraph:
    """The graph with float32 for narrower floats."""

    def value(given: Value) -> Value:
        narrow = given.type is not None and given.type.dtype in _NARROW
        return replace(given, type=TensorType("float32", given.type.shape)) if narrow and given.type else given

    operators = (
        replace(o, attributes={**o.attributes, "to": "float32"}) if o.attributes.get("to") in _NARROW else o
        for o in graph.operators
    )
    return OperatorGraph(tuple(operators), tuple(map(value, graph.values)))


def _array(given: Array, value: Value) -> Array:
    """What is given, row by row in the type that is computed with."""
    assert value.type is not None
    return np.ascontiguousarray(given, dtype=np.dtype(value.type.dtype)).reshape(value.extent.dimensions)


# --- by TVM


def _functions(graphs: Mapping[str, OperatorGraph]) -> tuple[dict[str, Any], dict[str, str]]:
    """The function of each graph, or why it has none."""
    from ...compute import lowerable
    from ...kernels.prim_funcs import lower_kernel

    found, reasons = {}, {}
    for name, graph in graphs.items():
        obstacles = (lowerable(operator, graph) for operator in graph.operators)
        reason = next((obstacle for obstacle in obstacles if obstacle is not None), None)
        try:
            if reason is None:
                found[name] = lower_kernel(graph, range(len(graph)), name)
        except Exception as error:  # TVM raises many kinds; the kernel still runs, elsewhere
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if reason is not None:
            reasons[name] = reason
    return found, reasons


def _objects(functions: Mapping[str, Any], folder: Path, processes: int) -> tuple[list[Path], dict[str, str]]:
    """Object files of the functions, and by name why some are not in them.

    A process that dies or takes too long costs its functions a second try, each by itself with the plainest schedule.
    """
    import tvm

    from ...target import target_of

    target = target_of("host", 1)
    texts = {name: tvm.ir.save_json(function.prim_func) for name, function in functions.items()}
    shares = _shares(texts, min(processes, len(texts)))
    jobs = [TileJob(share, target.device, target.description, str(folder / f"{n}.o")) for n, share in enumerate(shares)]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        results = list(pool.map(_run, jobs))
        again = [n for job, result in zip(jobs, results, strict=True) for n in result.missing(job)]
        alone = [
            replace(jobs[0], functions={n: texts[n]}, object_file=str(folder / f"{n}.o"), plain=True) for n in again
        ]
        second = list(pool.map(_run, alone))
    pairs = zip((*jobs, *alone), (*results, *second), strict=True)
    done = [Path(job.object_file) for job, result in pairs if result.names]
    return done, {n: result.problem for n, result in zip(again, second, strict=True) if not result.names}


def _shares(texts: Mapping[str, str], count: int) -> list[dict[str, str]]:
    """The functions dealt out, the long ones first."""
    order = sorted(texts, key=lambda name: (-len(texts[name]), name))
    return [{name: texts[name] for name in order[number::count]} for number in range(count)]


def _run(job: TileJob) -> TileResult:
    """A job in a process of its own: TVM may crash and take its process with it."""
    worker = WorkerProcess(f"{__package__}.compile_worker:compile_tiles")
    try:
        result: TileResult = worker.ask(job, 60.0 + _SECONDS * len(job.functions))
    except WorkerDiedError as error:
        return TileResult((), f"the compiler {error}")
    finally:
        worker.end()
    return result


def _link(objects: Sequence[Path], library: Path) -> None:
    from tvm.support import cc

    try:
        cc.create_shared(str(library), [str(path) for path in objects])
    except RuntimeError as error:
        raise DsaError(f"linking tile kernels failed: {' '.join(str(error).split())[-200:]}") from None


def _module(library: Path) -> Any:
    """The functions, by name."""
    from ...tvm_runtime import load_library, runtime

    runtime(1)
    return load_library(library)


@dataclass(frozen=True)
class _Compiled:
    """A function of TVM's on buffers of its own, which are aligned as it wants them."""

    function: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    graph: OperatorGraph

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        import tvm

        values, first = self.graph.values, len(inputs)
        given = [tvm.runtime.tensor(_array(inputs[v], values[v])) for v in self.inputs]
        made = [tvm.runtime.empty(values[v].extent.dimensions, _dtype(values[v])) for v in self.outputs]
        self.function(*given, *made)
        for value, result in zip(self.outputs, made, strict=True):
            outputs[value - first][...] = result.numpy()


def _dtype(value: Value) -> str:
    assert value.type is not None
    return value.type.dtype


# --- by numpy and ONNX Runtime


@dataclass(frozen=True)
class _View:
    """A tile that moves nothing: a copy, in other shapes."""

    graph: OperatorGraph

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        known: dict[int, Array] = dict(enumerate(inputs))
        for operator in self.graph.operators:
            source, result = operator.inputs[0], operator.outputs[0]
            assert source is not None
            known[result] = known[source].reshape(self.graph.values[result].extent.dimensions)
        for number, output in enumerate(outputs, len(inputs)):
            output[...] = known[number]


@dataclass(frozen=True)
class _InRuntime:
    """A tile that ONNX Runtime computes."""

    graph: OperatorGraph
    tile: RuntimeTile

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        pairs = zip(inputs, (value for value in self.graph.values if value.producer is None), strict=True)
        for output, result in zip(outputs, self.tile([_array(*pair) for pair in pairs]), strict=True):
            output[...] = result
