"""What listens where a tracker is said to be: one line, in bounded time, whatever it says."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from eqfuse.lowering.base.errors import TuningError
from eqfuse.lowering.tuning.runners import tracker
from eqfuse.lowering.tuning.runners.tracker import Tracker

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
    monkeypatch.setattr(tracker, "_SECONDS", 10 * PAUSE)

    def drip(connection: socket.socket) -> None:
        connection.sendall(MAGIC + struct.pack("<i", 1 << 20))
        while not threading.Event().wait(PAUSE):
            connection.sendall(b" ")

    with pytest.raises(TuningError, match="no RPC tracker answers"):
        serve(drip).servers()
