"""The graphs of a result with their costs, and the data from which the page's script draws them: operators, kernels and
sub-graphs, and the place of each.

Operators are drawn within the boxes of their kernels and sub-graphs: each box is drawn by itself, then as a vertex.
The quotient graphs are acyclic (extract/partition/groups.py), so boxes have layers as operators have, and no two
boxes overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

from ...costmodels.device import Device, load_device
from ...costmodels.fused import ANCHORS
from ...engine.operator_graph import operator_graph
from ...extract.partition.baselines.mapping_types import MappingType, mapping_types
from ...extract.partition.groups import Partition, unfused
from ...extract.partition.templates.kernels import KernelModel
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import Operator, OperatorGraph
from ...ir.types import TensorType
from ...tools.explain.values import RulesOfValue
from ..node_changes import Kind, NamedGraph, NodeChange, NodeChanges, compare_nodes
from ..optimize import Result
from ..options import Options
from ..partition import Partitioned
from .layered import Drawing, Edge, Network, Point, draw

PADDING = 8.0
"""Pixels between a frame and what it holds."""
TITLE = 18.0
"""Pixels of the line above a frame's content."""
_TALL = 900.0
"""A box taller than this many pixels, and than three times its width, is folded."""
_BOX_RATIO = 0.8
"""Width over height to which a tall box is folded."""


@dataclass(frozen=True)
class Box:
    """The frame of a sub-graph (level 0) or kernel (level 1)."""

    level: int
    label: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Compound:
    """A drawing with frames."""

    width: float
    height: float
    places: Mapping[int, Point]
    routes: Mapping[Edge, tuple[Point, ...]]
    boxes: tuple[Box, ...] = ()

    def move(self, x: float, y: float) -> Compound:
        """The same drawing elsewhere."""
        return Compound(
            self.width,
            self.height,
            {v: (a + x, b + y) for v, (a, b) in self.places.items()},
            {e: tuple((a + x, b + y) for a, b in points) for e, points in self.routes.items()},
            tuple(Box(b.level, b.label, b.x + x, b.y + y, b.width, b.height) for b in self.boxes),
        )


@dataclass(frozen=True)
class Arrangement:
    """The graph to draw: `labels` hold for each level, the outermost first, the box of every vertex."""

    sizes: Sequence[Point]
    edges: Sequence[Edge]
    labels: Sequence[Sequence[int]] = ()
    ratio: float = 1.0

    def draw(self) -> Compound:
        """The whole drawing."""
        return _Arranger(self).arrange(tuple(range(len(self.sizes))), self.edges, 0)


class _Arranger:
    def __init__(self, task: Arrangement) -> None:
        self.task = task

    def arrange(self, members: tuple[int, ...], edges: Iterable[Edge], level: int) -> Compound:
        """Draw `members`, all in one box; `edges` are all that have an end among them.

        The route of an edge that crosses the border is the part within the box.
        """
        inside = self._parts(members, level)
        part_of = {member: position for position, part in enumerate(inside) for member in part}
        touching: list[list[Edge]] = [[] for _ in inside]
        for edge in edges:
            for position in {part_of.get(edge[0], -1), part_of.get(edge[1], -1)} - {-1}:
                touching[position].append(edge)
        parts = [self._frame(m, e, level) for m, e in zip(inside, touching, strict=True)]
        return _join(parts, self._fold(_network(parts, edges, part_of), level), edges, part_of)

    def _parts(self, members: tuple[int, ...], level: int) -> list[tuple[int, ...]]:
        """The boxes of this level, or vertices below the last."""
        if level == len(self.task.labels):
            return [(m,) for m in members]
        boxes: dict[int, list[int]] = {}
        for member in members:
            boxes.setdefault(self.task.labels[level][member], []).append(member)
        return [tuple(box) for box in boxes.values()]

    def _fold(self, network: Network, level: int) -> Drawing:
        if level == 0:
            return draw(network, self.task.ratio)
        plain = draw(network, None)
        return draw(network, _BOX_RATIO) if plain.height > max(_TALL, 3 * plain.width) else plain

    def _frame(self, members: tuple[int, ...], edges: Iterable[Edge], level: int) -> Compound:
        if level == len(self.task.labels):
            width, height = self.task.sizes[members[0]]
            return Compound(width, height, {members[0]: (0.0, 0.0)}, {})
        content = self.arrange(members, edges, level + 1)
        if level > 0 and len(members) == 1:
            return content
        title = TITLE if level == 0 else 0.0
        width, height = content.width + 2 * PADDING, content.height + 2 * PADDING + title
        inner = content.move(PADDING, PADDING + title)
        frame = Box(level, self.task.labels[level][members[0]], 0.0, 0.0, width, height)
        return Compound(width, height, inner.places, inner.routes, (frame, *inner.boxes))


