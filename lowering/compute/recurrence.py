"""The steps of a recurrent network as loops: one unit at a time for the lowering, register tiles for the schedule.

    H[0], C[0] = initial states
    for s: for d: for units, rows (tiles): {
        A[rows, gates, units] = Z[d, t(s, d), rows, gates, units]                    (registers)
        for k: A += H[s % 2, rows, k] * R[d, gates, units, k]
        H[1 - s % 2], C[1 - s % 2], Y[t, d] = the gates of A, C[s % 2] and H[s % 2] }

Z holds the products with the inputs, of all steps. States are kept twice, so that the last tile may overlap the one
before. A GRU whose reset gate comes before its product takes two such passes over the units in each step. The gates
(`Gates`) are expressions, from the sums of a unit to its new states. A state may be rounded to bytes before each step
(`rounded_state.py`); R has bytes then, and A integers, which numbers are made of behind the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import stmt as s_stmt

from ...ir.operators.recurrent import Activation, RecurrentCell
from . import elementary, statements
from .call import OPERATOR
from .elementary import between, bound, dtype_of
from .recurrent_tiling import Pass, RecurrenceTiling, RecurrentWeights
from .rounded_state import SUM, RoundedState

Expr = Any


@dataclass(frozen=True)
class Gates:
    """The gates of a cell, with the activations of its direction. `keep` names a value, so that it is computed once."""

    cell: RecurrentCell
    activations: tuple[Activation, ...]
    keep: Callable[[Expr], Expr]

    def activate(self, position: int, total: Expr) -> Expr:
        """An activation of the sum of a gate, which the clip bounds first."""
        clip = self.cell.clip
        return _apply(self.activations[position], total if clip is None else between(total, -clip, clip))

    def update_state(self, update: Expr, total: Expr, old: Expr) -> Expr:
        """The state of a GRU: (1 - update) g(total) + update old."""
        new = self.keep(self.activate(1, total))
        return bound(update, lambda part: new - part * new + part * old)

    def lstm(self, sums: Sequence[Expr], old: Expr, peepholes: Callable[[int], Expr] | None) -> tuple[Expr, Expr]:
        """The hidden state and the cell of an LSTM. `peepholes` are the weights that gates give the cell."""

        def gate(number: int, place: int, cell: Expr) -> Expr:
            total = sums[number] if peepholes is None else sums[number] + peepholes(place) * cell
            return self.activate(0, total)

        enter = self.keep(gate(0, 0, old))
        forget = tirx.const(1.0, dtype_of(enter)) - enter if self.cell.input_forget else gate(2, 2, old)
        new = self.keep(forget * old + enter * self.activate(1, sums[3]))
        return gate(1, 1, new) * _apply(self.activations[2], new), new


def _apply(function: Activation, x: Expr) -> Expr:
    return bound(x, lambda value: _ACTIVATIONS[function.name](value, *function.factors))


_ACTIVATIONS: Mapping[str, Callable[..., Expr]] = {
    "affine": lambda x, alpha, beta: x * _like(x, alpha) + _like(x, beta),
    "elu": elementary.elu,
    "hardsigmoid": elementary.hard_sigmoid,
    "leakyrelu": elementary.leaky,
    "relu": lambda x: elementary.leaky(x, 0.0),
    "scaledtanh": lambda x, alpha, beta: _like(x, alpha) * elementary.tanh(x * _like(x, beta)),
    "sigmoid": elementary.sigmoid,
    "softplus": elementary.softplus,
    "softsign": elementary.softsign,
    "tanh": elementary.tanh,
    "thresholdedrelu": elementary.thresholded,
}


def _like(x: Expr, value: float) -> Expr:
    return tirx.const(value, dtype_of(x))


RECURRENCE = "eqfuse.recurrence"
"""Attribute of the block of a recurrence: its operator, hidden size, direction and config, then the names of what it
reads and writes in the order of the block's regions."""
_FACTORS = 24
"""Vector multiply-adds of the unrolled body for one step of the sum: enough steps are unrolled to reach twice that."""


