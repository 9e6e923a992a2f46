"""Measures kernels on other machines, through TVM's RPC: on as many at once as the tracker knows.

Each request has a session of its own, in one of several processes of this machine. The server ends a session that takes
too long, so that a kernel that hangs does not keep the device.
"""

from __future__ import annotations

import gc
import signal
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from ....ir.types import TensorType
from ....support.errors import UsageError, describe_error
from ....support.processes.worker_process import WorkerPool, WorkerProcess
from ....support.scratch import scratch_folder
from ...base.errors import TuningError
from ...base.linking import Linker
from .measuring import (
    COMPARISON,
    KernelObject,
    Rounds,
    RunKernels,
    Timing,
    ask,
    attempt,
    example_tensors,
    measuring_process,
)
from .sampling import Run

_LAST_PORT = 65535
_SECONDS = 5.0
"""Seconds that the tracker may take to answer in all; TVM's own client would wait for a minute or for ever."""
_LARGEST = 1 << 24
"""Bytes of an answer: a line for each of many thousand servers."""
_SOMETHING_ELSE = "something else listens there"


class _Server(msgspec.Struct):
    key: str


class _Summary(msgspec.Struct):
    """What the tracker says of itself, as far as it is of interest."""

    server_info: list[_Server]


@dataclass(frozen=True)
class Tracker:
    """The servers that registered as `key` with the tracker at that place."""

    host: str
    port: int
    key: str

    @staticmethod
    def at(address: str, key: str) -> Tracker:
        """The one at HOST:PORT. Raises UsageError if that is no address."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > _LAST_PORT:
            raise UsageError(f"{address}: is no address of an RPC tracker; write HOST:PORT, like 127.0.0.1:9190")
        return Tracker(host, int(port), key)

    def servers(self) -> int:
        """How many there are, busy ones too. Raises TuningError if no tracker answers."""
        try:
            return sum(server.key == f"server:{self.key}" for server in self._summary().server_info)
        except msgspec.MsgspecError:
            problem = _SOMETHING_ELSE
        except (OSError, ValueError, struct.error) as error:
            problem = str(error)
        raise TuningError(
            f"{self.host}:{self.port}: no RPC tracker answers ({problem}); start one there: "
            f"python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {self.port} --port-end {self.port + 1}"
        )

    def _summary(self) -> _Summary:
        """Ask the tracker for its servers. TVM's own client takes any answer, and waits for it for ever."""
        from tvm.rpc import base

        deadline = time.monotonic() + _SECONDS
        with socket.create_connection((self.host, self.port), timeout=_SECONDS) as connection:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            if _receive_number(connection, deadline) != base.RPC_TRACKER_MAGIC:
                raise ValueError(_SOMETHING_ELSE)
            base.sendjson(connection, [base.TrackerCode.SUMMARY])
            size = _receive_number(connection, deadline)
            if not 0 <= size <= _LARGEST:
                raise ValueError(_SOMETHING_ELSE)
            answer = _receive(connection, size, deadline)
        return msgspec.json.decode(answer, type=tuple[int, _Summary])[1]

    def required_servers(self) -> int:
        """The number of servers, at least one. Raises TuningError if there is none, or no tracker."""
        servers = self.servers()
        if not servers:
            raise TuningError(
                f"{self.host}:{self.port}: no RPC server with the key {self.key!r}; start one on the device: "
                f"python -m tvm.exec.rpc_server --tracker {self.host}:{self.port} --key {self.key}"
            )
        return servers

    def session(self, seconds: float) -> Any:
        """A session with a server, which ends it after that time. Waits until a server is free."""
        from tvm import rpc

        return rpc.connect_tracker(self.host, self.port).request(self.key, session_timeout=seconds)


def _receive_number(connection: socket.socket, deadline: float) -> int:
    return int(struct.unpack("<i", _receive(connection, 4, deadline))[0])


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    """The next `size` bytes. Raises OSError if they are not there by the deadline, at whatever pace they come."""
    received = bytearray()
    while len(received) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it answers too slowly")
        connection.settimeout(left)
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("it closed the connection")
        received += part
    return bytes(received)


ATTEMPTS = 3
"""How many sessions may be lost over a kernel before it is the kernel's fault."""
_LONGEST = 1200.0
"""Seconds until a request is given up: others may use the devices too, so it may wait for long."""
_PATIENCE = 10.0
"""Seconds that all servers may be gone: a device may be starting again."""
_SILENCE = 10.0
"""Seconds after which a session that the server should have ended is taken for lost."""
_LITTLE_AND_BIG = 1
"""TVM's affinity mode that takes any core."""


