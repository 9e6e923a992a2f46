"""The set-up in which candidates are built, measured and recorded: ``(Task, Decisions) -> Trial``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from pathlib import Path
from statistics import median

from ...costmodels.measuring.measurement import Measurement, canonical_json
from ...extract.partition.canonical_key import subgraph_key, subgraph_text
from ...ir.types import TensorType
from ...support.deadlines import is_over
from ...support.scratch import scratch_folder
from ...support.store import source_digest
from ..base.decisions import Decisions, DecisionSite
from ..base.target import Target
from ..base.toolchain import versions
from ..kernels.messages import Answer, Request
from ..running.turns import Middle
from .cost_model import features_of
from .records import Record, RecordDatabase
from .runners.builders import Builder, ClusterBuilder, PoolBuilder
from .runners.local_runner import LOCAL, LocalRunner
from .runners.measuring import MOST_BETWEEN, KernelObject, Runner, Timing
from .settings import Settings
from .space import decisions_of
from .tasks import Members, Task, TaskTable

NOTICEABLE = 0.99
"""A schedule counts as faster if it takes at most this share of the analytic one's time."""
_BATCH = 8
"""Kernels that are built and measured between two looks at the clock: some four seconds on two cores."""
_SCHEDULES = ("lowering/schedules", "lowering/compute", "costmodels/devices")
"""The packages that the code of given decisions depends on."""


@contextmanager
def open_setup(target: Target, settings: Settings, processes: int) -> Iterator[MeasurementSetup]:
    """A set-up whose processes and sessions end with the context. Raises EqfuseError if a part is missing."""
    with (
        scratch_folder("tuning") as scratch,
        closing(_runner(target, settings)) as runner,
        closing(PoolBuilder(processes) if settings.cluster is None else ClusterBuilder(settings.cluster)) as builder,
    ):
        yield MeasurementSetup(target, builder, runner, RecordDatabase.open(), Path(scratch))


def check_setup(target: Target, settings: Settings) -> None:
    """Raise EqfuseError if a part is missing that a search will need, or nothing can be written to its database."""
    with open_setup(target, settings, processes=1) as setup:
        setup.database.check()


def _runner(target: Target, settings: Settings) -> Runner:
    kind = settings.runner_for(is_library=target.is_library)
    if kind == "emulate":
        from .runners.emulated_runner import EmulatedRunner

        return EmulatedRunner(target)
    if kind == "rpc":
        from .runners.rpc_runner import RpcRunner

        assert settings.tracker is not None
        assert settings.device_key is not None
        return RpcRunner(settings.tracker, settings.device_key, target.triple, target.threads)
    return LocalRunner(target.threads)


@dataclass(frozen=True)
class Candidate:
    """A candidate that was compiled, or the `problem`; its decisions are what its schedule took, in normal form."""

    task: Task
    decisions: Decisions
    trace: tuple[DecisionSite, ...]
    kernel: KernelObject | None
    digest: str = ""
    problem: str | None = None
    lost: bool = False


@dataclass(frozen=True)
class Trial:
    """Decisions that were `wanted`, the candidate that they gave, and the record of it.

    `lost`: it failed, maybe through no fault of its own; such a record is not kept, so that a later run tries again.
    """

    wanted: Decisions
    candidate: Candidate
    record: Record
    lost: bool = False

    @property
    def latency(self) -> float | None:
        """Its seconds; None if it failed."""
        return self.record.latency


