"""Compiling candidates: in processes that stay, and on a real cluster of two workers."""

from __future__ import annotations

import builtins
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.errors import TuningError
from eqfuse.lowering.tuning.runners.builders import Builder, ClusterBuilder, PoolBuilder
from eqfuse.lowering.tuning.runners.local_runner import LocalRunner
from eqfuse.lowering.tuning.runners.measuring import KernelObject

from ..compiled import request


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolBuilder]:
    builder = PoolBuilder(1)
    yield builder
    builder.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="distributed: not found; pip install distributed")
    options = {"processes": True, "dashboard_address": None, "silence_logs": "CRITICAL"}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def on_cluster(cluster: Any) -> Iterator[ClusterBuilder]:
    builder = ClusterBuilder(cluster.scheduler_address)
    yield builder
    builder.close()


@pytest.mark.conformance
def test_processes_stay_from_one_call_to_the_next(pool: PoolBuilder, tmp_path: Path) -> None:
    for name in "ab":
        (answer,) = pool.build([request(name, tmp_path)])
        assert (answer.name, answer.problem) == (name, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.o", "b.o"]


def test_what_fails_gets_no_plain_schedule(pool: PoolBuilder, tmp_path: Path) -> None:
    fails = replace(request("bad", tmp_path), prim_func="no JSON")
    answers = {answer.name: answer for answer in pool.build([fails, request("good", tmp_path)])}
    assert answers["bad"].problem
    assert answers["bad"].recovered is None
    assert answers["good"].problem is None


def test_what_takes_too_long_is_a_problem(tmp_path: Path) -> None:
    builder = PoolBuilder(1, seconds=0.01)
    (answer,) = builder.build([request("slow", tmp_path)])
    builder.close()
    assert answer.problem == "the compiler took too long"


def test_who_stops_to_listen_gets_the_next_answers_only(pool: PoolBuilder, tmp_path: Path) -> None:
    answers = pool.build([request(name, tmp_path) for name in "abc"])
    assert next(answers).name == "a"
    answers.close()  # type: ignore[attr-defined]
    assert [answer.name for answer in pool.build([request("d", tmp_path)])] == ["d"]


def test_a_builder_that_is_closed_answers_all_the_same(tmp_path: Path) -> None:
    builder = PoolBuilder(1)
    answers = builder.build([request(name, tmp_path) for name in "ab"])
    builder.close()
    assert all(answer.problem for answer in answers)


@pytest.mark.conformance
def test_a_cluster_compiles_what_runs_here(on_cluster: ClusterBuilder, tmp_path: Path) -> None:
    answers = list(on_cluster.build([request(name, tmp_path / "objects") for name in "abc"]))
    assert sorted(answer.name for answer in answers if answer.problem is None) == ["a", "b", "c"]
    runner = LocalRunner(1)
    types = runner.measure([_kernel(name, tmp_path / "objects") for name in "abc"])
    runner.close()
    assert [timing.problem for timing in types] == [None] * 3


def _kernel(name: str, folder: Path) -> KernelObject:
    return KernelObject(name, folder / f"{name}.o", (TensorType("float32", (4096,)),) * 2)


def test_a_worker_outlives_a_compiler_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    builder = ClusterBuilder(cluster.scheduler_address, seconds=0.01)
    before = set(cluster.scheduler_info["workers"])
    (answer,) = builder.build([request("slow", tmp_path)])
    builder.close()
    assert answer.problem == "the compiler took too long"
    assert set(cluster.scheduler_info["workers"]) == before


@pytest.mark.conformance
def test_the_work_of_a_worker_that_dies_is_done_elsewhere(
    cluster: Any, on_cluster: ClusterBuilder, tmp_path: Path
) -> None:
    answers = on_cluster.build([request(f"k{number}", tmp_path) for number in range(20)])
    first = next(answers)
    os.kill(cluster.workers[0].pid, signal.SIGKILL)
    assert {answer.problem for answer in [first, *answers]} == {None}
    assert len(list(tmp_path.iterdir())) == 20


def test_a_scheduler_that_goes_away_is_an_error(tmp_path: Path) -> None:
    """What it was to compile failed through no fault of its own."""
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "dashboard_address": ":0", "silence_logs": "CRITICAL"}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as gone:
        builder = ClusterBuilder(gone.scheduler_address)
        builder._client.close()
        with pytest.raises(TuningError, match="the Dask scheduler is gone"):
            builder.build([request("a", tmp_path)])


def test_a_cluster_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setattr("eqfuse.lowering.tuning.runners.builders._CONNECT_SECONDS", 0.5)
    with pytest.raises(TuningError, match=rf"{address}: no Dask scheduler answers .*dask scheduler"):
        ClusterBuilder(address)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name == "distributed":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(TuningError, match="pip install distributed"):
        ClusterBuilder("127.0.0.1:1")


def test_both_are_builders(pool: PoolBuilder, on_cluster: ClusterBuilder) -> None:
    builders: list[Builder] = [pool, on_cluster]
    assert builders