class RpcRunner:
    """Runs kernels on the servers with the key `device_key` of the tracker at HOST:PORT.

    They are linked for the target `triple` and run on `threads` threads; each may take `timeout` seconds on the device.
    With `whole_models` they are models with the runtime, which needs the C library's static part, too.
    Each runs in a session of its own; one whose session is lost runs again, on any server. Raises TuningError if
    there is no tracker or no server, here and later, and UsageError, ToolError or LoweringError without a linker.
    """

    def __init__(
        self,
        tracker: str,
        device_key: str,
        triple: str,
        threads: int,
        timeout: float = 10.0,
        *,
        whole_models: bool = False,
    ) -> None:
        architecture = triple.partition("-")[0]
        linker = Linker.of(architecture)
        self._tracker = Tracker.at(tracker, device_key)
        self._tracker.required_servers()
        self._folder = scratch_folder("libraries")
        guard = linker.guard(Path(self._folder.name))
        servers = RpcServers(self._tracker, architecture, guard, threads, timeout, whole_models)
        self._pool = WorkerPool(lambda: measuring_process(run_on_servers, servers))

    @property
    def name(self) -> str:
        return f"rpc:{self._tracker.key}"

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        return [rounds.timing for rounds in self._run_all([(kernel,) for kernel in kernels])]

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        return [rounds.pairs for rounds in self._run_all([(incumbent, challenger) for challenger in challengers])]

    def close(self) -> None:
        self._pool.close()
        self._folder.cleanup()

    def _run_all(self, requests: Sequence[Sequence[KernelObject]]) -> list[Rounds]:
        """The rounds of each request. Those whose session is lost run again behind the others."""
        answers = self._run_once(requests)
        for _ in range(ATTEMPTS - 1):
            lost = [place for place, rounds in enumerate(answers) if rounds.lost]
            again = self._run_once([requests[place] for place in lost])
            for place, rounds in zip(lost, again, strict=True):
                answers[place] = rounds
        return answers

    def _run_once(self, requests: Sequence[Sequence[KernelObject]]) -> list[Rounds]:
        if not requests:
            return []
        servers, seen = self._tracker.required_servers(), time.monotonic()

        def look_for_servers() -> None:
            nonlocal seen
            if self._has_servers():
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                self._tracker.required_servers()

        return list(self._pool.ask_all(_ask, requests, servers, meanwhile=look_for_servers))

    def _has_servers(self) -> bool:
        try:
            return self._tracker.servers() > 0
        except TuningError:
            return False


def _ask(process: WorkerProcess, kernels: Sequence[KernelObject]) -> Rounds:
    """The rounds of one request. Kernels run elsewhere: it is not their fault if a process dies here."""
    rounds = ask(process, kernels, _LONGEST)
    return rounds if rounds.seconds else replace(rounds, lost=rounds.lost or not process.is_running)


# --- in the other processes


def run_on_servers(servers: RpcServers) -> RunKernels:
    """Prepare this process to run kernels there."""
    import tvm  # noqa: F401  # before the first request, whose time runs

    return partial(attempt, servers.run)


@dataclass(frozen=True)
class RpcServers:
    """The servers of one kind, and how kernels run there: a measurement may take `seconds`.

    `guard` is linked to each kernel (see `Linker.guard`).
    """

    tracker: Tracker
    architecture: str
    guard: Path
    threads: int
    seconds: float
    whole_models: bool

    def run(self, kernels: Sequence[KernelObject]) -> Rounds:
        """Run the kernels on a server as soon as one is free."""
        seconds = self.seconds if len(kernels) == 1 else COMPARISON * self.seconds
        with scratch_folder("measure") as folder:
            linker = Linker.of(self.architecture)
            link = linker.link_model if self.whole_models else linker.link
            libraries = [Path(folder) / f"kernel_{number}.so" for number in range(len(kernels))]
            for kernel, library in zip(kernels, libraries, strict=True):
                link((kernel.object_file, self.guard), library)
            rounds = self._run_in_session(kernels, libraries, seconds)
        if rounds.problem:
            gc.collect()  # what refers to the session keeps the server busy
        return rounds

    def _run_in_session(self, kernels: Sequence[KernelObject], libraries: Sequence[Path], seconds: float) -> Rounds:
        from tvm.error import RPCSessionTimeoutError

        try:
            session = self.tracker.session(seconds)
        except (RuntimeError, OSError) as error:  # the server went away while it was handed out
            return Rounds(problem=describe_error(error), lost=True)
        signal.setitimer(signal.ITIMER_REAL, seconds + _SILENCE)
        try:
            return self._measure(session, kernels, libraries)
        except RPCSessionTimeoutError:
            return Rounds(problem=f"took longer than {seconds:g} s")
        except Exception as error:  # TVM raises many kinds
            return Rounds(problem=describe_error(error), lost=not _is_alive(session))

    def _measure(self, session: Any, kernels: Sequence[KernelObject], libraries: Sequence[Path]) -> Rounds:
        import tvm

        session.get_function("runtime.config_threadpool")(_LITTLE_AND_BIG, self.threads)

        @cache
        def upload(parameters: tuple[TensorType, ...]) -> list[Any]:
            return [tvm.runtime.tensor(array, session.cpu(0)) for array in example_tensors(parameters)]

        runs = []
        for kernel, library in zip(kernels, libraries, strict=True):
            session.upload(str(library))
            module = session.load_module(library.name)
            runs.append(_run(module, kernel, session.cpu(0), upload(kernel.parameters)))
        return Rounds.of(runs)


def _run(module: Any, kernel: KernelObject, device: Any, arguments: Sequence[Any]) -> Run:
    """Timed on the device, by its wall clock."""

    def run(number: int) -> float:
        evaluate = module.time_evaluator(kernel.symbol, device, number=number)
        return float(evaluate(*arguments).mean) * number

    return run


def _is_alive(session: Any) -> bool:
    """Whether there still is a server at the other end."""
    with suppress(Exception):
        session.get_function("tvm.rpc.server.workpath")
        return True
    return False
