"""How long AGO's weighted clustering takes on large graphs.

Clusters graphs of four shapes (a chain; a deep residual network with branches of several lengths; an unrolled
recurrent network; two towers that meet at the end) and prints operators, groups and the least seconds of all repeats.

    python benchmarks/clustering.py --operators 10000 --repeat 3
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from eqfuse.extract.partition.baselines.clustering import cluster
from eqfuse.ir.graph import Operator, OperatorGraph, Value


def graph_of(predecessors: list[list[int]]) -> OperatorGraph:
    """One operator with one output for each list; sizes play no part, for the weights are given."""
    count = len(predecessors)
    operators = [Operator(f"n{i}", "Add", {}, tuple(p), (i,)) for i, p in enumerate(predecessors)]
    values = [Value(f"v{i}", None, i, is_output=i == count - 1) for i in range(count)]
    return OperatorGraph(tuple(operators), tuple(values))


def chain(count: int, _: random.Random) -> list[list[int]]:
    """Every operator reads the one before."""
    return [[i - 1] if i else [] for i in range(count)]


def residual(count: int, generator: random.Random) -> list[list[int]]:
    """Blocks of one to four branches, each of one to eight operators, that are joined and added to their input."""
    found: list[list[int]] = [[]]
    while len(found) < count:
        source, ends = len(found) - 1, []
        for _ in range(generator.randint(1, 4)):
            last = source
            for _ in range(generator.randint(1, 8)):
                found.append([last])
                last = len(found) - 1
            ends.append(last)
        found.append([source, *ends])
    return found


def towers(count: int, _: random.Random) -> list[list[int]]:
    """Two chains that only their last operator joins: the worst case, for every merge shifts the rest of its tower."""
    half = count // 2
    found: list[list[int]] = [[], []]
    found += [[i - 2] for i in range(2, 2 * half)]
    return [*found, [2 * half - 2, 2 * half - 1]]


def grid(count: int, _: random.Random) -> list[list[int]]:
    """Ten recurrent layers, unrolled: each operator reads the one before in its layer and that of the layer below."""
    found: list[list[int]] = []
    for i in range(count):
        found.append(([i - 10] if i >= 10 else []) + ([i - 1] if i % 10 else []))
    return found


SHAPES: dict[str, Callable[[int, random.Random], list[list[int]]]] = {
    "chain": chain,
    "residual": residual,
    "grid": grid,
    "towers": towers,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    for name, shape in SHAPES.items():
        generator = random.Random(0)
        graph = graph_of(shape(options.operators, generator))
        weights = [generator.choice((10.0, 20.0, 40.0, 100.0, 300.0)) for _ in range(len(graph))]
        seconds: list[float] = []
        for _ in range(options.repeat):
            start = time.perf_counter()
            partition = cluster(graph, weights=weights)
            seconds.append(time.perf_counter() - start)
        print(f"{name:10} {len(graph):7} operators {partition.count:6} groups {min(seconds):8.3f} s")


if __name__ == "__main__":
    main()
