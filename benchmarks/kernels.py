"""How fast single kernels are: ours, scheduled by rules without search, against ONNX Runtime on a model of one node.

Both run in one process on the same input, in turns (ours, theirs, ours, ...). Printed are the medians of the CPU time
of one run, the ratio (below 1: ours is faster) as the median over pairs, and the part of the device's peak that ours
reaches. ONNX Runtime's times hold its own conversions of layout, as they do wherever a node stands alone.

    python benchmarks/kernels.py --threads 1 --pairs 15 conv
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from eqfuse.benchmarks.measuring.contestants import import_tvm
from eqfuse.costmodels.device import Device, load_device
from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read
from eqfuse.extract.partition.operator_graph import operator_graph
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.kernels.prim_funcs import lower_kernel
from eqfuse.lowering.schedules import mark_constants, schedule
from eqfuse.lowering.target import target_of

Array = NDArray[np.float32]
Shape = tuple[int, ...]
SAMPLE_SECONDS = 2e-3
"""A sample repeats the kernel for about this long, so that the clock's resolution does not matter."""


@dataclass(frozen=True)
class Case:
    """A node: its operator, the shapes of its inputs and of its weights, its attributes, and what it multiplies."""

    name: str
    operator: str
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    flops: int = 0

    def model(self) -> onnx.ModelProto:
        """The node as a model."""
        generator = np.random.default_rng(0)
        stored = [
            numpy_helper.from_array(generator.standard_normal(s).astype(np.float32), f"w{i}")
            for i, s in enumerate(self.weights)
        ]
        given = [helper.make_tensor_value_info(f"x{i}", 1, s) for i, s in enumerate(self.inputs)]
        names = [*(v.name for v in given), *(w.name for w in stored)]
        node = helper.make_node(self.operator, names, ["y"], **self.attributes)
        output = helper.make_tensor_value_info("y", 1, None)
        graph = helper.make_graph([node], self.name, given, [output], stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def convolution(name: str, size: int, channels: int, outputs: int, kernel: int, stride: int, group: int = 1) -> Case:
    """A convolution with bias, padded so that a stride of 1 keeps the size."""
    pad, inner = kernel // 2, channels // group
    result = (size + 2 * pad - kernel) // stride + 1
    attributes = {
        "pads": [pad] * 4, "strides": [stride] * 2, "group": group, "kernel_shape": [kernel] * 2,
    }  # fmt: skip
    flops = 2 * outputs * result**2 * inner * kernel**2
    weights = ((outputs, inner, kernel, kernel), (outputs,))
    return Case(f"conv {name}", "Conv", ((1, channels, size, size),), weights, attributes, flops)


def product(name: str, left: Shape, right: Shape, constant: bool = True) -> Case:
    """A product of matrices; the right one is a weight if `constant`."""
    shapes: tuple[tuple[Shape, ...], tuple[Shape, ...]] = ((left,), (right,)) if constant else ((left, right), ())
    return Case(f"matmul {name}", "MatMul", *shapes, flops=2 * prod(left) * right[-1])


def pooling(name: str, operator: str, shape: Shape, kernel: int, stride: int, pad: int) -> Case:
    """A pooling over windows."""
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return Case(f"pool {name}", operator, (shape,), (), attributes)


CASES = (
    convolution("resnet 7x7/2 3-64 @224", 224, 3, 64, 7, 2),
    convolution("resnet 3x3 64 @56", 56, 64, 64, 3, 1),
    convolution("resnet 3x3 128 @28", 28, 128, 128, 3, 1),
    convolution("resnet 3x3/2 128-256 @28", 28, 128, 256, 3, 2),
    convolution("resnet 3x3 256 @14", 14, 256, 256, 3, 1),
    convolution("resnet 3x3 512 @7", 7, 512, 512, 3, 1),
    convolution("resnet 1x1 64-256 @56", 56, 64, 256, 1, 1),
    convolution("resnet 1x1 256-64 @56", 56, 256, 64, 1, 1),
    convolution("resnet 1x1/2 256-512 @56", 56, 256, 512, 1, 2),
    convolution("resnet 1x1 1024-256 @14", 14, 1024, 256, 1, 1),
    convolution("resnet 1x1 512-2048 @7", 7, 512, 2048, 1, 1),
    convolution("mobilenet 3x3/2 3-32 @224", 224, 3, 32, 3, 2),
    convolution("mobilenet 1x1 16-96 @112", 112, 16, 96, 1, 1),
    convolution("mobilenet 1x1 24-144 @56", 56, 24, 144, 1, 1),
    convolution("mobilenet 1x1 144-24 @56", 56, 144, 24, 1, 1),
    convolution("mobilenet 1x1 384-64 @14", 14, 384, 64, 1, 1),
    convolution("mobilenet 1x1 960-160 @7", 7, 960, 160, 1, 1),
    convolution("mobilenet dw/2 96 @112", 112, 96, 96, 3, 2, 96),
    convolution("mobilenet dw 144 @56", 56, 144, 144, 3, 1, 144),
    convolution("mobilenet dw 384 @14", 14, 384, 384, 3, 1, 384),
    convolution("mobilenet dw 960 @7", 7, 960, 960, 3, 1, 960),
    convolution("resnext 3x3 128 /32 @56", 56, 128, 128, 3, 1, 32),
    convolution("squeezenet 3x3 16-64 @55", 55, 16, 64, 3, 1),
    convolution("squeezenet 1x1 64-16 @55", 55, 64, 16, 1, 1),
    product("bert 128x768x768", (1, 128, 768), (768, 768)),
    product("bert 128x768x3072", (1, 128, 768), (768, 3072)),
    product("bert 128x3072x768", (1, 128, 3072), (3072, 768)),
    product("vit 197x192x576", (1, 197, 192), (192, 576)),
    product("fc 1x2048x1000", (1, 2048), (2048, 1000)),
    product("scores 12x128x64x128", (1, 12, 128, 64), (1, 12, 64, 128), constant=False),
    product("mixed 12x128x128x64", (1, 12, 128, 128), (1, 12, 128, 64), constant=False),
    Case("softmax bert 12x128x128", "Softmax", ((1, 12, 128, 128),), attributes={"axis": -1}),
    Case("softmax vit 3x197x197", "Softmax", ((1, 3, 197, 197),), attributes={"axis": -1}),
    Case("layernorm 128x768", "LayerNormalization", ((1, 128, 768),), ((768,), (768,)), {"axis": -1}),
    Case("gelu 128x3072", "Gelu", ((1, 128, 3072),)),
    Case("sigmoid 96 @56", "Sigmoid", ((1, 96, 56, 56),)),
    Case("relu 64 @56", "Relu", ((1, 64, 56, 56),)),
    Case("add 256 @56", "Add", ((1, 256, 56, 56), (1, 256, 56, 56))),
    Case("transpose 128x12x64", "Transpose", ((1, 128, 12, 64),), attributes={"perm": [0, 2, 1, 3]}),
    Case("transpose nhwc 64 @56", "Transpose", ((1, 64, 56, 56),), attributes={"perm": [0, 2, 3, 1]}),
    pooling("max 3x3/2 64 @112", "MaxPool", (1, 64, 112, 112), 3, 2, 1),
    pooling("max 2x2/2 64 @112", "MaxPool", (1, 64, 112, 112), 2, 2, 0),
    pooling("average 3x3 64 @28", "AveragePool", (1, 64, 28, 28), 3, 1, 1),
    Case("pool global 1280 @7", "GlobalAveragePool", ((1, 1280, 7, 7),)),
)


def ours(model: onnx.ModelProto, feeds: list[Array], device: Device, threads: int) -> tuple[Callable[[], Array], str]:
    """A call that runs the compiled kernel and returns the output, and the rule that scheduled it."""
    read_model = read(model)
    graph = operator_graph(read_model, infer(read_model))
    made = lower_kernel(graph, range(len(graph)), "kernel")
    stored = {i.name: np.array(numpy_helper.to_array(i)) for i in model.graph.initializer}
    values = {**stored, **{v.name: a for v, a in zip(model.graph.input, feeds, strict=True)}}
    positions = tuple(n for n, v in enumerate(made.inputs) if graph.values[v].is_constant)
    scheduled = schedule(mark_constants(made.prim_func, positions), device, threads)
    arrays = [values[graph.values[v].name] for v in made.inputs]
    for repack in scheduled.repack:
        arrays[repack.parameter] = repack(arrays[repack.parameter])
    (result,) = (graph.values[v].type for v in made.outputs)
    assert result is not None
    tensors = [tvm.runtime.tensor(a) for a in (*arrays, np.zeros([int(d) for d in result.shape or ()], result.dtype))]
    host = tvm.target.Target(target_of("host", threads).description)
    function = build(scheduled.schedule.mod, host)["main"]

    def run() -> Array:
        function(*tensors)
        return tensors[-1]  # type: ignore[no-any-return]

    return run, scheduled.rule


def theirs(model: onnx.ModelProto, feeds: list[Array], threads: int) -> Callable[[], Array]:
    """A call that runs ONNX Runtime on bound input and output."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would take the cores from ours
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for value, array in zip(model.graph.input, feeds, strict=True):
        binding.bind_cpu_input(value.name, array)
    binding.bind_output("y", "cpu")

    def run() -> Array:
        session.run_with_iobinding(binding)
        return binding  # type: ignore[no-any-return]

    return run


def sample(run: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    """Seconds of one run, over `count` of them."""
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


def compare(case: Case, device: Device, threads: int, pairs: int) -> None:
    """Prints one line. CPU time with one thread, wall time with more."""
    model = case.model()
    generator = np.random.default_rng(1)
    feeds = [generator.standard_normal(shape).astype(np.float32) for shape in case.inputs]
    run, rule = ours(model, feeds, device, threads)
    other = theirs(model, feeds, threads)
    error = largest_error(run().numpy(), other().copy_outputs_to_cpu()[0])  # type: ignore[attr-defined]
    clock = time.process_time if threads == 1 else time.perf_counter
    count = max(1, int(SAMPLE_SECONDS / max(sample(run, 3, clock), 1e-7)))
    times = [(sample(run, count, clock), sample(other, count, clock)) for _ in range(pairs)]
    mine, reference = (statistics.median(t) for t in zip(*times, strict=True))
    ratio = statistics.median(a / b for a, b in times)
    peak = f"{100 * case.flops / mine / (device.peak_flops * threads):4.0f} %" if case.flops else "      "
    figures = f"{mine * 1e6:9.1f} {reference * 1e6:9.1f} {ratio:6.2f} {peak}"
    print(f"{case.name:34s} {figures}  {error:.0e}  {rule}", flush=True)


def largest_error(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest element."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main() -> None:
    """Reads the options and compares every case whose name has the given text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("select", nargs="*", help="parts of the names of the cases to run; all if none is given")
    parser.add_argument("--device", default="host")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=11)
    options = parser.parse_args()
    device = load_device(options.device)
    import_tvm(options.threads)
    print(f"{'kernel':34s} {'ours us':>9s} {'ORT us':>9s}  ratio   peak  error  rule")
    for case in CASES:
        if not options.select or any(text in case.name for text in options.select):
            compare(case, device, options.threads, options.pairs)


if __name__ == "__main__":
    main()
