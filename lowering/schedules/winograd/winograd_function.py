"""A convolution as TensorIR in Winograd's form: the blocks that replace its sum and what is around it.

    for slab: {
        for tile in slab, c: V[xi, tile, c] = (B^T d B)[xi]           (block "winograd_input")
        for columns: {
            for xi, tile, o, c: S[xi, tile, o] += V[xi, tile, c] * U[xi, c, o]; M = S       ("..._product", "..._copy")
            for tile, o: Y = f(A^T M A) } }                           ("winograd_output")

Tiles are numbered over the batch and the plane; a slab is a number of them. The last slab may have less to do: what is
left of it repeats the last tile. Blocks of transforms hold vectors along channels, and select only at the borders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ..rewriting import with_body
from ..stages import FUNCTION
from ..winograd_filters import Filter, transformed
from .winograd_match import Convolution, at

INPUT, PRODUCT, COPY, OUTPUT = "winograd_input", "winograd_product", "winograd_copy", "winograd_output"
"""The blocks, by name."""


@dataclass(frozen=True)
class Tiling:
    """A convolution cut in tiles of a filter's size, these in slabs, and its output channels in columns.

    `lanes` of the vectors along the channels of the input and of the output divide channels and columns.
    """

    filter: Filter
    convolution: Convolution
    slabs: int
    columns: int
    lanes: tuple[int, int]

    @property
    def down(self) -> int:
        """Rows of tiles in a plane."""
        return -(-self.convolution.outputs[1] // self.filter.size)

    @property
    def across(self) -> int:
        """Tiles in a row."""
        return -(-self.convolution.outputs[2] // self.filter.size)

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.convolution.outputs[0] * self.down * self.across

    @property
    def slab(self) -> int:
        """Tiles of a slab."""
        return -(-self.tiles // self.slabs)


def winograd_function(function: tirx.PrimFunc, tiling: Tiling) -> tirx.PrimFunc:
    """The function with the blocks of `tiling` in the place of the convolution's; the weights have another shape."""
    blocks = _Blocks(function, tiling)
    conv, root = tiling.convolution, function.body.block
    gone = {conv.anchor.write.name, conv.padding}
    nests = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    body: list[Any] = []
    for nest in nests:
        written = _written(nest)
        if written == conv.epilogue.write.name:
            body += blocks.nests()
        elif written not in gone:
            body.append(nest)
    kept = [buffer for buffer in root.alloc_buffers if str(buffer.name) not in gone]
    block = with_body(root, tirx.SeqStmt(body), alloc_buffers=[*kept, *blocks.between])
    params = [blocks.weights if n == conv.weights else p for n, p in enumerate(function.params)]
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    made = tirx.PrimFunc(params, realized, function.ret_type, function.attrs)
    fresh: tirx.PrimFunc = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: made}))[FUNCTION]
    return fresh


