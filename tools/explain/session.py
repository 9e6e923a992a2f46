"""An e-graph in a process of its own, which executes programs one after the other.

A run of egglog cannot be interrupted and a panic in it ends the process; here neither harms the caller.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ...rules.loader import prelude
from ...support.errors import EqfuseError
from ...support.processes.worker_process import WorkerDiedError, WorkerProcess
from ...support.scratch import scratch_folder
from .messages import Contents, Load, Read, Refused, Request, Run


class OutOfTime(EqfuseError):
    """The time limit ended the request; there is no result."""

    exit_code = 5


class Session:
    """An e-graph with the declarations and analyses of the catalogue; a context.

    `limit`: seconds from now until every question ends with `OutOfTime`.
    """

    def __init__(self, limit: float) -> None:
        self._temporary = scratch_folder("session")
        self.folder = Path(self._temporary.name)
        self._deadline = time.monotonic() + limit
        worker = f"{__package__}.session_worker:SessionEGraph"
        self._process = WorkerProcess(worker, setup=(self._temporary.name, prelude()))
        self._process.start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()
        self._temporary.cleanup()

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit."""
        return self._deadline - time.monotonic()

    def load(self, program: str) -> None:
        """Execute declarations and rules. Raises Refused if egglog does not accept them."""
        self._ask(Load(program))

    def run(self, schedule: str) -> bool:
        """Run a schedule, the inside of ``(run-schedule ...)``. Returns whether it changed anything."""
        return bool(self._ask(Run(schedule)))

    def check(self, facts: str) -> bool:
        """Whether the facts hold in the e-graph."""
        try:
            self._ask(Load(f"(check {facts})"))
        except Refused:
            return False
        return True

    def read(self, tables: tuple[str, ...] = (), *, terms: bool = True) -> Contents:
        """The rows of the named tables, and with `terms` those of all constructors."""
        contents: Contents = self._ask(Read(tables, terms))
        return contents

    def _ask(self, request: Request) -> Any:
        try:
            return self._process.ask(request, self.seconds_left)
        except WorkerDiedError as error:
            if error.timed_out:
                raise OutOfTime("the time limit ended the search; give a larger --time-limit") from None
            text = " ".join((error.output or str(error)).split())
            raise EqfuseError(f"egglog ended: {text[-300:]}") from error
