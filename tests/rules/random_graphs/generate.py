"""Random graphs of operators and of patterns that rules rewrite."""

from __future__ import annotations

from random import Random

from .builder import OPSETS, Builder, Graph, Misfit, Shape
from .layout import OPERATORS
from .motifs import MOTIFS


def random_graph(random: Random, low: int = 5, high: int = 40) -> Graph:
    """A graph of about `low` to `high` nodes."""
    builder = Builder(random, random.choice(OPSETS), random.choice(("float32",) * 8 + ("float64",)))
    builder.wild = builder.chance(0.05)
    _first_inputs(builder)
    size = builder.between(low, high)
    for _ in range(4 * size):
        if len(builder.nodes) >= size:
            break
        make = builder.pick(MOTIFS if builder.chance(0.35) else OPERATORS)
        before = len(builder.nodes)
        try:
            make(builder)
        except Misfit:
            if builder.chance(0.5):  # half-made things are graphs too
                del builder.nodes[before:]
                _forget(builder)
    try:
        return builder.finish()
    except Misfit:
        builder.add("Identity", next(iter(builder.inputs)))
        return builder.finish()


def _forget(builder: Builder) -> None:
    """Drop the values of nodes that are gone."""
    kept = {*builder.inputs, *builder.weights, *(o for n in builder.nodes for o in n.output)}
    for name in [n for n in builder.values if n not in kept]:
        del builder.values[name]


def _first_inputs(builder: Builder) -> None:
    """A few inputs whose dimensions meet: images, sequences, matrices."""
    n, c, s = builder.pick((1, 2, 3)), builder.pick((2, 4, 6)), builder.pick((4, 5, 6))
    shapes: list[Shape] = [(n, c, s, s), (n, c, s), (n, c), (n, s, c), (s, c), (c,), (1, n, s, c)]
    for _ in range(builder.between(1, 3)):
        builder.input(builder.pick(shapes))
    if builder.chance(0.25):
        builder.input(builder.pick(shapes), builder.pick(("int32", "int64", "int64", "uint8", "uint64")))
