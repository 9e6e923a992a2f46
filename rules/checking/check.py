"""The checker: samples of a rule's left side, a symbolic proof on the smallest, numbers on all.

A rule is refuted by the first sample on which it is wrong. It is proved where every sampled shape is proved for all
elements; a rule of element-wise operators is proved on scalars, which says the same for every shape. TASO (Jia et al.,
SOSP 2019, section 4) verifies its operator properties likewise, on all small shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from queue import SimpleQueue

import numpy as np

from ...errors import EqfuseError, RuleError
from ...support.processor import available_cores
from ...support.worker_process import WorkerDiedError, WorkerProcess
from ..records import Rule, RuleFile
from ..semantics import Unsupported
from . import cache as verdicts
from .numeric import Counterexample, named_leaves, test_sample
from .prove import Proven, prove_samples
from .sampling import Hit, example_hits, hits, seed
from .scratch import Conflict, Fired, Scratch
from .terms import readable
from .unbounded.prove import EVERY_SHAPE, prove_rule
from .verdict import Kind, Verdict

Judge = Callable[[Rule, Sequence[Hit]], str]
"""A remark on a rule that is true, from the samples it fired on; "" for none. It has to be picklable."""


_SECONDS = 600.0
"""How long the check of a rule may take: the slowest shipped ones take a few seconds."""
_PATIENCE = 0.05
"""Seconds between two attempts to end processes."""


@dataclass(frozen=True)
class Job:
    """A rule to check, as a process of its own is asked for it."""

    file: RuleFile
    rule: Rule
    judge: Judge | None


def check_rule(rule: Rule, scratch: Scratch, judge: Judge | None = None) -> Verdict:
    """The verdict on one rule; `scratch` holds the declarations of its file."""
    by_direction = hits(rule, scratch)
    example = example_hits(rule, scratch)
    every = [hit for found in by_direction for hit in found] + example
    counterexample, tested = _tested(rule, every)
    blank = Verdict(rule.name, "idle", samples=tested, example=bool(example))
    if counterexample is not None:
        return replace(blank, kind="refuted", reason=counterexample.reason, counterexample=counterexample)
    foreign = _foreign(every)
    idle = _idle(by_direction, example, tested or len(foreign))
    if idle:
        return replace(blank, reason=idle)
    if foreign:
        return replace(blank, kind="assumed", reason=f"only its author knows what {', '.join(foreign)} computes")
    verdict = _for_every_shape(rule, _with_proof(blank, prove_samples(every, rule.sound)))
    return replace(verdict, remark=judge(rule, every)) if judge and verdict.accepted else verdict


def _idle(by_direction: Sequence[Sequence[Hit]], example: Sequence[Hit], tested: int) -> str:
    if len(by_direction) == 2 and not all(by_direction):
        side = "right side, read backwards," if by_direction[0] else "left side"
        return f"no sample of the {side} made the rule fire: its conditions may contradict each other"
    if not any(by_direction) and not example:
        return "no sample of the left side made the rule fire: its conditions may contradict each other"
    if not tested:
        return "an operator of the rule has no meaning for any sample"
    return "" if example else "the rule does not fire on its example"


def _foreign(found: Sequence[Hit]) -> list[str]:
    """Operators of other domains among what a rule made, without their attributes."""
    classes = (c for hit in found if isinstance(hit.outcome, Fired) for c in hit.outcome.classes.values())
    keys = (str(node.arguments[0]) for nodes in classes for node in nodes if node.head == "Op")
    return sorted({key.partition("/")[0] for key in keys})


def _tested(rule: Rule, found: Sequence[Hit]) -> tuple[Counterexample | None, int]:
    """The first counterexample in numbers, and how many samples were tested."""
    random = np.random.default_rng(seed(rule))
    tested = 0
    for hit in sorted(found, key=_size):  # the smallest counterexample says most
        if isinstance(hit.outcome, Conflict):
            return _conflict(hit), tested
        try:
            wrong = test_sample(hit.sample, hit.outcome, rule.sound, random)
        except Unsupported:
            continue
        tested += 1
        if wrong is not None:
            return wrong, tested
    return None, tested


def _size(hit: Hit) -> int:
    return sum(int(np.prod(leaf.type.shape)) for leaf in named_leaves(hit.sample))


def _conflict(hit: Hit) -> Counterexample:
    message = hit.outcome.message if isinstance(hit.outcome, Conflict) else ""
    what = next((w for w in ("shape", "dtype") if f"function {w}" in message), "")
    reason = f"the two sides differ in {what}" if what else f"the e-graph refuses the result: {message}"
    return Counterexample("; ".join(readable(root) for root in hit.sample.roots), {}, "", "", "", reason)


def _with_proof(blank: Verdict, proven: Proven) -> Verdict:
    if proven.counterexample is not None:
        wrong = proven.counterexample
        return replace(blank, kind="refuted", reason=wrong.reason, counterexample=wrong)
    if not proven.complete:
        return replace(blank, kind="tested", reason=proven.reason)
    kind: Kind = "proved-if" if proven.condition else "proved"
    return replace(blank, kind=kind, scope=proven.scope, condition=proven.condition)


def _for_every_shape(rule: Rule, verdict: Verdict) -> Verdict:
    """The verdict, with the widest scope where the rule is proved for tensors of unknown rank."""
    if verdict.kind == "refuted" or not prove_rule(rule).proved:
        return verdict
    return replace(verdict, kind="proved" if verdict.kind == "tested" else verdict.kind, scope=EVERY_SHAPE, reason="")


# --- many rules


def scratch_for(file: RuleFile) -> Scratch:
    """A scratch e-graph with what a file declares and derives."""
    declared = [d.text for d in file.declarations]
    return _scratch("\n".join((*declared, *(rule.text for rule in file.rules if rule.derives))))


@cache
def _scratch(declarations: str) -> Scratch:
    return Scratch(declarations)


def authored(files: Iterable[RuleFile]) -> list[tuple[RuleFile, Rule]]:
    """The rules as their authors wrote them: without mirrored variants, and without those that only derive facts."""
    return [(f, rule) for f in files for rule in f.rules if rule.name == rule.base and not rule.derives]


def check_files(
    files: Iterable[RuleFile], *, judge: Judge | None = None, kept: bool = True, workers: int | None = None
) -> Iterator[Verdict]:
    """The verdicts on all rules of some files, in order; mirrored variants share their original's.

    Verdicts of earlier runs are used again unless `kept` is False. Runs in one process for each core.
    """
    jobs = [Job(file, rule, judge) for file, rule in authored(files)]
    known = {j.rule.name: v for j in jobs if kept and (v := verdicts.load(verdicts.key(j.rule, j.file))) is not None}
    fresh = _all([job for job in jobs if job.rule.name not in known], workers or available_cores())
    for job in jobs:
        verdict = known.get(job.rule.name) or next(fresh)
        if job.rule.name not in known:
            verdicts.store(verdicts.key(job.rule, job.file), verdict)
        yield verdict


def _all(jobs: Sequence[Job], workers: int) -> Iterator[Verdict]:
    if workers == 1 or len(jobs) < 4:
        yield from map(verdict_on, jobs)
        return
    processes = [WorkerProcess(f"{__package__}.check_worker") for _ in range(min(workers, len(jobs)))]
    idle: SimpleQueue[WorkerProcess] = SimpleQueue()
    for process in processes:
        idle.put(process)
    with ThreadPoolExecutor(len(processes)) as threads:
        answers = [threads.submit(_asked, job, idle) for job in jobs]
        try:
            yield from (answer.result() for answer in answers)
        finally:
            for answer in answers:
                answer.cancel()
            while wait(answers, _PATIENCE).not_done:  # a thread may just be starting its process
                for process in processes:
                    process.end()
    for process in processes:
        process.end()


def _asked(job: Job, idle: SimpleQueue[WorkerProcess]) -> Verdict:
    process = idle.get()
    try:
        answer: Verdict | EqfuseError = process.ask(job, _SECONDS)
    except WorkerDiedError as error:
        rule = job.rule
        raise RuleError(f"{rule.path}:{rule.line}:{rule.column}: the check of {rule.name} {error}") from None
    finally:
        idle.put(process)
    if isinstance(answer, EqfuseError):
        raise answer
    return answer


def verdict_on(job: Job) -> Verdict:
    """The verdict on the rule."""
    return check_rule(job.rule, scratch_for(job.file), job.judge)
