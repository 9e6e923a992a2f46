"""Better selections by searching around the best one known.

In each round some selected classes that read each other are free, with all that is not selected; the other selected
classes keep their choice. So nearly everything is required, the rest falls into small parts, and the search over
frontiers or else HiGHS solves it quickly. Rounds that are solved make the next ones larger, others smaller (large-
neighbourhood search: Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems",
CP 1998).
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

from ...support.deadlines import OutOfTime, is_over
from .bounds import Kept, drop_unextractable_choices
from .branch import search_among
from .cores import Answer, Core
from .milp import prove_by_milp
from .problem import selected_children

_FIRST_SIZE = 5
"""Classes that are free in the first round; a round that is solved adds one, another takes one away."""
_LEAST_SIZE = 3
_EFFORT = 2.0
"""Frontiers that one round may expand for each class: rounds are many and short."""
_PROGRAM_SECONDS = 1.0
"""Seconds that a round that the search does not solve may take as an integer program."""


def improve_by_neighbourhoods(core: Core, answer: Answer, kept: Kept, deadline: float) -> Answer:
    """A selection that costs no more, of choices that are kept or the answer's own, by the deadline (time.monotonic).

    The bound stays.
    """
    generator = random.Random(0)
    size = _FIRST_SIZE
    while not (answer.is_proven or is_over(deadline) or size > 2 * len(answer.selection)):
        free = _neighbours(core, answer, size, generator)
        around = [list(positions) for positions in kept]
        for number, position in answer.selection.items():
            around[number] = sorted({*kept[number], position}) if number in free else [position]
        unbounded = replace(answer, lower_bound=0.0)
        among = drop_unextractable_choices(core, around)
        try:
            better, left = search_among(core, unbounded, among, deadline, rounds=1, effort=_EFFORT)
        except OutOfTime:
            break
        better = prove_by_milp(core, better, min(deadline, time.monotonic() + _PROGRAM_SECONDS), left)
        size = size + 1 if better.is_proven else max(size - 1, _LEAST_SIZE)
        answer = replace(better, lower_bound=answer.lower_bound)
    return answer


def _neighbours(core: Core, answer: Answer, size: int, generator: random.Random) -> set[int]:
    """A selected class and those that it reaches in the fewest steps, up or down."""
    below = selected_children(core, answer.selection)
    near: dict[int, list[int]] = {number: list(children) for number, children in below.items()}
    for number, children in below.items():
        for child in children:
            near[child].append(number)
    order = [generator.choice(sorted(near))]
    free = set(order)
    for number in order:
        generator.shuffle(near[number])
        for other in near[number]:
            if len(order) < size and other not in free:
                free.add(other)
                order.append(other)
    return free
