"""The work of a process that schedules and compiles kernels.

TVM may crash on a kernel and take its process with it, so it has processes of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...support.errors import describe_error
from ..base.decisions import Trace
from .messages import Answer, Request

if TYPE_CHECKING:
    from ..schedules.base.draft import Scheduled


def compile_kernel(request: Request) -> Answer:
    """Schedule and compile one kernel to an object file. A problem is part of the answer."""
    started = time.perf_counter()
    Path(request.object_file).parent.mkdir(exist_ok=True)
    try:
        scheduled, trace, failed = _compile(request)
    except Exception as error:  # TVM raises many kinds; each of them is about this kernel alone
        return Answer(request.name, time.perf_counter() - started, problem=describe_error(error))
    seconds = time.perf_counter() - started
    return Answer(
        request.name, seconds, scheduled.repack, scheduled.rule, trace=tuple(trace.sites), failed=tuple(failed)
    )


def _compile(request: Request) -> tuple[Scheduled, Trace, Iterable[str]]:
    """The first schedule that TVM can make and compile, and the rules whose schedules it could not; the last one may
    raise."""
    from tvm_ffi.serialization import from_json_graph_str

    from ..schedules import list_candidates
    from ..schedules.base.blocks import PARTS

    prim_func = from_json_graph_str(request.prim_func)  # tvm.ir.load_json looks for what older versions wrote
    if request.parts:
        buffers = [(prim_func.params[part.parameter], part) for part in request.parts]
        widths = {str(buffer.name): part.extent for buffer, part in buffers if part.axis == len(buffer.shape) - 1}
        prim_func = prim_func.with_attr(PARTS, widths)
    *better, last = list_candidates(
        prim_func, request.device, request.threads, with_rules=request.with_rules, without=request.without
    )
    failed: dict[str, str] = {}
    for candidate in better:
        trace, scheduled = Trace(request.decisions), None
        try:
            scheduled = candidate(trace)
            if scheduled is not None:
                _build(scheduled, request)
                return scheduled, trace, failed.values()
        except Exception as error:  # of many kinds; the next candidate is simpler
            if any(site.chosen for site in trace.sites):
                raise  # what was decided is wrong, not the rule: the next one says nothing about it
            if scheduled is not None:
                failed.setdefault(scheduled.rule, f"{scheduled.rule}: {describe_error(error)}")
    scheduled = last(trace := Trace())
    assert scheduled is not None
    _build(scheduled, request)
    return scheduled, trace, failed.values()


def _build(scheduled: Scheduled, request: Request) -> None:
    import tvm

    from .build import build, place_parts

    (function,) = scheduled.schedule.mod.functions.values()
    function = place_parts(function, request.parts) if request.parts else function
    module = tvm.IRModule({request.name: function.with_attr("global_symbol", request.name)})
    executable = build(module, tvm.target.Target(request.target))
    executable.mod.write_to_file(request.object_file, "o")
