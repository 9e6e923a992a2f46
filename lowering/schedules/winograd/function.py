"""A convolution as TensorIR in Winograd's form: the blocks that replace its sum and the padding and epilogue around it.

    for slab: {
        for tile in slab, c: V[xi, tile, c] = (B^T d B)[xi]           (block "winograd_input")
        for columns: {
            for xi, tile, o, c: S[xi, tile, o] += V[xi, tile, c] * U[xi, c, o]; M = S       ("..._product", "..._copy")
            for tile, o: Y = f(A^T M A) } }                           ("winograd_output")

A pooling behind the convolution reduces the elements of a tile in registers, and Y has one for each of its windows.
With a window along the depth, channels c are those of its taps, one tap behind the other.
Tiles are numbered over the batch and the plane; a slab is a number of them. The last slab may have less to do: the
rest of it repeats the last tile. If the number of tiles is dynamic, the last slab ends with the rows of a
register tile that has the last one. Blocks of transforms hold vectors along channels, and select only at the borders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ..base.blocks import FUNCTION
from ..base.extents import expression_of, is_symbolic, number_of
from ..base.nodes import Buffer, Expression, Statement
from ..base.rewriting import make_loop, point, substitute, with_body
from ..base.winograd_filters import TAPS, Filter, transform_tile
from .match import FilteredConvolution, Pooling

INPUT, PRODUCT, COPY, OUTPUT = "winograd_input", "winograd_product", "winograd_copy", "winograd_output"
"""The blocks, by name."""
LEAST_SLAB = 64
"""Tiles of a slab, for any size that is optimised for: larger planes would read the weights too often."""
_TRUE = tirx.const(True, "bool")


@dataclass(frozen=True)
class WinogradTiling:
    """A convolution cut in tiles of a filter's size, these in slabs, and its output channels in columns.

    `lanes` of the vectors along the channels of the input and of the output divide channels and columns; `rows` are
    those of a register tile. Dynamic numbers of rows and tiles are those of the size that is optimised for.
    """

    filter: Filter
    convolution: FilteredConvolution
    slabs: int
    columns: int
    lanes: tuple[int, int]
    rows: int = 1

    @property
    def down(self) -> int:
        """Rows of tiles in a plane."""
        return -(-int(number_of(self.convolution.outputs[1])) // self.filter.size)

    @property
    def across(self) -> int:
        """Tiles in a row."""
        return -(-int(number_of(self.convolution.outputs[2])) // self.filter.size)

    @property
    def tiles(self) -> int:
        """All tiles."""
        return int(number_of(self.convolution.outputs[0])) * self.down * self.across

    @property
    def slab(self) -> int:
        """Tiles of a slab; whole register tiles if the number of slabs is dynamic."""
        slab = -(-self.tiles // self.slabs)
        return -(-max(slab, LEAST_SLAB) // self.rows) * self.rows if self.convolution.is_free else slab

    @property
    def computed(self) -> int:
        """Tiles that are computed of a slab, at the sizes that are optimised for."""
        return min(self.slab, -(-self.tiles // self.rows) * self.rows)

    @property
    def count(self) -> Any:
        """All tiles, as an expression if their number is dynamic."""
        image, rows, columns = (expression_of(extent) for extent in self.convolution.outputs[:3])
        return image * -(-rows // self.filter.size) * -(-columns // self.filter.size)


def rewrite_function(function: tirx.PrimFunc, tiling: WinogradTiling) -> tirx.PrimFunc:
    """The function with the blocks of `tiling` in the place of the convolution's; the weights have another shape."""
    blocks = _WinogradBlocks(function, tiling)
    conv, root = tiling.convolution, function.body.block
    gone = {conv.anchor.name, conv.padding, conv.pooling.block.name if conv.pooling is not None else None}
    body: list[Statement] = []
    for nest in root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]:
        leaf = nest
        while isinstance(leaf, tirx.For):
            leaf = leaf.body
        output = str(leaf.block.writes[0].source.name)
        if output == conv.epilogue.name:
            body += [blocks.input(), blocks.product(), blocks.copy(), blocks.output()]
        elif output not in gone:
            body.append(nest)
    kept = [buffer for buffer in root.alloc_buffers if str(buffer.name) not in gone]
    between = (blocks.inputs, blocks.sums, blocks.products)
    block = with_body(root, tirx.SeqStmt(body), alloc_buffers=[*kept, *between])
    params = [blocks.weights if n == conv.weights else p for n, p in enumerate(function.params)]
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    rewritten = tirx.PrimFunc(params, realized, function.ret_type, function.attrs)
    result: tirx.PrimFunc = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: rewritten}))[FUNCTION]
    return result


