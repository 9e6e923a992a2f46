"""Slow and wrong kernels compiled in another way: the policy by tables of times, and bundles that come of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import helper

import eqfuse
from eqfuse.costmodels.measuring.profile import ProfileDatabase
from eqfuse.driver.compiler import kernel_choice, processor
from eqfuse.driver.compiler.kernel_choice import Attempt, Memory, choose_kernels
from eqfuse.engine.verification import Verification
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.bundle import check
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.kernels.compilation import CompiledKernels
from eqfuse.lowering.kernels.fallback import Fallback, LoopCall
from eqfuse.lowering.kernels.messages import Answer
from eqfuse.lowering.kernels.prim_funcs import KernelCall
from eqfuse.lowering.kernels.variants import KernelPartition, Members
from eqfuse.lowering.plan.kernel_facts import KernelFacts, read_table
from eqfuse.lowering.running import blame
from eqfuse.lowering.running.kernel_times import CallTime
from eqfuse.lowering.tuning import suspects
from eqfuse.lowering.tuning.suspects import find_suspects

from ..caches import own_cache
from ..lowering.small_models import chain, expected, graph_of, model, random_inputs, saved, weights

NODES = [("MatMul", "xw", "a"), ("Relu", "a", "b"), ("MatMul", "bw", "c"), ("Tanh", "c", "y")]
_NODES = [helper.make_node(op, [*read], [made]) for op, read, made in NODES]
GRAPH = graph_of(model(_NODES, {"x": (4, 8)}, {"y": (4, 8)}, w=weights(8, 8)))
PAIRS = KernelPartition(((0, 1), (2, 3)))
BETWEEN = GRAPH.operators[1].outputs[0]
"""What the first pair hands to the second."""
ESTIMATE = 10e-6


@dataclass
class Table:
    """A builder that takes the times of kernels from a table, by the operators and what is decided about them."""

    seconds: Mapping[Members, float]
    by_runtime: float = 1.0
    apart: float = 0.0
    without: float = 1.0
    wrong: Collection[Members] = ()
    rounding: Collection[Members] = ()
    """Those that are right by themselves, and round more than their operators."""
    built: list[KernelPartition] = field(default_factory=list)
    spoiled: Collection[Members] = ()
    plain: Mapping[Members, float] = field(default_factory=dict)
    loops: Collection[Members] = ()

    def build(self, partition: KernelPartition) -> Attempt:
        if any(kernel in self.spoiled for kernel in partition.kernels):
            raise LoweringError("cannot be linked")
        self.built.append(partition)
        steps: list[KernelCall | Fallback | LoopCall] = []
        for kernel in partition.kernels:
            if kernel[0] in partition.choices.runtime:
                steps.append(Fallback(kernel, (), (), (), "", cast(Any, None)))
            elif kernel in self.loops:
                part = Fallback(kernel, (), (), (), "", cast(Any, None))
                steps.append(LoopCall(f"loop_{name_of(kernel)}", part, (), cast(Any, None), {}))
            else:
                steps.append(KernelCall(name_of(kernel), kernel, (), ()))
        names = [step.symbol for step in steps if isinstance(step, KernelCall)]
        answers = {name: Answer(name, 0.0, rule="contraction") for name in names}
        prepared = CompiledKernels(
            GRAPH, cast(Weights, None), tuple(steps), {}, answers, keys={name: f"task {name}" for name in names},
            channels_last=frozenset({BETWEEN} if self.plain else ()) - partition.choices.plain,
        )  # fmt: skip
        of_product = KernelFacts("", ("MatMul",), "contraction", 1, 0, 0, 0, 0.0, ESTIMATE, None, "product", self.apart)
        facts = tuple(replace(of_product, symbol=name) for name in names)
        return Attempt(partition, Path(), prepared, facts)

    def time(self, attempts: Sequence[Attempt]) -> Sequence[Mapping[str, CallTime]]:
        return [self._times(attempt) for attempt in attempts]

    def _times(self, attempt: Attempt) -> Mapping[str, CallTime]:
        times = {}
        for name, members in attempt.prepared.named_steps():
            seconds = self.by_runtime if "fallback" in name else self.seconds[members]
            if attempt.partition.choices.without.get(f"task {name}"):
                seconds = self.without
            if attempt.partition.choices.plain:
                seconds = self.plain[members]
            times[name] = CallTime(seconds, 0.0, 5)
        return times

    def find_wrong(
        self, attempt: Attempt, symbols: Collection[str], strict: Collection[str], *, may_round: bool
    ) -> Mapping[str, str]:
        wrong = [name_of(members) for members in self.wrong if name_of(members) in symbols]
        rounding = [name_of(members) for members in self.rounding if name_of(members) in strict]
        return dict.fromkeys([*wrong, *rounding], "is off")


def name_of(kernel: Members) -> str:
    return "kernel_" + "_".join(map(str, kernel))


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Memory]:
    """What the profile database knows now; it is empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    return lambda: Memory.of("host", 1, lambda line: pytest.fail(line))


