"""Which forms of kernels run off a cliff: each compiled, timed beside ONNX Runtime, and compared with its roofline.

A form (kernel_forms.py) is an anchor with what precedes and what follows it, compiled as one kernel (two, where a
convolution in front makes its map), together with the copies of the caller's maps. Both run in one process on one
thread and the same inputs, in turns; times are CPU time, medians over the turns. A form is beyond its bound where it
takes longer than three times its roofline on the device and longer than ONNX Runtime, and wrong where its results
differ from ONNX Runtime's. The worst are printed first.

    python benchmarks/forms/cliffs.py --sample 300                        # about 10 minutes
    python benchmarks/forms/cliffs.py --anchor "average 3x3" product --after rotary "gate last"
    python benchmarks/forms/cliffs.py --json cliffs.json                  # all 5130, about three hours
    python benchmarks/forms/cliffs.py --recurrent                         # recurrent networks, about two minutes
    python benchmarks/forms/cliffs.py --free --sample 100            # of free sizes: compiled once, timed at five sizes
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import onnx
import tvm
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from eqfuse.benchmarks.forms.compiled_form import (
    Array,
    FormKernels,
    compile_form,
    draw_inputs,
    in_onnx_runtime,
    largest_difference,
)
from eqfuse.benchmarks.forms.free_forms import FREE_ANCHORS, FreeForm, list_free_forms
from eqfuse.benchmarks.forms.kernel_forms import AFTER, BEFORE, Form, list_forms
from eqfuse.benchmarks.forms.recurrent_forms import list_recurrences
from eqfuse.lowering.base.target import Target, target_of

ROOFLINES = 3.0
"""Multiple of its roofline that a form may take, however fast ONNX Runtime is."""
TOLERANCE = 1e-3
"""Largest difference to ONNX Runtime's results, relative to the largest element."""
SAMPLE_SECONDS = 2e-3
"""A sample repeats the kernel for about this long, so that the clock's resolution does not matter."""


@dataclass(frozen=True)
class Measured:
    """A form: seconds of eqfuse and of ONNX Runtime, the seconds of its roofline, its schedules, and its error."""

    name: str
    ours: float
    reference: float
    roofline: float
    rules: tuple[str, ...]
    error: float

    @property
    def excess(self) -> float:
        """The time over the bound: above 1 it is a cliff."""
        return self.ours / max(ROOFLINES * self.roofline, self.reference)

    @property
    def is_wrong(self) -> bool:
        """Whether its results differ."""
        return not self.error <= TOLERANCE


def measure(name: str, device: str, pairs: int) -> list[Measured]:
    """Time the form of that name, a free one at each of its sizes; [] where its parts do not fit each other."""
    form = _forms()[name]
    model = form.model()
    if model is None:
        return []
    tvm.get_global_func("runtime.config_threadpool")(1, 1)
    if isinstance(form, Form):
        return [_time(name, model, draw_inputs(model), compile_form(model, form.ahead, _target(device)), {}, pairs)]
    kernels = compile_form(model, form.form.ahead, _target(device), form.sizes["typical"])
    measured = []
    for size, sizes in form.sizes.items():
        fixed = form.at(sizes)
        with suppress(Fail, InvalidArgument, RuntimeException):  # ONNX Runtime refuses maps smaller than windows
            if fixed is not None:
                feeds = draw_inputs(fixed)
                measured.append(_time(f"{name} @ {size}", model, feeds, kernels, sizes, pairs))
    return measured


def _time(
    name: str, model: onnx.ModelProto, feeds: Mapping[str, Array], kernels: FormKernels, sizes: Mapping[str, int],
    pairs: int,
) -> Measured:  # fmt: skip
    theirs, expected = in_onnx_runtime(model, feeds)
    compiled = kernels.bind(feeds, sizes)
    error = largest_difference(compiled.results(), expected)
    counts = [_count_runs(run) for run in (compiled.run, theirs)]
    times = [
        [_sample(run, count) for run, count in zip((compiled.run, theirs), counts, strict=True)] for _ in range(pairs)
    ]
    ours, reference = (median(column) for column in zip(*times, strict=True))
    return Measured(name, ours, reference, compiled.roofline, tuple(k.rule for k in compiled.kernels), error)