@dataclass
class _Statements:
    """A sequence that is being written."""

    statements: list[Statement] = field(default_factory=list)

    def keep(self, value: Any) -> Any:
        """A name for a value, which is computed here."""
        if isinstance(value, tirx.Var | tirx.IntImm):
            return value
        variable = tirx.Var(f"t{len(self.statements)}", str(value.ty.dtype))
        self.statements.append(tirx.Bind(variable, value))
        return variable

    def store(self, values: Sequence[Any]) -> list[Any]:
        """The values as elements of a buffer: TVM writes named ones of dynamic sizes out wherever they are used."""
        buffer = tirx.decl_buffer((len(values),), "int32", "place", scope="local")
        self.statements.append(tirx.AllocBuffer(buffer))
        self.statements += [tirx.BufferStore(buffer, value, [n]) for n, value in enumerate(values)]
        return [tirx.BufferLoad(buffer, [n]) for n in range(len(values))]

    def sequence(self) -> Any:
        """All of them as one statement."""
        return tirx.SeqStmt(self.statements) if len(self.statements) > 1 else self.statements[0]


@dataclass(frozen=True)
class _TilePlace:
    """A tile: its image, and the first row and column of its outputs."""

    image: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class _Leaf:
    """The inside of a block; `reads` and `write` are regions."""

    reads: Sequence[Any]
    write: Any
    body: Statement
    init: Any = None


class _Conditions(NamedTuple):
    """For each row, and for each column of a tile, whether it is inside of the plane."""

    rows: Sequence[Any]
    columns: Sequence[Any]

    def at(self, row: int, column: int) -> Any:
        """Whether an element of the tile is inside."""
        return _all([self.rows[row], self.columns[column]])