def choose(
    table: Table, memory: Memory | None, wrong: Mapping[str, str] | None = None
) -> tuple[KernelPartition, list[str]]:
    """The partition that is chosen, and what replaced each suspect."""
    attempt, summary = choose_kernels(table, table.build(PAIRS), wrong or {}, memory, checks=True)
    assert summary.problem == ""
    return attempt.partition, [kernel.chosen for kernel in summary.kernels]


FAST, SLOW = ESTIMATE, 50 * ESTIMATE


def test_a_model_without_slow_kernels_stays_as_it_is(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): FAST, (2, 3): 1.9 * FAST})
    assert choose(table, memory()) == (PAIRS, [])
    assert table.built == [PAIRS]


def test_a_slow_kernel_is_cut_where_its_parts_are_faster(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (0,): FAST, (1,): FAST / 10, (2, 3): FAST})
    assert choose(table, memory()) == (KernelPartition(((0,), (1,), (2, 3))), ["divided into 2 kernels"])


def test_the_next_schedule_is_taken_where_that_is_faster(memory: Callable[[], Memory]) -> None:
    partition, chosen = choose(Table({(0, 1): SLOW, (0,): SLOW, (1,): SLOW, (2, 3): FAST}, without=FAST), memory())
    assert chosen == ["without contraction"]
    assert partition.choices.without == {"task kernel_0_1": frozenset({"contraction"})}


@pytest.mark.parametrize(("wrong", "chosen"), [({}, ""), ({"kernel_0_1": "is off"}, "ONNX Runtime")])
def test_slow_kernels_have_one_trial_when_the_time_is_over_and_wrong_ones_all(
    memory: Callable[[], Memory], monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], chosen: str
) -> None:
    monkeypatch.setattr(kernel_choice, "TRIAL_SECONDS", -1.0)
    table = Table({(0, 1): FAST if wrong else SLOW, (0,): SLOW, (1,): SLOW, (2, 3): FAST}, by_runtime=FAST / 12)
    assert choose(table, memory(), wrong)[1] == [chosen]


@pytest.mark.parametrize(("by_runtime", "chosen"), [(0.5, ["ONNX Runtime"]), (0.99, [""])])
def test_a_plain_loop_that_takes_long_is_compared_with_onnx_runtime(
    memory: Callable[[], Memory], by_runtime: float, chosen: list[str]
) -> None:
    table = Table({(0, 1): SLOW, (2, 3): FAST}, loops=[(0, 1)], by_runtime=by_runtime * SLOW)
    partition, found = choose(table, memory())
    assert (found, bool(partition.choices.runtime)) == (chosen, chosen == ["ONNX Runtime"])


def test_a_plain_loop_that_takes_little_stays(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): FAST / 10, (2, 3): FAST}, loops=[(0, 1)], by_runtime=0.0)
    assert choose(table, memory()) == (PAIRS, [])


def test_onnx_runtime_gets_what_it_runs_faster(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (0,): SLOW, (1,): SLOW, (2, 3): FAST}, by_runtime=SLOW / 12)
    partition, chosen = choose(table, memory())
    assert (chosen, set(partition.choices.runtime)) == (["ONNX Runtime"], {0, 1})


def test_onnx_runtime_gets_nothing_that_it_runs_some_times_as_fast(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (0,): SLOW, (1,): SLOW, (2, 3): FAST}, by_runtime=SLOW / 5)
    assert [choose(table, memory()) for _ in range(2)] == [(PAIRS, [""])] * 2  # measured, and remembered


@pytest.mark.parametrize(("neighbour", "chosen"), [(2 * FAST, "feature maps in ONNX's order"), (SLOW, "")])
def test_another_layout_is_judged_with_the_kernels_around(
    memory: Callable[[], Memory], neighbour: float, chosen: str
) -> None:
    before = {(0, 1): SLOW, (0,): SLOW, (1,): SLOW, (2, 3): FAST}
    table = Table(before, without=SLOW, plain={(0, 1): FAST, (2, 3): neighbour})
    partition, names = choose(table, memory())
    assert names == [chosen]
    assert (BETWEEN in partition.choices.plain) == bool(chosen)


def test_a_kernel_stays_where_nothing_is_clearly_faster(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (0,): SLOW, (1,): SLOW, (2, 3): FAST}, by_runtime=0.97 * SLOW)
    assert choose(table, memory()) == (PAIRS, [""])


