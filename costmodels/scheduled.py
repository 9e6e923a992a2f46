"""Seconds of the arithmetic of compiled kernels, as their schedules estimate it.

Products are counted by register tiles, 3x3 convolutions also by Winograd's minimal filters, and windows over single
channels by vectors of channels. All other operators take the table of a runtime's kernels (roofline.py).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, prod

from ..ir.operation import Operation
from ..ir.operators import POOLS, PRODUCTS, RECURRENT
from ..ir.operators.linear import depth, is_convolution
from ..ir.operators.pooling import window_size
from ..ir.operators.quantization import INTEGER_PRODUCTS
from .device import Device
from .register_tiles import LATENCY, least_tile_cycles
from .roofline import compute_seconds, copy_seconds, is_depthwise

VIEW_SECONDS = 1e-9
"""Seconds of a view, which nothing runs: of two graphs that cost the same, the one with fewer of them is taken."""
_RECURRENT_PRODUCTS = 0.8
"""The share of the peak that products of recurrent networks reach."""
_GATE_CYCLES = 16.0
"""Cycles of the activation of a vector of gates."""
_FILTERED = (3, 3)
_FILTERS = ((2, 4, 4), (4, 12, 10))
"""Winograd's minimal filters F(2x2, 3x3) and F(4x4, 3x3): the size of a tile, and the vector operations of the
transforms of inputs and outputs in one dimension."""
_TRANSFORM = 1.3
"""Cycles of a transform per cycle of its instructions: some of its values do not fit the registers."""
_CLEARLY = 1.1
"""A minimal filter is taken if it is estimated to be faster than direct products by this factor."""
_WINDOW_PIXELS, _WINDOW_VECTORS = 6, 2
"""The largest register tile of a window: pixels of a row, and vectors of channels."""
_WINDOW_OF_INTEGERS = 2.3
"""The factor on the time of a window whose products are of integers: they are widened and multiplied by instructions of
several cycles (the depthwise convolutions of MobileNet-V2 and PP-OCR's classifier, Zen 5)."""
_FLOAT_BYTES = 4
_SPARE_REGISTERS, _SPILLED = 4, 1.5
"""Vector registers for other values, and the factor on the time of a window whose values do not fit the rest."""
_ONE_BY_ONE = 4.0
"""Steps of a tile of floats that a product of integers takes which are widened one by one: 26 to 44 GOPS on a Xeon."""
_WIDENED_CYCLES = 4.0
"""Cycles for a vector of an operand of a product of activations that is widened, and turned into pairs."""
_COPY_CYCLES = 1.5
"""Cycles for a vector that is copied to surround a feature map with a border."""


_INSTRUCTIONS = {
    "Exp": 16, "Erf": 14, "Tanh": 18, "Sigmoid": 16, "Gelu": 20, "Swish": 18, "Log": 24, "Softplus": 28, "Elu": 16,
    "Selu": 16, "Celu": 16, "Mish": 22, "Div": 9, "Sqrt": 10, "Reciprocal": 9, "Softsign": 10, "HardSwish": 5,
    "HardSigmoid": 4, "LeakyRelu": 4, "PRelu": 4, "Min": 2, "Max": 2, "Floor": 2, "Ceil": 2, "Softmax": 26,
    "LogSoftmax": 28, "LayerNormalization": 12, "RMSNormalization": 10, "InstanceNormalization": 12,
    "GroupNormalization": 15, "ReduceSum": 3, "ReduceMean": 3, "ReduceMax": 3, "ReduceMin": 3, "GlobalAveragePool": 3,
    "GlobalMaxPool": 3, "QuantizeLinear": 6, "DequantizeLinear": 3, "Cast": 1,
}  # fmt: skip
"""Instructions of compiled kernels for a vector of elements: cycles on an AVX-512 core (Zen 5), two of them in each."""
_DIVISION = 10
"""Instructions that a division by the scale adds to a QuantizeLinear, for a vector."""
_ROW_CYCLES = {"Softmax": 10.0, "LogSoftmax": 10.0, "LayerNormalization": 20.0, "RMSNormalization": 20.0}
"""Cycles of a row beside its vectors: lanes are combined and the result is used for all (rows of 49 to 196, Zen 5)."""
_RUN_SHARE = 0.25
"""The share of a runtime kernel's cycles in which compiled loops move a contiguous run."""


def moving_seconds(size: int, device: Device) -> float:
    """Seconds to move bytes that a kernel writes, or reads soon after they were written: the part that each level holds
    moves at its rate, for a feature map a little larger than a cache is partly still there."""
    seconds, held = 0.0, 0
    for level in device.caches:
        seconds += max(0, min(size, level.size) - held) / level.bandwidth
        held = level.size
    return seconds + max(0, size - held) / device.dram_bandwidth


def scheduled_seconds(operation: Operation, device: Device) -> float:
    """Time of the arithmetic alone in a compiled kernel, without the border of a window (`border_seconds`)."""
    seconds = device.unit_seconds(operation)
    if seconds is not None:
        return seconds
    if operation.op in RECURRENT:
        return _recurrent_seconds(operation, device)
    cycles = None
    if is_window(operation):
        cycles = _window_cycles(operation, device)
    elif operation.op in PRODUCTS:
        cycles = _product_cycles(operation, device)
    elif operation.op in _ROW_CYCLES and is_along_last(operation):
        cycles = _reduced_row_cycles(operation, device)
    elif operation.op in _INSTRUCTIONS:
        count = _INSTRUCTIONS[operation.op]
        count += _DIVISION if operation.op == "QuantizeLinear" and operation.operand(1).elements else 0
        cycles = operation.largest / device.lanes * count / device.fma_ports
    return compute_seconds(operation, device) if cycles is None else cycles / device.clock


def is_window(operation: Operation) -> bool:
    """Whether each element of the result comes from a window of one channel."""
    return operation.op in POOLS or is_depthwise(operation)


def copies_border(operation: Operation) -> bool:
    """Whether a kernel of a window over single channels copies its operand to surround it with a border. A sum whose
    operand is a parameter of known size does not: it leaves out the elements outside."""
    return operation.op in POOLS and operation.op != "AveragePool"


def is_along_last(operation: Operation) -> bool:
    """Whether an operator along one axis, by default the last, works along the last."""
    return operation.integer("axis", -1) in (-1, len(operation.operand(0).dimensions) - 1)


def _reduced_row_cycles(operation: Operation, device: Device) -> float | None:
    """The cycles of an operator along rows; None if their length is not known."""
    if not operation.output.elements:
        return None
    length = operation.output.dimensions[-1]
    vectors = ceil(length / device.lanes) * _INSTRUCTIONS[operation.op] / device.fma_ports
    return operation.output.elements // length * (vectors + _ROW_CYCLES[operation.op])


def run_seconds(operation: Operation, device: Device) -> float:
    """Time of a data movement in a compiled kernel beyond its bytes."""
    return _RUN_SHARE * copy_seconds(operation, device)


def _product_cycles(operation: Operation, device: Device) -> float | None:
    """The cycles of a matrix product or a convolution; None if its sizes are not known."""
    result, weights = operation.output.dimensions, operation.operand(1).dimensions
    if not result or not operation.output.elements or not weights:
        return None
    steps = ceil(depth(operation) * steps_per_product(operation, device))
    if is_convolution(operation.op):
        direct = _direct_cycles(operation, steps, device)
        return direct if operation.op in INTEGER_PRODUCTS else min(direct, _filter_cycles(operation, direct, device))
    if operation.op == "ConvTranspose":
        maps = operation.operand(0).dimensions
        if len(maps) < 3 or len(weights) < 3:
            return None
        rows, channels = maps[0] * prod(maps[2:]), max(1, maps[1] // operation.group)
        taps = prod(weights[2:])
        return operation.group * taps * least_tile_cycles(rows, weights[1], channels, device)
    columns = result[-1] if len(weights) > 1 else 1
    copies = prod(weights[:-2])
    rows = max(1, operation.output.elements // max(1, copies * columns))
    cycles = copies * least_tile_cycles(rows, columns, steps, device)
    if is_product_of_activations(operation):
        widened = sum((operation.operand(place).elements or 0) for place in (0, 1))
        cycles += _WIDENED_CYCLES * widened / device.lanes
    return cycles


def steps_per_product(operation: Operation, device: Device) -> float:
    """The steps of a register tile, of floats, in which it adds up one product in each lane.

    Several products of bytes are fewer if the processor has an instruction for them. It takes bytes of certain types,
    no zero points, and a whole number of neighbours. The best that takes these counts. Bytes of two activations are
    widened, less one zero point each.
    """
    if operation.op not in INTEGER_PRODUCTS:
        return 1.0
    data, weights_type = (None if type_ is None else type_.dtype for type_ in operation.types[:2])
    zeros = [operation.operand(place).elements or 0 for place in (2, 3)]
    weights = operation.operand(1).dimensions
    channels = prod(weights[1:2]) if is_convolution(operation.op) else depth(operation)
    if is_product_of_activations(operation):
        product = device.activation_product
        if product is None or channels % product.length or max(zeros) > 1 or not _is_of_known_sizes(operation):
            return _ONE_BY_ONE
        return product.steps
    if any(zeros):
        return _ONE_BY_ONE
    fitting = (
        product.steps for product in device.integer_products
        if not channels % product.length and product.multiplies(data, weights_type)
    )  # fmt: skip
    return min(fitting, default=_ONE_BY_ONE)


def is_product_of_activations(operation: Operation) -> bool:
    """Whether both operands of a product of integers are stacks of matrices, of which no constant is one."""
    is_matrix = operation.op in INTEGER_PRODUCTS and not is_convolution(operation.op)
    return is_matrix and len(operation.operand(1).dimensions) > 2


def _is_of_known_sizes(operation: Operation) -> bool:
    """Whether no dimension of the first two operands is dynamic."""
    shapes = [None if type_ is None else type_.shape for type_ in operation.types[:2]]
    return all(shape is not None and all(isinstance(size, int) for size in shape) for shape in shapes)


def _direct_cycles(operation: Operation, steps: int, device: Device) -> float:
    """The cycles of a convolution by products of its windows; `steps` are those of one element."""
    result, groups = operation.output.dimensions, operation.group
    rows, columns = result[0] * prod(result[2:]), max(1, result[1] // groups)
    return groups * least_tile_cycles(rows, columns, steps, device)


def may_be_filtered(operation: Operation) -> bool:
    """Whether Winograd's minimal filters compute a convolution: windows of 3x3 in the last two dimensions, stride and
    dilation 1 there, one group, and at most one dimension in front of them."""
    steps = (*operation.integers("strides")[-2:], *operation.integers("dilations")[-2:])
    is_plain = operation.group == 1 and all(step == 1 for step in steps)
    window = operation.operand(1).dimensions[2:]
    return is_plain and window[-2:] == _FILTERED and len(window) <= 1 + len(_FILTERED)


def is_filtered(operation: Operation, device: Device) -> bool:
    """Whether a minimal filter is estimated to be clearly faster than the direct products of a convolution."""
    if not operation.output.elements or not may_be_filtered(operation):
        return False
    direct = _direct_cycles(operation, depth(operation), device)
    return _filter_cycles(operation, direct, device) < direct


def _filter_cycles(operation: Operation, direct: float, device: Device) -> float:
    """The cycles of a 3x3 convolution by a minimal filter, if clearly fewer than its `direct` products take.

    Transformed weights come from memory, for they are read once in a run.
    """
    weights, result = operation.operand(1).dimensions, operation.output.dimensions
    if not may_be_filtered(operation):
        return direct
    channels, outputs = prod(weights[1:-2]), weights[0]
    options = []
    for size, inputs, results in _FILTERS:
        tiles, window = result[0] * prod(result[2:-2]) * ceil(result[-2] / size) * ceil(result[-1] / size), size + 2
        products = window**2 * least_tile_cycles(tiles, outputs, channels, device)
        moved = window**2 / device.load_ports
        read = 2 * window * inputs / device.fma_ports + moved + window**2 / device.store_ports
        written = (window + size) * results / device.fma_ports + moved + size**2 / device.store_ports
        vectors = ceil(channels / device.lanes) * read + ceil(outputs / device.lanes) * written
        transformed = _FLOAT_BYTES * window**2 * channels * outputs / device.dram_bandwidth * device.clock
        options.append(products + _TRANSFORM * tiles * vectors + transformed)
    return min(options) if _CLEARLY * min(options) < direct else direct


def border_seconds(operation: Operation, device: Device) -> float:
    """Time to surround the operand of a window over single channels with a border, if the kernel copies it."""
    maps, pads = operation.operand(0).dimensions, operation.integers("pads")
    axes = len(maps) - 2
    if axes < 1 or not any(pads) or not device.moves_by_loops:
        return 0.0
    places = maps[0] * prod(side + sum(pads[axis::axes]) for axis, side in enumerate(maps[2:]))
    return _COPY_CYCLES * places * ceil(maps[1] / device.lanes) / device.clock


def _window_cycles(operation: Operation, device: Device) -> float | None:
    """The cycles of a convolution of single channels, or of pooling; None if sizes or window are not known."""
    result, maps = operation.output.dimensions, operation.operand(0).dimensions
    if len(result) < 3 or len(maps) != len(result) or not operation.output.elements:
        return None
    is_pool = operation.op in POOLS
    kernel = operation.integers("kernel_shape") if is_pool else operation.operand(1).dimensions
    if not kernel:  # an opaque pooling, such as one whose positions are rounded up for dynamic sizes
        return None
    window = window_size(operation) if is_pool else depth(operation)
    vectors, rows = ceil(result[1] / device.lanes), result[0] * prod(result[2:-1])
    factor = _WINDOW_OF_INTEGERS if operation.op in INTEGER_PRODUCTS else 1.0
    return factor * rows * _pixel_row_cycles(result[-1], vectors, window, kernel[-1], device)


@lru_cache(maxsize=1 << 12)
def _pixel_row_cycles(length: int, vectors: int, window: int, across: int, device: Device) -> float:
    """The cycles of a row of pixels with windows of `across` elements in a row, by the tile of pixels and vectors of
    channels that takes the fewest."""

    def cycles(pixels: int, wide: int) -> float:
        held = wide * (2 * pixels + 2 * across - 1)
        spilled = _SPILLED if held > device.vector_registers - _SPARE_REGISTERS else 1.0
        loads = wide * (window // across) * (pixels + 2 * across - 1)
        busy = max(pixels * wide * window / device.fma_ports, loads / device.load_ports, float(LATENCY * window))
        return spilled * ceil(length / pixels) * ceil(vectors / wide) * (busy + pixels * wide)

    return min(cycles(p, v) for p in range(1, min(length, _WINDOW_PIXELS) + 1) for v in range(1, _WINDOW_VECTORS + 1))


def _recurrent_seconds(operation: Operation, device: Device) -> float:
    """Products with the inputs of all steps at once; then each step multiplies the state, reading all recurrent weights
    from the cache that holds them, and computes the gates."""
    x, w, r = (operation.operand(n) for n in range(3))
    if len(x.dimensions) != 3 or len(r.dimensions) != 3:
        return compute_seconds(operation, device)
    steps, batch = x.dimensions[:2]
    products, weights = device.peak_flops * _RECURRENT_PRODUCTS, r.bytes // max(1, r.dimensions[0])
    step = max(2.0 * batch * r.elements / products, r.bytes / device.bandwidth(weights))
    gates = batch * r.dimensions[0] * r.dimensions[1] / device.lanes * _GATE_CYCLES / device.clock
    return 2.0 * steps * batch * w.elements / products + steps * (step + gates)
