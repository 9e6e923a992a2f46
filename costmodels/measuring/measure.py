"""Measurements of this machine for the cost models, within seconds; `eqfuse device measure` stores them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median
from time import process_time
from typing import TypeVar

import numpy as np
from onnx import TensorProto, helper

from ...support.processes.program import run_program
from ...support.processor import processor_level
from ...support.scratch import scratch_folder
from ..device import Device
from ..host import HostMeasurements

_PROBE = Path(__file__).with_name("probe.c")
_FLAGS = {"x86-64-v4": ("-mavx512f", "-mfma"), "x86-64-v3": ("-mavx2", "-mfma")}
_COMPILERS = ("cc", "gcc", "clang", "g++", "clang++")
_PROBE_SECONDS = 60.0
"""Seconds that the probe may take to compile, and to run: it runs for less than a second."""
_LINKS = (50, 250)
"""Lengths of a short and a long chain: the difference of their times excludes the overhead of a whole run."""
_ROUNDS = 15
"""Runs of each chain, of which the median or the fastest counts."""
_SHARE = 6
"""A tensor takes one sixth of a cache: two operands and a result of an Add fill half of it."""
_LARGEST = 128 << 20
"""The most bytes of a tensor in measurements of memory: three fit into little free memory."""
_LEAST_SECONDS = 0.01
"""The least seconds of a timing, far longer than clock ticks and interrupts."""

Observer = Callable[[str], None]
Key = TypeVar("Key")


def measure_host(device: Device, observer: Observer) -> HostMeasurements:
    """Measure the machine that `device` describes, on one thread.

    The clock and the multiply-adds need a C compiler; without one they stay unmeasured, and the observer is told.
    Raises ToolError if the probe does not run.
    """
    figures: dict[str, float] = {}
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        observer("no C compiler is here, so clock and fma_ports stay those of the class; install one (Debian: gcc)")
    else:
        observer("clock and multiply-adds")
        clock, rate = _probe(compiler, device)
        figures["clock"] = clock
        figures["fma_ports"] = float(max(1, round(rate / (2 * device.lanes * clock))))
    observer("overheads of operators")
    figures["launch_overhead"] = _slope("Neg")
    figures["view_overhead"] = _slope("Reshape")
    observer("bandwidth of memory")
    farther = _bandwidth(min(_LARGEST, 4 * device.caches[-1].size), figures["launch_overhead"])
    figures["dram_bandwidth"] = farther
    bandwidths: dict[int, float] = {}
    for cache in reversed(device.caches):
        observer(f"bandwidth of the cache of level {cache.level}")
        measured = _bandwidth(cache.size // _SHARE, figures["launch_overhead"])
        farther = bandwidths[cache.level] = max(farther, measured)  # noise makes no cache slower than a farther one
    return HostMeasurements(_round(figures), _round(bandwidths))


def _round(figures: Mapping[Key, float]) -> dict[Key, float]:
    """The figures with three digits, since more would be noise."""
    return {name: float(f"{value:.3g}") for name, value in figures.items()}


def _probe(compiler: str, device: Device) -> tuple[float, float]:
    """The clock in Hz, and FLOP/s of fused multiply-adds. Raises ToolError if the probe fails."""
    with scratch_folder("probe") as folder:
        program = Path(folder) / "probe"
        flags = ("-O2", "-ffp-contract=fast", f"-DVECTOR_BYTES={device.vector_bits // 8}")
        level = _FLAGS.get(processor_level() or "", ())
        run_program([*compiler.split(), *flags, *level, _PROBE, "-o", program], _PROBE_SECONDS)
        clock, rate = map(float, run_program([program], _PROBE_SECONDS).split())
    return clock, rate


def _slope(operator: str) -> float:
    """Seconds that ONNX Runtime takes for one more operator in a chain, on one element."""
    short, long = (_chain(operator, 1, links) for links in _LINKS)
    pairs = [(_seconds(short), _seconds(long)) for _ in range(_ROUNDS)]
    return max(1e-9, median(late - early for early, late in pairs) / (_LINKS[1] - _LINKS[0]))


def _bandwidth(size: int, launch: float) -> float:
    """Bytes/s of an Add of tensors of `size` bytes, two read and one written."""
    links = max(2, min(64, (1 << 22) // size))
    run = _chain("Add", max(1, size // 4), links)
    taken = min(_seconds(run) for _ in range(_ROUNDS)) / links
    return 3 * size / max(taken - launch, taken / 10)


def _chain(operator: str, elements: int, links: int) -> Callable[[], None]:
    """A function that runs a chain of one operator in ONNX Runtime on one thread, without optimisations."""
    import onnxruntime

    second = {"Add": ["x"], "Reshape": ["shape"]}.get(operator, [])
    names = ["x", *(f"v{link}" for link in range(links))]
    nodes = [helper.make_node(operator, [a, *second], [b]) for a, b in pairwise(names)]
    type_ = helper.make_tensor_value_info("x", TensorProto.FLOAT, [elements])
    result = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [elements])
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [elements])
    graph = helper.make_graph(nodes, "chain", [type_], [result], [shape] if operator == "Reshape" else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.zeros(elements, np.float32)}
    return lambda: session.run(None, feeds)


def _seconds(run: Callable[[], None]) -> float:
    """CPU seconds of one run, the mean over enough runs for the clock."""
    run()
    number, taken = 1, 0.0
    while taken < _LEAST_SECONDS:
        number = number if taken == 0.0 else number * max(2, ceil(_LEAST_SECONDS / max(taken, 1e-6)))
        started = process_time()
        for _ in range(number):
            run()
        taken = process_time() - started
    return taken / number