def _written(nest: Any) -> str:
    """What a nest of loops around one block writes."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return str(nest.block.writes[0].source.name)


@dataclass
class _Statements:
    """A sequence that is being written."""

    found: list[Any] = field(default_factory=list)

    def keep(self, value: Any) -> Any:
        """A name for a value, which is computed here."""
        if isinstance(value, tirx.Var | tirx.IntImm):
            return value
        variable = tirx.Var(f"t{len(self.found)}", str(value.ty.dtype))
        self.found.append(tirx.Bind(variable, value))
        return variable

    def whole(self) -> Any:
        """The statement."""
        return tirx.SeqStmt(self.found) if len(self.found) > 1 else self.found[0]


@dataclass(frozen=True)
class _Place:
    """A tile: its image, and the first row and column of its outputs."""

    image: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class _Leaf:
    """What a block does: `reads` and `write` are regions."""

    reads: Sequence[Any]
    write: Any
    body: Any
    init: Any = None


class _Blocks:
    """The blocks for a tiling, and the buffers between them."""

    def __init__(self, function: tirx.PrimFunc, tiling: Tiling) -> None:
        self._tiling, self._conv = tiling, tiling.convolution
        products, slab, columns = tiling.filter.products, tiling.slab, tiling.columns
        count, channels = self._conv.outputs[3] // columns, self._conv.channels
        name = str(function.params[self._conv.weights].name)
        shape = (tiling.slabs, count, products, slab, columns)
        self.weights = tirx.decl_buffer((count * products, channels, columns), "float32", name)
        self._inputs = tirx.decl_buffer((tiling.slabs, products, slab, channels), "float32", INPUT)
        self._sums, self._products = (tirx.decl_buffer(shape, "float32", name) for name in (PRODUCT, COPY))
        self._shape = shape

    @property
    def between(self) -> tuple[Any, ...]:
        """The buffers that the blocks hand on."""
        return (self._inputs, self._sums, self._products)

    def nests(self) -> list[Any]:
        """The blocks in their loops, in running order."""
        return [self._input(), self._product(), self._copy(), self._output()]

    def _product(self) -> Any:
        def leaf(slab: Any, column: Any, place: Any, tile: Any, o: Any, c: Any) -> _Leaf:
            target, left = (slab, column, place, tile, o), (slab, place, tile, c)
            right = (column * self._tiling.filter.products + place, c, o)
            product = tirx.BufferLoad(self._inputs, left) * tirx.BufferLoad(self.weights, right)
            store = tirx.BufferStore(self._sums, tirx.BufferLoad(self._sums, target) + product, target)
            reads = [_point(self._inputs, left), _point(self.weights, right)]
            init = tirx.BufferStore(self._sums, tirx.const(0.0, "float32"), target)
            return _Leaf(reads, _point(self._sums, target), store, init)

        return _nest(PRODUCT, (*self._shape, self._conv.channels), leaf, reduced=1)

    def _copy(self) -> Any:
        def leaf(*i: Any) -> _Leaf:
            store = tirx.BufferStore(self._products, tirx.BufferLoad(self._sums, i), i)
            return _Leaf([_point(self._sums, i)], _point(self._products, i), store)

        return _nest(COPY, self._shape, leaf)

    # --- the transform of the inputs

    def _input(self) -> Any:
        tiling, source = self._tiling, self._conv.source

        def leaf(slab: Any, places: Any, tile: Any, channels: Any) -> _Leaf:
            steps = _Statements()
            place = self._place(steps, slab, tile)
            rows, columns = self._read(place)
            inside = _all([rows[0], rows[-1], columns[0], columns[-1]])
            rows, columns = ([steps.keep(c) for c in conditions] for conditions in (rows, columns))

            def everywhere(selected: bool) -> Any:
                def vector(c: Any) -> Any:
                    return self._input_vector((slab, tile, c), place, (rows, columns) if selected else None)

                return _vectors(self._conv.channels, tiling.lanes[0], vector)

            steps.found.append(_either(inside, everywhere))
            reads = [_region(buffer, {}) for buffer in source.buffers]
            write = tirx.BufferRegion(self._inputs, [
                _one(slab), _times(places, tiling.filter.products), _one(tile), _times(channels, self._conv.channels)
            ])  # fmt: skip
            return _Leaf(reads, write, steps.whole())

        return _nest(INPUT, (tiling.slabs, 1, tiling.slab, 1), leaf)

    def _read(self, place: _Place) -> tuple[list[Any], list[Any]]:
        """For each row and column of the inputs of a tile whether it is there."""
        tiling, source = self._tiling, self._conv.source
        size, window = tiling.filter.size, tiling.filter.window
        found = []
        for axis, start, count, bounds in (
            (1, place.row, tiling.down, source.rows),
            (2, place.column, tiling.across, source.columns),
        ):
            last, variables = source.shape[axis], source.variables
            own = [source.variables[axis] < last] if (count - 1) * size + window > last else []
            found.append(
                [_all([at(b, (variables[axis],), (start + n,)) for b in (*bounds, *own)]) for n in range(window)]
            )
        return found[0], found[1]

    def _input_vector(self, where: tuple[Any, Any, Any], place: _Place, selected: Any) -> Any:
        slab, tile, c = where
        steps, source = _Statements(), self._conv.source
        window = range(self._tiling.filter.window)

        def element(r: int, s: int) -> Any:
            value = at(source.value, source.variables, (place.image, place.row + r, place.column + s, c))
            condition = _all([selected[0][r], selected[1][s]]) if selected else _TRUE
            zero = tirx.const(0.0, "float32")
            return steps.keep(value if _is_true(condition) else tirx.if_then_else(condition, value, zero))

        inputs = [[element(r, s) for s in window] for r in window]
        found = transformed(inputs, self._tiling.filter.input, steps.keep)
        for number, value in enumerate(value for row in found for value in row):
            steps.found.append(tirx.BufferStore(self._inputs, value, (slab, number, tile, c)))
        return steps.whole()

    # --- the transform of the outputs

    def _output(self) -> Any:
        tiling, epilogue = self._tiling, self._conv.epilogue
        columns = tiling.columns

        def leaf(slab: Any, column: Any, tile: Any) -> _Leaf:
            steps = _Statements()
            place = self._place(steps, slab, tile)
            rows, across = self._written(place)
            inside = _all([rows[-1], across[-1]])
            rows, across = ([steps.keep(c) for c in conditions] for conditions in (rows, across))

            def everywhere(selected: bool) -> Any:
                def vector(o: Any) -> Any:
                    where = (slab, column, tile, o)
                    return self._output_vector(where, place, (rows, across) if selected else None)

                return _vectors(columns, tiling.lanes[1], vector)

            steps.found.append(_either(inside, everywhere))
            others = [r.buffer for r in epilogue.reads if r.name != self._conv.anchor.write.name]
            own = _region(self._products, {0: slab, 1: column, 3: tile})
            reads = [own, *(_region(buffer, {}) for buffer in others)]
            return _Leaf(reads, _region(epilogue.write.buffer, {}), steps.whole())

        return _nest(OUTPUT, (tiling.slabs, self._shape[1], tiling.slab), leaf)

    def _written(self, place: _Place) -> tuple[list[Any], list[Any]]:
        """For each row and column of the outputs of a tile whether it is there."""
        _, height, width, _ = self._conv.outputs
        size = self._tiling.filter.size
        rows = [place.row + n < height if height % size else _TRUE for n in range(size)]
        return rows, [place.column + n < width if width % size else _TRUE for n in range(size)]

    def _output_vector(self, where: tuple[Any, Any, Any, Any], place: _Place, selected: Any) -> Any:
        slab, column, tile, o = where
        steps, window = _Statements(), self._tiling.filter.window

        def product(number: int) -> Any:
            return steps.keep(tirx.BufferLoad(self._products, (slab, column, number, tile, o)))

        products = [[product(r * window + s) for s in range(window)] for r in range(window)]
        found = transformed(products, self._tiling.filter.output, steps.keep)
        for r, row in enumerate(found):
            for s, value in enumerate(row):
                channel = column * self._tiling.columns + o
                store = self._store(value, (place.image, place.row + r, place.column + s, channel))
                condition = _all([selected[0][r], selected[1][s]]) if selected else _TRUE
                steps.found.append(store if _is_true(condition) else tirx.IfThenElse(condition, store, None))
        return steps.whole()

    def _store(self, value: Any, place: tuple[Any, ...]) -> Any:
        """The block after the sum for one of its elements."""
        conv = self._conv

        def replaced(part: Any) -> Any:
            return value if str(part.source.name) == conv.anchor.write.name else part

        body = tvm_ffi.structural_map(conv.epilogue.value, [(ir.TensorLoad, replaced)])
        indices = [at(index, conv.variables, place) for index in conv.epilogue.write.indices]
        return tirx.BufferStore(conv.epilogue.write.buffer, at(body, conv.variables, place), indices)

    def _place(self, steps: _Statements, slab: Any, tile: Any) -> _Place:
        """Where a tile is; those after the last are the last."""
        tiling = self._tiling
        number = slab * tiling.slab + tile
        if tiling.slabs * tiling.slab > tiling.tiles:
            number = tirx.min(number, tiling.tiles - 1)
        number = steps.keep(number)
        row = number // tiling.across
        image = row // tiling.down if self._conv.outputs[0] > 1 else tirx.const(0, "int32")
        size = tiling.filter.size
        within = row % tiling.down if self._conv.outputs[0] > 1 else row
        return _Place(steps.keep(image), steps.keep(within * size), steps.keep(number % tiling.across * size))


_TRUE = tirx.const(True, "bool")


def _is_true(condition: Any) -> bool:
    return isinstance(condition, tirx.IntImm) and bool(condition.value)


def _all(conditions: Sequence[Any]) -> Any:
    found = [condition for condition in conditions if not _is_true(condition)]
    return reduce(tirx.And, found) if found else _TRUE


def _either(inside: Any, statement: Callable[[bool], Any]) -> Any:
    """The statement without selections where nothing has to be selected."""
    return statement(False) if _is_true(inside) else tirx.IfThenElse(inside, statement(False), statement(True))


def _vectors(extent: int, lanes: int, body: Callable[[Any], Any]) -> Any:
    """A loop over vectors."""
    chunk, lane = tirx.Var("chunk", "int32"), tirx.Var("lane", "int32")
    inner = _loop(lane, lanes, body(chunk * lanes + lane), tirx.ForKind.VECTORIZED)
    return _loop(chunk, extent // lanes, inner)


def _loop(variable: Any, extent: int, body: Any, kind: Any = tirx.ForKind.SERIAL) -> Any:
    return tirx.For(variable, tirx.const(0, "int32"), tirx.const(extent, "int32"), kind, body)


def _nest(name: str, extents: Sequence[int], leaf: Callable[..., _Leaf], reduced: int = 0) -> Any:
    """A block in loops of its own, over as many iterators, of which the last are `reduced`."""
    loops = [tirx.Var(f"ax{n}", "int32") for n in range(len(extents))]
    variables = [tirx.Var(f"v{n}", "int32") for n in range(len(extents))]
    kinds = [tirx.IterVar.DataPar] * (len(extents) - reduced) + [tirx.IterVar.CommReduce] * reduced
    iterators = [
        tirx.IterVar(ir.Range(0, int(extent)), variable, kind)
        for extent, variable, kind in zip(extents, variables, kinds, strict=True)
    ]
    found = leaf(*variables)
    block = s_stmt.SBlock(iterators, found.reads, [found.write], name, found.body, found.init)
    node: Any = s_stmt.SBlockRealize(loops, True, block)
    for loop, extent in zip(reversed(loops), reversed(list(extents)), strict=True):
        node = _loop(loop, int(extent), node)
    return node


def _point(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])


def _one(index: Any) -> Any:
    return ir.Range.from_min_extent(index, 1)


def _times(index: Any, extent: int) -> Any:
    """All of a dimension, by an iterator of one iteration: what TVM's `compute_at` takes."""
    return ir.Range.from_min_extent(index * extent, extent)


def _region(buffer: Any, fixed: Mapping[int, Any]) -> Any:
    """All of a buffer but for the dimensions that are fixed."""
    ranges = [
        ir.Range.from_min_extent(fixed[n], 1) if n in fixed else ir.Range(0, int(extent))
        for n, extent in enumerate(buffer.shape)
    ]
    return tirx.BufferRegion(buffer, ranges)
