"""RNN, GRU and LSTM: the products of all steps with the inputs, and the recurrence.

    for d, t, b, g: Z[d, t, b, g] = sum of X[t, b, i] * W[d, g, i]; Z += bias of input and state    (a product sum)
    for d, s, b, g: gates of Z + H * R; for d, s, b, u: the states                          (the block of `recurrence`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ...ir.operators import Unsupported
from ...ir.operators.recurrent import RecurrentCell, read_cell
from .call import Expr, Lowering, NotLowered, Operand, Shape, Tensor, TensorCall, sizes
from .recurrence import RecurrenceBuffers, make_block
from .recurrent_tiling import RecurrenceTiling, list_passes

_READS = {4: "lengths", 5: "h"}
_LSTM_READS = _READS | {6: "c", 7: "p"}
_WRITES = ("states", "last", "last_cell")


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
    further = {name: call.optional(n) for n, name in (_LSTM_READS if kind == "LSTM" else _READS).items()}
    operands |= {name: operand for name, operand in further.items() if operand is not None}
    swapped = {name: _steps_first(operands[name], batch_first) for name in ("h", "c") if name in operands}
    reads = {name: _as_tensor(call, name, operand) for name, operand in (operands | swapped).items()}
    state = (len(cell.reverse), x.shape[1], cell.hidden)
    shapes = dict(zip(_WRITES, ((x.shape[0], *state), state, state), strict=True))
    written = _WRITES[: 3 if kind == "LSTM" else 2]
    attribute = json.dumps([kind, *settings, list(reads), list(written)])

    def block(sources: list[Any], results: list[Any]) -> Any:
        buffers = RecurrenceBuffers(*(dict(zip(n, b, strict=True)) for n, b in ((reads, sources), (written, results))))
        return make_block(cell, buffers, RecurrenceTiling(list_passes(cell)), call.block_name(), attribute)

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


def _as_tensor(call: TensorCall, name: str, operand: Operand) -> te.Tensor:
    """An operand in memory."""
    if isinstance(operand, Tensor | te.Tensor):
        return operand.tensor if isinstance(operand, Tensor) else operand
    return call.stage(sizes(operand), lambda *indices: operand(*indices), name)


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("RNN", "GRU", "LSTM"), _lower)