@dataclass(frozen=True)
class RecurrenceBuffers:
    """The buffers that a recurrence reads and writes, by name: ``z`` and ``r``; ``b`` (the bias of a GRU's new state),
    ``lengths``, ``h``, ``c`` and ``p`` if there are; ``r_scale``, and ``r_zero`` if there is, if states are rounded;
    ``states``, ``last`` and ``last_cell`` if anything reads them."""

    reads: Mapping[str, Any]
    writes: Mapping[str, Any]

    @property
    def steps(self) -> Any:
        """The number of steps."""
        return self.reads["z"].shape[1]

    @property
    def batch(self) -> Any:
        """The number of sequences."""
        return self.reads["z"].shape[2]

    @property
    def dtype(self) -> str:
        """The element type."""
        return str(self.reads["z"].dtype)

    @property
    def is_rounded(self) -> bool:
        """Whether states are rounded to bytes."""
        return "r_scale" in self.reads


def make_block(
    cell: RecurrentCell, buffers: RecurrenceBuffers, tiling: RecurrenceTiling, name: str, attribute: str,
    packed: RecurrentWeights | None = None,
) -> Any:  # fmt: skip
    """The block of a recurrence; ``r`` has ONNX's layout, or that of `packed`."""
    loops = _RecurrenceLoops(cell, buffers, tiling, packed)
    regions = [
        [tirx.BufferRegion(b, [ir.Range.from_min_extent(0, extent) for extent in b.shape]) for b in each.values()]
        for each in (buffers.reads, buffers.writes)
    ]
    attributes = {OPERATOR: cell.kind, RECURRENCE: attribute}
    block = s_stmt.SBlock([], *regions, name, loops.body(), None, loops.allocated, [], attributes)
    return s_stmt.SBlockRealize([], True, block)


