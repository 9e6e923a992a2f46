"""The kernels of tiles as functions on arrays: compiled by TVM, all of a process's as one module.

Schedules are those that match every function: searching for better ones takes longer than the simulated program runs.
What has no lowering, or is more than TVM can compile, ONNX Runtime runs.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....ir.graph import OperatorGraph, Value
from ....ir.operators import VIEWS
from ....ir.types import TensorType
from ....support.processes.worker_process import WorkerDiedError, WorkerPool, WorkerProcess
from ....support.processor import available_cores
from ....support.scratch import scratch_folder
from ...base.linking import Linker
from ..program.instructions import Kernel
from .compile_worker import TileJob, TileResult
from .runtime_kernel import RuntimeTile

Array = np.ndarray[Any, Any]
Observer = Callable[[str], None]
_SECONDS = 20.0
"""Seconds that a process has for each of the kernels that it compiles, beside those to start."""
_START_SECONDS = 60.0
_NARROW = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class TileLibrary:
    """A library of tile kernels: per function the values that are its inputs and outputs.

    `left` are the kernels that it does not hold, for ONNX Runtime, and why. Kernels that only copy are in neither.
    """

    functions: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    left: Mapping[str, str]


def compiled_kernels(
    graphs: Mapping[str, OperatorGraph], observer: Observer = lambda line: None, opset: int | None = None
) -> dict[str, Kernel]:
    """A function for each tile's graph, by name. Narrow floats are computed as float32, whatever arrays hold them.

    `opset` is the one of the network: it says what attributes mean that the rules do not know. Raises DsaError for an
    operator that neither TVM nor ONNX Runtime runs.
    """
    with scratch_folder("tiles") as folder:
        library = Path(folder) / "tiles.so"
        return loaded_kernels(graphs, build_kernels(graphs, library, observer), library, opset)


def build_kernels(graphs: Mapping[str, OperatorGraph], library: Path, observer: Observer) -> TileLibrary:
    """Compile what TVM can into the file `library`, which is not written where there is nothing to compile."""
    wide = {name: _widen(graph) for name, graph in graphs.items() if not _operators(graph).keys() <= VIEWS}
    functions, reasons = _functions(wide)
    with scratch_folder("tiles") as folder:
        objects, problems = _objects(functions, Path(folder))
        if objects:
            Linker.of(platform.machine()).link(tuple(objects), library)
    observer(f"{len(functions) - len(problems)} tile kernels compiled, {len(graphs) - len(wide)} only copy")
    for name, reason in (reasons | problems).items():
        observer(f"tile kernel {name} ({', '.join(_operators(wide[name]))}) is left to ONNX Runtime: {reason}")
    held = {name: (tuple(f.inputs), tuple(f.outputs)) for name, f in functions.items() if name not in problems}
    return TileLibrary(held, reasons | problems)


def loaded_kernels(
    graphs: Mapping[str, OperatorGraph], built: TileLibrary, library: Path, opset: int | None = None
) -> dict[str, Kernel]:
    """The kernels of a library that `build_kernels` made of these graphs. Raises DsaError as `compiled_kernels`."""
    wide = {name: _widen(graph) for name, graph in graphs.items()}
    module = _load(library) if built.functions else {}
    kernels: dict[str, Kernel] = {}
    for name, graph in wide.items():
        if name in built.functions:
            kernels[name] = _compiled_kernel(module[name], *built.functions[name], graph)
        else:
            kernels[name] = _runtime_kernel(graph, opset) if name in built.left else _copying_kernel(graph)
    return kernels


def _operators(graph: OperatorGraph) -> dict[str, None]:
    """The distinct operators, in order."""
    return dict.fromkeys(operator.op for operator in graph.operators)


def _widen(graph: OperatorGraph) -> OperatorGraph:
    """Take float32 for narrower floats."""
    operators = (
        replace(o, attributes={**o.attributes, "to": "float32"}) if o.attributes.get("to") in _NARROW else o
        for o in graph.operators
    )
    values = (
        replace(v, type=TensorType("float32", v.type.shape)) if v.type is not None and v.type.dtype in _NARROW else v
        for v in graph.values
    )
    return OperatorGraph(tuple(operators), tuple(values))


def _dtype(value: Value) -> str:
    assert value.type is not None
    return value.type.dtype


def _contiguous(array: Array, value: Value) -> Array:
    """An operand row by row, in the type that is computed with."""
    return np.ascontiguousarray(array, dtype=np.dtype(_dtype(value))).reshape(value.extent.dimensions)


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


def _objects(functions: Mapping[str, Any], folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Object files of the functions, and by name why some are not in them.

    A process that dies or takes too long costs its functions a second try, each by itself with the plainest schedule.
    """
    import tvm

    from ...base.target import target_of

    target = target_of("host", 1)
    texts = {name: tvm.ir.save_json(function.prim_func) for name, function in functions.items()}
    shares = _shares(texts, min(available_cores(), len(texts)))
    jobs = [TileJob(share, target.device, target.description, str(folder / f"{n}.o")) for n, share in enumerate(shares)]
    with WorkerPool(lambda: WorkerProcess(f"{__package__}.compile_worker:compile_tiles")) as pool:
        results = list(pool.ask_all(_run, jobs, len(jobs)))
        again = [n for job, r in zip(jobs, results, strict=True) for n in job.functions if n not in r.names]
        alone = [
            replace(jobs[0], functions={n: texts[n]}, object_file=str(folder / f"{n}.o"), plain=True) for n in again
        ]
        second = list(pool.ask_all(_run, alone, len(jobs)))
    pairs = zip((*jobs, *alone), (*results, *second), strict=True)
    done = [Path(job.object_file) for job, result in pairs if result.names]
    return done, {n: result.problem for n, result in zip(again, second, strict=True) if not result.names}