def test_a_variant_that_is_wrong_is_not_taken(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (0,): FAST, (1,): FAST, (2, 3): FAST}, by_runtime=SLOW / 12, wrong=[(0,)])
    assert choose(table, memory())[1] == ["ONNX Runtime"]


def test_a_variant_that_cannot_be_built_costs_nothing_else(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (2, 3): FAST}, by_runtime=SLOW / 12, spoiled=[(0,)])
    assert choose(table, memory())[1] == ["ONNX Runtime"]


def test_kernels_below_two_percent_of_the_model_stay(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): 100 * SLOW, (2, 3): SLOW}, by_runtime=100 * SLOW)
    base = table.build(PAIRS)
    (times,) = table.time([base])
    facts = tuple(replace(f, predicted=100 * SLOW if f.symbol == "kernel_0_1" else ESTIMATE) for f in base.facts)
    assert find_suspects(base.prepared, facts, times) == []


def test_a_machine_that_is_slower_than_its_file_has_no_slow_kernels_for_that(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (2, 3): 1.5 * SLOW})
    assert choose(table, memory()) == (PAIRS, [])


def test_a_kernel_that_may_be_slower_than_its_operators_is_compared_with_them(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): 1.8 * FAST, (0,): FAST / 2, (1,): FAST / 2, (2, 3): FAST / 2}, apart=1.2 * FAST)
    for _ in range(2):  # measured, and remembered
        attempt, summary = choose_kernels(table, table.build(PAIRS), {}, memory(), checks=True)
        assert attempt.partition == KernelPartition(((0,), (1,), (2, 3)))
        assert summary.fused == pytest.approx(1.5 * FAST)
        assert summary.apart == pytest.approx(FAST + 1.15 * 1.2 * FAST)  # kernels usually take 1.15 of their estimates


def test_a_kernel_that_is_faster_than_its_operators_are_thought_to_be_stays(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): 1.8 * FAST, (2, 3): FAST / 2}, apart=1.8 * FAST)
    assert choose(table, memory()) == (PAIRS, [])
    assert table.built == [PAIRS]


def test_all_that_is_chosen_has_to_be_faster_together(memory: Callable[[], Memory]) -> None:
    @dataclass
    class Deceptive(Table):
        def time(self, attempts: Sequence[Attempt]) -> Sequence[Mapping[str, CallTime]]:
            times = super().time(attempts)
            self.calls = getattr(self, "calls", 0) + 1
            is_last = self.calls == 3  # the base, the variant, and then all that was chosen
            return [{n: CallTime(SLOW, 0.0, 5) for n in each} for each in times] if is_last else times

    table = Deceptive({(0, 1): SLOW, (0,): FAST, (1,): FAST, (2, 3): FAST})
    assert choose(table, memory()) == (PAIRS, [""])


def test_what_was_measured_is_taken_at_once_the_next_time(memory: Callable[[], Memory]) -> None:
    table = Table({(0, 1): SLOW, (0,): SLOW, (1,): FAST, (2, 3): FAST}, by_runtime=SLOW / 12)
    first = choose(table, memory())
    tried = len(table.built)
    assert choose(table, memory()) == first
    assert len(table.built) - tried == 2  # the kernels of the partition, and those that are best


def test_times_are_kept_with_the_template_and_the_estimate(memory: Callable[[], Memory]) -> None:
    choose(Table({(0, 1): FAST, (2, 3): 1.5 * FAST}), memory())
    rows = ProfileDatabase.open().all(device="host")
    assert {(row.template, row.estimate, row.latency) for row in rows} == {
        ("product", ESTIMATE, FAST),
        ("product", ESTIMATE, 1.5 * FAST),
    }


@pytest.mark.parametrize("measures", [False, True])
def test_a_wrong_kernel_gets_a_variant_that_is_right(memory: Callable[[], Memory], measures: bool) -> None:
    seconds = {(0, 1): FAST, (0,): SLOW, (1,): SLOW, (2, 3): FAST}
    table = Table(seconds, by_runtime=FAST / 12, without=2 * FAST, wrong=[(0,)])
    partition, chosen = choose(table, memory() if measures else None, {"kernel_0_1": "is off"})
    assert chosen == ["ONNX Runtime" if measures else "without contraction"]
    assert (partition.choices.runtime != {}) == measures


def test_in_the_place_of_a_wrong_kernel_stands_none_that_rounds_more(memory: Callable[[], Memory]) -> None:
    """Parts of a kernel that rounded too much are right by themselves, and would make the model wrong again."""
    seconds = {(0, 1): SLOW, (0,): FAST, (1,): FAST, (2, 3): FAST}
    table = Table(seconds, by_runtime=SLOW, without=5 * FAST, rounding=[(0,)])
    assert choose(table, memory())[1] == ["divided into 2 kernels"]
    assert choose(table, None, {"kernel_0_1": "rounds more"})[1] == ["without contraction"]


