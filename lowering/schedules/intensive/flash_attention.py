"""Attention of many keys, block by block (FlashAttention: Dao et al., NeurIPS 2022, section 3.1).

    P = softmax(S); Y = P V
 => for block b of keys: { M[b] = max S[b]; E[b] = exp(S[b] - M[b]); L[b] = sum E[b]; O[b] = E[b] V[b] }
    M = max M[b]; W[b] = exp(M[b] - M); Y = (sum W[b] O[b]) / (sum W[b] L[b])

A tile of rows keeps the scores of one block of keys at a time, which stay in a near cache beside the keys and values
of that block. FlashAttention rescales its sums whenever a maximum grows. Here blocks are put together at the end of a
tile: the operation is the same, and associative (Milakov and Gimelshein, 2018, section 3.1), but nothing is carried
from block to block, so their loops are scheduled like others.

A row whose scores are all -infinity has no maximum to take off, and its result is NaN, as without blocks. In a block
of keys where that is so the least float is taken off, and the block weighs 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from ...compute.elementary import exp_below_88
from ..base.blocks import FUNCTION, BlockInfo, parameter_index, uses, walk
from ..base.draft import Draft
from ..base.extents import is_symbolic
from ..base.nodes import Buffer, Expression, Statement, Variable
from ..base.rewriting import conjuncts, make_loop, point, rebuild, substitute, with_body
from .block_chain import BlockChain

_LEAST = -3.4028234663852886e38
"""The least number of float32."""
_SPATIAL, _REDUCED = tirx.IterVar.DataPar, tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Attention:
    """A chain of two products with a softmax between them, block by block; `key` is the dimension of keys in scores."""

    chain: BlockChain
    key: int
    scores: BlockInfo
    shifted: BlockInfo
    highest: BlockInfo
    powers: BlockInfo
    sums: BlockInfo
    factor: BlockInfo
    weights: BlockInfo
    mixed: BlockInfo
    output: BlockInfo

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.shifted.extents[self.key]

    def key_iterator(self, block: BlockInfo) -> int:
        """The iterator along the keys of the product with values, or of a block that makes scores."""
        if block is self.mixed:
            return next(iter(block.reduced))
        index = block.write.indices[self.key]
        return next(n for n, variable in enumerate(block.variables) if variable.same_as(index))

    def axes(self, block: BlockInfo) -> tuple[int, ...]:
        """Its iterators along the axes of the chain, the last of which are the rows."""
        return next(each.axes for each in self.chain.blocks if each.info is block)


def find_attention(chain: BlockChain) -> Attention | None:
    """The chain as attention; None if it is another, not in float32, or if a size is dynamic."""
    infos = [block.info for block in chain.blocks]
    if len(infos) != 9 or any(is_symbolic(extent) for info in infos for extent in info.extents):
        return None
    if any(str(info.write.buffer.dtype) != "float32" for info in infos):
        return None
    scores, shifted, highest, powers, sums, factor, weights, mixed, _ = infos
    key = _find_key(highest, shifted)
    if key is None or not all(map(_is_plain, (shifted, powers, weights))):
        return None
    rows = [place for place in range(len(shifted.extents)) if place != key]
    product = _load(powers, weights.variables) * _load(factor, [weights.variables[place] for place in rows])
    exponent = _load(shifted, powers.variables) - _load(highest, [powers.variables[place] for place in rows])
    *of_row, last = sums.variables
    total = _load(sums, of_row) + _load(powers, [*of_row[:key], last, *of_row[key:]])
    expected = ((powers, exp_below_88(exponent)), (weights, product), (sums, total))
    if not all(structural_equal(block.value, value) for block, value in expected):
        return None
    read = next((read for read in mixed.reads if read.name == weights.name), None)
    plain = [*(read.indices if read is not None else [None]), *mixed.write.indices, *scores.write.indices]
    if not all(isinstance(index, tirx.Var) for index in plain) or [r.name for r in factor.reads] != [sums.name]:
        return None
    if not _is_plain(factor) or len(mixed.reduced) != 1 or not (scores.is_product_sum() and mixed.is_product_sum()):
        return None
    return Attention(chain, key, *infos)


def _find_key(highest: BlockInfo, shifted: BlockInfo) -> int | None:
    """The dimension of `shifted` of which the block takes the maximum, if it is such a block."""
    if not isinstance(highest.value, tirx.Max) or [read.name for read in highest.reads] != [shifted.name]:
        return None
    *of_row, last = highest.variables
    rank = len(shifted.extents)
    for key in range(rank):
        expected = tirx.max(_load(highest, of_row), _load(shifted, [*of_row[:key], last, *of_row[key:]]))
        if len(of_row) == rank - 1 and structural_equal(highest.value, expected):
            return key
    return None


def _is_plain(block: BlockInfo) -> bool:
    """Whether it writes at its iterators, in order."""
    indices, variables = block.write.indices, block.variables
    return len(indices) == len(variables) and all(i.same_as(v) for i, v in zip(indices, variables, strict=True))


def _load(block: BlockInfo, indices: Sequence[Expression]) -> Any:
    return tirx.BufferLoad(block.write.buffer, list(indices))


@dataclass(frozen=True)
class KeyBlocks:
    """Attention by blocks of `size` keys and tiles of `rows`.

    The last block begins where as many keys are left, and leaves out those that the one before has. The last tile of
    rows may be guarded.

    Maxima and sums over a block come by way of partial ones: as many as `widths` say, each of which divides the one
    before, and the first of which divides the size. If keys are `packed`, those of a block are copied so that so many
    of them, which divide the size, lie side by side.
    """

    attention: Attention
    size: int
    rows: int
    widths: tuple[int, ...]
    packed: int | None = None

    @property
    def count(self) -> int:
        """Blocks of keys."""
        return -(-self.attention.keys // self.size)

    def first(self, number: Expression) -> Any:
        """The first key of a block."""
        begin = number * self.size
        return tirx.min(begin, self.attention.keys - self.size) if self.attention.keys % self.size else begin

    @property
    def tiles(self) -> int:
        """Tiles of rows in a set of them."""
        return -(-self.attention.chain.rows // self.rows)


@dataclass(frozen=True)
class _Leaf:
    """A block, its iterators along the chain's axes (the last those of rows), if any, and that over blocks of keys."""

    block: Statement
    axes: tuple[int | None, ...]
    number: int | None = None

    @property
    def axes_by_keys(self) -> tuple[int, ...]:
        """The iterators with that over blocks of keys in front of that over rows, as of axes of a chain."""
        *sets, row = [axis for axis in (*self.axes[:-1], self.number, self.axes[-1]) if axis is not None]
        return (*sets, row)

    @property
    def buffer(self) -> Buffer:
        """What it writes."""
        return self.block.writes[0].source

    @property
    def name(self) -> str:
        """The name of what it writes, which is unique in a function."""
        return str(self.buffer.name)


