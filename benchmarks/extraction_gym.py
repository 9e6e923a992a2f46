"""Extraction on the e-graphs of the extraction gym (github.com/egraphs-good/extraction-gym), beside two baselines.

DATA is the gym's folder `data`, or any folder of e-graphs in its JSON format. Each e-graph is extracted by

- eqfuse: `extract.solve` with the time limit;
- greedy: the gym's faster-greedy-dag. Every class keeps the closure (its classes with their costs) of its cheapest
  e-node so far; e-nodes wait in a queue, leaves first, and come back when the closure of a child improves. It has no
  time limit;
- highs: the integer program of Tate et al., "Equality Saturation" (POPL 2009), with a binary for every e-node and a
  level for every class on a cycle, given to HiGHS through scipy as it is, with the time limit.

    python benchmarks/extraction_gym.py DATA                                # every instance, 60 s each
    python benchmarks/extraction_gym.py DATA --only tensat,rover --each
    python benchmarks/extraction_gym.py DATA --sample 10 --time-limit 8 --methods eqfuse,greedy --results gym.jsonl

Every extraction is a process of its own and one line in the file of results, which a later call goes on from; so it
can be run in the background, ended and started again. Gaps are (cost - lower bound) / cost, times are wall times
without reading.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from eqfuse.extract.extraction.greedy import node_queue_selection
from eqfuse.extract.extraction.problem import (
    TOLERANCE,
    Candidate,
    ExtractionError,
    Problem,
    follow_choices,
    selected_children,
    selection_cost,
)
from eqfuse.extract.extraction.solve import solve
from eqfuse.support.directed_graphs import is_acyclic, strongly_connected_components

METHODS = ("greedy", "highs", "eqfuse")
CLOSE = 0.02
"""A proven gap up to this counts as close to the optimum."""
PATIENCE = 10.0
"""An extraction that takes this many times its time limit, plus a minute for reading, is ended; its row has no cost."""


@dataclass(frozen=True)
class Row:
    """One extraction: costs in the e-graph's own unit (None: no answer), seconds, and why there is none."""

    instance: str
    method: str
    limit: float
    cost: float | None = None
    bound: float | None = None
    seconds: float = 0.0
    classes: int = 0
    nodes: int = 0
    failure: str = ""

    @property
    def family(self) -> str:
        """The folder that the e-graph lies in."""
        return self.instance.rpartition("/")[0] or "."

    @property
    def gap(self) -> float:
        """How far the cost may be above the optimum, relative to the cost; infinite without an answer or a bound."""
        if self.cost is None or self.bound is None:
            return math.inf
        return max(self.cost - self.bound, 0.0) / self.cost if self.cost else 0.0


def read_problem(path: Path) -> Problem:
    """An e-graph in the format of egraph-serialize."""
    data = json.loads(path.read_text())
    nodes = data["nodes"]
    number: dict[str, int] = {}
    for node in nodes.values():
        number.setdefault(node["eclass"], len(number))
    classes: list[list[Candidate]] = [[] for _ in number]
    for node in nodes.values():
        children = tuple(number[nodes[child]["eclass"]] for child in node["children"])
        classes[number[node["eclass"]]].append(Candidate(float(node.get("cost", 1.0)), children))
    return Problem(tuple(map(tuple, classes)), tuple(dict.fromkeys(number[root] for root in data["root_eclasses"])))


def closure_cost(problem: Problem, pick: dict[int, int]) -> float:
    """The DAG cost of the picked e-nodes that the roots need; raises ExtractionError if that is no extraction."""
    choice = follow_choices(problem, pick.get)
    if choice is None or not is_acyclic(selected_children(problem, choice)):
        raise ExtractionError("the extraction is cyclic")
    return selection_cost(problem, choice)


def faster_greedy_dag(problem: Problem) -> float:
    """The cost of the gym's best greedy extraction."""
    choice = node_queue_selection(problem)
    if choice is None:
        raise ExtractionError("the extraction is cyclic")
    return selection_cost(problem, choice)