def _network(parts: Sequence[Compound], edges: Iterable[Edge], part_of: Mapping[int, int]) -> Network:
    """The quotient graph of the parts; an edge from outside is known by its source."""
    ends = [(a, part_of.get(a), part_of.get(b)) for a, b in edges]
    return Network(
        [(part.width, part.height) for part in parts],
        frozenset((a, b) for _, a, b in ends if a is not None and b is not None and a != b),
        frozenset(a for _, a, b in ends if a is not None and b is None),
        frozenset((source, b) for source, a, b in ends if a is None and b is not None),
    )


def _join(parts: Sequence[Compound], drawing: Drawing, edges: Iterable[Edge], part_of: Mapping[int, int]) -> Compound:
    moved = [part.move(*place) for part, place in zip(parts, drawing.places, strict=True)]
    places = {v: place for part in moved for v, place in part.places.items()}
    routes: dict[Edge, tuple[Point, ...]] = {}
    for edge in edges:
        first, second = part_of.get(edge[0]), part_of.get(edge[1])
        out = moved[first].routes.get(edge, ()) if first is not None else ()
        into = moved[second].routes.get(edge, ()) if second is not None else ()
        if first is not None and first == second:
            routes[edge] = out
        elif first is None and second is not None:
            routes[edge] = drawing.entries[edge[0], second] + into
        elif first is not None:
            between = drawing.exits[first] if second is None else drawing.routes[first, second]
            routes[edge] = out + between + into
    return Compound(drawing.width, drawing.height, places, routes, tuple(b for part in moved for b in part.boxes))


CATEGORIES = ("anchor", "element-wise", "moves or copies data", "other")
"""Kinds of operators, each with a colour; those that read many elements for one come first."""

KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of changes, each but the first with a mark."""

_CHARACTER, _SMALL = 7.1, 6.2
"""Pixels of a letter in either line of a vertex, in a wide font."""
_WIDEST = 176.0
"""Pixels of the widest vertex."""
_LONGEST_TEXT = 160
"""Characters of a text that the page stores; a longer one ends in an ellipsis."""


@dataclass(frozen=True)
class GraphCosts:
    """A graph of operators with the seconds that each adds to a run.

    With a partition, `kernels` and `kernel_seconds` are those of its sub-graphs, in order; `group_seconds` are of the
    sub-graphs, launches included; `alone` is the cost with a kernel for each operator.
    """

    graph: OperatorGraph
    shares: tuple[float, ...]
    alone: float
    partition: Partition | None = None
    kernels: tuple[Members, ...] = ()
    kernel_seconds: tuple[float, ...] = ()
    group_seconds: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """The seconds of one run."""
        return sum(self.shares)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Who reads from whom."""
        return tuple((s, i) for i, sources in enumerate(self.graph.predecessors) for s in sources)

    @cached_property
    def kernel_of(self) -> tuple[int, ...]:
        """The kernel of each operator."""
        number = {member: index for index, kernel in enumerate(self.kernels) for member in kernel}
        return tuple(number[m] for m in range(len(self.graph)))


def graph_costs(result: Result, options: Options) -> tuple[GraphCosts, GraphCosts]:
    """The original with a kernel for each operator, and the result, in sub-graphs if it was partitioned."""
    device = load_device(options.device)
    if result.partition is not None:
        return _unfused_costs(result.partition.before, device), _partition_costs(result.partition)
    before, after = (operator_graph(typed.model, typed.knowledge) for typed in (result.original, result.rewritten))
    return _unfused_costs(before, device), _unfused_costs(after, device)


def _unfused_costs(graph: OperatorGraph, device: Device) -> GraphCosts:
    shares = KernelModel(graph, device).shares(unfused(graph))
    return GraphCosts(graph, shares, sum(shares))