def test_measuring_brings_no_kernel_back_that_rounds_more(memory: Callable[[], Memory]) -> None:
    """What replaced a kernel that rounded too much is slow, and its parts, which round as much, would be faster."""
    seconds = {(0, 1): SLOW, (0,): FAST, (1,): FAST, (2, 3): FAST}
    table = Table(seconds, by_runtime=SLOW, without=10 * FAST, rounding=[(0,)])
    partition, chosen = choose(table, memory(), {"kernel_0_1": "rounds more"})
    assert (partition.kernels, chosen) == (PAIRS.kernels, ["without contraction", ""])


def test_what_other_models_measured_replaces_no_kernel_that_rounded_too_much(memory: Callable[[], Memory]) -> None:
    seconds = {(0, 1): SLOW, (0,): FAST, (1,): FAST, (2, 3): FAST}
    table = Table(seconds, by_runtime=SLOW, without=10 * FAST, rounding=[(0,)])
    assert choose(table, memory())[1] == ["divided into 2 kernels"]
    assert choose(table, memory(), {"kernel_0_1": "rounds more"})[0].kernels == PAIRS.kernels


# --- bundles


@pytest.fixture
def by_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels measure slow, and what ONNX Runtime runs fast."""

    def times(_: Any, attempts: Sequence[Attempt]) -> list[dict[str, CallTime]]:
        names = [[name for name, _ in attempt.prepared.named_steps()] for attempt in attempts]
        return [{n: CallTime(1e-6 if "fallback" in n else 1.0, 0.0, 5) for n in each} for each in names]

    monkeypatch.setattr(processor.ProcessorBundleBuilder, "time", times)
    monkeypatch.setattr(suspects, "estimate", lambda facts: 1e-6)
    for module in (kernel_choice, suspects):
        monkeypatch.setattr(module, "SLOW", 0.5)


def compiled(folder: Path, **options: Any) -> Path:
    """The bundle of the chain, on one thread."""
    source = saved(chain(), folder / "model.onnx")
    eqfuse.compile(source, folder / "bundle", threads=1, intensive=False, **options)
    return folder / "bundle"


def assert_right(bundle: Path) -> None:
    given = random_inputs(chain())
    np.testing.assert_allclose(eqfuse.load(bundle)(**given), expected(chain(), given)["y"], rtol=1e-5)


@pytest.mark.usefixtures("memory", "by_runtime")
def test_a_bundle_has_what_measured_best(tmp_path: Path) -> None:
    bundle = compiled(tmp_path)
    manifest = read_manifest(bundle)
    assert manifest.measurement is not None
    assert [kernel.chosen for kernel in manifest.measurement.kernels] == ["ONNX Runtime"]
    assert {entry.reason for entry in manifest.fallbacks} == {"it measures faster there"}
    assert_right(bundle)


@pytest.mark.usefixtures("memory", "by_runtime")
def test_without_measuring_kernels_stay(tmp_path: Path) -> None:
    bundle = compiled(tmp_path, measure=False)
    manifest = read_manifest(bundle)
    assert manifest.measurement is not None
    assert (manifest.fallbacks, manifest.measurement.problem) == ((), "--no-measure")
    assert ProfileDatabase.open().all() == ()
    assert [row.measured for row in read_table(bundle)] == [None]


@pytest.mark.usefixtures("memory")
def test_the_table_of_a_bundle_has_what_was_measured(tmp_path: Path) -> None:
    (row,) = read_table(compiled(tmp_path))
    assert row.measured is not None
    assert row.measured > 0.0


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("failures", [1, 2], ids=["at first", "also with what measured best"])
def test_a_wrong_kernel_of_a_bundle_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    verify, verdicts = check.verify_compiled, iter(["failed"] * failures)

    def verdict(original: Any, model: Any, *rest: Any) -> Any:
        if next(verdicts, ""):
            return Verification("failed", (), None, "output 'y' differs", 0.0), model
        return verify(original, model, *rest)

    def blame_first(prepared: CompiledKernels, *_: Any, among: object = None, **__: Any) -> Iterator[blame.Suspect]:
        if among is None:
            yield blame.Suspect(prepared.calls[0].symbol, "contraction", "value 'b' is off by 1")

    monkeypatch.setattr(check, "verify_compiled", verdict)
    monkeypatch.setattr(blame, "suspects", blame_first)
    bundle = compiled(tmp_path, measure=failures > 1)
    (replaced,) = read_manifest(bundle).provenance.replaced
    assert replaced.endswith("(schedule: contraction): value 'b' is off by 1; now without contraction")
    assert [row.rule for row in read_table(bundle)] != ["contraction"]
    assert_right(bundle)
