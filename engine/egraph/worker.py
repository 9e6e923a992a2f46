"""The parent's side of the process that runs egglog. Light to import: a worker starts before all else does."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...support.scratch import scratch_folder
from ...support.worker_process import worker_command, worker_environment
from .messages import Job, RuleSelection

_ALLOCATION = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=65535"}
"""glibc keeps the small objects that egglog frees at hand: a sixth less time to load rules. Others ignore it."""


class Worker:
    """A process that has egglog's declarations and the selected rules loaded, or is at it; a context, good for one job.

    What is wrong with the rules comes as a message once there is a job.
    """

    def __init__(self, rules: RuleSelection) -> None:
        self._temporary = scratch_folder("saturation")
        self.folder = Path(self._temporary.name)
        self._process = subprocess.Popen(
            worker_command(f"{__package__}.saturation_worker", self._temporary.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ALLOCATION | worker_environment(),
        )
        self._send(rules)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and remove its folder; harmless when it is gone already."""
        self._process.kill()
        self._process.wait()
        self._temporary.cleanup()

    def _send(self, content: object) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # what it died of is among its messages
            pickle.dump(content, self._process.stdin)
            self._process.stdin.flush()

    def messages(self, job: Job) -> Iterator[tuple[str, Any]]:
        """Give it the job, and yield what it says until it ends; the last message of a crash is ("died", why)."""
        process = self._process
        assert process.stdout
        assert process.stderr
        self._send(job)
        try:
            while True:
                yield pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            yield "died", process.stderr.read().decode(errors="replace")
