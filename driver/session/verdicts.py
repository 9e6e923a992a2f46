"""Verdicts about a model and a set of input sizes, kept for all processes of a user: ``Job -> Verdict``."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...support.errors import VerificationError
from ...support.files import cache_folder
from ...support.json_types import convert_json, parse_json
from ...support.processes.worker_process import name_exit, python_environment
from ...support.store import Store

Array = np.ndarray[Any, Any]
KEPT = 64
"""The most verdicts that are kept, with their bundles; those that were not used for the longest time are removed."""
VERDICT, BUNDLE = "verdict.json", "bundle"
_PROCESS = f"{__package__}.process"
_POLL = 1.0
"""Seconds between two checks whether another process has a verdict."""
_REFUSED_FOR = 7 * 24 * 3600
"""Seconds after which a model that was refused may be tried again: the machine may have been busy, or a program may
have given its session other weights than the model's."""
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
"""Signals that show that the compiled code is at fault, so that another attempt would end in the same way."""


@dataclass(frozen=True)
class Verdict:
    """Whether compiled code may take over for the sizes, and the `reason`.

    `speed`: how many times as long ONNX Runtime takes. A verdict that is not `lasting` does not hold for the next
    attempt. `steps`: by how much outputs of a quantised model may differ from ONNX Runtime's, by name.
    """

    takes_over: bool
    reason: str
    speed: float = 0.0
    lasting: bool = True
    steps: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The verdict as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Verdict:
        """The verdict of which `text` is the JSON. Raises ValueError."""
        return convert_json(parse_json(text), Verdict)


@dataclass(frozen=True)
class Job:
    """A model, as a path or as bytes, to be compiled for inputs like these and `threads` threads.

    It is for inputs of these sizes alone, or for all sizes, optimised for these (`typical`, as in `eqfuse compile`).
    `key` is a digest of everything that the verdict depends on.
    """

    key: str
    model: str | bytes
    inputs: Mapping[str, Array]
    threads: int
    typical: tuple[str, ...] | None = None


class Verdicts:
    """The verdicts in the user's cache folder."""

    def __init__(self) -> None:
        self._store = Store(cache_folder() / "sessions", KEPT)

    def read(self, key: str) -> Verdict | None:
        """The verdict, if there is one."""
        path = self._store.path(key) / VERDICT
        with suppress(OSError, ValueError):
            verdict = Verdict.of(path.read_text(encoding="utf-8"))
            if verdict.takes_over or time.time() - path.stat().st_mtime < _REFUSED_FOR:
                self._store.use(key)
                return verdict
        return None

    def bundle(self, key: str) -> Path:
        """The folder of the bundle that the verdict is about."""
        return self._store.path(key) / BUNDLE

    def keep(self, key: str, verdict: Verdict, bundle: Path | None = None) -> bool:
        """Keep a verdict, and the bundle in a folder; false if the cache folder cannot be written to."""

        def write(folder: Path) -> None:
            folder.mkdir()
            if bundle is not None:
                shutil.copytree(bundle, folder / BUNDLE)
            (folder / VERDICT).write_text(verdict.text, encoding="utf-8")

        self._store.drop(key)
        self._store.keep(key, write)
        return self.read(key) is not None

    def folder(self) -> Path:
        """The folder of all verdicts, which exists now. Raises OSError."""
        self._store.folder.mkdir(parents=True, exist_ok=True)
        return self._store.folder

    def ask(self, job: Job) -> Verdict:
        """The verdict, from the cache or from a process that compiles the model: this takes long.

        If several processes want the same verdict, one of them has it made; several keys share one of a few locks. A
        process that was killed holds no lock, so the next one takes over.
        """
        while True:
            verdict = self.read(job.key)
            if verdict is not None:
                return verdict
            try:
                lock = try_lock(self.folder() / f".{job.key[:2]}.lock")
            except OSError as error:
                return Verdict(False, f"{self._store.folder}: cannot be written to: {error.strerror}", lasting=False)
            if lock is not None:
                try:
                    return self.read(job.key) or self._compile(job, lock)
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)  # processes that were forked meanwhile have it open
                    os.close(lock)
            time.sleep(_POLL)

    def _compile(self, job: Job, lock: int) -> Verdict:
        """The verdict of a new process, which holds the lock from then on, even if this process ends."""
        if "python" not in Path(sys.executable or "").name:
            return Verdict(False, f"{sys.executable or 'this program'} is no Python interpreter", lasting=False)
        with open(os.memfd_create("session-job"), "w+b") as request:  # no disk, which may be full
            pickle.dump(job, request, protocol=pickle.HIGHEST_PROTOCOL)
            request.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROCESS], stdin=request, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(lock,),
                env=python_environment(),
            )  # fmt: skip
        with process:
            assert process.stdout is not None
            text = process.stdout.read()
            code = process.wait()
        with suppress(ValueError):
            return Verdict.of(text.decode())
        crashed = -code in _FAULTS
        reason = f"the process that compiled it ended without a verdict ({name_exit(code)})"
        verdict = Verdict(False, reason, lasting=crashed)
        if crashed:
            self.keep(job.key, verdict)
        return verdict


def try_lock(path: Path) -> int | None:
    """A handle of the file that is locked while it, or a copy of it, is open; None while another handle is. Raises
    OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise
    return handle


def require_equal(expected: Mapping[str, Any], computed: Mapping[str, Any], steps: Mapping[str, float]) -> None:
    """Raise VerificationError for outputs that differ by more than the tolerance of their type, and than `steps` of
    theirs if they have some."""
    from ...engine.verification.runs.compare import Tolerance, compare

    for name, value in expected.items():
        difference = compare(value, computed[name], Tolerance())
        is_explained = not difference.mismatch and difference.max_abs <= steps.get(name, 0.0)
        if not (difference.equal or is_explained):
            raise VerificationError(f"output {name!r} differs from ONNX Runtime's: {difference}")