@dataclass(frozen=True)
class FlashFunction:
    """Attention by blocks of keys, its blocks by the names of the buffers that they write.

    Loops over sets of rows, tiles of rows and blocks of keys are around the `products`: each product and what follows
    it, with iterators along these three and the rows (the last; the one before is that of blocks of keys). `by_row` are
    in the loops over blocks of keys and over rows, and `together`, with the sum `total` of products, in those over
    tiles and over rows. The loops of a block's own have one step over what the loops around fix.
    """

    function: tirx.PrimFunc
    products: tuple[tuple[str, tuple[int, ...]], ...]
    by_row: tuple[str, ...]
    together: tuple[str, ...]
    total: str
    packed: str | None


def rewrite_by_keys(draft: Draft, by: KeyBlocks) -> FlashFunction:
    """The function with blocks of keys in the place of the chain's blocks."""
    attention, blocks = by.attention, _FlashBlocks(draft, by)
    scores, shifted, powers, product = map(
        blocks.narrow, (attention.scores, attention.shifted, attention.powers, attention.mixed)
    )
    copy, total = blocks.copy(), blocks.sum()
    by_row = [
        *blocks.partials_of(attention.highest), blocks.whole_of(attention.highest), powers,
        *blocks.partials_of(attention.sums), blocks.whole_of(attention.sums),
    ]  # fmt: skip
    together = [
        blocks.top(), blocks.shares(), blocks.total(), blocks.as_it_is(attention.factor), blocks.factors(), total,
        blocks.as_it_is(attention.output),
    ]  # fmt: skip
    products, packed = (scores, shifted, product, copy), [blocks.pack()] if by.packed else []
    tile = _Nest(by).around((*packed, scores, shifted), by_row, (product, copy), together)
    return FlashFunction(
        _with_tile(draft, attention.chain, tile, [*packed, *products, *by_row, *together]),
        tuple((leaf.name, leaf.axes_by_keys) for leaf in products),
        tuple(leaf.name for leaf in by_row), tuple(leaf.name for leaf in together), total.name,
        packed[0].name if packed else None,
    )  # fmt: skip


