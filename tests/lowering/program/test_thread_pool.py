"""The threads of a library (thread_pool.c): each iteration of a shared loop runs once, whoever runs it."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.base.linking import Linker

SOURCE = Path(__file__).with_name("shared_loops.c")
SECONDS = 10.0
"""How long that may be, on a machine that is busy."""
FAILURE = 7
"""An iteration that fails."""

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core nothing is shared")


class Library:
    """Loops that threads share."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def use_threads(self, number: int) -> None:
        """Share the loops of the calling thread among that many."""
        self._library.eqfuse_use_threads(number)

    def run(self, extent: int, loops: int = 1, failing: int = -1) -> tuple[list[int], int]:
        """Run loops one after the other: how often each iteration ran in all, and how many loops failed."""
        counts = np.zeros(extent, np.int32)
        failures = self._library.count_iterations(extent, failing, counts.ctypes.data_as(ctypes.c_void_p), loops)
        return counts.tolist(), failures

    def unload(self) -> None:
        """It must not be used any more."""
        _ctypes.dlclose(self._library._handle)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loops")
    linker, loops = Linker.of(platform.machine()), folder / "loops.o"
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", str(SOURCE), "-o", str(loops)], check=True)
    linker.link((loops, *linker.runtime(folder)), folder / "loops.so")
    return folder / "loops.so"


@pytest.fixture(scope="module")
def library(path: Path) -> Library:
    return Library(path)


@pytest.fixture
def fresh(path: Path, tmp_path: Path) -> Library:
    """A library of its own, with no thread yet."""
    (tmp_path / "loops.so").write_bytes(path.read_bytes())
    return Library(tmp_path / "loops.so")


def count_helpers() -> int:
    """The threads of libraries that this process has."""
    count = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread that has just ended
            count += name.read_text().startswith("eqfuse-helper")
    return count


def becomes(helpers: int) -> bool:
    """Whether that many are left before long: a thread that was joined may be in the list for a moment."""
    limit = time.monotonic() + SECONDS
    while count_helpers() != helpers and time.monotonic() < limit:
        time.sleep(0.01)
    return count_helpers() == helpers


@contextmanager
def pinned() -> Iterator[None]:
    """In a block of which this thread has one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@given(st.integers(0, 300), st.integers(1, 5), st.integers(1, 50))
def test_every_iteration_runs_once(library: Library, extent: int, threads: int, loops: int) -> None:
    library.use_threads(threads)
    assert library.run(extent, loops) == ([loops] * extent, 0)


def test_threads_of_a_caller_have_their_loops_to_themselves(library: Library) -> None:
    def run(extent: int) -> tuple[list[int], int]:
        library.use_threads(2)
        return library.run(extent, 2000)

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(run, [10, 40, 80, 160])) == [([2000] * n, 0) for n in (10, 40, 80, 160)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_that_fails_says_so_and_the_next_one_does_not(library: Library, threads: int) -> None:
    library.use_threads(threads)
    assert library.run(100, failing=FAILURE)[1] == 1
    assert library.run(100) == ([1] * 100, 0)


def test_helpers_start_with_the_first_loop_and_end_with_the_library(fresh: Library) -> None:
    before = count_helpers()
    fresh.use_threads(2)
    fresh.run(100)
    assert count_helpers() == before + 1
    fresh.unload()
    assert becomes(before)


def test_no_helper_starts_for_one_core_or_one_thread(fresh: Library) -> None:
    before = count_helpers()
    fresh.use_threads(1)
    fresh.run(100)
    with pinned():
        fresh.use_threads(2)
        assert fresh.run(100) == ([1] * 100, 0)
    assert count_helpers() == before


def test_two_libraries_have_threads_of_their_own(library: Library, fresh: Library) -> None:
    library.use_threads(2)
    fresh.use_threads(2)
    library.run(100)
    before = count_helpers()
    assert fresh.run(100) == library.run(100) == ([1] * 100, 0)
    assert count_helpers() == before + 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_starts_its_own_helpers(fresh: Library) -> None:
    fresh.use_threads(2)
    fresh.run(100)
    child = os.fork()
    if child == 0:  # with the thread that forked alone
        fresh.use_threads(2)
        os._exit(fresh.run(100, 1000) != ([1000] * 100, 0) or count_helpers() != 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert fresh.run(100, 1000) == ([1000] * 100, 0)
