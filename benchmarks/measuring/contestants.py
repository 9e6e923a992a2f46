"""The compared programs, each in a process of its own that is stopped while another has its turn.

Thread pools spin for a while after a run (TVM's for a tenth of a second), so that in one process, or in two that are
awake, whoever comes next would share its cores with the one before. A stopped process has no thread that runs. So each
keeps its own defaults: ONNX Runtime spins within its turn, which is when it is fastest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.running.turns import wait_until_idle
from eqfuse.support.errors import EqfuseError

Array = NDArray[Any]
MOST_CALLS = 1000
"""Of one turn."""
LIBRARY = "module.so"
"""What a folder that TVM made has."""


class ContestantError(EqfuseError):
    """A tool that cannot compile or run the model."""


@dataclass(frozen=True)
class Setup:
    """A tool of `TOOLS`, a model and a number of threads. `bundle` is the folder of the compiled model, if any.

    `inputs` is a folder of inputs 0.npz, 1.npz, ...; without one they are random.
    """

    tool: str
    model: Path
    threads: int
    bundle: Path | None = None
    inputs: Path | None = None


@dataclass(frozen=True)
class Sample:
    """One turn: medians of the seconds of a call, wall-clock and CPU time of all threads.

    `mean` is the mean by the wall clock, in which every wait counts; 0 if it was not kept.
    """

    wall: float
    cpu: float
    mean: float = 0.0


class Session(Protocol):
    """A model that a tool has loaded."""

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], Any]:
        """A call on these inputs, with no copies of them in it."""
        ...

    def results(self, returned: Any) -> list[Array]:
        """The outputs among the values that a call returned."""
        ...


class _Bundle:
    """A bundle that eqfuse compiled."""

    def __init__(self, setup: Setup) -> None:
        from eqfuse.lowering.running.runner import load

        assert setup.bundle is not None
        self.model = load(setup.bundle, setup.threads)
        self.inputs: Mapping[str, Array] = {}

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], Any]:
        self.inputs = inputs
        return self.model.bind_inputs(inputs)

    def results(self, returned: Any) -> list[Array]:
        outputs = self.model.run(self.inputs)
        return [outputs[port.name] for port in self.model.outputs]


class _OnnxRuntime:
    """ONNX Runtime with all of its optimisations, inputs and outputs bound beforehand."""

    def __init__(self, setup: Setup) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = setup.threads, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(setup.model), options, providers=["CPUExecutionProvider"])

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], Any]:
        binding = self.session.io_binding()
        for value in self.session.get_inputs():
            binding.bind_cpu_input(value.name, inputs[value.name])
        for value in self.session.get_outputs():
            binding.bind_output(value.name, "cpu")

        def run() -> Any:
            self.session.run_with_iobinding(binding)
            return binding

        return run

    def results(self, returned: Any) -> list[Array]:
        return list(returned.copy_outputs_to_cpu())


def import_tvm(threads: int) -> Any:
    """The module `tvm`, whose own pool has that many threads. It reads the variables when it starts the pool."""
    os.environ.update(TVM_BIND_THREADS="0", TVM_NUM_THREADS=str(threads))
    import tvm

    little_and_big = 1
    tvm.get_global_func("runtime.config_threadpool")(little_and_big, threads)
    return tvm


class _Relax:
    """TVM's own importer and its default pipelines: operators fused, no schedules."""

    def __init__(self, setup: Setup) -> None:
        from eqfuse.lowering.base.target import target_of

        self.tvm = import_tvm(setup.threads)
        import onnx
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        target = self.tvm.target.Target(target_of("host", setup.threads).description)
        with target:
            module = relax.get_pipeline("zero")(from_onnx(onnx.load(setup.model)))
            executable = self.tvm.compile(module, target=target, relax_pipeline="default_build")
        self.names = [port.name for port in inputs_of(read(setup.model))]
        self.main = relax.VirtualMachine(executable, self.tvm.cpu())["main"]

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], Any]:
        return partial(self.main, *(self.tvm.runtime.tensor(inputs[name]) for name in self.names))

    def results(self, returned: Any) -> list[Array]:
        return [returned.numpy()] if hasattr(returned, "numpy") else [tensor.numpy() for tensor in returned]


class _MetaSchedule(_Relax):
    """A module with the schedules that TVM's own search found, from its library."""

    def __init__(self, setup: Setup) -> None:
        assert setup.bundle is not None
        self.tvm = import_tvm(setup.threads)
        from tvm import relax

        library = self.tvm.runtime.load_module(str(setup.bundle / LIBRARY))
        self.names = [port.name for port in inputs_of(read(setup.model))]
        self.main = relax.VirtualMachine(library, self.tvm.cpu())["main"]


class _OpenVino:
    """OpenVINO for the lowest latency of single calls, in float32."""

    def __init__(self, setup: Setup) -> None:
        import openvino

        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        settings = {**hints, "INFERENCE_NUM_THREADS": setup.threads, "NUM_STREAMS": 1}
        self.model = openvino.Core().compile_model(str(setup.model), "CPU", settings)
        self.names = [port.name for port in inputs_of(read(setup.model))]

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], Any]:
        import openvino

        request = self.model.create_infer_request()
        for name in self.names:
            request.set_tensor(name, openvino.Tensor(inputs[name]))

        def run() -> Any:
            request.infer()
            return request

        return run

    def results(self, returned: Any) -> list[Array]:
        return [returned.get_output_tensor(number).data for number in range(len(self.model.outputs))]