def _with_tile(draft: Draft, chain: BlockChain, tile: Statement, leaves: Sequence[_Leaf]) -> tirx.PrimFunc:
    """The function with the loops over tiles in the place of the chain's blocks, which the others stand in front of."""
    function, root = draft.function, draft.function.body.block
    gone = {block.name for block in chain.blocks}
    nests = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    others = [nest for nest in nests if _written(nest) not in gone]
    kept = [buffer for buffer in root.alloc_buffers if str(buffer.name) not in gone]
    own = [leaf.buffer for leaf in leaves if parameter_index(function, leaf.buffer) is None]
    body = tirx.SeqStmt([*others, tile]) if others else tile
    block = with_body(root, body, alloc_buffers=[*kept, *own])
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, block)
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: function.with_body(realized)}))
    result: tirx.PrimFunc = module[FUNCTION]
    return result


def _written(nest: Statement) -> str:
    """The name of the buffer that the only block in some loops writes."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return str(nest.block.writes[0].source.name)


class _FlashBlocks:
    """The blocks, and the buffers between them."""

    def __init__(self, draft: Draft, by: KeyBlocks) -> None:
        self._draft, self._by, self._attention = draft, by, by.attention
        attention = by.attention
        row_shape = [int(extent) for extent in attention.highest.write.buffer.shape]
        score_shape = list(attention.shifted.extents)
        score_shape[attention.key] = by.size
        mixed_shape = [int(extent) for extent in attention.mixed.write.buffer.shape]
        reductions = (attention.highest, attention.sums)
        self._row_rank = len(row_shape)
        self._scores = {
            info.name: _buffer(f"{info.name}_keys", (by.count, *score_shape))
            for info in (attention.scores, attention.shifted, attention.powers)
        }
        self._partial = {
            info.name: [_buffer(f"{info.name}_{width}", (by.count, *row_shape, width)) for width in by.widths]
            for info in reductions
        }
        self._whole = {info.name: _buffer(f"{info.name}_keys", (*row_shape, by.count)) for info in reductions}
        self._mixed, self._kept = (
            _buffer(f"{attention.mixed.name}_{name}", (by.count, *mixed_shape)) for name in ("keys", "kept")
        )
        self._share, self._factor = (
            _buffer(f"{attention.factor.name}_{name}", (*row_shape, by.count)) for name in ("share", "keys")
        )
        scores = attention.scores
        along = attention.key_iterator(scores)
        self._operand = next(read for read in scores.reads if along in read.used)
        self._sets = [i for i in attention.axes(scores)[:-1] if i in self._operand.used]
        columns = by.packed or by.size
        depths = [scores.extents[i] for i in sorted(scores.reduced)]
        sets = [scores.extents[i] for i in self._sets]
        self._packed = _buffer(f"{scores.name}_packed", (by.count, *sets, by.size // columns, *depths, columns))

    # --- those of a block of keys

    def pack(self) -> _Leaf:
        """The copy of the keys of a block, tile by tile."""
        scores, columns = self._attention.scores, self._by.packed
        variables = [tirx.Var(f"v{n}", "int32") for n in range(len(self._packed.shape))]
        number, *inside, lane = variables
        sets, tile, depth = inside[: len(self._sets)], inside[len(self._sets)], inside[len(self._sets) + 1 :]
        iterators = dict(zip([*self._sets, *sorted(scores.reduced)], [*sets, *depth], strict=True))
        values = {scores.variables[i]: variable for i, variable in iterators.items()}
        key = scores.variables[self._attention.key_iterator(scores)]
        values[key] = self._by.first(number) + tile * columns + lane
        load = tirx.BufferLoad(self._operand.buffer, [substitute(index, values) for index in self._operand.indices])
        own = [_iterator(v, e, _SPATIAL) for v, e in zip(variables, self._packed.shape, strict=True)]
        block = _block(self._packed, own, tirx.BufferStore(self._packed, load, variables))
        axes = [1 + self._sets.index(i) if i in self._sets else None for i in self._attention.axes(scores)[:-1]]
        return _Leaf(block, (*axes, None), 0)

    def narrow(self, info: BlockInfo) -> _Leaf:
        """A block for some of the keys: with an iterator over blocks of keys in front of its own."""
        along = self._attention.key_iterator(info)
        target = self._mixed if info is self._attention.mixed else self._scores[info.name]
        statement = self._draft.schedule.get(info.block)
        number = tirx.Var("keys", "int32")
        fresh = [tirx.Var(str(v.name), "int32") for v in info.variables]
        within = dict(zip(info.variables, fresh, strict=True))
        place = self._by.first(number) + fresh[along]
        of_all = within | {info.variables[along]: place}
        iterators = [
            _iterator(number, self._by.count, _SPATIAL),
            *(
                _iterator(v, self._by.size if n == along else info.extents[n], iterator.iter_type)
                for n, (v, iterator) in enumerate(zip(fresh, statement.iter_vars, strict=True))
            ),
        ]

        def replace_load(load: Any) -> Any:
            name, indices = str(load.source.name), [substitute(index, within) for index in load.indices]
            if name == info.name:
                return tirx.BufferLoad(target, [number, *indices])
            if self._by.packed and info is self._attention.scores and name == self._operand.name:
                key = fresh[along]
                tile = [*(within[info.variables[i]] for i in self._sets), key // self._by.packed]
                inside = [*(within[info.variables[i]] for i in sorted(info.reduced)), key % self._by.packed]
                return tirx.BufferLoad(self._packed, [number, *tile, *inside])
            if name == self._attention.weights.name:
                name = self._attention.powers.name
            if name == self._attention.highest.name:
                of_keys = tirx.BufferLoad(self._whole[name], [*indices, number])
                return tirx.max(of_keys, tirx.const(_LEAST, "float32"))
            return tirx.BufferLoad(self._scores[name], [number, *indices]) if name in self._scores else load

        value = substitute(tvm_ffi.structural_map(statement.body.value, [(ir.TensorLoad, replace_load)]), of_all)
        if info is self._attention.shifted and self._attention.keys % self._by.size:
            is_new = place >= number * self._by.size
            value = tirx.Select(is_new, value, tirx.const(float("-inf"), "float32"))
        store = tirx.BufferStore(target, value, [number, *(substitute(i, within) for i in statement.body.indices)])
        block = _block(target, iterators, store, None if statement.init is None else statement.init.value)
        return _Leaf(block, tuple(1 + axis for axis in self._attention.axes(info)), 0)

    def copy(self) -> _Leaf:
        """The copy of the products with values out of the registers."""
        mixed = self._attention.mixed
        variables = [tirx.Var(f"v{n}", "int32") for n in range(len(self._mixed.shape))]
        iterators = [_iterator(v, e, _SPATIAL) for v, e in zip(variables, self._mixed.shape, strict=True)]
        block = _block(self._kept, iterators, tirx.BufferStore(self._kept, self._mixed[tuple(variables)], variables))
        axes = (1 + mixed.write.dimension_of(axis) for axis in self._attention.axes(mixed))
        return _Leaf(block, tuple(axes), 0)

    def partials_of(self, info: BlockInfo) -> Iterator[_Leaf]:
        """The maxima or sums over every so many of the keys of a block, and over every so many of these."""
        attention = self._attention
        is_highest = info is attention.highest
        source = self._scores[(attention.shifted if is_highest else attention.powers).name]
        count, key = self._by.size, 1 + attention.key
        for width, target in zip(self._by.widths, self._partial[info.name], strict=True):
            number, *row, step, lane = (tirx.Var(f"v{n}", "int32") for n in range(self._row_rank + 3))
            place = [number, *row]
            place.insert(key, step * width + lane)
            extents = [self._by.count, *target.shape[1:-1], count // width, width]
            kinds = [*([_SPATIAL] * (1 + len(row))), _REDUCED, _SPATIAL]
            iterators = list(map(_iterator, (number, *row, step, lane), extents, kinds))
            yield self._reduction(info, target, (number, *row, lane), source[tuple(place)], iterators, 1, 0)
            source, count, key = target, width, 1 + self._row_rank

    def whole_of(self, info: BlockInfo) -> _Leaf:
        """The maximum or the sum over a block of keys."""
        source, target = self._partial[info.name][-1], self._whole[info.name]
        number, *row, lane = (tirx.Var(f"v{n}", "int32") for n in range(self._row_rank + 2))
        extents = [self._by.count, *source.shape[1:]]
        kinds = [*([_SPATIAL] * (1 + len(row))), _REDUCED]
        iterators = list(map(_iterator, (number, *row, lane), extents, kinds))
        return self._reduction(info, target, (*row, number), source[(number, *row, lane)], iterators, 1, 0)

    # --- those that put the blocks of keys together

    def _row_leaf(self, target: Buffer, value: Any, row: Sequence[Variable], number: Variable) -> _Leaf:
        """A block with a number for each row and block of keys."""
        iterators = [_iterator(v, e, _SPATIAL) for v, e in zip((*row, number), target.shape, strict=True)]
        block = _block(target, iterators, tirx.BufferStore(target, value, [*row, number]))
        return _Leaf(block, self._attention.axes(self._attention.highest))

    def _row_variables(self) -> tuple[list[Variable], Variable]:
        *row, number = (tirx.Var(f"v{n}", "int32") for n in range(self._row_rank + 1))
        return row, number

    def top(self) -> _Leaf:
        """The largest score of a row."""
        highest = self._attention.highest
        row, number = self._row_variables()
        return self._over_blocks(highest, self._whole[highest.name][(*row, number)], row, number)

    def shares(self) -> _Leaf:
        """What a block of keys weighs in a row."""
        highest = self._attention.highest
        row, number = self._row_variables()
        exponent = self._whole[highest.name][(*row, number)] - _load(highest, row)
        return self._row_leaf(self._share, exp_below_88(exponent), row, number)

    def total(self) -> _Leaf:
        """The sum of a row's powers over all blocks of keys."""
        sums = self._attention.sums
        row, number = self._row_variables()
        of_keys = self._whole[sums.name][(*row, number)]
        return self._over_blocks(sums, self._share[(*row, number)] * of_keys, row, number)

    def factors(self) -> _Leaf:
        """What the products of a block of keys are multiplied by."""
        row, number = self._row_variables()
        value = self._share[(*row, number)] * _load(self._attention.factor, row)
        return self._row_leaf(self._factor, value, row, number)

    def _over_blocks(self, info: BlockInfo, value: Any, row: Sequence[Variable], number: Variable) -> _Leaf:
        """The maximum or the sum over blocks of keys, in the buffer of the whole one."""
        target = info.write.buffer
        extents, kinds = [*target.shape, self._by.count], [*([_SPATIAL] * len(row)), _REDUCED]
        iterators = list(map(_iterator, (*row, number), extents, kinds))
        return self._reduction(info, target, row, value, iterators, 0, None)

    def sum(self) -> _Leaf:
        """The sum of the products with values over blocks of keys, each with its factor."""
        attention, mixed = self._attention, self._attention.mixed
        read = next(read for read in mixed.reads if read.name == attention.weights.name)
        fresh = {v: tirx.Var(str(v.name), "int32") for i, v in enumerate(mixed.variables) if i in mixed.spatial}
        number = tirx.Var("keys", "int32")
        place = [fresh[index] for index in mixed.write.indices]
        row = [fresh[index] for dimension, index in enumerate(read.indices) if dimension != attention.key]
        value = self._kept[(number, *place)] * self._factor[(*row, number)]
        extents = [mixed.extents[i] for i in mixed.spatial]
        iterators = [
            *(_iterator(v, e, _SPATIAL) for v, e in zip(fresh.values(), extents, strict=True)),
            _iterator(number, self._by.count, _REDUCED),
        ]
        target = mixed.write.buffer
        store = tirx.BufferStore(target, target[tuple(place)] + value, place)
        axes = tuple(mixed.spatial.index(axis) for axis in attention.axes(mixed))
        return _Leaf(_block(target, iterators, store, tirx.const(0.0, "float32")), axes)

    def as_it_is(self, info: BlockInfo) -> _Leaf:
        """A block that keys do not concern."""
        return _Leaf(self._draft.schedule.get(info.block), self._attention.axes(info))

    def _reduction(
        self, info: BlockInfo, target: Buffer, place: Sequence[Any], value: Any, iterators: list[Any], behind: int,
        number: int | None,
    ) -> _Leaf:
        """A maximum or a sum, as `info` is; iterators of rows stand behind so many others."""
        before = target[tuple(place)]
        is_highest = info is self._attention.highest
        store = tirx.BufferStore(target, tirx.max(before, value) if is_highest else before + value, list(place))
        initial = self._draft.schedule.get(info.block).init.value
        axes = tuple(behind + axis for axis in self._attention.axes(info))
        return _Leaf(_block(target, iterators, store, initial), axes, number)