def plain_highs(problem: Problem, limit: float) -> tuple[float | None, float | None]:
    """The cost and the bound of HiGHS on the textbook program."""
    import numpy
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    start = time.monotonic()
    pairs = [(n, i) for n, candidates in enumerate(problem.classes) for i in range(len(candidates))]
    column = {pair: position for position, pair in enumerate(pairs)}
    count, levels = len(pairs), len(problem.classes)
    successors = {n: {c for o in options for c in o.children} for n, options in enumerate(problem.classes)}
    home = {m: k for k, component in enumerate(strongly_connected_components(successors)) for m in component}
    rows: list[tuple[list[tuple[int, float]], float]] = []  # sum of terms >= bound
    for root in problem.roots:
        rows.append(([(column[root, i], 1.0) for i in range(len(problem.classes[root]))], 1.0))
    for number, index in pairs:
        for child in dict.fromkeys(problem.classes[number][index].children):
            own = column[number, index]
            if child == number:
                rows.append(([(own, -1.0)], 0.0))
                continue
            rows.append(([(column[child, i], 1.0) for i in range(len(problem.classes[child]))] + [(own, -1.0)], 0.0))
            if home[child] == home[number]:  # chosen: the level of the class is above that of the child
                terms = [(count + number, 1.0), (count + child, -1.0), (own, -float(levels))]
                rows.append((terms, 1.0 - levels))
    flat = [(r, c, v) for r, (terms, _) in enumerate(rows) for c, v in terms]
    at, of, value = zip(*flat, strict=True)
    matrix = coo_array((value, (at, of)), shape=(len(rows), count + levels)).tocsr()
    costs = numpy.array([problem.classes[n][i].cost for n, i in pairs] + [0.0] * levels)
    upper = numpy.array([1.0] * count + [float(levels)] * levels)
    result = milp(
        costs,
        constraints=LinearConstraint(matrix, numpy.array([bound for _, bound in rows]), numpy.inf),
        bounds=Bounds(0, upper),
        integrality=numpy.array([1] * count + [0] * levels),
        options={"time_limit": max(limit - (time.monotonic() - start), 0.1), "mip_rel_gap": 0.0},
    )
    bound = result.mip_dual_bound
    proven = None if bound is None or not math.isfinite(bound) else float(bound)
    if result.x is None:
        return None, proven
    chosen = {pairs[position][0]: pairs[position][1] for position in numpy.flatnonzero(result.x[:count] > 0.5)}
    return closure_cost(problem, chosen), proven


def extract(data: Path, instance: str, method: str, limit: float) -> Row:
    """Extract one e-graph by one method, in this process."""
    try:
        problem = read_problem(data / f"{instance}.json")
    except ExtractionError as error:
        return Row(instance, method, limit, failure=str(error))
    start = time.monotonic()
    cost: float | None = None
    bound: float | None = None
    failure = ""
    try:
        if method == "eqfuse":
            solution = solve(problem, time_limit=limit)
            cost, bound = solution.cost, solution.lower_bound
        elif method == "greedy":
            cost = faster_greedy_dag(problem)
        else:
            cost, bound = plain_highs(problem, limit)
    except ExtractionError as error:
        failure = str(error)
    seconds = time.monotonic() - start
    if method == "eqfuse" and cost is not None:
        closure_cost(problem, dict(solution.choice))
    return Row(
        instance, method, limit, cost, bound, seconds, len(problem.classes), sum(map(len, problem.classes)), failure
    )


def extract_apart(data: Path, instance: str, method: str, limit: float) -> Row:
    """Extract one e-graph by one method, in a process of its own."""
    command = [sys.executable, __file__, str(data), "--one", instance, method, "--time-limit", str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit * PATIENCE + 60, check=True)
    except subprocess.TimeoutExpired:
        return Row(instance, method, limit, seconds=limit * PATIENCE, failure="took too long")
    except subprocess.CalledProcessError as error:
        return Row(instance, method, limit, failure=(error.stderr.strip().splitlines() or ["ended"])[-1])
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def instances(data: Path, only: Sequence[str], sample: int) -> list[str]:
    """The names of the e-graphs below a folder; with `sample`, at most that many of each family, drawn with seed 0."""
    families: dict[str, list[str]] = {}
    for path in sorted(data.rglob("*.json")):
        name = path.relative_to(data).with_suffix("").as_posix()
        if not only or any(name == part or name.startswith(f"{part}/") for part in only):
            families.setdefault(name.rpartition("/")[0], []).append(name)
    chosen = []
    for family, names in families.items():
        drawn = random.Random(f"0{family}").sample(names, sample) if 0 < sample < len(names) else names
        chosen += sorted(drawn)
    return chosen


