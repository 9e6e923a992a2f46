"""Measuring through a real tracker and real servers of TVM's RPC, on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from eqfuse.lowering.base.errors import LoweringError, TuningError
from eqfuse.lowering.tuning.runners import rpc_runner
from eqfuse.lowering.tuning.runners.measuring import KernelObject
from eqfuse.lowering.tuning.runners.rpc_runner import RpcRunner, Tracker
from eqfuse.lowering.tuning.runners.sampling import PAIRS
from eqfuse.support.errors import EqfuseError, UsageError

from ..compiled import CRASH, HANG, in_c

NO_TRACKER = importlib.util.find_spec("tornado") is None
pytestmark = pytest.mark.skipif(NO_TRACKER, reason="tornado: not found; pip install tornado")
KEY = "loopback"
TRIPLE = f"{platform.machine()}-linux-gnu"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    pytest.fail("waited for half a minute")


def ends(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started: TVM's programs leave theirs behind."""
    for pid in [*descendants(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    processes = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            processes += [child, *descendants(child)]
    return processes


class Farm:
    """A tracker, and servers that register with it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("rpc_tracker", self.port)
        eventually(self._answers)

    def add_server(self, key: str = KEY) -> subprocess.Popen[bytes]:
        """One more, once it has registered."""
        before = self.servers(key)
        started = self._start("rpc_server", free_port(), "--tracker", self.address, "--key", key)
        eventually(lambda: self.servers(key) > before)
        return started

    def servers(self, key: str = KEY) -> int:
        return Tracker.at(self.address, key).servers()

    def _answers(self) -> bool:
        try:
            self.servers()
        except TuningError:
            return False
        return True

    def close(self) -> None:
        for process in self.processes:
            ends(process)

    def _start(self, program: str, port: int, *options: str) -> subprocess.Popen[bytes]:
        place = ["--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)]
        command = [sys.executable, "-m", f"tvm.exec.{program}", *place, *options]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(started)
        return started


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    farm = Farm()
    try:
        farm.add_server()
        yield farm
    finally:
        farm.close()


@contextmanager
def open_runner(farm: Farm, timeout: float = 10.0, key: str = KEY) -> Iterator[RpcRunner]:
    runner = RpcRunner(farm.address, key, TRIPLE, 1, timeout)
    try:
        yield runner
    finally:
        runner.close()


def test_kernels_are_measured_and_compared(farm: Farm, small: KernelObject) -> None:
    with open_runner(farm) as runner:
        timings = runner.measure([small, small])
        (pairs,) = runner.compare(small, [small])
    assert all(timing.problem is None and timing.latency > 0 for timing in timings)
    assert len(pairs) >= PAIRS


@pytest.mark.conformance
def test_a_kernel_that_crashes_or_hangs_costs_itself_alone(farm: Farm, small: KernelObject, tmp_path: Path) -> None:
    bad = [in_c(tmp_path, "crash", CRASH), in_c(tmp_path, "hang", HANG)]
    with open_runner(farm, 3.0) as runner:
        crash, hang, good = runner.measure([*bad, small])
    assert good.problem is None
    assert crash.problem
    assert hang.problem == "took longer than 3 s"


@pytest.mark.conformance
def test_what_is_not_as_described_is_a_problem(farm: Farm, small: KernelObject) -> None:
    wrong = KernelObject("other", small.object_file, small.parameters)
    with open_runner(farm) as runner:
        (timing,) = runner.measure([wrong])
    assert timing.problem
    assert "other" in timing.problem


@pytest.mark.conformance
def test_nothing_is_lost_with_a_server(farm: Farm, small: KernelObject, tmp_path: Path) -> None:
    """One of two is killed while both are at work: the first two kernels take more than a second each."""
    second = farm.add_server()
    slow = in_c(tmp_path, "slow", "extern int usleep(unsigned); usleep(700000);")
    with open_runner(farm) as runner:
        runner.measure([small, small])
        killer = threading.Timer(0.7, ends, [second])
        killer.start()
        timings = runner.measure([slow, slow, *[small] * 5])
        killer.join()
    assert [timing.problem for timing in timings] == [None] * 7
    assert farm.servers() == 1


@pytest.mark.conformance
def test_when_the_last_server_is_gone_it_is_said(
    farm: Farm, small: KernelObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqfuse.lowering.tuning.runners.rpc_runner._PATIENCE", 0.5)
    last = farm.add_server("mortal")
    with open_runner(farm, key="mortal") as runner:
        killer = threading.Timer(1.0, ends, [last])
        killer.start()
        with pytest.raises(TuningError, match="no RPC server with the key 'mortal'"):
            runner.measure([in_c(tmp_path, "slow", "extern int usleep(unsigned); usleep(3000000);"), small])
        killer.join()


def test_a_tracker_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TuningError, match=r"no RPC tracker answers .*python -m tvm.exec.rpc_tracker"):
        RpcRunner(f"127.0.0.1:{free_port()}", KEY, TRIPLE, 1)


def test_a_key_that_no_server_has_is_an_error(farm: Farm) -> None:
    with pytest.raises(TuningError, match=r"no RPC server with the key 'other'; .*rpc_server"):
        RpcRunner(farm.address, "other", TRIPLE, 1)


@pytest.mark.parametrize(
    ("address", "triple", "error"),
    [("host", TRIPLE, UsageError), ("host:port", TRIPLE, UsageError), ("host:1", "riscv64-linux", LoweringError)],
)
def test_what_cannot_be_used_is_said_in_a_line(address: str, triple: str, error: type[EqfuseError]) -> None:
    with pytest.raises(error):
        RpcRunner(address, KEY, triple, 1)


base = pytest.importorskip("tvm.rpc.base")
MAGIC = struct.pack("<i", base.RPC_TRACKER_MAGIC)
PAUSE = 0.02
"""Seconds between two bytes that drip."""

Serve = Callable[[Callable[[socket.socket], None]], Tracker]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Have a function talk to whoever connects; the tracker it is taken for."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as connections:

        def start(talk: Callable[[socket.socket], None]) -> Tracker:
            def run() -> None:
                with suppress(OSError):
                    connection, _ = server.accept()
                    talk(connections.enter_context(connection))

            threading.Thread(target=run, daemon=True).start()
            return Tracker("127.0.0.1", server.getsockname()[1], "board")

        yield start


def answer(content: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(MAGIC + struct.pack("<i", len(content)) + content)


def test_the_servers_of_a_kind_are_counted(serve: Serve) -> None:
    keys = ["server:board", "server:other", "server:board"]
    summary = {"server_info": [{"key": key} for key in keys], "queue_info": {}}
    assert serve(answer(json.dumps([0, summary]).encode())).servers() == 2


@pytest.mark.parametrize(
    ("talk", "problem"),
    [
        (lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "something else listens there"),
        (lambda c: c.close(), ""),
        (lambda c: c.sendall(MAGIC + struct.pack("<i", -5)), "something else listens there"),
        (lambda c: c.sendall(MAGIC + struct.pack("<i", 2**31 - 1)), "something else listens there"),
        (answer(b"[0, {}]"), "something else listens there"),
        (answer(b"{}"), "something else listens there"),
        (answer(b'[0, {"server_info": 3}]'), "something else listens there"),
        (answer(b"\xff\xfe\x00"), ""),
        (answer(b"[" * 100_000), "something else listens there"),
    ],
    ids=["http", "closed", "negative", "huge", "empty", "object", "number", "bytes", "nested"],
)
def test_nonsense_is_one_line(serve: Serve, talk: Callable[[socket.socket], None], problem: str) -> None:
    with pytest.raises(TuningError) as refused:
        serve(talk).servers()
    assert "no RPC tracker answers" in str(refused.value)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bytes_that_drip_do_not_hold_it_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes well within the time, all of them never."""
    monkeypatch.setattr(rpc_runner, "_SECONDS", 10 * PAUSE)

    def drip(connection: socket.socket) -> None:
        connection.sendall(MAGIC + struct.pack("<i", 1 << 20))
        while not threading.Event().wait(PAUSE):
            connection.sendall(b" ")

    with pytest.raises(TuningError, match="no RPC tracker answers"):
        serve(drip).servers()
