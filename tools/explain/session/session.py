"""An e-graph in a process of its own that programs can be given to, one after the other.

A run of egglog cannot be interrupted and a panic in it ends the process; here neither harms the caller.
"""

from __future__ import annotations

import pickle
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from ....errors import EqfuseError
from ....support.scratch import scratch_folder
from ....support.worker_process import worker_command, worker_environment
from ..messages import Answer, Contents, Load, Read, Request, Run


class OutOfTime(EqfuseError):
    """The time limit ended what was asked for; there is nothing to show."""

    exit_code = 5


class Refused(EqfuseError):
    """egglog refused a program; a check that fails counts as one."""


class Session:
    """An e-graph with the declarations and analyses of the catalogue; a context.

    `limit`: seconds from now until every question ends with `OutOfTime`.
    """

    def __init__(self, limit: float) -> None:
        self._temporary = scratch_folder("session")
        self.folder = Path(self._temporary.name)
        self._deadline = time.monotonic() + limit
        self._process = subprocess.Popen(
            worker_command(f"{__package__}.session_worker", self._temporary.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=worker_environment(),
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._temporary.cleanup()

    @property
    def seconds_left(self) -> float:
        """Until the limit."""
        return self._deadline - time.monotonic()

    def load(self, program: str) -> None:
        """Execute declarations and rules. Raises Refused where egglog does not take them."""
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
        process = self._process
        assert process.stdin
        with suppress(BrokenPipeError):  # what it died of comes instead of an answer
            pickle.dump(request, process.stdin)
            process.stdin.flush()
        answer = self._answer()
        if answer.refusal:
            raise Refused(answer.refusal)
        return answer.content

    def _answer(self) -> Answer:
        process = self._process
        assert process.stdout
        assert process.stderr
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            if not selector.select(max(self.seconds_left, 0.0)):
                raise OutOfTime("the time limit ended the search; give a larger --time-limit")
        try:
            answer: Answer = pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            text = " ".join(process.stderr.read().decode(errors="replace").split())
            raise EqfuseError(f"egglog ended: {text[-300:]}") from error
        return answer
