"""The interface of verification: another process does the work, within a time limit.

A model may hold a loop without end or crash a kernel of ONNX Runtime or the reference evaluator, and no exception or
signal handler of this process could end that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...support.errors import VerificationError, VerificationProcessError
from ...support.processes.worker_process import WorkerDiedError, WorkerFailedError, WorkerPool, WorkerProcess
from ...support.scratch import scratch_folder
from ...support.solvers import OrderQuestion, UndecidedOrderError
from .question import Question
from .report import Verification
from .runs.source import ModelLike, model_file

if TYPE_CHECKING:
    from ...rules.vocabulary import Precision
    from .inputs.given import Sample

_POOL = WorkerPool(lambda: WorkerProcess(f"{__package__}.verdict:answer", forks=True))
"""Idle processes stay, since starting one takes as long as verifying a small model."""
_START_SECONDS = 60.0
"""What the start of a process and the import of z3 may take on a busy machine."""


def verify(
    original: ModelLike,
    candidate: ModelLike,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    samples: Sequence[Sample] = (),
    precise: bool = True,
    precision: Precision | None = None,
    measure: bool = False,
    limit: float = 300.0,
) -> Verification:
    """Run both models on the same inputs, compare every output, and name the first value that differs.

    Each model is a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. Both run on the ``samples`` (see
    ``inputs.read_samples``), else on inputs that are random from ``seed``: under two seeds, of shapes and values that
    suit their use in the original (``shapes`` fixes the shape of inputs), once more with larger sizes if dimensions
    are symbolic, and on stress inputs (see ``baseline``). A given ``atol`` or ``rtol`` is final, and then stress inputs
    are left out. With the default tolerance and ``precise``, a float64 oracle judges floats that differ by more
    than a few units in the last place (see ``oracle``; seconds on a large model), and quantised models are compared in
    steps of their scales (see ``quantization``). ``precision`` is that of the rewriting (None: that of the
    candidate's provenance, else "real"): with "exact" and the default tolerance, outputs must be the same bits (see
    ``effect``) if ONNX Runtime runs the models, and NaN and infinities are among the inputs. With ``measure`` the
    oracle also measures how accurate both are if bits differ.
    ``limit`` is in seconds: a model of gigabytes takes one minute, its float64 oracle a few more.

    Raises UsageError for a file that is no model and for inputs the model lacks, VerificationError if there is no
    verdict: a model crashes its runtime, or verification takes longer than ``limit``.
    """
    with model_file(original) as before, model_file(candidate) as after, scratch_folder("running") as folder:
        # The process may have been started in another folder: its paths are absolute.
        files = before.absolute(), after.absolute(), Path(folder) / "model"
        question = Question(*files, seed, dict(shapes or {}), tuple(samples), atol, rtol, precise, precision, measure)
        try:
            verification: Verification = _POOL.ask(question, limit)
        except WorkerDiedError as error:
            kind = VerificationProcessError if error.is_blameless else VerificationError
            raise kind(_reason(error, question, limit)) from None
        except WorkerFailedError as error:
            if error.kind == "MemoryError":
                raise VerificationProcessError("verification ran out of memory") from None
            raise
    return verification


@contextmanager
def require_verdict(label: str) -> Iterator[None]:
    """Add the model and advice to a VerificationError within the context: nothing has been written."""
    try:
        yield
    except VerificationError as error:
        raise type(error)(f"{label}: {error}", "nothing was written; --no-verify does without") from None


def require_comparison(verification: Verification) -> Verification:
    """The verdict, within `require_verdict`. Raises VerificationError if nothing was compared."""
    if verification.status == "unverified":
        raise VerificationError(verification.reason)
    return verification


@contextmanager
def look_for_order(question: OrderQuestion) -> Iterator[Callable[[], tuple[int, ...]]]:
    """Have the process of a later verification ask z3 for an order while this one goes on; the function awaits what
    `OrderQuestion.answer` returns.

    It raises UndecidedOrderError if there is no answer.
    """
    with _POOL.ask_meanwhile(question, question.seconds + _START_SECONDS) as receive:

        def await_answer() -> tuple[int, ...]:
            try:
                cycle: tuple[int, ...] = receive()
            except WorkerDiedError as error:
                raise UndecidedOrderError(f"the process of z3 {error}") from None
            except WorkerFailedError as error:
                if error.kind == "MemoryError":
                    raise UndecidedOrderError("the process of z3 ran out of memory") from None
                raise
            return cycle

        yield await_answer


def prepare() -> None:
    """Start a process for a later verification, while other work goes on."""
    _POOL.prepare()


def _reason(error: WorkerDiedError, question: Question, limit: float) -> str:
    if error.timed_out:
        return f"verification took longer than {round(limit, 1) or round(limit, 4):g} s; --verify-limit gives it more"
    role = question.last_running()
    return f"verification {error}" + (f" while it ran the {role} model" if role else "")
