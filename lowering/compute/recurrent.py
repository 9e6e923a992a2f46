"""RNN, GRU and LSTM: the products of all steps with the inputs, and the recurrence.

    for d, t, b, g: Z[d, t, b, g] = sum of X[t, b, i] * W[d, g, i]; Z += bias of input and state    (a product sum)
    for d, s, b, g: gates of Z + H * R; for d, s, b, u: the states                          (the block of `recurrence`)

ONNX Runtime's LSTM of weights of 8 bits rounds the inputs of all steps together, and the states before each step. One
step more, of ones, gives the sums of the weights, which the zero point of the inputs is multiplied with:

    Q[t, b, i] = bytes of X[t, b, i], and 1 for t = T;    P[d, t, b, g] = sum of Q[t, b, i] * W[d, i, g]
    Z[d, t, b, g] = (P[d, t, b, g] - zero point * P[d, T, 0, g]) * scales + bias of input and state
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ...ir.operators import Unsupported
from ...ir.operators.recurrent import RecurrentCell, read_cell
from .call import Expr, Immediate, Lowering, NotLowered, Operand, Shape, Tensor, TensorCall, sizes
from .recurrence import RecurrenceBuffers, make_block
from .recurrent_tiling import RecurrenceTiling, StateWords, list_passes
from .rounded_state import SUM, integer_of, scale_of, zero_of

_READS = {4: "lengths", 5: "h"}
_LSTM_READS = _READS | {6: "c", 7: "p"}
_WRITES = ("states", "last", "last_cell")
_CELL_ATTRIBUTES = ("activations", "activation_alpha", "activation_beta", "clip", "input_forget")


def _lower(call: TensorCall) -> tuple[te.Tensor, ...]:
    kind = call.operator.op
    settings = (call.integer("hidden_size"), call.text("direction", "forward"), call.text("config", "{}"))
    batch_first = bool(call.integer("layout", 0))
    try:
        cell = read_cell(kind, *settings)
    except Unsupported as error:
        raise NotLowered(str(error)) from None
    x, r, bias = _steps_first(call.source(0), batch_first), call.source(2), call.optional(3)
    if call.dtype not in ("float32", "float64"):
        raise NotLowered(f"cells of {call.dtype}")
    operands = {"z": _multiply_inputs(call, cell, x), "r": r}
    if bias is not None and cell.linear_before_reset:
        operands["b"] = bias
    return _recur(call, cell, x, operands, settings, batch_first=batch_first)


def _recur(
    call: TensorCall, cell: RecurrentCell, x: Operand, operands: dict[str, Operand], settings: tuple[int, str, str],
    *, batch_first: bool = False,
) -> tuple[te.Tensor, ...]:  # fmt: skip
    """The recurrence over products with the inputs, ``z`` of the operands; `settings` are those of the cell."""
    kind = cell.kind
    further = {name: call.optional(n) for n, name in (_LSTM_READS if kind == "LSTM" else _READS).items()}
    operands = operands | {name: operand for name, operand in further.items() if operand is not None}
    swapped = {name: _steps_first(operands[name], batch_first) for name in ("h", "c") if name in operands}
    reads = {name: _as_tensor(call, name, operand) for name, operand in (operands | swapped).items()}
    state = (len(cell.reverse), x.shape[1], cell.hidden)
    shapes = dict(zip(_WRITES, ((x.shape[0], *state), state, state), strict=True))
    written = _WRITES[: 3 if kind == "LSTM" else 2]
    attribute = json.dumps([kind, *settings, list(reads), list(written)])

    def block(sources: list[Any], results: list[Any]) -> Any:
        buffers = RecurrenceBuffers(*(dict(zip(n, b, strict=True)) for n, b in ((reads, sources), (written, results))))
        words = StateWords() if buffers.is_rounded else None
        tiling = RecurrenceTiling(list_passes(cell), words=words)
        return make_block(cell, buffers, tiling, call.block_name(), attribute)

    buffers = [tirx.decl_buffer(shapes[name], call.dtype, call.block_name(name)) for name in written]
    results = te.extern(
        [shapes[name] for name in written], list(reads.values()), block, call.block_name(), [call.dtype] * len(written),
        out_buffers=buffers,
    )  # fmt: skip
    if not batch_first:
        return tuple(results)
    states, *last = results
    shape = (state[1], shapes["states"][0], state[0], state[2])
    all_states = call.stage(shape, lambda b, t, d, u: states(t, d, b, u), "batch")
    return all_states, *(_as_tensor(call, f"batch{n}", _Swapped(each)) for n, each in enumerate(last))


@dataclass(frozen=True)
class _Swapped:
    """An operand whose first two axes are exchanged."""

    operand: Operand

    @property
    def shape(self) -> Shape:
        """The shape after the exchange."""
        first, second, *rest = sizes(self.operand)
        return (second, first, *rest)

    def __call__(self, first: Expr, second: Expr, *rest: Expr) -> Expr:
        """An element by exchanged indices."""
        return self.operand(second, first, *rest)


def _steps_first(operand: Operand, batch_first: bool) -> Operand:
    return _Swapped(operand) if batch_first else operand


def _multiply_inputs(call: TensorCall, cell: RecurrentCell, x: Operand) -> te.Tensor:
    """The products of all steps with the inputs, and the biases that are not within a product: [D, T, B, gates * H]."""
    w, bias = call.source(1), call.optional(3)
    rows = cell.gates * cell.hidden
    shape = (len(cell.reverse), *sizes(x)[:2], rows)
    (k,) = call.reduce_axes(sizes(x)[2:])

    def product(d: Expr, t: Expr, b: Expr, g: Expr) -> Expr:
        return te.sum(x(t, b, k.var) * w(d, g, k.var), axis=[k])

    inputs = call.stage(shape, product, "product", anchor=True)
    if bias is None:
        return inputs

    def add(d: Expr, t: Expr, b: Expr, g: Expr) -> Expr:
        state = bias(d, rows + g)
        if cell.linear_before_reset and cell.kind == "GRU":
            state = tirx.Select(g < 2 * cell.hidden, state, call.constant(0))
        return inputs(d, t, b, g) + (bias(d, g) + state)

    return call.stage(shape, add, "inputs")


def _lower_rounded(call: TensorCall) -> tuple[te.Tensor, ...]:
    """An LSTM whose products have rounded operands, of sequences of equal length."""
    attributes = {name: value for name, value in call.operator.attributes.items() if name in _CELL_ATTRIBUTES and value}
    config = json.dumps({n: list(v) if isinstance(v, tuple) else v for n, v in attributes.items()}, sort_keys=True)
    x, w, r = (call.source(place) for place in range(3))
    settings = (call.numbers(2)[1], call.text("direction", "forward"), config)
    try:
        cell = read_cell("LSTM", *settings)
    except Unsupported as error:
        raise NotLowered(str(error)) from None
    types = [None if type_ is None else type_.dtype for type_ in call.types[:3]]
    if call.optional(4) is not None or types != ["float32", "int8", "int8"]:
        raise NotLowered(f"sequences of several lengths, or cells of {types}")
    operands = {"z": _multiply_rounded_inputs(call, cell, x, w), "r": r, "r_scale": call.source(10)}
    zero = call.optional(11)
    if zero is not None and not _is_zero(zero):
        operands["r_zero"] = zero
    return _recur(call, cell, x, operands, settings)


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Immediate) and operand.value.value == 0


def _multiply_rounded_inputs(call: TensorCall, cell: RecurrentCell, x: Operand, w: Operand) -> te.Tensor:
    """The products of all steps with rounded inputs, and the biases: [D, T, B, gates * H]."""
    steps, batch, length = sizes(x)

    def reduce_to_end(name: str, function: Any) -> te.Tensor:
        axes = call.reduce_axes(sizes(x))
        end = call.stage((1,), lambda _: function(x(*(axis.var for axis in axes)), axis=axes), name)
        return call.stage((1,), lambda i: function(end(i), call.constant(0)), f"{name}_with_0")

    low, high = reduce_to_end("low", te.min), reduce_to_end("high", te.max)
    scale = call.stage((1,), lambda i: scale_of(low(i), high(i)), "scale")
    zero = call.stage((1,), lambda i: zero_of(low(i), scale(i)), "zero")

    def integer(t: Expr, b: Expr, i: Expr) -> Expr:
        byte = integer_of(x(t, b, i), scale(0), zero(0)).astype("uint8")
        return tirx.if_then_else(t < steps, byte, tirx.const(1, "uint8"))

    rounded = call.stage((steps + 1, batch, length), integer, "rounded")
    (k,) = call.reduce_axes([length])
    rows = cell.gates * cell.hidden
    shape = (len(cell.reverse), steps + 1, batch, rows)
    products = call.stage(
        shape, lambda d, t, b, g: te.sum(rounded(t, b, k.var).astype(SUM) * w(d, k.var, g).astype(SUM), axis=[k]),
        "product", anchor=True,
    )  # fmt: skip
    bias, weight_scale, weight_zero = call.optional(3), call.source(8), call.optional(9)
    sums = None
    if weight_zero is not None and not _is_zero(weight_zero):
        (i,) = call.reduce_axes([length], "i")
        sums = call.stage(
            (steps, batch), lambda t, b: te.sum(rounded(t, b, i.var).astype(SUM), axis=[i]), "sums"
        )

    def number(d: Expr, t: Expr, b: Expr, g: Expr) -> Expr:
        total = products(d, t, b, g) - zero(0) * products(d, steps, 0, g)
        if sums is not None and weight_zero is not None:
            total -= _at(weight_zero, d, g).astype(SUM) * (sums(t, b) - length * zero(0))
        value = total.astype(call.dtype) * (scale(0) * _at(weight_scale, d, g))
        return value if bias is None else value + (bias(d, g) + bias(d, rows + g))

    return call.stage((shape[0], steps, batch, rows), number, "inputs")


def _at(parameter: Operand, d: Expr, g: Expr) -> Expr:
    """A scale or zero point of a direction, or of a gate's unit in it."""
    return parameter(d) if len(parameter.shape) == 1 else parameter(d, g)


def _as_tensor(call: TensorCall, name: str, operand: Operand) -> te.Tensor:
    """An operand in memory."""
    if isinstance(operand, Tensor | te.Tensor):
        return operand.tensor if isinstance(operand, Tensor) else operand
    return call.stage(sizes(operand), lambda *indices: operand(*indices), name)


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _lower), "DynamicQuantizeLSTM": _lower_rounded,
}  # fmt: skip
