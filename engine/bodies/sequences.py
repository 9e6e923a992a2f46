"""Sequences of tensors as tensors: ``FlatModel -> bool``.

    s = []; for i: s.append(t); y = stack(s)  =>  for i: yield t -> y
    SequenceAt(SplitToSequence(x), i)         =>  Gather(x, i)
    ConcatFromSequence(SequenceConstruct(a, b))  =>  Concat(a, b)

Exporters write lists of tensors like this. A sequence whose elements are known, or are places along an axis of a
tensor, is not needed; others stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ..onnx.model import Model
from ..onnx.nodes import is_standard
from ..shapes.inference import Knowledge
from .flatten import FlatModel, Region, drop_unused, make_region, region_of, replace_outputs
from .insertion import Insertion
from .loops import origin


@dataclass(frozen=True)
class Elements:
    """The elements of a sequence: `listed` ones, and then the places along an `axis` of `rows`, which have `rank` axes,
    that one included if it is kept."""

    listed: tuple[ir.Value, ...] = ()
    rows: ir.Value | None = None
    axis: int = 0
    rank: int = 0
    is_kept: bool = False


def replace_sequences(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Replace sequences by tensors if that is possible. Returns whether there were any.

    Changes the flat model, of which `knowledge` has the types.
    """
    rewriting = _Rewriting(flat, knowledge, {})
    changes = [rewriting.visit(node) for node in list(flat.graph)]
    if any(changes):
        drop_unused(flat)
        flat.model = Model(flat.model.ir, flat.model.path, lowest=flat.model.lowest)  # it stores other constants
    return any(changes)


