"""Proven optimal selections of a core with loops by z3: a Boolean per choice, the costs as soft constraints, and for
each class on a cycle an integer, its place, which a choice puts behind the places of the classes that it reads.

On a large strongly connected component the search over frontiers (branch.py) must remember what was decided in it, and
the integer program (milp.py) adds its cycles one by one. z3's difference logic knows them all from the start.
"""

from __future__ import annotations

from ...support.deadlines import is_over
from ...support.solvers import as_integers, check_within
from .bounds import Kept, reachable_components
from .cores import Answer, Core
from .milp import Pair, cheapest_selection
from .problem import selection_cost

_MOST_CLASSES = 100
"""Classes of a core that z3 decides: with 99 it takes a second, with 250 it gives no answer in five."""
_LEAST_LOOP = 10
"""Classes of the largest strongly connected component from which on z3 is asked. Cores with smaller ones are proven by
the first search over frontiers, in a tenth of z3's time."""
_EFFORT = 60_000_000
"""The limit of z3's own count of its work, which depends on no clock: a core of 99 classes takes up to 15 million."""


def is_for_z3(core: Core, kept: Kept) -> bool:
    """Whether a core has the size and the shape that z3 decides sooner than other provers, if the quick search did not:
    few classes, many of them on cycles with each other."""
    components = reachable_components(core, kept)
    return sum(map(len, components)) <= _MOST_CLASSES and max(map(len, components), default=0) >= _LEAST_LOOP


def prove_by_z3(core: Core, answer: Answer, deadline: float, kept: Kept) -> Answer:
    """The optimum with its proof; the answer as it was if z3 has none by the deadline (time.monotonic) or within its
    limit of work.

    kept: for every class the positions of the choices that a better selection may have.
    """
    if answer.is_proven or is_over(deadline):
        return answer
    import z3  # here: importing it takes longer than most extractions

    context = z3.Context()  # of its own: what was asked before would change the answer among equal ones
    optimizer = z3.Optimize(ctx=context)
    optimizer.set("rlimit", _EFFORT)
    components = reachable_components(core, kept)
    home = {number: index for index, members in enumerate(components) for number in members}
    needed = {number: z3.Bool(f"needed{number}", context) for number in home}
    place = {number: z3.Int(f"place{number}", context) for number in home}
    picked: dict[Pair, z3.BoolRef] = {}
    for number in home:
        positions = [p for p in kept[number] if core.classes[number][p].cost <= answer.cost]
        literals = [z3.Bool(f"pick{number}_{position}", context) for position in positions]
        picked.update(((number, position), literal) for position, literal in zip(positions, literals, strict=True))
        optimizer.add(z3.Implies(needed[number], z3.Or([z3.BoolVal(False, context), *literals])))
        for position, literal in zip(positions, literals, strict=True):
            for child in core.classes[number][position].children:
                optimizer.add(z3.Implies(literal, needed[child]))
                if home[child] == home[number]:
                    optimizer.add(z3.Implies(literal, place[child] < place[number]))
    optimizer.add([needed[root] for root in core.roots])
    weights, _ = as_integers([core.classes[number][position].cost for number, position in picked])
    for literal, weight in zip(picked.values(), weights, strict=True):
        if weight:
            optimizer.add_soft(z3.Not(literal), str(weight))
    status = check_within(deadline, optimizer)
    if status == z3.unsat:
        return answer.raise_bound(answer.cost)
    if status != z3.sat:
        return answer
    model = optimizer.model()
    best = cheapest_selection(core, [pair for pair, literal in picked.items() if z3.is_true(model[literal])])
    assert best is not None, "what is picked needs what it reads"
    return answer.improve(best, core).raise_bound(selection_cost(core, best))
