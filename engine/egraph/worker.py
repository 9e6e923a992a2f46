"""The parent's side of the process that runs egglog. It is light to import, since a worker starts first of all."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Any

from ...rules.vocabulary import RuleSelection
from ...support.errors import ProcessError
from ...support.processes.worker_process import WorkerDiedError, WorkerProcess
from ...support.scratch import scratch_folder
from .messages import Job

_ALLOCATION = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=65535")
"""glibc keeps the small objects that egglog frees at hand: a sixth less time to load rules. Others ignore it, and so
does a fork of this process, which saves more time by its imports."""
_MEMORY = 2**30
_MEMORY_PER_NODE = 2_000
"""Bytes of data that the process may have, and the bytes for each allowed e-node: one iteration can square the size of
an e-graph, and the limit of e-nodes is checked only between iterations. An e-node takes about 1,300."""


class Worker:
    """A process, as a context, that loads egglog's declarations and the selected rules at once, for a single job.

    Errors of the rules come as messages after the job has begun. Raises EqfuseError if the process cannot start.
    """

    def __init__(self, rules: RuleSelection) -> None:
        self._temporary = scratch_folder("saturation")
        self.folder = Path(self._temporary.name)
        name, value = _ALLOCATION
        self._process = WorkerProcess(
            f"{__package__}.saturation_worker:SaturationRun",
            setup=(self._temporary.name,),
            environment={name: os.environ.get(name, value)},
            forks=True,
        )
        try:
            self._process.send(rules)
        except WorkerDiedError as error:
            raise ProcessError(f"the process that runs egglog {error}") from None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and remove its folder; harmless if it is gone already."""
        self._process.end()
        self._temporary.cleanup()

    def begin(self, job: Job) -> None:
        """Give it the job."""
        self._process.send(job, memory=_MEMORY + _MEMORY_PER_NODE * job.node_limit)

    def receive(self, seconds: float = inf) -> tuple[str, Any]:
        """The next message: its kind and its content.

        Raises WorkerDiedError if none comes within `seconds` or the process ended, and the EqfuseError of rules
        that cannot be loaded.
        """
        message: tuple[str, Any] | None = None
        while message is None:  # which is the result of loading the rules
            message = self._process.receive(seconds)
        return message
