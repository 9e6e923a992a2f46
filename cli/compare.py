"""``eqfuse verify``, ``inspect`` and ``diff``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..driver.options import cost_model_of
from ..driver.saturate import samples_of
from ..engine.onnx.inference import Knowledge, infer
from ..engine.onnx.model import Model, read
from ..engine.onnx.overrides import override_shapes
from ..engine.summary import GraphSummary, summarize
from ..errors import EqfuseError, UsageError, VerificationError
from ..extract.partition.local_functions import inlined
from . import render
from .effect import print_verification
from .options import device_of
from .partition import Inspection, inspection, print_inspection
from .progress import Progress

VERIFICATION_FAILED = 3


def verify(arguments: argparse.Namespace) -> int:
    """Compare two models by running them; exit code 0 says that they were seen to be equal."""
    from ..engine.verification import verify as compare

    shapes = _numeric(dict(arguments.input_shapes))
    try:
        with Progress(arguments, "verify"):
            original, candidate = read(arguments.model), read(arguments.candidate)
            verification = compare(
                arguments.model if original.path else original.ir,
                arguments.candidate if candidate.path else candidate.ir,
                atol=arguments.atol,
                rtol=arguments.rtol,
                seed=arguments.seed,
                shapes=shapes,
                samples=samples_of(override_shapes(original, dict(arguments.input_shapes)), arguments.inputs),
                measure=True,
                limit=arguments.verify_limit,
            )
    except VerificationError as error:
        raise VerificationError(f"{arguments.model} and {arguments.candidate}: {error}") from None
    if arguments.json:
        render.print_json(verification.as_dict())
    elif not arguments.quiet:
        print_verification(f"{arguments.model} and {arguments.candidate}", verification)
    if verification.status in ("not verifiable", "unverified"):
        unable = VerificationError if verification.status == "unverified" else EqfuseError
        raise unable(f"{arguments.candidate}: was not verified: {verification.reason}")
    return VERIFICATION_FAILED if verification.status == "failed" else 0


def _numeric(shapes: dict[str, tuple[int | str, ...]]) -> dict[str, tuple[int, ...]]:
    for name, shape in shapes.items():
        if any(isinstance(d, str) for d in shape):
            raise UsageError(f"--input-shapes {name}: to run a model every dimension must be a number")
    return {name: tuple(int(d) for d in shape) for name, shape in shapes.items()}


def inspect(arguments: argparse.Namespace) -> int:
    """Show inputs, outputs, operators and cost, and the partition where the model has one or one is asked for.

    Groups that are local functions are shown as the nodes they hold.
    """
    with Progress(arguments, "inspect"):
        model = override_shapes(inlined(read(arguments.model)), dict(arguments.input_shapes))
        knowledge = infer(model)
        summary = _summary(model, knowledge, arguments)
        partition = inspection(model, knowledge, device_of(arguments), arguments)
    if arguments.json:
        render.print_json(_description(model, summary) | _partition(partition))
    elif not arguments.quiet:
        _print_description(arguments.model, model, summary)
        if partition is not None:
            print_inspection(arguments.model, partition)
    return 0


def _summary(model: Model, knowledge: Knowledge, arguments: argparse.Namespace) -> GraphSummary:
    return summarize(model, knowledge, cost_model_of(arguments.cost, device_of(arguments)))


def _partition(found: Inspection | None) -> dict[str, Any]:
    return {} if found is None else {"partition": found.as_dict()}


def _description(model: Model, summary: GraphSummary) -> dict[str, Any]:
    return {
        "opsets": dict(model.ir.opset_imports),
        "ir_version": model.ir.ir_version,
        "producer": model.ir.producer_name,
        "inputs": {i.name: _type_text(i) for i in _real_inputs(model)},
        "outputs": {o.name: _type_text(o) for o in model.graph.outputs},
        **summary.as_dict(),
    }


def _real_inputs(model: Model) -> list[Any]:
    constant = frozenset(model.graph.initializers) - model.overridable_initializers
    return [i for i in model.graph.inputs if i.name not in constant]


def _type_text(value: Any) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else str(value.type or "?")
    return f"{dtype}{'?' if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]}"


def _print_description(path: Path, model: Model, summary: GraphSummary) -> None:
    content = _description(model, summary)
    rows: list[tuple[str, ...]] = [
        ("opsets", ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in content["opsets"].items())),
        ("IR version, producer", f"{content['ir_version']}, {content['producer'] or '-'}"),
        *((f"input {n}", t) for n, t in content["inputs"].items()),
        *((f"output {n}", t) for n, t in content["outputs"].items()),
        ("nodes, layers", f"{summary.nodes}, {summary.layers}"),
        ("FLOPs", render.figure(summary.flops)),
        ("intermediate, weight bytes", f"{render.figure(summary.intermediate_bytes, 'B')}, "
                                       f"{render.figure(summary.weight_bytes, 'B')}"),
        (render.cost_name(summary), render.predicted(summary)),
    ]  # fmt: skip
    render.table(str(path), ("", ""), rows, left=2)
    operators: list[tuple[str, ...]] = [(n, str(c)) for n, c in summary.operators.items()]
    render.table("layers by operator", ("operator", "count"), operators)


def diff(arguments: argparse.Namespace) -> int:
    """Show two models side by side."""
    before, after = (
        _summary(model, infer(model), arguments) for model in map(read, (arguments.model, arguments.candidate))
    )
    if arguments.json:
        render.print_json({"before": before.as_dict(), "after": after.as_dict()})
    elif not arguments.quiet:
        names = (str(arguments.model), str(arguments.candidate))
        render.table(" and ".join(names), ("", "first", "second", "change"), list(render.summary_rows(before, after)))
        changed = [r for r in render.operator_rows(before.operators, after.operators) if r[3] != "="]
        if changed:
            render.table("layers by operator", ("operator", "first", "second", "change"), list(changed))
    return 0