@dataclass
class _RecurrenceLoops:
    """The loops of one recurrence."""

    cell: RecurrentCell
    buffers: RecurrenceBuffers
    tiling: RecurrenceTiling
    packed: RecurrentWeights | None
    allocated: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = self.buffers.reads["r"]
        state = (len(self.cell.reverse), 2, self.buffers.batch, self.cell.hidden)
        self.h = self._allocate(state, "hidden_states")
        self.c: Any = self._allocate(state, "cell_states") if self.cell.kind == "LSTM" else None
        self.update: Any = None
        self.reset: Any = None
        if len(self.tiling.passes) > 1:
            self.update, self.reset = (self._allocate((state[0], *state[2:]), n) for n in ("updates", "resets"))
        self.rounded: RoundedState | None = None
        if self.tiling.words is not None:
            columns = -(-self.cell.hidden // self.tiling.columns(0)) * self.cell.gates * self.tiling.columns(0)
            sizes = len(self.cell.reverse), self.buffers.batch, self.cell.hidden, columns, self.tiling.lanes
            self.rounded = RoundedState(self.buffers.reads, self.tiling.words, *sizes)
            self.allocated.extend(self.rounded.allocated)

    def _allocate(self, shape: Sequence[Any], name: str) -> Any:
        self.allocated.append(tirx.decl_buffer(shape, self.buffers.dtype, name))
        return self.allocated[-1]

    def body(self) -> Any:
        """The loops of all steps."""
        packing = [self._pack()] if self.packed is not None and len(self.buffers.reads["r"].shape) > 2 else []
        same = len(set(self.cell.activations)) == 1
        kind = tirx.ForKind.PARALLEL if self.tiling.shared == "directions" else tirx.ForKind.SERIAL

        def direction(d: Any) -> Any:
            if same:
                return self._direction(d, self.cell.activations[0])
            first, second = (self._direction(d, functions) for functions in self.cell.activations)
            return tirx.IfThenElse(d < 1, first, second)

        return statements.sequence([*packing, statements.loop("d", len(self.cell.reverse), direction, kind)])

    def _pack(self) -> Any:
        """A copy of weights that are not known before the run."""
        assert self.packed is not None
        packed, r = self.packed, self.buffers.reads["r"]
        self.weights = tirx.decl_buffer(packed.packed_shape(r.shape), str(r.dtype), "packed_weights")
        self.allocated.append(self.weights)
        word, words = self.tiling.word, packed.depth // self.tiling.word

        def copies(d: Any, number: int) -> Any:
            each, columns = self.tiling.passes[number], self.tiling.columns(number)

            def store(tile: Any, k: Any, gate: Any, u: Any, j: Any) -> Any:
                source = (each.first + gate) * self.cell.hidden + _start(tile, columns, self.cell.hidden) + u
                place = ((tile * words + k) * each.gates + gate) * columns + u
                unit = k * word + j
                weight = r[d, source, unit] if self.rounded is None else r[d, unit, source]
                if packed.depth > self.cell.hidden:
                    weight = tirx.if_then_else(unit < self.cell.hidden, weight, tirx.const(0, str(r.dtype)))
                return tirx.BufferStore(self.weights, weight, [d, packed.offset(number) + place * word + j])

            extents = (packed.tiles(number), words, each.gates, columns, word)
            return statements.nest(("tile", "k", "gate", "u", "j"), extents, store)

        passes = range(len(self.tiling.passes))
        return statements.loop("d", r.shape[0], lambda d: statements.sequence([copies(d, number) for number in passes]))

    def _direction(self, d: Any, functions: tuple[Activation, ...]) -> Any:
        def step(s: Any) -> Any:
            passes = [self._pass(d, s, number, functions) for number in range(len(self.tiling.passes))]
            return statements.sequence([*self._round(d, s), *passes])

        steps = statements.loop("s", self.buffers.steps, step)
        return statements.sequence([*self._initial(d), *self._add_up_weights(d), steps, *self._final(d)])

    def _round(self, d: Any, s: Any) -> list[Any]:
        """The statements that round the states before a step, if they are rounded."""
        if self.rounded is None:
            return []
        hidden, lanes = self.cell.hidden, self.tiling.lanes

        def for_vectors(body: Callable[[Any, Any, Any], Any]) -> Any:
            def vector(b: Any, tile: Any) -> Any:
                return statements.vector(lanes, lambda i: body(b, _start(tile, lanes, hidden), i))

            return statements.nest(("b", "u"), (self.buffers.batch, -(-hidden // lanes)), vector)

        parity = tirx.floormod(s, 2)
        return [self.rounded.round(d, lambda b, u: self.h[d, parity, b, u], for_vectors)]

    def _add_up_weights(self, d: Any) -> list[Any]:
        """The statements that add up the weights of all units, if states are rounded: products of a state of ones."""
        if (rounded := self.rounded) is None:
            return []
        (each,), columns, lanes = self.tiling.passes, self.tiling.columns(0), self.tiling.lanes

        def units(tile: Any) -> Any:
            first = tirx.const(0, "int32")
            place = _StepTile(d, first, tile, _start(tile, columns, self.cell.hidden), first)
            vectors = each.gates * each.vectors
            sums = tirx.decl_buffer((vectors, lanes), SUM, "sums", scope="local")

            def for_all(store: Callable[[Any, Any], Any]) -> Any:
                return statements.unrolled("v", vectors, lambda v: statements.vector(lanes, lambda i: store(v, i)))

            begin = for_all(lambda v, i: tirx.BufferStore(sums, tirx.const(0, SUM), [v, i]))
            end = for_all(lambda v, i: tirx.BufferStore(
                rounded.weight_sums, sums[v, i], [d, tile * (vectors * lanes) + v * lanes + i]
            ))  # fmt: skip
            body = statements.sequence([begin, *self._sum(place, 0, sums, 1), end])
            return s_stmt.SBlockRealize([], True, s_stmt.SBlock([], [], [], "weights", body, None, [sums]))

        return [rounded.fill(d), statements.loop("units", -(-self.cell.hidden // columns), units)]

    # --- before and behind all steps

    def _initial(self, d: Any) -> list[Any]:
        """The states that the first step reads."""
        pairs = [(self.h, "h")] + ([(self.c, "c")] if self.c is not None else [])

        def state(buffer: Any, name: str) -> Any:
            def store(b: Any, u: Any) -> Any:
                given = self.buffers.reads.get(name)
                value = self._number(0.0) if given is None else given[d, b, u]
                return tirx.BufferStore(buffer, value, [d, 0, b, u])

            return self._for_states(store)

        return [state(*pair) for pair in pairs]

    def _final(self, d: Any) -> list[Any]:
        """The last states; those of an empty sequence are 0."""
        names = (("last", self.h), ("last_cell", self.c))
        parity, lengths = tirx.floormod(self.buffers.steps, 2), self.buffers.reads.get("lengths")

        def last(buffer: Any, source: Any) -> Any:
            def store(b: Any, u: Any) -> Any:
                value = source[d, parity, b, u]
                if lengths is not None:
                    value = tirx.Select(lengths[b] > 0, value, self._number(0.0))
                return tirx.BufferStore(buffer, value, [d, b, u])

            return self._for_states(store)

        writes = self.buffers.writes
        return [last(writes[name], source) for name, source in names if name in writes]

    def _for_states(self, store: Callable[[Any, Any], Any]) -> Any:
        """A statement for each sequence and vector of units."""
        hidden, lanes = self.cell.hidden, self.tiling.lanes

        def vector(b: Any) -> Any:
            def lane(tile: Any) -> Any:
                return statements.vector(lanes, lambda i: store(b, _start(tile, lanes, hidden) + i))

            return statements.loop("u", -(-hidden // lanes), lane)

        return statements.loop("b", self.buffers.batch, vector)

    # --- one pass of one step

    def _pass(self, d: Any, s: Any, number: int, functions: tuple[Activation, ...]) -> Any:
        """One pass in tiles of rows; by single rows if a call has fewer than a tile."""
        rows, batch = self.tiling.rows, self.buffers.batch
        tiles = self._tiles(d, s, number, functions, rows)
        if rows == 1 or isinstance(batch, int | tirx.IntImm):
            return tiles
        return tirx.IfThenElse(batch >= rows, tiles, self._tiles(d, s, number, functions, 1))

    def _tiles(self, d: Any, s: Any, number: int, functions: tuple[Activation, ...], rows: int) -> Any:
        columns, hidden = self.tiling.columns(number), self.cell.hidden
        kind = tirx.ForKind.PARALLEL if self.tiling.shared == "units" else tirx.ForKind.SERIAL

        def units(tile: Any) -> Any:
            def tile_of_rows(row_tile: Any) -> Any:
                first = _start(row_tile, rows, self.buffers.batch)
                place = _StepTile(d, s, tile, _start(tile, columns, hidden), first)
                return self._tile(place, number, functions, rows)

            return statements.loop("rows", -(-self.buffers.batch // rows), tile_of_rows)

        return statements.loop("units", -(-hidden // columns), units, kind)

    def _tile(self, place: _StepTile, number: int, functions: tuple[Activation, ...], rows: int) -> Any:
        each, lanes = self.tiling.passes[number], self.tiling.lanes
        dtype = self.buffers.dtype if self.rounded is None else SUM
        sums = tirx.decl_buffer((rows * each.gates * each.vectors, lanes), dtype, "sums", scope="local")

        def begin(r: Any) -> Any:
            def store(gate: int) -> Any:
                def vector(v: Any) -> Any:
                    def lane(i: Any) -> Any:
                        is_number = self.rounded is None
                        value = self._input(place, each.first + gate, r, v * lanes + i) if is_number else 0
                        index = (r * each.gates + gate) * each.vectors + v
                        return tirx.BufferStore(sums, tirx.convert(value), [index, i])

                    return statements.vector(lanes, lane)

                return statements.unrolled("v", each.vectors, vector)

            return statements.sequence([store(gate) for gate in range(each.gates)])

        def end(r: Any) -> Any:
            def vector(v: Any) -> Any:
                def lane(i: Any) -> Any:
                    totals = [self._total(place, each, sums, r, g, v, i) for g in range(each.gates)]
                    return self._unit(place, place.row + r, place.unit + v * lanes + i, number, totals, functions)

                # activations of float64 are calls of the C library, which TVM does not vectorise behind a bound name
                if self.buffers.dtype == "float32":
                    return statements.vector(lanes, lane)
                return statements.loop("lane", lanes, lane)

            return statements.unrolled("v", each.vectors, vector)

        first, last = (statements.unrolled("r", rows, part) for part in (begin, end))
        product = statements.sequence(self._sum(place, number, sums, rows))
        if "h" not in self.buffers.reads and self.rounded is None:
            product = tirx.IfThenElse(place.s > 0, product, None)  # the first step's state is 0
        body = statements.sequence([first, product, last])
        return s_stmt.SBlockRealize([], True, s_stmt.SBlock([], [], [], "tile", body, None, [sums]))

    def _total(self, place: _StepTile, each: Pass, sums: Any, r: Any, gate: int, v: Any, i: Any) -> Any:
        """The sum of a gate of a unit, lane `i` of vector `v` of its tile, with what the input adds to it."""
        total = sums[(r * each.gates + gate) * each.vectors + v, i]
        if self.rounded is None:
            return total
        unit, columns = v * self.tiling.lanes + i, self.tiling.columns(0)
        column = (place.tile * each.gates + gate) * columns + unit
        number = self.rounded.number(place.d, place.row + r, total, column, gate * self.cell.hidden + place.unit + unit)
        return self._input(place, each.first + gate, r, unit) + number

    def _input(self, place: _StepTile, gate: int, r: Any, unit: Any) -> Any:
        """The number that the sum of a gate begins with."""
        hidden, row = self.cell.hidden, place.row + r
        if self.cell.linear_before_reset and self.cell.kind == "GRU" and gate == 2:
            bias = self.buffers.reads.get("b")
            return self._number(0.0) if bias is None else bias[place.d, 5 * hidden + place.unit + unit]
        return self._product(place, row, gate, place.unit + unit)

    def _product(self, place: _StepTile, row: Any, gate: int, unit: Any) -> Any:
        """The number that the input adds to a gate."""
        return self.buffers.reads["z"][place.d, self.time(place, row), row, gate * self.cell.hidden + unit]

    def _sum(self, place: _StepTile, number: int, sums: Any, rows: int) -> list[Any]:
        """The product of the states with the weights of a tile: whichever are fewer stay in registers."""
        each, lanes, word = self.tiling.passes[number], self.tiling.lanes, self.tiling.word
        depth = self.cell.hidden if self.rounded is None else self.rounded.words.padded(self.cell.hidden)
        vectors, products, words = each.gates * each.vectors, rows * each.gates * each.vectors, depth // word
        unrolled = min(words, max(1, 2 * _FACTORS // products)) if lanes > 1 else 1

        def step(k: Any) -> Any:
            def product(many: Any, few: Any) -> Any:
                r, a = (many, few) if rows >= vectors else (few, many)

                def neighbour(j: int) -> Any:
                    def lane(i: Any) -> Any:
                        term = self._state(place, number, r, k * word + j) * self._weight(place, number, k, j, a, i)
                        return tirx.BufferStore(sums, sums[r * vectors + a, i] + term, [r * vectors + a, i])

                    return statements.vector(lanes, lane)

                return statements.sequence([neighbour(j) for j in range(word)])

            few, many = sorted((rows, vectors))
            return statements.unrolled("i", many, lambda i: statements.unrolled("j", few, lambda j: product(i, j)))

        def some(first: Any, count: int) -> Any:
            return statements.unrolled("j", count, lambda j: step(first + j))

        whole, rest = divmod(words, unrolled)
        loops = [statements.loop("k", whole, lambda o: some(o * unrolled, unrolled))]
        return loops + ([some(whole * unrolled, rest)] if rest else [])

    def _state(self, place: _StepTile, number: int, r: Any, k: Any) -> Any:
        """The number that a weight is multiplied with."""
        if self.rounded is not None:
            return self.rounded.integers[place.d, place.row + r, k].astype(SUM)
        if number == 1:
            return self.reset[place.d, place.row + r, k]
        return self.h[place.d, place.parity, place.row + r, k]

    def _weight(self, place: _StepTile, number: int, k: Any, neighbour: int, vector: Any, lane: Any) -> Any:
        """A weight of a unit of the state: `neighbour` in word `k`."""
        each, hidden, lanes, r = self.tiling.passes[number], self.cell.hidden, self.tiling.lanes, self.weights
        word = self.tiling.word
        if self.packed is not None:
            words, columns = self.packed.depth // word, each.gates * self.tiling.columns(number)
            tile = self.packed.offset(number) + (place.tile * words + k) * (columns * word)
            weight = r[place.d, tile + (vector * lanes + lane) * word + neighbour]
            return weight if self.rounded is None else weight.astype(SUM)
        gate, within = tirx.floordiv(vector, each.vectors), tirx.floormod(vector, each.vectors)
        column = (each.first + gate) * hidden + place.unit + within * lanes + lane
        if self.rounded is None:
            return r[place.d, column, k]
        return r[place.d, k * word + neighbour, column].astype(SUM)

    # --- one unit of one sequence

    def _unit(
        self, place: _StepTile, row: Any, unit: Any, number: int, sums: Sequence[Any], functions: tuple[Activation, ...]
    ) -> Any:
        """Store the results that a pass makes of the sums of a unit's gates."""
        steps = statements.StatementList()
        gates = Gates(self.cell, functions, steps.keep)

        def old(states: Any) -> Any:
            return states[place.d, place.parity, row, unit]

        def store(buffer: Any, value: Any) -> None:
            """Store a state for the next step; if a sequence has ended, its state stays."""
            runs = self.runs(place, row)
            kept = value if runs is None else tirx.Select(runs, value, old(buffer))
            steps.store(buffer, kept, place.d, 1 - place.parity, row, unit)

        if self.cell.kind == "GRU" and number == 0 and len(self.tiling.passes) > 1:
            steps.store(self.update, gates.activate(0, sums[0]), place.d, row, unit)
            steps.store(self.reset, gates.activate(0, sums[1]) * old(self.h), place.d, row, unit)
            return steps.finish()
        if self.cell.kind == "LSTM":
            weights = self.buffers.reads.get("p")
            peepholes = None if weights is None else lambda n: weights[place.d, n * self.cell.hidden + unit]
            hidden, cell = gates.lstm(sums, steps.keep(old(self.c)), peepholes)
            store(self.c, cell)
        elif self.cell.kind == "RNN":
            hidden = gates.activate(0, sums[0])
        elif number == 1:
            hidden = gates.update_state(self.update[place.d, row, unit], sums[0], old(self.h))
        else:
            inputs = self._product(place, row, 2, unit)
            update, reset = (steps.keep(gates.activate(0, total)) for total in sums[:2])
            hidden = gates.update_state(update, inputs + reset * sums[2], old(self.h))
        hidden = steps.keep(hidden)
        store(self.h, hidden)
        if "states" in self.buffers.writes:
            runs, time = self.runs(place, row), self.time(place, row)
            value = hidden if runs is None else tirx.Select(runs, hidden, self._number(0.0))
            steps.store(self.buffers.writes["states"], value, time, place.d, row, unit)
        return steps.finish()

    # --- where a step is

    def runs(self, place: _StepTile, row: Any) -> Any | None:
        """Whether the sequence has that many steps; None if all have all."""
        lengths = self.buffers.reads.get("lengths")
        return None if lengths is None else place.s < lengths[row].astype("int32")

    def time(self, place: _StepTile, row: Any) -> Any:
        """The place of the step in X and Y: sequences are run from their own end. Steps behind it stay in place."""
        runs, forward = self.runs(place, row), place.s
        if runs is None:
            backward = self.buffers.steps - 1 - place.s
        else:
            length = self.buffers.reads["lengths"][row].astype("int32")
            backward = tirx.Select(runs, length - 1 - place.s, place.s)
        if len(self.cell.reverse) > 1:
            return tirx.Select(place.d > 0, backward, forward)
        return backward if self.cell.reverse[0] else forward

    def _number(self, value: float) -> Any:
        return tirx.const(value, self.buffers.dtype)


@dataclass(frozen=True)
class _StepTile:
    """A tile of a step: direction, step, number of the tile, and its first unit and row."""

    d: Any
    s: Any
    tile: Any
    unit: Any
    row: Any

    @property
    def parity(self) -> Any:
        """Where the states that the step reads are."""
        return tirx.floormod(self.s, 2)


def _start(tile: Any, size: int, extent: Any) -> Any:
    """The first element of a tile; the last one is moved back to end where the extent does."""
    divides = isinstance(extent, int | tirx.IntImm) and int(extent) % size == 0
    return tile * size if divides else tirx.min(tile * size, extent - size)
