"""The pipeline: ``Model -> EGraph -> Selection -> Model``, one step per line, each timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import onnx_ir as ir

from .costmodels.device import load_device
from .costmodels.model import cost_model
from .engine.custom import named_operators
from .engine.decode import decode, drop_annotations
from .engine.egraph import EGraph, Saturation, Selection
from .engine.encode import Encoding, encode
from .engine.inference import Knowledge, infer
from .engine.messages import Precision, RuleSelection
from .engine.model import Model, check_destination, external_name, read, reads, write
from .engine.opset import raise_opset
from .engine.plan import Origins, origins
from .engine.saturate import Budget, saturate
from .engine.shapes import override_shapes
from .engine.summary import GraphSummary, knowledge_of_result, summarize
from .engine.worker import Worker
from .errors import UsageError, VerificationError
from .extract.select import Pricing, select

if TYPE_CHECKING:
    import onnx

    from .engine.verification import Verification

GROWTH = 1.01
"""How much larger than the original a result may be; where it is, choosing pays more for every byte stored."""
_ATTEMPTS = 5


@dataclass(frozen=True)
class Options:
    """How to optimise. The command line's options are these fields."""

    cost: Literal["flops", "roofline"] = "roofline"
    device: str = "host"
    precision: Precision = "real"
    rules: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    time_limit: float = 30.0
    node_limit: int = 50_000
    iterations: int = 200
    extraction: Literal["exact", "greedy"] = "exact"
    extraction_limit: float = 10.0
    opset: int | None = None
    input_shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    verify: bool = True
    atol: float | None = None
    rtol: float | None = None
    seed: int = 0

    @property
    def selection(self) -> RuleSelection:
        """Which rules to use."""
        return RuleSelection(self.rules, self.precision, self.only, self.skip)


@dataclass(frozen=True)
class Result:
    """An optimised model and how it came about. `phases` are wall-clock seconds."""

    model: ir.Model
    path: Path | None
    before: GraphSummary
    after: GraphSummary
    saturation: Saturation
    extraction: Selection
    classes: int
    enodes: int
    verification: Verification | None
    phases: Mapping[str, float]

    @property
    def budget_hit(self) -> bool:
        """Whether a limit ended the search before it was complete; the result is valid all the same."""
        return self.saturation.budget_hit or self.extraction.status != "optimal"


Observer = Callable[[str, str], None]
"""Called with the phase and a line of detail."""


class _Clock:
    def __init__(self, observer: Observer | None) -> None:
        self.phases: dict[str, float] = {}
        self.observer = observer

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.tell(name, "")
        started = time.perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - started

    def tell(self, phase: str, detail: str) -> None:
        if self.observer:
            self.observer(phase, detail)


def optimize(
    model: str | Path | onnx.ModelProto | ir.Model,
    output: str | Path | None = None,
    *,
    observer: Observer | None = None,
    **options: Any,
) -> Result:
    """Optimise an ONNX model; with `output`, write it there once it is verified.

    `options` are the fields of `Options`. Raises EqfuseError with one clear line on anything a user can mend, among
    them VerificationError where the result differs from the original: then nothing is written.
    """
    return run(model, Path(output) if output is not None else None, Options(**options), observer)


def run(
    source: str | Path | onnx.ModelProto | ir.Model,
    output: Path | None,
    options: Options,
    observer: Observer | None = None,
    worker: Worker | None = None,
) -> Result:
    """`optimize` with its options in one object, and a worker that may have been started before with their rules."""
    with worker or Worker(options.selection) as started:  # loads the rules while the model is read
        return _run(source, output, options, _Clock(observer), started)


def _run(source: Any, output: Path | None, options: Options, clock: _Clock, worker: Worker) -> Result:
    with clock.phase("read"):
        model = _read(source, output, options)
        model_price = cost_model(options.cost, load_device(options.device))
    with clock.phase("infer"):
        knowledge = infer(model)
    with clock.phase("encode"):
        encoding = encode(model, knowledge, named_operators(options.selection.paths))
    with clock.phase("saturate"):
        egraph = _saturate(encoding, worker, options, clock)
    origin = origins(model.graph, encoding, egraph)
    result, selection = _extract(model, knowledge, encoding, egraph, origin, Pricing.of(model_price), options, clock)
    with clock.phase("summarize"):
        before = summarize(model, knowledge, model_price)
        after = summarize(result, knowledge_of_result(result, knowledge), model_price)
        drop_annotations(result, model)
    verification = None
    if options.verify:
        with clock.phase("verify"):
            verification = _verify(model, result, options)
    if output is not None:
        with clock.phase("write"):
            result = write(result, output, external=model.has_external_data)
    return Result(
        model=result.ir,
        path=result.path,
        before=before,
        after=after,
        saturation=egraph.saturation,
        extraction=selection,
        classes=len(egraph.classes),
        enodes=egraph.enodes,
        verification=verification,
        phases=clock.phases,
    )


def _read(source: Any, output: Path | None, options: Options) -> Model:
    model = read(source)
    if output is not None:
        check_destination(output)
        if model.path is not None and output.exists() and output.samefile(model.path):
            raise UsageError(f"{output}: is the input itself; name another file to write")
        if reads(model, output.with_name(external_name(output))):
            name = external_name(output)
            raise UsageError(f"{output}: would replace {name}, which the input reads; name another file")
    return raise_opset(override_shapes(model, options.input_shapes), options.opset)


def _saturate(encoding: Encoding, worker: Worker, options: Options, clock: _Clock) -> EGraph:
    budget = Budget(options.node_limit, options.time_limit, options.iterations)
    return saturate(
        encoding,
        worker,
        budget,
        progress=lambda p: clock.tell("saturate", f"iteration {p.iterations}: {p.growth[-1]} e-nodes"),
    )


def _extract(
    model: Model,
    knowledge: Knowledge,
    encoding: Encoding,
    egraph: EGraph,
    origin: Origins,
    pricing: Pricing,
    options: Options,
    clock: _Clock,
) -> tuple[Model, Selection]:
    """Choose and write the graph; where it would grow the file, choose again at a higher price per stored byte."""
    allowed = GROWTH * model.file_bytes
    for attempt in range(_ATTEMPTS):
        with clock.phase("extract"):
            selection = select(
                egraph, encoding, origin, model.opset, pricing,
                time_limit=options.extraction_limit, method=options.extraction,
            )  # fmt: skip
        with clock.phase("decode"):
            result = decode(model, knowledge, encoding, egraph, selection)
        if attempt == _ATTEMPTS - 1 or result.file_bytes <= allowed:
            break
        pricing = pricing.stricter()
    return replace(result, path=None), selection


def _verify(model: Model, result: Model, options: Options) -> Verification:
    from .engine.verification import verify

    original = model.path if model.path is not None and not options.input_shapes else model.ir
    verification = verify(original, result.ir, atol=options.atol, rtol=options.rtol, seed=options.seed)
    if verification.status == "failed":
        raise VerificationError(
            f"{model.label}: the result differs from the original: {verification.summary}; nothing was written; "
            "`eqfuse bisect` finds the rule"
        )
    return verification


__all__: Sequence[str] = ["Options", "Result", "optimize", "run"]