def _shares(texts: Mapping[str, str], count: int) -> list[dict[str, str]]:
    """The functions dealt out, the long ones first."""
    order = sorted(texts, key=lambda name: (-len(texts[name]), name))
    return [{name: texts[name] for name in order[number::count]} for number in range(count)]


def _run(process: WorkerProcess, job: TileJob) -> TileResult:
    """A job in another process: TVM may crash and take its process with it."""
    try:
        result: TileResult = process.ask(job, _START_SECONDS + _SECONDS * len(job.functions))
    except WorkerDiedError as error:
        return TileResult((), f"the compiler {error}")
    return result


def _load(library: Path) -> Any:
    """The functions of a library, by name."""
    import tvm

    return tvm.runtime.load_module(str(library))


def _compiled_kernel(
    function: Any, inputs: Sequence[int], outputs: Sequence[int], graph: OperatorGraph
) -> Kernel:
    """A function of TVM's on buffers of its own, which are aligned as it wants them."""
    import tvm

    def run(operands: Sequence[Array], results: Sequence[Array]) -> None:
        values, first = graph.values, len(operands)
        arguments = [tvm.runtime.tensor(_contiguous(operands[v], values[v])) for v in inputs]
        tensors = [tvm.runtime.empty(values[v].extent.dimensions, _dtype(values[v])) for v in outputs]
        function(*arguments, *tensors)
        for value, tensor in zip(outputs, tensors, strict=True):
            results[value - first][...] = tensor.numpy()

    return run


# --- by numpy and ONNX Runtime


def _copying_kernel(graph: OperatorGraph) -> Kernel:
    """A tile that computes nothing: a copy, in other shapes."""

    def run(operands: Sequence[Array], results: Sequence[Array]) -> None:
        arrays: dict[int, Array] = dict(enumerate(operands))
        for operator in graph.operators:
            source, result = operator.inputs[0], operator.outputs[0]
            assert source is not None
            arrays[result] = arrays[source].reshape(graph.values[result].extent.dimensions)
        for number, result_array in enumerate(results, len(operands)):
            result_array[...] = arrays[number]

    return run


def _runtime_kernel(graph: OperatorGraph, opset: int | None) -> Kernel:
    """A tile that ONNX Runtime computes."""
    tile, inputs = RuntimeTile(graph, opset), [value for value in graph.values if value.producer is None]

    def run(operands: Sequence[Array], results: Sequence[Array]) -> None:
        computed = tile([_contiguous(*pair) for pair in zip(operands, inputs, strict=True)])
        for array, result in zip(results, computed, strict=True):
            array[...] = result

    return run