@dataclass
class _Rewriting:
    flat: FlatModel
    knowledge: Knowledge
    elements: dict[str, Elements]

    def visit(self, node: ir.Node) -> bool:
        """Note the elements of a sequence that a node makes, or replace a node that reads one; returns whether it
        did."""
        region = region_of(node, self.flat.regions)
        if region is not None:
            places = range(region.first_state, region.first_state + region.states)
            for place in reversed(places):  # so that the places of those before stay
                if (smaller := self._collect(node, region, place)) is not None:
                    return self.visit(smaller) or True
            return False
        if not is_standard(node):
            return False
        made = self._make(node)
        if made is not None:
            self.elements[node.outputs[0].name or ""] = made
            return False
        result = self._read(node)
        if result is None:
            return False
        insertion = Insertion(self.flat, node)
        (output,) = replace_outputs(node)
        insertion.replace(output, result)
        self.flat.graph.remove(node)
        return True

    def of(self, value: ir.Value | None) -> Elements | None:
        """The elements of a sequence; None if they are not known."""
        return None if value is None else self.elements.get(value.name or "")

    def shape(self, value: ir.Value | None) -> tuple[int | str, ...] | None:
        type_ = None if value is None else self.knowledge.types.get(value.name or "")
        return None if type_ is None else type_.shape

    def constant(self, node: ir.Node, place: int) -> np.ndarray[tuple[int, ...], np.dtype[np.integer]] | None:
        """The whole numbers that a node reads as an operand, if they are known; an invalid model may have others."""
        value = node.inputs[place] if len(node.inputs) > place else None
        found = None if value is None else self.knowledge.constants.get(value.name or "")
        return found if found is not None and found.dtype.kind in "iu" else None

    # --- nodes that make sequences

    def _make(self, node: ir.Node) -> Elements | None:
        """The elements of the sequence that a node returns."""
        if node.op_type == "SequenceEmpty":
            return Elements()
        given = [value for value in node.inputs if value is not None]
        if node.op_type == "SequenceConstruct":
            return Elements(tuple(given))
        if node.op_type == "SplitToSequence":
            return self._split(node)
        before = self.of(node.inputs[0]) if node.inputs else None
        if before is None or before.rows is not None:
            return before if node.op_type == "Identity" else None
        listed, position = before.listed, self.constant(node, len(node.inputs) - 1)
        is_at_end = len(given) < (3 if node.op_type == "SequenceInsert" else 2)
        if node.op_type == "Identity":
            return before
        if node.op_type not in ("SequenceInsert", "SequenceErase") or (position is None and not is_at_end):
            return None
        place = None if position is None or is_at_end else int(position.item())
        if node.op_type == "SequenceErase":
            kept = list(range(len(listed)))
            del kept[-1 if place is None else place]
            return Elements(tuple(listed[each] for each in kept))
        at = len(listed) if place is None else place % (len(listed) + 1) if place >= 0 else place + len(listed)
        return Elements((*listed[:at], given[1], *listed[at:]))

    def _split(self, node: ir.Node) -> Elements | None:
        """The parts of a tensor: of one place each, or of sizes that are known."""
        source, shape = node.inputs[0], self.shape(node.inputs[0])
        if source is None or shape is None or not shape:
            return None
        axis = node.attributes.get_int("axis", 0) % len(shape)
        if len(node.inputs) < 2 or node.inputs[1] is None:
            is_kept = node.attributes.get_int("keepdims", 1) == 1
            return Elements((), source, axis, len(shape) if is_kept else len(shape) - 1, is_kept)
        sizes, extent = self.constant(node, 1), shape[axis]
        if sizes is None:
            return None
        if sizes.shape == () and int(sizes) == 1:
            return Elements((), source, axis, len(shape), is_kept=True)
        if sizes.shape == ():
            if not isinstance(extent, int) or int(sizes) < 1:
                return None
            parts = [min(int(sizes), extent - first) for first in range(0, extent, int(sizes))]
        else:
            parts = [int(size) for size in sizes.reshape(-1)]
        insertion = Insertion(self.flat, node)
        return Elements(tuple(insertion.add_all("Split", [source], len(parts), split=parts, axis=axis)))

    def _collect(self, node: ir.Node, region: Region, place: int) -> ir.Node | None:
        """The Loop with a tensor of rows for a state to which each iteration appends."""
        index = place - region.first_state
        begin, formal = self.of(node.inputs[place]), self.flat.inputs[region.formals[place]]
        returned, output = node.inputs[region.inputs + region.first_result + index], node.outputs[index]
        insert = None if returned is None else origin(returned).producer()
        if region.op_type != "Loop" or begin is None or begin.rows is not None or insert is None:
            return None
        if insert.op_type != "SequenceInsert" or len(insert.inputs) != 2:
            return None
        source, row = insert.inputs
        shape = self.shape(row)
        if shape is None or not all(isinstance(d, int) or d in self.knowledge.symbols for d in shape):
            return None
        if source is not formal or len(formal.uses()) != 1 or row is None or output.is_graph_output():
            return None
        rows = ir.Value(name=self.flat.fresh("rows"))
        elements = Elements(begin.listed, rows, rank=len(shape))
        if not all(self._can_read(user, elements) for user, _ in output.uses()):
            return None
        drop = place, region.inputs + region.first_result + index
        inputs = [value for number, value in enumerate(node.inputs) if number not in drop]
        declared = [*region.declared, ir.Value(type=row.type, shape=row.shape)]
        del declared[region.first_result + index]
        formals = tuple(name for name in region.formals if name != formal.name)
        smaller = replace(region, formals=formals, inputs=region.inputs - 1, declared=tuple(declared))
        number = self.flat.regions.index(region)
        self.flat.regions[number] = smaller
        outputs = replace_outputs(node)
        sequence = outputs.pop(index)
        loop = make_region(number, smaller, [*inputs, row], [*outputs, rows])
        self.flat.graph.insert_after(node, loop)
        self.flat.graph.remove(node)
        self.elements[sequence.name or ""] = elements
        return loop

    # --- nodes that read sequences

    def _can_read(self, node: ir.Node, elements: Elements) -> bool:
        """Whether a reader of rows needs no sequence."""
        if not is_standard(node) or node.domain:
            return False
        if node.op_type == "SequenceAt":
            return not elements.listed and self.shape(node.inputs[1]) == ()
        return node.op_type in ("SequenceLength", "ConcatFromSequence")

    def _read(self, node: ir.Node) -> ir.Value | None:
        """The tensor that a reader of a sequence computes."""
        elements = self.of(node.inputs[0]) if node.inputs else None
        if elements is None:
            return None
        insertion = Insertion(self.flat, node)
        if node.op_type == "SequenceLength":
            return self._length(insertion, elements)
        if node.op_type == "SequenceAt":
            return self._at(insertion, node, elements)
        return self._join(insertion, node, elements) if node.op_type == "ConcatFromSequence" else None

    def _length(self, insertion: Insertion, elements: Elements) -> ir.Value:
        listed = insertion.store(np.asarray(len(elements.listed), np.int64))
        if elements.rows is None:
            return listed
        axis = insertion.store(np.asarray(elements.axis, np.int64))
        count = insertion.add("Gather", [insertion.add("Shape", [elements.rows]), axis])
        return insertion.add("Add", [count, listed]) if elements.listed else count

    def _at(self, insertion: Insertion, node: ir.Node, elements: Elements) -> ir.Value | None:
        position = self.constant(node, 1)
        if elements.rows is None:
            place = None if position is None or position.size != 1 else int(position.item())
            is_inside = place is not None and -len(elements.listed) <= place < len(elements.listed)
            return elements.listed[place] if place is not None and is_inside else None
        if elements.listed or self.shape(node.inputs[1]) != ():
            return None
        row = insertion.add("Gather", [elements.rows, node.inputs[1]], axis=elements.axis)
        return insertion.add("Unsqueeze", [row], axes=[elements.axis]) if elements.is_kept else row

    def _join(self, insertion: Insertion, node: ir.Node, elements: Elements) -> ir.Value | None:
        """The elements, one behind the other along an axis, a new one or one of theirs."""
        axis, is_new = node.attributes.get_int("axis", 0), node.attributes.get_int("new_axis", 0) == 1
        parts: list[ir.Value] = list(elements.listed)
        if is_new:
            parts = [insertion.add("Unsqueeze", [part], axes=[axis]) for part in parts]
        if elements.rows is not None:
            parts.append(self._join_rows(insertion, elements, axis % (elements.rank + is_new), is_new))
        if len(parts) == 1:
            return parts[0]
        return insertion.add("Concat", parts, axis=axis) if parts else None

    @staticmethod
    def _join_rows(insertion: Insertion, elements: Elements, axis: int, is_new: bool) -> ir.Value:
        """The places along the axis of rows along another one."""
        assert elements.rows is not None
        rows, whole = elements.rows, elements.rank + 1
        if elements.is_kept and not is_new and axis == elements.axis:
            return rows
        if elements.is_kept:  # [.., n, ..] gets an axis of one place behind n, which each element has
            rows = insertion.add("Unsqueeze", [rows], axes=[elements.axis + 1])
        rest = [each for each in range(whole) if each != elements.axis]
        perm = [*rest[:axis], elements.axis, *rest[axis:]]
        moved = rows if perm == sorted(perm) else insertion.add("Transpose", [rows], perm=perm)
        if is_new:
            return moved
        sizes = insertion.add("Shape", [moved])
        first = [insertion.store(np.asarray(bound, np.int64)) for bound in ([axis + 2], [whole], [0])]
        behind = insertion.add("Slice", [sizes, *first])
        before = insertion.store(np.asarray([*[0] * axis, -1], np.int64))
        return insertion.reshape(moved, insertion.add("Concat", [before, behind], axis=0))