@dataclass
class MeasurementSetup:
    """Builds candidates in a folder, and measures and records them for a target.

    `between`: bytes of constants that a run of the model reads between two calls of a kernel.
    """

    target: Target
    builder: Builder
    runner: Runner
    database: RecordDatabase
    folder: Path
    between: int = 0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _timings: dict[tuple[str, str], Timing] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """The name under which records are kept: the device, and the number of threads."""
        return f"{self.target.device.name}/{self.target.threads}"

    @property
    def software(self) -> dict[str, str]:
        """The software that the code of given decisions depends on, and that runs it."""
        device = sha256(repr((self.target.device, self.target.cpu)).encode()).hexdigest()
        return {**versions(), "schedules": source_digest(*_SCHEDULES)[:12], "device": device[:12]}

    @property
    def versions(self) -> str:
        """The software as one text, which records are kept under."""
        return canonical_json(self.software)

    def records(self, task: Task) -> tuple[Record, ...]:
        """The earlier measurements of a task, and failures."""
        return self.database.of(self._name(task), self.device, self.runner.name, self.versions)

    def _name(self, task: Task) -> str:
        """The key of the task's records: a task whose constants come from nearer is another one."""
        if self.runner.name != LOCAL or not task.constants:
            return task.key
        return f"{task.key}/{(min(self.between, MOST_BETWEEN) >> 20).bit_length()}"

    def build(self, wanted: Sequence[tuple[Task, Decisions]]) -> list[Candidate]:
        """Compile candidates, in their order."""
        target = self.target
        candidates = {f"candidate_{next(self._numbers):08d}": candidate for candidate in wanted}
        requests = [
            Request(
                name, task.prim_func, target.device, target.description, str(self.folder / f"{name}.o"), target.threads,
                decisions=decisions,
            )
            for name, (task, decisions) in candidates.items()
        ]  # fmt: skip
        answers = {answer.name: answer for answer in self.builder.build(requests)}
        return [self._candidate(task, decisions, answers[name]) for name, (task, decisions) in candidates.items()]

    def try_out(self, wanted: Sequence[tuple[Task, Decisions]]) -> list[Trial]:
        """Compile, measure and record candidates. Code that was measured before in this run is not measured again."""
        candidates = self.build(wanted)
        kernels = {(each.task.key, each.digest): each.kernel for each in candidates if each.kernel is not None}
        fresh = {code: kernel for code, kernel in kernels.items() if code not in self._timings}
        self._timings.update(zip(fresh, self.runner.measure(list(fresh.values())), strict=True))
        trials = []
        for (_, decisions), each in zip(wanted, candidates, strict=True):
            timing = self._timings[each.task.key, each.digest] if each.kernel is not None else None
            lost = each.lost or (timing is not None and timing.lost)
            trials.append(Trial(decisions, each, self._record(each, timing), lost))
        self.database.add(*(trial.record for trial in trials if not trial.lost))
        for each in candidates:
            if each.kernel is not None:
                each.kernel.object_file.unlink(missing_ok=True)
        return trials

    def choose_fastest(self, task: Task, leaders: Sequence[Decisions]) -> Decisions:
        """The leader that is faster than the analytic schedule by most, in interleaved pairs; {} if none is."""
        incumbent, *challengers = self.build([(task, {}), *((task, decisions) for decisions in leaders)])
        able = [(each.decisions, each.kernel) for each in challengers if each.kernel is not None]
        if incumbent.kernel is None or not able:
            return able[0][0] if able else {}
        compared = self.runner.compare(incumbent.kernel, [kernel for _, kernel in able])
        ratios = [median(new / old for old, new in pairs) if pairs else inf for pairs in compared]
        best = min(range(len(able)), key=ratios.__getitem__)
        return able[best][0] if ratios[best] < NOTICEABLE else {}

    def _candidate(self, task: Task, wanted: Decisions, answer: Answer) -> Candidate:
        if answer.problem is not None:
            return Candidate(task, wanted, (), None, problem=answer.problem, lost=answer.lost)
        file = self.folder / f"{answer.name}.o"
        parameters = tuple(_packed_types(task.parameters, answer))
        kernel = KernelObject(answer.name, file, parameters, task.outputs, task.constants, self.between)
        return Candidate(task, decisions_of(answer.trace), answer.trace, kernel, kernel.digest)

    def _record(self, candidate: Candidate, timing: Timing | None) -> Record:
        seconds = timing.seconds if timing is not None and timing.problem is None else ()
        middle = Middle.of(seconds) if seconds else None
        problem = candidate.problem or (timing.problem if timing is not None else None)
        return Record(
            self._name(candidate.task),
            self.device,
            self.runner.name,
            self.versions,
            candidate.decisions,
            middle.median if middle is not None else None,
            middle.upper - middle.lower if middle is not None else 0.0,
            len(seconds),
            features_of(candidate.task.features, candidate.trace),
            problem or "",
        )


def _packed_types(parameters: Sequence[TensorType], answer: Answer) -> Iterable[TensorType]:
    """The types that a kernel is called with: constants as its schedule wants them packed."""
    for number, type_ in enumerate(parameters):
        shape = tuple(int(extent) for extent in type_.shape or ())
        for repack in answer.repack:
            if repack.parameter == number:
                shape = repack.packed_shape(shape)
        yield TensorType(type_.dtype, shape)


def measure_kernels(
    kernels: Sequence[Members], table: TaskTable, setup: MeasurementSetup, deadline: float
) -> Iterator[Measurement]:
    """As `kernel_latencies`, each with the schedule that it has without a search; those without a record are measured.

    After the deadline (time.monotonic) none is measured. Kernels that nothing is compiled for, that fail, and that
    were not reached have no latency.
    """
    for start in range(0, len(kernels), _BATCH):
        if is_over(deadline):
            return
        batch = kernels[start : start + _BATCH]
        tasks = {key: table.tasks[key] for kernel in batch if (key := table.key(kernel)) is not None}
        setup.try_out([(task, {}) for task in tasks.values() if not setup.records(task)])
        yield from kernel_latencies(batch, table, setup)


def kernel_latencies(kernels: Iterable[Members], table: TaskTable, setup: MeasurementSetup) -> Iterator[Measurement]:
    """For the profile database: each distinct kernel that ran with the latency of its best schedule.

    A search for several threads has none, for costs are those of one thread, and neither has a search for this
    machine's code on another one. A launch is added, for a latency in the profile database has one, and a kernel that
    is called in a loop has none.
    """
    target = setup.target
    if target.threads != 1 or (target.is_library and setup.runner.name != LOCAL):
        return
    graph, device = table.fits.kernels.graph, setup.target.device
    for kernel in {table.key(kernel): kernel for kernel in kernels}.values():
        key, name = table.key(kernel), subgraph_key(graph, kernel)
        records = setup.records(table.tasks[key]) if key is not None else ()
        ran = [record for record in records if record.latency is not None]
        if not ran or name is None:
            continue
        best = min(ran, key=lambda record: record.latency or 0.0)
        yield Measurement(
            key=name,
            device=device.name,
            latency=(best.latency or 0.0) + device.launch_overhead,
            spread=best.spread,
            runs=best.runs,
            versions={**setup.software, "runner": setup.runner.name},
            schedule=canonical_json(dict(best.decisions)),
            subgraph=subgraph_text(graph, kernel),
        )
