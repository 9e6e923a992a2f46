"""The tracker of TVM's RPC: it knows the servers that run kernels, and hands them out."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError
from .errors import TuningError

_LAST_PORT = 65535
_SECONDS = 5.0
"""How long the tracker may take to answer; TVM's own client would wait for a minute or for ever."""


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
        from tvm.rpc import base

        try:
            with socket.create_connection((self.host, self.port), timeout=_SECONDS) as connection:
                connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
                if struct.unpack("<i", base.recvall(connection, 4))[0] != base.RPC_TRACKER_MAGIC:
                    raise ValueError("something else listens there")
                base.sendjson(connection, [base.TrackerCode.SUMMARY])
                _, summary = base.recvjson(connection)
        except (OSError, ValueError, struct.error) as error:
            raise TuningError(
                f"{self.host}:{self.port}: no RPC tracker answers ({error}); start one there: "
                f"python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {self.port} --port-end {self.port + 1}"
            ) from None
        return sum(server["key"] == f"server:{self.key}" for server in summary["server_info"])

    def required_servers(self) -> int:
        """At least one. Raises TuningError where there is none, or no tracker."""
        found = self.servers()
        if not found:
            raise TuningError(
                f"{self.host}:{self.port}: no RPC server with the key {self.key!r}; start one on the device: "
                f"python -m tvm.exec.rpc_server --tracker {self.host}:{self.port} --key {self.key}"
            )
        return found

    def session(self, seconds: float) -> Any:
        """A session with one of them, which the server ends after so long. Waits until one is free."""
        from tvm import rpc

        return rpc.connect_tracker(self.host, self.port).request(self.key, session_timeout=seconds)