class _WinogradBlocks:
    """The blocks for a tiling, and the buffers between them."""

    def __init__(self, function: tirx.PrimFunc, tiling: WinogradTiling) -> None:
        self._tiling, self._conv = tiling, tiling.convolution
        products, slab, columns = tiling.filter.products, tiling.slab, tiling.columns
        self._down, self._across = (-(-expression_of(e) // tiling.filter.size) for e in self._conv.outputs[1:3])
        slabs = -(-tiling.count // slab) if self._conv.is_free else tiling.slabs
        count, channels = self._conv.outputs[3] // columns, self._conv.channels
        name = str(function.params[self._conv.weights].name)
        self._shape = (slabs, count, products, slab, columns)
        places = products + (TAPS**2 if self._conv.may_be_small else 0)  # the weights themselves, for few tiles
        self.weights = tirx.decl_buffer((count * places, channels, columns), "float32", name)
        self.inputs = tirx.decl_buffer((slabs, products, slab, channels), "float32", INPUT)
        self.sums, self.products = (tirx.decl_buffer(self._shape, "float32", name) for name in (PRODUCT, COPY))

    def product(self) -> Any:
        """The products over channels, and their sums."""

        def leaf(slab: Any, column: Any, place: Any, tile: Any, o: Any, c: Any) -> _Leaf:
            target, left = (slab, column, place, tile, o), (slab, place, tile, c)
            right = (column * self._tiling.filter.products + place, c, o)
            product = tirx.BufferLoad(self.inputs, left) * tirx.BufferLoad(self.weights, right)
            store = tirx.BufferStore(self.sums, tirx.BufferLoad(self.sums, target) + product, target)
            reads = [point(self.inputs, left), point(self.weights, right)]
            init = tirx.BufferStore(self.sums, tirx.const(0.0, "float32"), target)
            return _Leaf(reads, point(self.sums, target), store, init)

        return _nest_block(PRODUCT, (*self._shape, self._conv.channels), leaf, reduced=1)

    def copy(self) -> Any:
        """The copy of the sums out of the registers."""

        def leaf(*i: Any) -> _Leaf:
            store = tirx.BufferStore(self.products, tirx.BufferLoad(self.sums, i), i)
            return _Leaf([point(self.sums, i)], point(self.products, i), store)

        return _nest_block(COPY, self._shape, leaf)

    def input(self) -> Any:
        """The transform of the inputs."""
        tiling, conv = self._tiling, self._conv

        def leaf(slab: Any, places: Any, tile: Any, channels: Any) -> _Leaf:
            steps = _Statements()
            place = self._find_place(steps, slab, tile)
            rows = self._input_conditions(1, place.row, conv.source.rows)
            columns = self._input_conditions(2, place.column, conv.source.columns)
            inside = _all([rows[0], rows[-1], columns[0], columns[-1]])
            conditions = _Conditions([steps.keep(c) for c in rows], [steps.keep(c) for c in columns])

            def transform(tap: Any) -> Statement:
                return _select(
                    inside, conditions, conv.source.shape[3], tiling.lanes[0],
                    lambda c, conditions: self._input_vector((slab, tile, c), place, conditions, tap),
                )  # fmt: skip

            steps.statements.append(self._along_depth((slab, tile), place, transform))
            one = [ir.Range.from_min_extent(index, 1) for index in (slab, tile)]
            # all of a dimension, by an iterator of one iteration: the form that TVM's `compute_at` takes
            products, all_channels = (
                ir.Range.from_min_extent(index * extent, extent)
                for index, extent in ((places, tiling.filter.products), (channels, conv.channels))
            )
            write = tirx.BufferRegion(self.inputs, [one[0], products, one[1], all_channels])
            body = self._where_needed(steps.sequence(), slab, tile - tile % tiling.rows)
            return _Leaf([_region(buffer, {}) for buffer in conv.source.buffers], write, body)

        return _nest_block(INPUT, (self._shape[0], 1, tiling.slab, 1), leaf)

    def _along_depth(
        self, where: tuple[Any, Any], place: _TilePlace, transform: Callable[[Any], Statement]
    ) -> Statement:
        """The transforms for each tap of the window along the depth; outside of the map they are zeros."""
        depth, channels = self._conv.depth, self._conv.source.shape[3]
        if depth is None:
            return transform(0)
        tap = tirx.Var("tap", "int32")
        inside = _all([substitute(each, {depth.image: place.image, depth.tap: tap}) for each in depth.inside])
        body = transform(tap)
        if not _is_true(inside):
            slab, tile = where

            def clear(c: Any) -> Statement:
                zero, at = tirx.const(0.0, "float32"), tap * channels + c
                stores = range(self._tiling.filter.products)
                return tirx.SeqStmt([tirx.BufferStore(self.inputs, zero, (slab, n, tile, at)) for n in stores])

            body = tirx.IfThenElse(inside, body, _vectorize(channels, self._tiling.lanes[0], clear))
        return make_loop(tap, depth.count, body)

    def _where_needed(self, body: Statement, slab: Any, tile: Any) -> Statement:
        """The statement, if a slab has that tile: always, unless their number is dynamic."""
        if not self._conv.is_free:
            return body
        return tirx.IfThenElse(tirx.likely(slab * self._tiling.slab + tile < self._tiling.count), body, None)

    def _input_conditions(self, axis: int, start: Any, bounds: Sequence[Any]) -> list[Any]:
        """For each row (axis 1) or column (axis 2) of the inputs of a tile whether it is there."""
        filter, source = self._tiling.filter, self._conv.source
        last, variable = source.shape[axis], source.variables[axis]
        count = -(-number_of(self._conv.outputs[axis]) // filter.size)
        may_reach = is_symbolic(last) or (count - 1) * filter.size + filter.window > last
        own = [variable < expression_of(last)] if may_reach else []
        places = [start + n for n in range(filter.window)]
        return [_all([substitute(bound, {variable: p}) for bound in (*bounds, *own)]) for p in places]

    def _input_vector(
        self, where: tuple[Any, Any, Any], place: _TilePlace, conditions: _Conditions | None, tap: Any
    ) -> Any:
        slab, tile, c = where
        steps, source, depth = _Statements(), self._conv.source, self._conv.depth
        window = range(self._tiling.filter.window)
        taps = {} if depth is None else {depth.tap: tap}
        channel = tap * source.shape[3] + c

        def element(r: int, s: int) -> Any:
            at = {**dict(zip(source.variables, (place.image, place.row + r, place.column + s, c), strict=True)), **taps}
            value = substitute(source.value, at)
            condition = conditions.at(r, s) if conditions else _TRUE
            zero = tirx.const(0.0, "float32")
            return steps.keep(value if _is_true(condition) else tirx.if_then_else(condition, value, zero))

        inputs = [[element(r, s) for s in window] for r in window]
        transformed = transform_tile(inputs, self._tiling.filter.input, steps.keep)
        for number, value in enumerate(value for row in transformed for value in row):
            steps.statements.append(tirx.BufferStore(self.inputs, value, (slab, number, tile, channel)))
        return steps.sequence()

    def output(self) -> Any:
        """The transform of the products, and the epilogue."""
        tiling, conv = self._tiling, self._conv
        size = tiling.filter.size

        def leaf(slab: Any, column: Any, tile: Any) -> _Leaf:
            steps = _Statements()
            place = self._find_place(steps, slab, tile)
            rows, across = (
                [start + n < expression_of(extent) if extent % size else _TRUE for n in range(size)]
                for start, extent in ((place.row, conv.outputs[1]), (place.column, conv.outputs[2]))
            )
            inside = _all([rows[-1], across[-1]])
            conditions = _Conditions([steps.keep(c) for c in rows], [steps.keep(c) for c in across])
            steps.statements.append(
                _select(
                    inside, conditions, tiling.columns, tiling.lanes[1],
                    lambda o, conditions: self._output_vector((slab, column, tile, o), place, conditions),
                )
            )  # fmt: skip
            behind = [conv.epilogue] if conv.pooling is None else [conv.pooling.block, conv.epilogue]
            between = {conv.anchor.name, *(block.name for block in behind)}
            others = [r.buffer for block in behind for r in block.reads if r.name not in between]
            own = _region(self.products, {0: slab, 1: column, 3: tile})
            reads = [own, *(_region(buffer, {}) for buffer in others)]
            body = self._where_needed(steps.sequence(), slab, tile)
            return _Leaf(reads, _region(conv.epilogue.write.buffer, {}), body)

        return _nest_block(OUTPUT, (self._shape[0], self._shape[1], tiling.slab), leaf)

    def _output_vector(
        self, where: tuple[Any, Any, Any, Any], place: _TilePlace, conditions: _Conditions | None
    ) -> Any:
        slab, column, tile, o = where
        steps, window = _Statements(), self._tiling.filter.window

        def product(number: int) -> Any:
            return steps.keep(tirx.BufferLoad(self.products, (slab, column, number, tile, o)))

        products = [[product(r * window + s) for s in range(window)] for r in range(window)]
        transformed = transform_tile(products, self._tiling.filter.output, steps.keep)
        channel = column * self._tiling.columns + o
        pooling = self._conv.pooling
        down, across = (1, 1) if pooling is None else (pooling.rows, pooling.columns)
        for r in range(0, self._tiling.filter.size, down):
            for s in range(0, self._tiling.filter.size, across):
                at = (place.image, (place.row + r) // down, (place.column + s) // across, channel)
                sums = [row[s : s + across] for row in transformed[r : r + down]]
                value = sums[0][0] if pooling is None else self._pool(steps, pooling, sums, at)
                store = self._store(value, at)
                condition = conditions.at(r, s) if conditions else _TRUE
                steps.statements.append(store if _is_true(condition) else tirx.IfThenElse(condition, store, None))
        return steps.sequence()

    def _pool(self, steps: _Statements, pooling: Pooling, sums: Sequence[Sequence[Any]], at: tuple[Any, ...]) -> Any:
        """The window of these sums, whose place in the result is given."""
        pooled = pooling.start
        for i, row in enumerate(sums):
            for j, value in enumerate(row):
                loads = {self._conv.anchor.name: value, pooling.block.name: pooled}
                taps = [(tap, n) for tap, n in zip(pooling.taps, (i, j), strict=True) if tap is not None]
                places = dict(zip(pooling.variables, at, strict=True)) | {t: tirx.const(n, "int32") for t, n in taps}
                pooled = steps.keep(substitute(_replace_loads(pooling.block.value, loads), places))
        return pooled

    def _store(self, value: Any, place: tuple[Any, ...]) -> Any:
        """The last block for one element of its operand: of the sum, or of the pooled sum."""
        conv = self._conv
        read = conv.anchor if conv.pooling is None else conv.pooling.block
        body = _replace_loads(conv.epilogue.value, {read.name: value})
        at = dict(zip((*conv.variables, *conv.single), conv.place_of(*place), strict=True))
        indices = [substitute(index, at) for index in conv.epilogue.write.indices]
        return tirx.BufferStore(conv.epilogue.write.buffer, substitute(body, at), indices)

    def _find_place(self, steps: _Statements, slab: Any, tile: Any) -> _TilePlace:
        """The place of a tile; those after the last are the last."""
        tiling, is_batch = self._tiling, self._conv.outputs[0] > 1
        number = slab * tiling.slab + tile
        if self._conv.is_free or tiling.slabs * tiling.slab > tiling.tiles:
            number = tirx.min(number, tiling.count - 1)
        if self._conv.is_free:  # each is stored, or TVM would write the quotients of dynamic sizes out in all others
            number, down, across = steps.store((number, self._down, self._across))
            row, column = steps.store((number // across, number % across))
        else:
            number, down, across = steps.keep(number), self._down, self._across
            row, column = number // across, number % across
        image = row // down if is_batch else tirx.const(0, "int32")
        within = row % down if is_batch else row
        size = tiling.filter.size
        place = (image, within * size, column * size)
        return _TilePlace(*(steps.store(place) if self._conv.is_free else map(steps.keep, place)))


def _replace_loads(value: Any, values: Mapping[str, Any]) -> Any:
    """The expression with values in the place of loads, by the names of the buffers."""

    def replace_load(part: Any) -> Any:
        return values.get(str(part.source.name), part)

    return tvm_ffi.structural_map(value, [(ir.TensorLoad, replace_load)])


def _is_true(condition: Expression) -> bool:
    return isinstance(condition, tirx.IntImm) and bool(condition.value)


def _all(conditions: Sequence[Expression]) -> Expression:
    uncertain = [condition for condition in conditions if not _is_true(condition)]
    return reduce(tirx.And, uncertain) if uncertain else _TRUE


def _select(
    inside: Any, conditions: _Conditions, extent: int, lanes: int, vector: Callable[[Any, _Conditions | None], Any]
) -> Any:
    """Vectors along `extent` channels, without the conditions on rows and columns if all of the tile is `inside`."""

    def loops(selected: _Conditions | None) -> Any:
        return _vectorize(extent, lanes, lambda c: vector(c, selected))

    return loops(None) if _is_true(inside) else tirx.IfThenElse(inside, loops(None), loops(conditions))


def _vectorize(extent: int, lanes: int, vector: Callable[[Any], Any]) -> Any:
    """Vectors along `extent` channels."""
    chunk, lane = tirx.Var("chunk", "int32"), tirx.Var("lane", "int32")
    inner = make_loop(lane, lanes, vector(chunk * lanes + lane), tirx.ForKind.VECTORIZED)
    return make_loop(chunk, extent // lanes, inner)


def _nest_block(name: str, extents: Sequence[Any], leaf: Callable[..., _Leaf], reduced: int = 0) -> Any:
    """A block in loops of its own, over as many iterators, of which the last are `reduced`."""
    loops = [tirx.Var(f"ax{n}", "int32") for n in range(len(extents))]
    variables = [tirx.Var(f"v{n}", "int32") for n in range(len(extents))]
    kinds = [tirx.IterVar.DataPar] * (len(extents) - reduced) + [tirx.IterVar.CommReduce] * reduced
    iterators = [
        tirx.IterVar(ir.Range(0, extent), variable, kind)
        for extent, variable, kind in zip(extents, variables, kinds, strict=True)
    ]
    inside = leaf(*variables)
    block = s_stmt.SBlock(iterators, inside.reads, [inside.write], name, inside.body, inside.init)
    node: Statement = s_stmt.SBlockRealize(loops, True, block)
    for loop, extent in zip(reversed(loops), reversed(list(extents)), strict=True):
        node = make_loop(loop, extent, node)
    return node


def _region(buffer: Buffer, fixed: Mapping[int, Any]) -> Any:
    """All of a buffer but for the dimensions that are fixed."""
    ranges = [
        ir.Range.from_min_extent(fixed[n], 1) if n in fixed else ir.Range(0, extent)
        for n, extent in enumerate(buffer.shape)
    ]
    return tirx.BufferRegion(buffer, ranges)
