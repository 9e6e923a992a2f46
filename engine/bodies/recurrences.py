"""Loops and Scans whose body is the cell of an RNN, GRU or LSTM become that operator: one kernel for all steps.

    for t: i, f, o, g = gates of x[t] W + h R + b;  c = f c + i g;  h = o tanh(c);  H[t] = h
 => H, h, c = LSTM(X, W, R, b, h, c)

`cells` says which function a body computes, so it does not matter how an exporter writes it: which gate comes
first, one product of both operands or two, `(1 - z) n + z h` or `n + z (h - n)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import onnx_ir as ir

from ..onnx.model import Model
from ..shapes.inference import Knowledge
from .cell_reader import CellReader, is_sequence_of
from .cells import Array, Atom, Source, Value
from .flatten import FlatModel, Region, drop_unused, region_of, replace_outputs
from .inference import find_trips
from .insertion import Insertion
from .loops import origin

_ORDERS = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}


@dataclass(frozen=True)
class Cell:
    """A cell: for each gate in ONNX's order the operands of its activation, from the input and from the state.

    `states` are the places of h, and of c for an LSTM, among those of the body.
    """

    kind: str
    inputs: tuple[Value, ...]
    recurrent: tuple[Value, ...]
    activations: tuple[Atom, ...]
    states: tuple[int, ...]
    linear_before_reset: bool = False


def recognize_recurrences(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Replace Loops and Scans by recurrent operators that compute the same. Returns whether there were any.

    Changes the flat model, of which `knowledge` has the types.
    """
    changes = False
    for node in list(flat.graph):
        region = region_of(node, flat.regions)
        if region is not None:
            changes |= _Recognition(flat, knowledge, node, region).replace()
    if changes:
        drop_unused(flat)
        flat.model = Model(flat.model.ir, flat.model.path, lowest=flat.model.lowest)  # it stores other constants
    return changes


