"""What a search measured, for the profile database: each fused kernel with the latency of its best schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...costmodels.measurement import Measurement, canonical_json
from ...extract.partition.canonical_key import subgraph_key, subgraph_text
from .runners.local_runner import LOCAL
from .tasks import Members, TaskTable
from .trials import Laboratory


def measurements(kernels: Iterable[Members], table: TaskTable, laboratory: Laboratory) -> Iterator[Measurement]:
    """One for each distinct kernel that ran. None of a search for several threads: prices are those of one; and none of
    another machine that this one's code ran on.

    A launch is added, for a latency in the profile database has one, and a kernel that is called in a loop has none.
    """
    target = laboratory.target
    if target.threads != 1 or (target.is_library and laboratory.runner.name != LOCAL):
        return
    graph, device = table.fits.kernels.graph, laboratory.target.device
    for kernel in {table.key(kernel): kernel for kernel in kernels}.values():
        key, name = table.key(kernel), subgraph_key(graph, kernel)
        found = laboratory.records(table.tasks[key]) if key is not None else ()
        ran = [record for record in found if record.latency is not None]
        if not ran or name is None:
            continue
        best = min(ran, key=lambda record: record.latency or 0.0)
        yield Measurement(
            key=name,
            device=device.name,
            latency=(best.latency or 0.0) + device.launch_overhead,
            spread=best.spread,
            runs=best.runs,
            versions={**laboratory.software, "runner": laboratory.runner.name},
            schedule=canonical_json(dict(best.decisions)),
            subgraph=subgraph_text(graph, kernel),
        )