class _Mnn:
    """MNN in float32, from a file that its converter wrote. Modules keep their inputs; its sessions overwrite them."""

    def __init__(self, setup: Setup) -> None:
        import MNN

        self.names = [port.name for port in inputs_of(read(setup.model))]
        with tempfile.TemporaryDirectory() as folder:
            converted = f"{folder}/model.mnn"
            converter = str(Path(sys.executable).parent / "mnnconvert")
            files = ["--modelFile", str(setup.model), "--MNNModel", converted]
            command = [converter, "--framework", "ONNX", *files, "--bizCode", "x"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not Path(converted).is_file():
                said = done.stdout.split() or done.stderr.split()  # warnings of pip, which it calls, are errors' last
                raise ContestantError(" ".join(said)[-200:] or str(done.returncode))
            settings = {"backend": "CPU", "numThread": setup.threads, "precision": "high"}
            manager = MNN.nn.create_runtime_manager((settings,))
            outputs = [value.name for value in read(setup.model).graph.outputs]
            self.module = MNN.nn.load_module_from_file(converted, self.names, outputs, runtime_manager=manager)

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], Any]:
        return partial(self.module.forward, [_mnn_variable(inputs[name]) for name in self.names])

    def results(self, returned: Any) -> list[Array]:
        variables = returned if isinstance(returned, list | tuple) else [returned]
        return [np.array(variable.read()) for variable in variables]


def _mnn_variable(array: Array) -> Any:
    """MNN has float32 and integers of 32 bits."""
    from MNN import expr

    is_float = np.issubdtype(array.dtype, np.floating)
    cast = np.ascontiguousarray(array, np.float32 if is_float else np.int32)
    return expr.const(cast, list(cast.shape), expr.NCHW, expr.float if is_float else expr.int)


TOOLS: dict[str, Callable[[Setup], Session]] = {
    "eqfuse": _Bundle,
    "intensive off": _Bundle,
    "ONNX Runtime": _OnnxRuntime,
    "TVM Relax": _Relax,
    "tuned": _Bundle,
    "MetaSchedule": _MetaSchedule,
    "OpenVINO": _OpenVino,
    "MNN": _Mnn,
}
"""Who takes part, by the names of the columns."""

Request = Callable[["_Server"], Any]


@dataclass
class _Server:
    """In the process: a loaded model, and its call on the inputs that times are of, by their number."""

    setup: Setup
    session: Session
    calls: dict[int, Callable[[], Any]] = field(default_factory=dict)

    def inputs(self, seed: int) -> dict[str, Array]:
        if self.setup.inputs is None:
            return random_inputs(inputs_of(read(self.setup.model)), seed)
        with np.load(self.setup.inputs / f"{seed}.npz") as arrays:
            return dict(arrays)

    def outputs(self, seed: int) -> list[Array]:
        return [np.array(array) for array in self.session.results(self.session.bind(self.inputs(seed))())]

    def sample(self, seconds: float, seed: int) -> Sample:
        """Calls for about that long, after one that does not count, at least one."""
        if seed not in self.calls:
            self.calls = {seed: self.session.bind(self.inputs(seed))}
        call = self.calls[seed]
        call()
        wall: list[float] = []
        cpu: list[float] = []
        begun = time.perf_counter()
        while len(wall) < MOST_CALLS and (not wall or time.perf_counter() - begun < seconds):
            started, used = time.perf_counter(), time.process_time()
            call()
            cpu.append(time.process_time() - used)
            wall.append(time.perf_counter() - started)
        return Sample(median(wall), median(cpu), fmean(wall))


def _serve(setup: Setup, connection: Connection) -> None:
    """What the process does: load, then answer until there are no more requests. An exception is an answer too."""
    try:
        begun = time.perf_counter()
        server = _Server(setup, TOOLS[setup.tool](setup))
        seconds = time.perf_counter() - begun
        wait_until_idle()
        connection.send(seconds)
        while (request := connection.recv()) is not None:
            name, *arguments = request
            connection.send(getattr(server, name)(*arguments))
    except Exception as error:  # of many kinds; whoever asked has to know
        connection.send(ContestantError(f"{setup.tool}: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}"))


class Contestant:
    """A tool with a model loaded. Raises ContestantError if it cannot, or its process dies.

    `seconds` is what loading took, which for TVM's pipeline is compiling.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(setup, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.seconds: float = self._answer()
        self._stop()

    def outputs(self, seed: int) -> list[Array]:
        """The outputs for the inputs of that seed."""
        found: list[Array] = self._turn("outputs", seed)
        return found

    def sample(self, seconds: float, seed: int = 0) -> Sample:
        """One turn of about that long, on the inputs of that seed."""
        found: Sample = self._turn("sample", seconds, seed)
        return found

    @property
    def is_stopped(self) -> bool:
        """Whether all of its threads stand still."""
        tasks = Path(f"/proc/{self.process}/task").iterdir()
        return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _turn(self, name: str, *arguments: Any) -> Any:
        os.kill(self.process, signal.SIGCONT)
        self._connection.send((name, *arguments))
        found = self._answer()
        self._stop()
        return found

    def _answer(self) -> Any:
        try:
            found = self._connection.recv()
        except EOFError:
            self._process.join()
            raise ContestantError(f"{self.setup.tool}: its process ended with {self._process.exitcode}") from None
        if isinstance(found, ContestantError):
            raise found
        return found

    @property
    def process(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    def _stop(self) -> None:
        """Returns once the last of its threads stands still."""
        os.kill(self.process, signal.SIGSTOP)
        with suppress(ChildProcessError):  # it has just ended; the next turn says so
            os.waitid(os.P_PID, self.process, os.WSTOPPED)
