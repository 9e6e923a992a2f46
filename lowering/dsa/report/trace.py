"""A simulated run in the Trace Event Format, which Perfetto and chrome://tracing open.

Google, "Trace Event Format": complete events (``ph: X``) with times in microseconds; a process is a cluster, a thread
an engine, named and sorted by metadata events (``ph: M``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ..program.cost import Cost
from ..program.instructions import Barrier, Compute, Engine, IndexedTransfer, Instruction, Transfer
from ..simulate.timing import Timeline


def trace_json(timeline: Timeline) -> str:
    """The run as text for a ``.json`` file."""
    return msgspec.json.encode({"traceEvents": trace_events(timeline), "displayTimeUnit": "ns"}).decode()


def trace_events(timeline: Timeline) -> list[dict[str, Any]]:
    """Names of clusters and engines, then an event for each instruction on each of its engines."""
    engines = timeline.program.engines()
    threads = {engine: number for number, engine in enumerate(engines, start=1)}
    return [*_names(threads), *_events(timeline, threads)]


def _names(threads: dict[Engine, int]) -> Iterator[dict[str, Any]]:
    for cluster in sorted({engine.cluster for engine in threads}):
        yield _metadata("process_name", cluster, 0, name=f"cluster {cluster}")
        yield _metadata("process_sort_index", cluster, 0, sort_index=cluster)
    for engine, thread in threads.items():
        yield _metadata("thread_name", engine.cluster, thread, name=str(engine))
        yield _metadata("thread_sort_index", engine.cluster, thread, sort_index=thread)


def _metadata(kind: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}


def _events(timeline: Timeline, threads: dict[Engine, int]) -> Iterator[dict[str, Any]]:
    microseconds, cost = 1e6 / timeline.device.clock, timeline.cost
    for index, instruction in enumerate(timeline.program.instructions):
        event = {"ph": "X", "name": event_name(instruction), "cat": kind_of(instruction)}
        for engine, start, end in timeline.occupied_engines(index):
            span = {"ts": start * microseconds, "dur": (end - start) * microseconds}
            place = {"pid": engine.cluster, "tid": threads[engine], "args": _args(index, instruction, cost)}
            yield event | span | place


def kind_of(instruction: Instruction) -> str:
    """The category and colour of an instruction: the kind of a transfer, ``gather``, the first unit of a compute, or
    ``barrier``.
    """
    match instruction:
        case Transfer():
            return instruction.kind.value
        case IndexedTransfer():
            return "gather"
        case Compute():
            return instruction.work[0].unit.value
        case Barrier():
            return "barrier"


def event_name(instruction: Instruction) -> str:
    """The label, or what the instruction does."""
    if instruction.label:
        return instruction.label
    return instruction.kernel if isinstance(instruction, Compute) else kind_of(instruction)


def _args(index: int, instruction: Instruction, cost: Cost) -> dict[str, Any]:
    args: dict[str, Any] = {"instruction": index}
    if instruction.waits:
        args["waits"] = list(instruction.waits)
    match instruction:
        case Transfer():
            args |= {"bytes": instruction.source.size, "from": str(instruction.source)}
            args |= {"to": [str(target) for target in instruction.targets]}
        case IndexedTransfer():
            args |= {"bytes": instruction.target.size, "from": str(instruction.table)}
            args |= {"to": [str(instruction.target)], "rows": instruction.count}
        case Compute():
            args |= {
                "kernel": instruction.kernel,
                "operations": {each.unit.value: each.total for each in instruction.work},
            }
            if dataflows := cost.dataflows(instruction):
                args["dataflows"] = [each.value for each in dataflows]
    return args