def compare(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """The rows of each instance, by method."""
    table: dict[str, dict[str, Row]] = {}
    for row in rows:
        table.setdefault(row.instance, {})[row.method] = row
    return table


def print_families(table: dict[str, dict[str, Row]]) -> None:
    """One line for every family; costs are compared up to the tolerance of the solver."""
    print(f"{'family':<14}{'e-graphs':>9}{'proven':>8}{'or 2 %':>8}{'worst gap':>11}{'mean s':>8}", end="")
    print(f"{'below greedy':>14}{'above':>7}{'HiGHS proven':>14}{'below HiGHS':>13}{'above':>7}{'overshoot':>11}")
    families: dict[str, list[dict[str, Row]]] = {}
    for by_method in table.values():
        own = by_method.get("eqfuse")
        if own is not None and not own.failure:
            families.setdefault(own.family, []).append(by_method)
    for family, members in sorted(families.items()):
        own_rows = [by_method["eqfuse"] for by_method in members]
        gaps = [row.gap for row in own_rows]
        line = f"{family:<14}{len(members):>9}{sum(gap <= TOLERANCE for gap in gaps):>8}"
        line += f"{sum(gap <= CLOSE for gap in gaps):>8}{max(gaps):>11.4f}"
        line += f"{sum(row.seconds for row in own_rows) / len(members):>8.1f}"
        for method, width in (("greedy", 14), ("highs", 13)):
            if method == "highs":
                line += f"{sum('highs' in m and m['highs'].gap <= 1e-6 for m in members):>14}"
            below = sum(difference(m, method) < -TOLERANCE for m in members)
            above = sum(difference(m, method) > TOLERANCE for m in members)
            line += f"{below:>{width}}{above:>7}"
        print(line + f"{max(max(row.seconds / row.limit - 1 for row in own_rows), 0.0):>11.1%}")


def difference(by_method: dict[str, Row], method: str) -> float:
    """How much dearer our answer is than another method's, relative to that; 0 if that has none."""
    own, other = by_method["eqfuse"].cost, by_method[method].cost if method in by_method else None
    if own is None or other is None:
        return 0.0
    return (own - other) / other if other else own


def print_each(table: dict[str, dict[str, Row]]) -> None:
    """One line for every instance."""
    print(f"{'instance':<44}{'classes':>8}{'nodes':>8}{'greedy':>13}{'HiGHS':>13}{'eqfuse':>13}{'gap':>9}{'s':>7}")
    for instance, by_method in sorted(table.items()):
        costs = [by_method[m].cost if m in by_method else None for m in METHODS]
        line = "".join("-".rjust(13) if cost is None else f"{cost:>13.7g}" for cost in costs)
        own = by_method.get("eqfuse", Row(instance, "eqfuse", 0.0))
        size = next(iter(by_method.values()))
        line = f"{instance:<44}{size.classes:>8}{size.nodes:>8}{line}{own.gap:>9.4f}{own.seconds:>7.1f}"
        print(line + (f"  {own.failure}" if own.failure else ""))


def main() -> None:
    """Run what the file of results does not have yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="", help="families or instances (tensat,rover/box_filter_3iteration_egraph)")
    parser.add_argument("--sample", type=int, default=0, help="at most this many e-graphs of each family (0: all)")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each e-graph")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--results", type=Path, default=Path("extraction_gym.jsonl"))
    parser.add_argument("--each", action="store_true", help="print every instance too")
    parser.add_argument("--one", nargs=2, metavar=("INSTANCE", "METHOD"), help="extract one e-graph, print its row")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asdict(extract(arguments.data, arguments.one[0], arguments.one[1], arguments.time_limit))))
        return
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    known = {(row.instance, row.method, row.limit): row for row in (Row(**json.loads(line)) for line in lines)}
    only = [part for part in arguments.only.split(",") if part]
    rows: list[Row] = []
    for instance in instances(arguments.data, only, arguments.sample):
        for method in arguments.methods.split(","):
            row = known.get((instance, method, arguments.time_limit))
            if row is None:
                row = extract_apart(arguments.data, instance, method, arguments.time_limit)
                with arguments.results.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
            rows.append(row)
    table = compare(rows)
    if arguments.each:
        print_each(table)
        print()
    print_families(table)


if __name__ == "__main__":
    main()