@dataclass
class _Recognition:
    flat: FlatModel
    knowledge: Knowledge
    node: ir.Node
    region: Region

    def __post_init__(self) -> None:
        region, node = self.region, self.node
        results = node.inputs[region.inputs :]
        self.formals = region.formals[region.first_state : region.first_state + region.states]
        self.initial = node.inputs[region.first_state : region.first_state + region.states]
        self.returned = results[region.first_result : region.first_result + region.states]
        self.rows = results[region.first_result + region.states :]
        axes = _integers(region, "scan_input_axes", region.scan_inputs)
        scanned = node.inputs[region.states : region.inputs] if region.scan_inputs else ()
        names = region.formals[region.states :]
        slices = {n: (v, a % 3) for n, v, a in zip(names, scanned, axes, strict=False) if v is not None}
        self.counting = frozenset(place for place in range(region.states) if self._counts(place))
        counters = frozenset(self.formals[place] for place in self.counting)
        counters |= {region.formals[0]} if region.op_type == "Loop" else frozenset()
        self.reader = CellReader(self.flat, self.knowledge, region, slices, counters)

    def _counts(self, place: int) -> bool:
        """Whether a state of a Loop is the number of the iteration, and is not read afterwards."""
        begin, end, output = self.initial[place], self.returned[place], self.node.outputs[place]
        start = None if begin is None else self.knowledge.constants.get(begin.name or "")
        node = None if end is None else end.producer()
        if self.region.op_type != "Loop" or start is None or start.shape or start != 0 or node is None:
            return False
        if node.op_type != "Add" or output.uses() or output.is_graph_output():
            return False
        operands = {value.name: self.knowledge.constants.get(value.name or "") for value in node.inputs if value}
        formal = self.formals[place]
        return formal in operands and any(a is not None and a.size == 1 and a == 1 for a in operands.values())

    def replace(self) -> bool:
        """Replace the region by the operator, if its body is a cell."""
        directions = {*_integers(self.region, "scan_input_directions", self.region.scan_inputs)}
        directions |= {*_integers(self.region, "scan_output_directions", len(self.rows))}
        if len(directions) > 1 or any(value is None for value in (*self.initial, *self.returned, *self.rows)):
            return False
        cell = self._find_cell()
        if cell is None:
            return False
        sources = dict.fromkeys(s for value in cell.inputs for s in value.matrices if s.sequence is not None)
        h = self.reader.read(self.returned[cell.states[0]])
        rows = [self.reader.read(row) for row in self.rows]
        if not sources or h is None or any(row is None or row.digest != h.digest for row in rows):
            return False
        weights = _join([_columns(value, list(sources)) for value in cell.inputs])
        is_multiplied = weights.shape[1] == 1 or (weights != 0).sum(axis=1).max() > 1
        if not is_multiplied or not self._fits(cell, list(sources)):  # the products are outside already
            return False
        self._emit(cell, list(sources), weights, directions == {1})
        return True

    def _find_cell(self) -> Cell | None:
        places = [place for place in range(self.region.states) if place not in self.counting]
        if len(places) == 2:
            return next((c for pair in permutations(places) if (c := self._find_lstm(*pair)) is not None), None)
        return self._find_gru(places[0]) or self._find_rnn(places[0]) if len(places) == 1 else None

    def _values(self, *places: int) -> Iterator[Value | None]:
        return (self.reader.read(self.returned[place]) for place in places)

    def _find_lstm(self, h: int, c: int) -> Cell | None:
        """c' = f c + i g and h' = o tanh(c')."""
        new, cell = self._values(h, c)
        if new is None or cell is None or not (_is_sum(cell, 2) and _is_sum(new, 1)):
            return None
        keeping = [p for p in cell.products if len(p) == 2 and any(a.state == self.formals[c] for a in p)]
        entering = [p for p in cell.products if len(p) == 2 and p not in keeping]
        (leaving,) = new.products
        squashed = [a for a in leaving if a.name and a.digest == cell.digest]
        if len(keeping) != 1 or len(entering) != 1 or len(leaving) != 2 or len(squashed) != 1:
            return None
        forget = next((a for a in keeping[0] if a.name), None)
        leave = next((a for a in leaving if a != squashed[0]), None)
        if forget is None or leave is None:
            return None
        for enter, candidate in (entering[0], entering[0][::-1]):
            gates = (enter, leave, forget, candidate)
            if all(_same_function(gate, forget) for gate in gates[:3]) and candidate.name:
                values = tuple(gate.value for gate in gates)
                if all(is_sequence_of([self.formals[h]], value) for value in values):
                    inputs, recurrent = zip(*(self._parts(value, h) for value in values), strict=True)
                    return Cell("LSTM", inputs, recurrent, (forget, candidate, squashed[0]), (h, c))
        return None

    def _find_gru(self, h: int) -> Cell | None:
        """h' = (1 - z) n + z h, or with 1 - z for z."""
        (new,) = self._values(h)
        if new is None or new.bias.any():
            return None
        name = self.formals[h]
        update = next((a for p in new.products for a in p if len(p) == 2 and self._blends(new, a, p, name)), None)
        if update is None:
            return None
        candidate = next(a for p in new.products for a in p if update in p and a != update and a.state != name)
        kept = next(p for p in new.products if update in p and any(a.state == name for a in p))
        z = update.value
        if new.products[kept] < 0:  # h + z (n - h)
            if update.name != "Sigmoid":
                return None
            z = z.negate()
        return self._finish_gru(h, update, z, candidate)

    @staticmethod
    def _blends(new: Value, update: Atom, product: tuple[Atom, ...], state: str) -> bool:
        """Whether a value is n - z n + z h or h - z h + z n."""
        other = next((a for a in product if a != update), None)
        if other is None or other.state == state or not other.name or not update.name:
            return False
        with_state = [p for p in new.products if len(p) == 2 and update in p and any(a.state == state for a in p)]
        if len(with_state) != 1:
            return False
        sign = new.products[with_state[0]]
        expected = {product: -sign, with_state[0]: sign} | ({(other,): 1.0} if sign > 0 else {})
        alone = [a.state for a in (Atom.of(Value(new.matrices, new.bias)),)] if new.matrices else []
        return abs(sign) == 1 and dict(new.products) == expected and alone == ([] if sign > 0 else [state])

    def _finish_gru(self, h: int, update: Atom, z: Value, candidate: Atom) -> Cell | None:
        """n = tanh(x W + r (h R + b) + b) or tanh(x W + (r h) R + b)."""
        value, name = candidate.value, self.formals[h]
        inputs = Value({s: m for s, m in value.matrices.items() if s.sequence is not None}, value.bias)
        rest = [(s, m) for s, m in value.matrices.items() if s.sequence is None]
        if not rest and [len(product) for product in value.products] == [2]:
            (((first, second), factor),) = value.products.items()
            reset, linear = (first, second) if first.name else (second, first)
            scaled = linear.value.scale(np.full(1, factor))
            if linear.name or not reset.name or scaled is None or {s.name for s in scaled.matrices} != {name}:
                return None
            recurrent, is_linear = scaled, True
        elif len(rest) == 1 and value.is_affine and len(rest[0][0].atoms) == 2:
            (source, matrix) = rest[0]
            reset, state = source.atoms if source.atoms[0].name else source.atoms[::-1]
            if not reset.name or state.state != name:
                return None
            recurrent, is_linear = Value({Source(name, source.width): matrix}, np.zeros(matrix.shape[1])), False
        else:
            return None
        if not _same_function(update, reset) or not all(is_sequence_of([name], v) for v in (z, reset.value)):
            return None
        (z_in, z_state), (r_in, r_state) = self._parts(z, h), self._parts(reset.value, h)
        activations = (update, candidate)
        return Cell("GRU", (z_in, r_in, inputs), (z_state, r_state, recurrent), activations, (h,), is_linear)

    def _find_rnn(self, h: int) -> Cell | None:
        """h' = tanh(x W + h R + b)."""
        (new,) = self._values(h)
        if new is None or not _is_sum(new, 1):
            return None
        (product,) = new.products
        if len(product) != 1 or not is_sequence_of([self.formals[h]], product[0].value):
            return None
        inputs, recurrent = self._parts(product[0].value, h)
        return Cell("RNN", (inputs,), (recurrent,), product, (h,))

    def _parts(self, value: Value, h: int) -> tuple[Value, Value]:
        """The operand of a gate from the input, with the constant, and from the state."""
        state = {s: m for s, m in value.matrices.items() if s.name == self.formals[h]}
        other = {s: m for s, m in value.matrices.items() if s not in state}
        return Value(other, value.bias), Value(state, np.zeros(value.bias.size))

    def _fits(self, cell: Cell, sources: Sequence[Source]) -> bool:
        """Whether all sequences are as long as there are iterations, for as many rows as the states have."""
        sequences = [(s.axis, shape) for s in sources if s.sequence is not None and (shape := self._shape(s.sequence))]
        lengths = {shape[axis] for axis, shape in sequences}
        states = [self._shape(value) for place in cell.states if (value := self.initial[place]) is not None]
        rows = {shape[1 - axis] for axis, shape in sequences} | {shape[0] if shape else -1 for shape in states}
        dtypes = {self.knowledge.types[v.name or ""].dtype for v in self._read_values(cell, sources)}
        if len(sequences) < len(sources) or len(lengths) != 1 or len(rows) != 1 or len(dtypes) != 1:
            return False
        if not dtypes <= {"float32", "float64"}:
            return False
        return self.region.op_type == "Scan" or self._runs(lengths.pop())

    def _read_values(self, cell: Cell, sources: Sequence[Source]) -> Iterator[ir.Value]:
        yield from (s.sequence for s in sources if s.sequence is not None)
        yield from (value for place in cell.states if (value := self.initial[place]) is not None)

    def _shape(self, value: ir.Value) -> tuple[int | str, ...] | None:
        """The shape of a value, with meaningful sizes."""
        shape = self.reader.shape(value)
        is_known = shape is not None and all(isinstance(d, int) or d in self.knowledge.symbols for d in shape)
        return shape if is_known else None

    def _runs(self, length: int | str) -> bool:
        """Whether a Loop has that many iterations."""
        limit, before, after = self.node.inputs[0], self.node.inputs[1], self.node.inputs[self.region.inputs]
        goes = [value for value in (before, after) if value is not None and value.name != self.region.formals[1]]
        constants = [self.knowledge.constants.get(origin(value).name or "") for value in goes]
        kept = [origin(value).name == self.region.formals[1] for value in goes]
        always = all(k or (c is not None and bool(c.all())) for c, k in zip(constants, kept, strict=True))
        trips = None if limit is None else find_trips(self.knowledge, limit.name or "")
        if not always or trips is None:
            return False
        return length == (self.knowledge.symbolic.dimension(trips) if trips.number is None else trips.number)

    def _emit(self, cell: Cell, sources: Sequence[Source], weights: Array, is_reverse: bool) -> None:
        """The operator, and nodes that bring its operands and results into form, in front of the region."""
        dtype = np.dtype(self.knowledge.types[sources[0].sequence.name or ""].dtype) if sources[0].sequence else None
        hidden, insertion = cell.inputs[0].bias.size, Insertion(self.flat, self.node)
        state = Source(self.formals[cell.states[0]], hidden)
        recurrent = _join([_columns(value, [state]) for value in cell.recurrent])
        bias = np.concatenate([value.bias for value in (*cell.inputs, *cell.recurrent)])
        sequences = [self._steps_first(insertion, source) for source in sources]
        x = sequences[0] if len(sequences) == 1 else insertion.add("Concat", sequences, axis=2)
        stored = [insertion.store(np.asarray(array[None], dtype)) for array in (weights, recurrent, bias)]
        first = [insertion.add("Unsqueeze", [self.initial[place]], axes=[0]) for place in cell.states]
        attributes: dict[str, Any] = {"hidden_size": hidden, "activations": [a.name for a in cell.activations]}
        factors = [a.factors for a in cell.activations]
        for name, place in (("activation_alpha", 0), ("activation_beta", 1)):
            if any(factors):
                attributes[name] = [f[place] for f in factors if f]
        if is_reverse:
            attributes["direction"] = "reverse"
        if cell.kind == "GRU":
            attributes["linear_before_reset"] = int(cell.linear_before_reset)
        outputs = insertion.add_all(cell.kind, [x, *stored, None, *first], 1 + len(cell.states), **attributes)
        lasts = [insertion.add("Squeeze", [each], axes=[0]) for each in outputs[1:]]
        results: list[ir.Value | None] = [None] * self.region.states
        for place, last in zip(cell.states, lasts, strict=True):
            results[place] = last
        for axis in _integers(self.region, "scan_output_axes", len(self.rows)):
            rows = insertion.add("Squeeze", [outputs[0]], axes=[1])
            results.append(rows if axis % 3 == 0 else insertion.add("Transpose", [rows], perm=_moved(0, axis % 3)))
        for output, value in zip(replace_outputs(self.node), results, strict=True):
            if value is not None:
                insertion.replace(output, value)
        self.flat.graph.remove(self.node)

    def _steps_first(self, insertion: Insertion, source: Source) -> ir.Value:
        assert source.sequence is not None
        if not source.axis:
            return source.sequence
        return insertion.add("Transpose", [source.sequence], perm=_moved(source.axis, 0))


def _is_sum(value: Value, count: int) -> bool:
    """Whether a value is a sum of this number of products and nothing else."""
    is_alone = not value.matrices and not value.bias.any()
    return is_alone and len(value.products) == count and all(f == 1 for f in value.products.values())


def _same_function(one: Atom, other: Atom) -> bool:
    return (one.name, one.factors) == (other.name, other.factors) and bool(one.name)


def _columns(value: Value, sources: Sequence[Source]) -> Array:
    """The weights of a gate as ONNX has them, [units, inputs]."""
    units = value.bias.size
    return np.vstack([value.matrices.get(s, np.zeros((s.width, units))) for s in sources]).T


def _join(gates: Sequence[Array]) -> Array:
    return np.concatenate(gates)


def _moved(axis: int, to: int) -> list[int]:
    """The permutation that moves an axis of three."""
    rest = [each for each in range(3) if each != axis]
    return [*rest[:to], axis, *rest[to:]]


def _integers(region: Region, name: str, count: int) -> Sequence[int]:
    return next((a.as_ints() for a in region.attributes if a.name == name), None) or (0,) * count