def _count_runs(run: Callable[[], Any]) -> int:
    return max(1, int(SAMPLE_SECONDS / max(_sample(run, 3), 1e-7)))


def _sample(run: Callable[[], Any], count: int) -> float:
    """Seconds of CPU time of one run, over `count` of them."""
    start = time.process_time()
    for _ in range(count):
        run()
    return (time.process_time() - start) / count


@cache
def _forms() -> dict[str, Form | FreeForm]:
    forms: list[Form | FreeForm] = [*list_forms(), *list_recurrences(), *list_free_forms()]
    return {form.name: form for form in forms}


@cache
def _target(device: str) -> Target:
    return target_of(device, 1)


def measure_all(names: Sequence[str], device: str, pairs: int) -> Iterator[Measured | str]:
    """Each form that fits in another process; the name of one that ends the process, or cannot be compiled."""
    pool = _start_process()
    for name in names:
        try:
            yield from pool.submit(measure, name, device, pairs).result()
        except BrokenProcessPool:
            pool = _start_process()
            yield f"{name}: ends the process"
        except Exception as error:  # of many kinds: TVM's, ONNX Runtime's
            yield f"{name}: {' '.join(str(error).split())[:200]}"
    pool.shutdown()


def _start_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"))


def print_table(measured: Sequence[Measured], rows: int) -> None:
    """The worst forms, the wrong ones before all others, and how many there are."""
    print(f"{'form':44s} {'ours us':>8s} {'ORT us':>8s} {'roofline':>8s} {'of it':>6s} {'excess':>6s}  schedules")
    worst = sorted(measured, key=lambda each: (each.is_wrong, each.excess), reverse=True)
    for each in worst[:rows]:
        figures = (1e6 * each.ours, 1e6 * each.reference, 1e6 * each.roofline, each.ours / each.roofline, each.excess)
        numbers = "{:8.1f} {:8.1f} {:8.1f} {:6.1f} {:6.2f}".format(*figures)
        wrong = f"WRONG by {each.error:.0e} " if each.is_wrong else ""
        print(f"{each.name:44s} {numbers}  {wrong}{', '.join(each.rules)}")
    beyond = [sum(each.excess > limit for each in measured) for limit in (1.0, 2.0, 5.0)]
    wrong_ones = sum(each.is_wrong for each in measured)
    print(
        f"{len(measured)} forms: {beyond[0]} beyond the longer of {ROOFLINES:.0f} rooflines and ONNX Runtime's time, "
        f"{beyond[1]} beyond twice that, {beyond[2]} beyond five times; {wrong_ones} wrong"
    )


def main() -> None:
    """Read the options, and measure the forms that they select."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--anchor", nargs="*", default=[], choices=FREE_ANCHORS, metavar="NAME")
    parser.add_argument("--before", nargs="*", default=[], choices=BEFORE, metavar="NAME")
    parser.add_argument("--after", nargs="*", default=[], choices=AFTER, metavar="NAME")
    parser.add_argument("--sample", type=int, metavar="N", help="measure N of the forms, drawn at random")
    parser.add_argument("--recurrent", action="store_true", help="forms of recurrent networks instead")
    parser.add_argument("--free", action="store_true", help="forms of free sizes instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="host")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    chosen = (options.anchor, options.before, options.after)
    lists = list_free_forms(*chosen) if options.free else list_forms(*chosen)
    forms: Iterable[Form | FreeForm] = list_recurrences() if options.recurrent else lists
    names = [form.name for form in forms]
    if options.sample:
        names = Random(options.seed).sample(names, min(options.sample, len(names)))
    measured: list[Measured] = []
    for result in measure_all(names, options.device, options.pairs):
        if isinstance(result, str):
            print(result, flush=True)
        else:
            measured.append(result)
    print_table(measured, options.rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in measured], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