def _buffer(name: str, shape: Sequence[int]) -> Buffer:
    return tirx.decl_buffer(tuple(shape), "float32", name)


def _iterator(variable: Variable, extent: Any, kind: int) -> Any:
    return tirx.IterVar(ir.Range(0, extent), variable, kind)


def _block(target: Buffer, iterators: Sequence[Any], store: Any, initial: Any = None) -> Statement:
    loads = [part for part in walk(store.value) if isinstance(part, ir.TensorLoad)]
    reads = [point(load.source, load.indices) for load in loads if not load.source.same_as(target)]
    init = None if initial is None else tirx.BufferStore(target, initial, store.indices)
    return s_stmt.SBlock(iterators, reads, [point(target, store.indices)], str(target.name), store, init)


class _Nest:
    """Loops around the blocks: over the sets of rows, tiles of rows, and blocks of keys."""

    def __init__(self, by: KeyBlocks) -> None:
        chain = by.attention.chain
        self._by = by
        self._copies = [tirx.Var(f"set{n}", "int32") for n in range(len(chain.last.axes) - 1)]
        self._extents = [chain.last.info.extents[axis] for axis in chain.last.axes[:-1]]
        self._tile, self._number = tirx.Var("tile", "int32"), tirx.Var("keys", "int32")

    def around(
        self, first: Sequence[_Leaf], by_row: Sequence[_Leaf], last: Sequence[_Leaf], together: Sequence[_Leaf]
    ) -> Statement:
        """The tiles of all rows: the sequences of the blocks, of which the second and the last run row by row."""
        product, copy = last
        of_keys = tirx.SeqStmt(
            [*map(self._leaf, first), self._rows(by_row), self._leaf(product), self._leaf(copy, is_kept=True)]
        )
        tile = tirx.SeqStmt([make_loop(self._number, self._by.count, of_keys), self._rows(together)])
        body = make_loop(self._tile, self._by.tiles, tile)
        for variable, extent in zip(reversed(self._copies), reversed(self._extents), strict=True):
            body = make_loop(variable, extent, body)
        return body

    def _rows(self, leaves: Sequence[_Leaf]) -> Statement:
        row = tirx.Var("row", "int32")
        return make_loop(row, self._by.rows, tirx.SeqStmt([self._leaf(leaf, row) for leaf in leaves]))

    def _leaf(self, leaf: _Leaf, row: Variable | None = None, *, is_kept: bool = False) -> Statement:
        """A block in loops of its own, one for each iterator: those over what the loops around it fix have one step.

        Of the last block, which the loops around are for, there are none such, and that over rows is the first.
        """
        first = self._tile * self._by.rows
        places = (*self._copies, first if row is None else first + row)
        outer: dict[int, Any] = {axis: p for axis, p in zip(leaf.axes, places, strict=True) if axis is not None}
        if leaf.number is not None:
            outer[leaf.number] = self._number
        loops, values = [], []
        for place, iterator in enumerate(leaf.block.iter_vars):
            loop = tirx.Var(f"i{place}", "int32")
            is_fixed = place in outer and not (place == leaf.axes[-1] and row is None)
            extent = 1 if is_fixed else self._by.rows if place in outer else iterator.dom.extent
            if is_fixed and is_kept:
                values.append(outer[place])
                continue
            loops.append((place, loop, extent))
            values.append(outer[place] + loop if place in outer else loop)
        if is_kept:
            loops.sort(key=lambda each: each[0] != leaf.axes[-1])
        node: Statement = s_stmt.SBlockRealize(values, True, leaf.block)
        for _, loop, extent in reversed(loops):
            node = make_loop(loop, extent, node)
        return node


def guard_rows(draft: Draft, by: KeyBlocks, tile: Variable) -> Draft:
    """The draft with guards around what is behind the last row, too: then the passes move the last tile back.

    `tile` is the variable of the loop over tiles, or of the one that it was fused to. TVM could not schedule the blocks
    with these guards around them.
    """

    def guard(node: Statement) -> Statement:
        rebuilt = rebuild(node, guard)
        if isinstance(rebuilt, s_stmt.SBlockRealize):
            row = next((value for value in rebuilt.iter_values if _begins_at_tile(value, tile, by.rows)), None)
            if row is not None:
                inside = tirx.all(row < by.attention.chain.rows, *conjuncts(rebuilt.predicate))
                return s_stmt.SBlockRealize(rebuilt.iter_values, inside, rebuilt.block)
        return rebuilt

    return draft.with_body(guard(draft.function.body))


def _begins_at_tile(value: Expression, tile: Variable, rows: int) -> bool:
    """Whether a value has the first row of a tile as a term."""
    products = (part for part in walk(value) if isinstance(part, tirx.Mul) and isinstance(part.b, tirx.IntImm))
    return any(int(part.b) == rows and uses(part.a, [tile]) for part in products)
