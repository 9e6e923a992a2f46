"""One search of benchmarks/tuning.py, in a process of its own with a cache of its own, so that no two share records.

    python -m eqfuse.benchmarks.searches.search model.onnx FOLDER --tool AGO-NR --trials 200

The folder gets what was compiled, and the curve as `search.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eqfuse.benchmarks.measuring.contestants import ContestantError, import_tvm
from eqfuse.benchmarks.searches.results import NO_INTENSIVE, NO_REFORMER, PEER, TUNED, Point, Search, search_of
from eqfuse.support.errors import EqfuseError

if TYPE_CHECKING:
    from eqfuse.driver.compiler.compilation import Compiled

FOUND = "search.json"
BUNDLE = "bundle"
HOST = "host"


@dataclass(frozen=True)
class Variant:
    """What AGO's micro benchmark switches off (section VI-B)."""

    intensive: bool = True
    reformer: bool = True


VARIANTS: Mapping[str, Variant] = {
    TUNED: Variant(),
    NO_INTENSIVE: Variant(intensive=False),
    NO_REFORMER: Variant(reformer=False),
}


@dataclass(frozen=True)
class Budget:
    """What a search is given. `target` is one of eqfuse's; MetaSchedule is for this machine."""

    trials: int
    threads: int
    seed: int
    target: str = HOST


@dataclass(frozen=True)
class Job:
    """A search for one of `VARIANTS`, or by MetaSchedule, whose results go to `folder`."""

    tool: str
    model: Path
    folder: Path
    budget: Budget

    @property
    def compiled(self) -> Path:
        """The folder of the compiled model, as a contestant takes it."""
        return self.folder if self.tool == PEER else self.folder / BUNDLE

    def done(self) -> Search:
        """What an earlier process left in the folder, or what a new one does. Raises ContestantError."""
        found = self.folder / FOUND
        if not found.is_file():
            self._search()
        return search_of(json.loads(found.read_text(encoding="utf-8")))

    def _search(self) -> None:
        budget = self.budget
        command = [
            sys.executable, "-P", "-m", "eqfuse.benchmarks.searches.search", str(self.model), str(self.folder),
            "--tool", self.tool, "--trials", str(budget.trials), "--threads", str(budget.threads),
            "--seed", str(budget.seed), "--target", budget.target,
        ]  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="eqfuse-cache-") as cache:
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "XDG_CACHE_HOME": cache}, check=False,
            )  # fmt: skip
        if not (self.folder / FOUND).is_file():
            lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
            raise ContestantError(f"{self.tool}: {lines[-1][:300]}")


# --- in the process


def searched(job: Job) -> Search:
    """Search here and now."""
    if job.tool == PEER:
        import_tvm(job.budget.threads)
        from eqfuse.benchmarks.searches import metaschedule

        budget = job.budget
        return metaschedule.tune(job.model, job.folder, budget.trials, budget.threads, budget.seed)
    return _own(job, VARIANTS[job.tool])


def _own(job: Job, variant: Variant) -> Search:
    """Without intensive fusion there is none in the bundle either that is kept where the search finds nothing."""
    from eqfuse.driver.compiler.compile import compile_model
    from eqfuse.driver.compiler.options import CompileOptions
    from eqfuse.lowering.tuning.settings import Settings

    budget = job.budget
    settings = Settings(budget.trials, intensive=variant.intensive, reformer=variant.reformer, seed=budget.seed)
    options = CompileOptions(
        target=budget.target, threads=budget.threads, intensive=variant.intensive, seed=budget.seed, tuning=settings
    )
    began = time.monotonic()
    made = compile_model(job.model, job.compiled, options)
    return _search_of(made, time.monotonic() - began)


def _search_of(made: Compiled, seconds: float) -> Search:
    """The note says by how much, where it is not the clock of this machine that decided."""
    summary = made.manifest.tuning
    assert summary is not None
    curve = tuple(Point(point.trials, point.seconds, point.latency) for point in summary.curve)
    note = f"the {summary.kept} bundle is kept, the tuned one is {summary.ratio:.2f}x as fast, runner {summary.runner}"
    if summary.kept == "tuned" and summary.runner == "local":
        note = ""
    return Search(curve, summary.trials, summary.failed, summary.tasks, seconds, note)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tool", choices=(*VARIANTS, PEER), default=TUNED)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default=HOST)
    given = parser.parse_args()
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")  # its idle threads sleep, as eqfuse's do
    given.folder.mkdir(parents=True, exist_ok=True)
    budget = Budget(given.trials, given.threads, given.seed, given.target)
    try:
        found = searched(Job(given.tool, given.model, given.folder, budget))
    except EqfuseError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    text = json.dumps(asdict(found)) + "\n"
    (given.folder / FOUND).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