def _partition_costs(partitioned: Partitioned) -> GraphCosts:
    partition, model = partitioned.partition, partitioned.model
    return GraphCosts(
        partition.graph,
        model.shares(partition),
        model.partition(unfused(partition.graph)),
        partition,
        partition.members,
        tuple(map(model.launched, partition.members)),
        tuple(map(model.launched, partition.members)),
    )


def operators_of(graph: OperatorGraph, members: Iterable[int], most: int = 4) -> str:
    """The operators by type, the most frequent first: ``MatMul x4, Add, Relu``."""
    counts = Counter(graph.operators[m].op for m in members).most_common()
    shown = [op if count == 1 else f"{op} \u00d7{count}" for op, count in counts[:most]]
    return ", ".join(shown) + (", \u2026" if len(counts) > most else "")


@dataclass
class _Texts:
    """Texts that repeat, each stored once and referred to by number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        short = text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "\u2026"
        return self.numbers.setdefault(short, len(self.numbers))


@dataclass(frozen=True)
class Marks:
    """What happened to each operator of both graphs, and by which rules, by the values that have another form."""

    changes: NodeChanges
    rules: Mapping[str, RulesOfValue]

    def text_of(self, change: NodeChange) -> str:
        """Such as ``fused into y``; empty for an operator that is in both graphs."""
        return "" if change.kind == "kept" else str(change)

    def rules_of(self, change: NodeChange) -> str:
        """The rules that were found: those of its value, of values that it is or was needed for, and of values that
        were fused into it."""
        if change.kind == "kept":
            return ""
        values = (change.value, *change.targets, *self._fused.get(change.value, ()))
        return "; ".join(dict.fromkeys(str(self.rules[value]) for value in values if value in self.rules))

    @cached_property
    def _fused(self) -> Mapping[str, Sequence[str]]:
        """The values that were fused into each changed one."""
        fused: dict[str, list[str]] = {}
        for change in self.changes.before:
            for target in change.targets:
                fused.setdefault(target, []).append(change.value)
        return fused


def marks_of(result: Result, before: GraphCosts, after: GraphCosts) -> Marks:
    """Compare the operators of both graphs."""
    sides = zip((before, after), (result.original, result.rewritten), strict=True)
    old, new = (NamedGraph(costs.graph, typed.knowledge.constants) for costs, typed in sides)
    return Marks(compare_nodes(old, new), result.rules_of_values)


def page_data(before: GraphCosts, after: GraphCosts, marks: Marks, seconds: Callable[[float], str]) -> dict[str, Any]:
    """Both graphs for the script."""
    texts = _Texts()
    graphs = {
        "before": _graph_data(before, marks, marks.changes.before, texts, seconds),
        "after": _graph_data(after, marks, marks.changes.after, texts, seconds),
    }
    return {"categories": list(CATEGORIES), "kinds": list(KINDS), "texts": list(texts.numbers), "graphs": graphs}


def _graph_data(
    costs: GraphCosts,
    marks: Marks,
    changes: Sequence[NodeChange],
    texts: _Texts,
    seconds: Callable[[float], str],
) -> dict[str, Any]:
    """Operators as [name, type, category, results, operands, attributes, seconds, sub-graph, kernel, kind of change,
    change, rules], and the views."""
    graph, partition = costs.graph, costs.partition
    categories = [_category(o, kind) for o, kind in zip(graph.operators, mapping_types(graph), strict=True)]
    groups = partition.group if partition else [-1] * len(graph)
    kernels = costs.kernel_of if partition else [-1] * len(graph)
    operators = [
        [
            operator.name, texts(operator.op), categories[index],
            texts(_shapes(graph, operator.outputs)), texts(_shapes(graph, operator.inputs)),
            texts(_attributes(operator)), float(f"{costs.shares[index]:.4g}"), groups[index], kernels[index],
            KINDS.index(change.kind), texts(marks.text_of(change)), texts(marks.rules_of(change)),
        ]
        for index, (operator, change) in enumerate(zip(graph.operators, changes, strict=True))
    ]  # fmt: skip
    views = [_operator_view(costs)]
    if partition is not None:
        views = [_group_view(costs, partition, seconds), _kernel_view(costs, partition, seconds), *views]
    return {"operators": operators, "views": views}


def _category(operator: Operator, kind: MappingType | None) -> int:
    if operator.op in ANCHORS:
        return 0
    if kind is MappingType.ONE_TO_ONE:
        return 1
    return 2 if kind in (MappingType.REORGANIZE, MappingType.SHUFFLE, MappingType.ONE_TO_MANY) else 3


def _shapes(graph: OperatorGraph, values: Iterable[int | None]) -> str:
    operands = [None if v is None else graph.values[v] for v in values]
    return "; ".join("absent" if v is None else f"{shape(v.type)}{' constant' * v.is_constant}" for v in operands)


def shape(type_: TensorType | None) -> str:
    """A tensor type for people: ``float32 1x3x224x224``."""
    if type_ is None:
        return "unknown"
    if type_.shape is None:
        return f"{type_.dtype} of unknown rank"
    return f"{type_.dtype} {_dimensions(type_)}"


def _dimensions(type_: TensorType) -> str:
    return "\u00d7".join(map(str, type_.shape or ())) or "scalar"


def _attributes(operator: Operator) -> str:
    return ", ".join(f"{name}={_plain(value)}" for name, value in sorted(operator.attributes.items()))


def _plain(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


# --- views


def _operator_view(costs: GraphCosts) -> dict[str, Any]:
    graph, partition = costs.graph, costs.partition
    labels = [(o.op, _result(graph, o)) for o in graph.operators]
    sizes = [(_width(first, second), 34.0) for first, second in labels]
    levels = (partition.group, costs.kernel_of) if partition else ()
    drawn = Arrangement(sizes, costs.edges, levels).draw()
    vertices = [[i] for i in range(len(graph))]
    return _view("operators", sizes, drawn, labels, vertices)


def _result(graph: OperatorGraph, operator: Operator) -> str:
    first = graph.values[operator.outputs[0]].type if operator.outputs else None
    return _dimensions(first) if first is not None and first.shape is not None else ""


def _kernel_view(costs: GraphCosts, partition: Partition, seconds: Callable[[float], str]) -> dict[str, Any]:
    labels = [
        (f"kernel {n} \u00b7 {seconds(costs.kernel_seconds[n])}", operators_of(costs.graph, kernel, 3))
        for n, kernel in enumerate(costs.kernels)
    ]
    group = [partition.group[kernel[0]] for kernel in costs.kernels]
    edges = _quotient_edges(costs.edges, costs.kernel_of)
    return _quotient_view("kernels", labels, costs.kernels, edges, (group,))


def _group_view(costs: GraphCosts, partition: Partition, seconds: Callable[[float], str]) -> dict[str, Any]:
    labels = [
        (
            f"{n} \u00b7 {len(members)} operator{'s' * (len(members) != 1)} \u00b7 {seconds(costs.group_seconds[n])}",
            operators_of(costs.graph, members, 3),
        )
        for n, members in enumerate(partition.members)
    ]
    return _quotient_view("sub-graphs", labels, partition.members, _quotient_edges(costs.edges, partition.group))


def _quotient_edges(edges: Iterable[Edge], label: Sequence[int]) -> list[Edge]:
    return sorted({(label[a], label[b]) for a, b in edges if label[a] != label[b]})


def _quotient_view(
    name: str,
    labels: Sequence[tuple[str, str]],
    members: Sequence[Members],
    edges: Sequence[Edge],
    levels: Sequence[Sequence[int]] = (),
) -> dict[str, Any]:
    sizes = [(_width(first, second, 240.0), 38.0) for first, second in labels]
    drawn = Arrangement(sizes, edges, levels).draw()
    return _view(name, sizes, drawn, labels, [list(m) for m in members])


def _width(first: str, second: str, widest: float = _WIDEST) -> float:
    return min(widest, max(len(first) * _CHARACTER, len(second) * _SMALL) + 18)


def _view(
    name: str,
    sizes: Sequence[Point],
    drawn: Compound,
    labels: Sequence[tuple[str, str]],
    members: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Vertices as [x, y, width, height, two lines, operators], boxes as [level, number, x, y, width, height], edges as
    [source, target, x, y, ...]; all in pixels at a scale of 1."""
    return {
        "name": name,
        "size": [round(drawn.width), round(drawn.height)],
        "vertices": [
            [*map(round, drawn.places[i]), round(width), round(height), *labels[i], members[i]]
            for i, (width, height) in enumerate(sizes)
        ],
        "boxes": [[b.level, b.label, *map(round, (b.x, b.y, b.width, b.height))] for b in drawn.boxes],
        "edges": [[*edge, *(round(c) for p in points for c in p)] for edge, points in sorted(drawn.routes.items())],
    }  # fmt: skip
