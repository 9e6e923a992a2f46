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
import onnx
from onnx import helper, numpy_helper

from ....engine.egraph.emit import Emission, emit_node
from ....engine.egraph.graph import ENode
from ....engine.onnx.typing import dtype_of
from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.operators import OPERATORS, VIEWS
from ....ir.types import TensorType
from ....support.errors import describe_error
from ....support.processes.worker_process import WorkerDiedError, WorkerPool, WorkerProcess
from ....support.processor import available_cores
from ....support.scratch import scratch_folder
from ...base.errors import DsaError
from ...base.linking import Linker
from ..program.instructions import Kernel
from .compile_worker import TileJob, TileResult

_OPSET = 24
"""The opset in which operators are written for ONNX Runtime."""
_FUNCTIONS = 8
"""The fewest functions of one process among several: it starts in 1.6 s and compiles one in 0.08 s (CPU, a Xeon)."""
_IR_VERSION = 10
"""The version of ONNX's format of these models; every supported ONNX Runtime reads it."""


class RuntimeTile:
    """A tile that ONNX Runtime computes, operator by operator: each is written in an opset that has it."""

    def __init__(self, graph: OperatorGraph, opset: int | None = None) -> None:
        """`opset` is the one of the network, whose attributes operators have that the rules do not know.

        Raises DsaError for an operator that cannot be written, or that ONNX Runtime does not run.
        """
        self._graph = graph
        self._sessions = [_session(operator.op, operator_model(graph, operator, opset)) for operator in graph.operators]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The results of a tile, in order; operands in order, in their own types."""
        values = self._graph.values
        inputs = [number for number, value in enumerate(values) if value.producer is None]
        computed = dict(zip(inputs, arrays, strict=True))
        for operator, session in zip(self._graph.operators, self._sessions, strict=True):
            results = session.run(None, {values[v].name: computed[v] for v in operator.inputs if v is not None})
            computed |= dict(zip(operator.outputs, map(np.asarray, results), strict=True))
        return [computed[number] for number, value in enumerate(values) if value.is_output]


def _session(op: str, model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base class of their own
        raise DsaError(f"{op}: ONNX Runtime does not run it as a tile: {' '.join(str(error).split())[:200]}") from None


def operator_model(graph: OperatorGraph, operator: Operator, opset: int | None) -> onnx.ModelProto:
    """An operator by itself. Raises DsaError if it cannot be written."""
    known = OPERATORS.get(operator.op)
    is_strange = operator.is_opaque or known is None or len(operator.inputs) > len(known.operands)
    if operator.is_opaque and opset is None:
        raise DsaError(f"{operator.op}: this form of it cannot be run as a tile without the opset of its model")
    version = opset if is_strange and opset is not None else _OPSET
    constants: list[onnx.TensorProto] = []
    node = _plain(graph, operator) if is_strange else _node(graph, operator, constants)
    read = dict.fromkeys(v for v in operator.inputs if v is not None)
    ports, results = ([_info(graph.values[v]) for v in values] for values in (read, operator.outputs))
    proto = helper.make_graph([node], "tile", ports, results, constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", version)], ir_version=_IR_VERSION)


def _info(value: Value) -> onnx.ValueInfoProto:
    assert value.type is not None
    return helper.make_tensor_value_info(value.name, int(dtype_of(value.type.dtype)), value.type.shape)


def _plain(graph: OperatorGraph, operator: Operator) -> onnx.NodeProto:
    """A node with the attributes that it had in its model, of any number of operands; what had others than numbers and
    texts is not complete."""
    if operator.is_opaque and operator.op not in OPERATORS:
        raise DsaError(f"{operator.op}: cannot be run as a tile, its attributes or its domain are not known")
    names = ["" if v is None else graph.values[v].name for v in operator.inputs]
    outputs = [graph.values[v].name for v in operator.outputs]
    attributes: dict[str, Any] = dict(operator.attributes)
    return helper.make_node(operator.op, names, outputs, **attributes)


def _node(graph: OperatorGraph, operator: Operator, constants: list[onnx.TensorProto]) -> onnx.NodeProto:
    """A node of canonical attributes; those that are inputs in ONNX become constants."""
    found = _emission(graph, operator)
    inputs = []
    for source in found.inputs:
        if isinstance(source, int):
            value = operator.inputs[source]
            inputs.append("" if value is None else graph.values[value].name)
        elif source is None:
            inputs.append("")
        else:
            inputs.append(f"c{len(constants)}")
            constants.append(numpy_helper.from_array(source, inputs[-1]))
    outputs = [graph.values[v].name for v in operator.outputs]
    return helper.make_node(found.op_type, inputs, outputs, domain=found.domain, **found.attributes)


def _emission(graph: OperatorGraph, operator: Operator) -> Emission:
    known = OPERATORS[operator.op]
    literals = tuple(operator.attributes.get(a.name, a.default) for a in known.attributes)
    types = [None if v is None else graph.values[v].type for v in operator.inputs]
    types += [None] * (len(known.operands) - len(types))
    children = tuple(-1 if type_ is None else number for number, type_ in enumerate(types))
    node = ENode(operator.op, literals, children)  # type: ignore[arg-type]
    found = emit_node(node, types, graph.values[operator.outputs[0]].type, _OPSET, {})
    if found is None or found.lines:
        raise DsaError(f"{operator.op}: this form of it cannot be run as a tile")
    return found


Array = np.ndarray[Any, Any]
Observer = Callable[[str], None]
_SECONDS = 20.0
"""Seconds that a process has for each of the kernels that it compiles, beside those to start."""
_START_SECONDS = 60.0
"""Seconds that a process has to start: it imports TVM."""
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
    """Compile what TVM can into the file `library`, which is not written if there is nothing to compile."""
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
            reason = describe_error(error)
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
    shares = _shares(texts, min(available_cores(), -(-len(texts) // _FUNCTIONS)))
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
