"""The search as a whole, on a real model whose kernels take made-up times: they are scheduled, and never compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm
from onnx import helper

from eqfuse.driver.compiler.compilation import kernels_of
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.messages import Answer, Request
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels, ScheduleCheck
from eqfuse.lowering.schedules import Trace, schedule
from eqfuse.lowering.tuning.measurement_setup import MeasurementSetup
from eqfuse.lowering.tuning.records import RecordDatabase
from eqfuse.lowering.tuning.runners.local_runner import LOCAL
from eqfuse.lowering.tuning.runners.measuring import KernelObject, Timing
from eqfuse.lowering.tuning.settings import Settings
from eqfuse.lowering.tuning.space import decisions_of
from eqfuse.lowering.tuning.tasks import TaskTable
from eqfuse.lowering.tuning.tuner import BATCH, FIRST_TRIALS, SPLIT_SHARE, Tuned, Tuner

from ..small_models import model, weights

TARGET = target_of("x86-64-v4", 1)
TRIALS, FEW = 48, 24
GAIN = 0.9
"""What every decision that is not the analytic one makes of the seconds of a kernel."""


class Schedules:
    """A builder: the object file says what was decided, by site."""

    def build(self, requests: Sequence[Request]) -> Iterator[Answer]:
        for request in requests:
            trace = Trace(request.decisions)
            scheduled = schedule(tvm.ir.load_json(request.prim_func), request.device, request.threads, trace)
            taken = {site.name: site.option.label for site in trace.sites}
            Path(request.object_file).write_text(json.dumps([taken, decisions_of(trace.sites)]), encoding="utf-8")
            yield Answer(request.name, 0.0, scheduled.repack, scheduled.rule, trace=tuple(trace.sites))

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class MadeUp:
    """A runner: a kernel of one anchor op takes a second, a joined one `joined` seconds; `seen` are all, in turn.

    Each batch takes as many seconds as `takes` says, by the made-up `clock`.
    """

    joined: float
    seen: list[tuple[bool, dict[str, str]]] = field(default_factory=list)
    name: str = "made up"
    problem: Timing | None = None
    takes: float = 0.0
    clock: float = 0.0

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        self.clock += self.takes
        self.seen += [_content(kernel) for kernel in kernels]
        return [self.problem or Timing((self._seconds(kernel),)) for kernel in kernels]

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        return [[(self._seconds(incumbent), self._seconds(kernel))] for kernel in challengers]

    def close(self) -> None:
        """Nothing to end."""

    def _seconds(self, kernel: KernelObject) -> float:
        _, decisions = json.loads(kernel.object_file.read_text(encoding="utf-8"))
        return (self.joined if _content(kernel)[0] else 1.0) * GAIN ** len(decisions)


def _content(kernel: KernelObject) -> tuple[bool, dict[str, str]]:
    """Whether it is a joined one, and what was decided."""
    taken, _ = json.loads(kernel.object_file.read_text(encoding="utf-8"))
    return any("." in name for name in taken), taken


@dataclass
class Bench:
    """Searches that share a database in `folder`."""

    table: TaskTable
    kernels: tuple[tuple[int, ...], ...]
    folder: Path

    def search(self, runner: MadeUp, settings: Settings) -> Tuned:
        database = RecordDatabase.open(self.folder / "tuning.db")
        setup = MeasurementSetup(TARGET, Schedules(), runner, database, self.folder)
        return Tuner(self.table, self.kernels, setup, settings).run()

    def elsewhere(self, folder: Path) -> Bench:
        return replace(self, folder=folder)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A pointwise convolution and a depthwise one, which can be joined."""
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["y"], group=64, pads=[1, 1, 1, 1]),
    ]
    stored = {"v": weights(64, 32, 1, 1), "w": weights(64, 1, 3, 3)}
    proto = model(nodes, {"x": (1, 32, 28, 28)}, {"y": (1, 64, 28, 28)}, **stored)
    result = optimize_model(proto, None, Options(partition="joint", intensive=False, verify=False), None)
    graph, kernels = kernels_of(result)
    functions = DistinctKernels.of(graph, kernels, Weights(result.rewritten.model))
    return Bench(TaskTable(ScheduleCheck(functions, TARGET)), kernels, tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def saving(bench: Bench) -> tuple[Tuned, MadeUp]:
    """A search in which the joined kernel is the faster one."""
    runner = MadeUp(joined=0.5)
    return bench.search(runner, Settings(TRIALS)), runner


@pytest.fixture(scope="module")
def costing(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuned, MadeUp]:
    """A search in which it is much slower."""
    runner = MadeUp(joined=20.0)
    return bench.elsewhere(tmp_path_factory.mktemp("costing")).search(runner, Settings(TRIALS)), runner


def test_a_join_that_saves_time_is_what_the_model_gets(bench: Bench, saving: tuple[Tuned, MadeUp]) -> None:
    tuned, _ = saving
    fastest, *others = tuned.partitions
    assert tuned.count_joined(fastest) == 1
    assert len(fastest) == len(bench.kernels) - 1
    assert others == [bench.kernels]


@pytest.mark.conformance
def test_one_that_costs_time_is_not(bench: Bench, costing: tuple[Tuned, MadeUp]) -> None:
    tuned, _ = costing
    assert tuned.partitions == (bench.kernels,)


@pytest.mark.conformance
def test_one_that_costs_time_gets_few_trials(costing: tuple[Tuned, MadeUp]) -> None:
    _, runner = costing
    assert sum(joined for joined, _ in runner.seen) <= FIRST_TRIALS + BATCH


def test_parts_come_first(saving: tuple[Tuned, MadeUp]) -> None:
    _, runner = saving
    first = [joined for joined, _ in runner.seen].index(True)
    assert 8 <= first <= SPLIT_SHARE * TRIALS + BATCH


def test_a_joined_kernel_is_tried_with_the_tiles_of_its_parts(saving: tuple[Tuned, MadeUp]) -> None:
    _, runner = saving
    begun = [joined for joined, _ in runner.seen].index(True)
    apart = {decided["tile"].split()[-1] for _, decided in runner.seen[:begun] if "tile" in decided}
    whole = [(d["stage 0.tile"].split()[-1], d["stage 1.tile"].split()[-1]) for joined, d in runner.seen if joined]
    assert any({first, second} <= apart for first, second in whole[:3])


def test_all_trials_are_used(saving: tuple[Tuned, MadeUp]) -> None:
    tuned, runner = saving
    assert (tuned.trials, tuned.failed) == (TRIALS, 0)
    assert len(runner.seen) <= TRIALS


def test_no_candidate_is_measured_twice(saving: tuple[Tuned, MadeUp]) -> None:
    _, runner = saving
    assert len({json.dumps(each) for each in runner.seen}) == len(runner.seen)


@pytest.mark.conformance
def test_decisions_that_are_faster_are_kept(costing: tuple[Tuned, MadeUp]) -> None:
    tuned, _ = costing
    assert len(tuned.decisions) == 2
    assert all(tuned.decisions.values())


def test_the_same_search_again_measures_nothing(bench: Bench, saving: tuple[Tuned, MadeUp]) -> None:
    before, _ = saving
    runner = MadeUp(joined=0.5)
    again = bench.search(runner, Settings(TRIALS))
    assert runner.seen == []
    assert (again.partitions, again.trials) == (before.partitions, before.trials)


@pytest.mark.conformance
def test_a_search_of_fewer_trials_goes_on_in_one_of_more(bench: Bench, tmp_path: Path) -> None:
    runner, own = MadeUp(joined=0.5), bench.elsewhere(tmp_path)
    own.search(runner, Settings(FEW))
    assert own.search(runner, Settings(TRIALS)).trials == TRIALS
    assert len({json.dumps(each) for each in runner.seen}) == len(runner.seen)


def test_too_few_trials_try_out_the_largest_kernel(bench: Bench, tmp_path: Path) -> None:
    """A first trial of each of the two would find nothing."""
    bench.elsewhere(tmp_path).search(MadeUp(joined=0.5), Settings(2, intensive=False))
    records = RecordDatabase.open(tmp_path / "tuning.db").all()
    assert len({record.task for record in records}) == 1
    assert len({json.dumps(dict(record.decisions)) for record in records}) == 2


@pytest.mark.conformance
def test_without_intensive_fusion_nothing_is_joined(bench: Bench, tmp_path: Path) -> None:
    runner = MadeUp(joined=0.1)
    tuned = bench.elsewhere(tmp_path).search(runner, Settings(FEW, intensive=False))
    assert tuned.partitions == (bench.kernels,)
    assert not any(joined for joined, _ in runner.seen)


@pytest.mark.conformance
def test_without_the_reformer_what_the_device_model_joins_is_tuned_from_the_start(bench: Bench, tmp_path: Path) -> None:
    runner = MadeUp(joined=0.1)
    bench.elsewhere(tmp_path).search(runner, Settings(FEW, reformer=False))
    assert len({joined for joined, decided in runner.seen if decided}) == 1


@pytest.mark.conformance
@pytest.mark.parametrize(("lost", "kept"), [(True, 0), (False, FEW)])
def test_what_may_be_the_fault_of_a_device_is_tried_again_another_time(
    bench: Bench, tmp_path: Path, lost: bool, kept: int
) -> None:
    bench.elsewhere(tmp_path).search(MadeUp(1.0, problem=Timing(problem="no answer", lost=lost)), Settings(FEW))
    assert len(RecordDatabase.open(tmp_path / "tuning.db").all()) == kept


@pytest.mark.conformance
def test_kernels_are_joined_when_half_of_the_time_is_used(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With that many trials the first half would never be used."""
    runner = MadeUp(joined=0.5, takes=0.5)
    monkeypatch.setattr(f"{Tuner.__module__}.time", SimpleNamespace(monotonic=lambda: runner.clock))
    bench.elsewhere(tmp_path).search(runner, Settings(100_000, time_limit=4.0))
    assert any(joined for joined, _ in runner.seen)


def test_a_kernel_whose_constants_come_from_farther_is_another_task(bench: Bench, tmp_path: Path) -> None:
    """On this machine constants are as far away as in the model."""
    database = RecordDatabase.open(tmp_path / "tuning.db")
    near, far = (
        MeasurementSetup(TARGET, Schedules(), MadeUp(1.0, name=LOCAL), database, tmp_path, between=size)
        for size in (100_000, 50_000_000)
    )
    key = bench.table.key(bench.kernels[0])
    assert key is not None
    task = bench.table.tasks[key]
    near.try_out([(task, {})])
    assert (len(near.records(task)), len(far.records(task))) == (1, 0)
