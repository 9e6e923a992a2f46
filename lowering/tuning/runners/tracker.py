"""The tracker of TVM's RPC: it knows the servers that run kernels, and hands them out."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from ....support.errors import UsageError
from ...base.errors import TuningError

_LAST_PORT = 65535
_SECONDS = 5.0
"""How long the tracker may take to answer in all; TVM's own client would wait for a minute or for ever."""
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
        """The one at HOST:PORT. Raises UsageError where that is no address."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > _LAST_PORT:
            raise UsageError(f"{address}: is no address of an RPC tracker; write HOST:PORT, like 127.0.0.1:9190")
        return Tracker(host, int(port), key)

    def servers(self) -> int:
        """How many there are, busy ones too. Raises TuningError where no tracker answers."""
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
        """At least one. Raises TuningError where there is none, or no tracker."""
        servers = self.servers()
        if not servers:
            raise TuningError(
                f"{self.host}:{self.port}: no RPC server with the key {self.key!r}; start one on the device: "
                f"python -m tvm.exec.rpc_server --tracker {self.host}:{self.port} --key {self.key}"
            )
        return servers

    def session(self, seconds: float) -> Any:
        """A session with one of them, which the server ends after so long. Waits until one is free."""
        from tvm import rpc

        return rpc.connect_tracker(self.host, self.port).request(self.key, session_timeout=seconds)


def _receive_number(connection: socket.socket, deadline: float) -> int:
    return int(struct.unpack("<i", _receive(connection, 4, deadline))[0])


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    """The next `size` bytes. Raises OSError where they are not there by the deadline, at whatever pace they come."""
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
