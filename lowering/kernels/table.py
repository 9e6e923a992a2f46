"""kernels.json: the kernels of a bundle, for measurements, and which operators each step of the model runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...costmodels.device import Device
from ...costmodels.flops import flops
from ...costmodels.scheduled import steps_per_product
from ...extract.partition.templates.kernels import KernelModel
from ...ir.operators import PRODUCTS, RECURRENT
from ...ir.operators.linear import depth
from ..base.exact_pairs import device_for_weights
from ..plan.kernel_facts import KERNELS, KernelFacts, StepFacts, StepKind
from .branches import Choice
from .fallback import Fallback, LoopCall
from .map_copies import is_copy
from .prim_funcs import KernelCall
from .steps import InPlace, View

if TYPE_CHECKING:
    from ...ir.graph import OperatorGraph
    from ..base.target import Target
    from .compilation import CompiledKernels

_KINDS: dict[type, StepKind] = {
    View: "view", InPlace: "view", KernelCall: "kernel", Choice: "choice", LoopCall: "loops", Fallback: "fallback",
}  # fmt: skip


def kernel_facts(prepared: CompiledKernels, target: Target) -> tuple[KernelFacts, ...]:
    """The distinct kernels in the order of their first calls, with figures of the sizes that are optimised for."""
    graph = prepared.graph.with_typical(prepared.graph.sizes)
    target = replace(target, device=device_for_weights(target.device, prepared.weights.model))
    model = KernelModel(graph, target.device, threads=target.threads)
    calls: dict[str, list[KernelCall]] = {}
    for call in prepared.calls:
        calls.setdefault(call.symbol, []).append(call)
    return tuple(_facts(prepared, graph, target, model, same) for same in calls.values())


def write_table(prepared: CompiledKernels, table: Iterable[KernelFacts], folder: Path) -> None:
    """Write the table into a bundle."""
    rows = [asdict(facts) for facts in table]
    content = {"kernels": rows, "steps": [asdict(step) for step in step_facts(prepared)]}
    (folder / KERNELS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def step_facts(prepared: CompiledKernels) -> Iterator[StepFacts]:
    """The steps of a run, in order."""
    graph = prepared.graph
    for step in prepared.steps:
        members = (graph.values[step.result].producer,) if isinstance(step, View) else step.members
        operators = [graph.operators[member] for member in members if member is not None]
        is_added = any(map(is_copy, operators))
        symbol = "" if isinstance(step, View | InPlace | Choice | Fallback) else step.symbol
        kind = "copy" if is_added else _KINDS[type(step)]
        yield StepFacts(kind, tuple(operator.name for operator in operators), symbol)


def roofline(floating: float, moved: int, device: Device, threads: int) -> float:
    """Seconds of the longer of two: the arithmetic at the device's peak, the bytes at the bandwidth of the smallest
    cache that holds a thread's share of them. Every thread is a core."""
    share = -(-moved // threads)
    return max(floating / (device.peak_flops * threads), share / device.bandwidth(share))


def _facts(
    prepared: CompiledKernels, graph: OperatorGraph, target: Target, model: KernelModel, calls: list[KernelCall]
) -> KernelFacts:
    call = calls[0]
    operations = [graph.operations[member] for member in call.members]
    floating = sum(map(flops, operations))
    steps = sum(flops(o) * min(1.0, steps_per_product(o, target.device)) for o in operations)
    moved = sum(graph.values[value].extent.bytes for value in dict.fromkeys((*call.inputs, *call.outputs)))
    apart = sum(model.launched((member,)) for member in call.members) if len(call.members) > 1 else 0.0
    predicted, template = model.launched(call.members), model.template(call.members)
    return KernelFacts(
        symbol=call.symbol,
        operators=tuple(operation.op for operation in operations),
        rule=prepared.answers[call.symbol].rule,
        calls=len(calls),
        multiply_adds=sum(_multiply_adds(operation) for operation in operations),
        flops=int(floating),
        bytes=moved,
        roofline=roofline(steps, moved, target.device, target.threads),
        predicted=predicted if predicted < float("inf") else None,
        template=template.name if template is not None else "",
        apart=apart if apart < float("inf") else 0.0,
    )


def _multiply_adds(operation: Any) -> int:
    if operation.op not in PRODUCTS | RECURRENT:
        return 0
    if operation.op == "ConvTranspose" or operation.op in RECURRENT:
        return int(flops(operation)) // 2
    return int(operation.output.elements * depth(operation))
