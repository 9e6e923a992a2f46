"""Better selections by searching around the best one known.

In each round some selected classes that read each other are free, with all that is not selected; the other selected
classes keep their choice. So nearly everything is required, what is left falls into small parts, and the search over
frontiers settles it quickly, or else HiGHS. Rounds that are settled make the next ones larger, others smaller (large-
neighbourhood search: Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems",
CP 1998).
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

from ..support.deadlines import OutOfTime, is_over
from .answer import Answer, edges
from .components import Core
from .frontier.bounds import Kept, extractable
from .frontier.search import search_among
from .milp import prove_by_milp

_FIRST_SIZE = 5
_LEAST_SIZE = 3
# Frontiers that one round may expand for each class: rounds are many and short.
_EFFORT = 2.0
_PROGRAM_SECONDS = 1.0
"""What a round that is not settled then may take as an integer program."""


def improve_by_neighbourhoods(core: Core, answer: Answer, kept: Kept, deadline: float) -> Answer:
    """A selection that costs no more, of choices that are kept or the answer's own, by the deadline (time.monotonic).

    The bound stays.
    """
    generator = random.Random(0)
    size = _FIRST_SIZE
    while not (answer.proven or is_over(deadline) or size > 2 * len(answer.selection)):
        free = _neighbours(core, answer, size, generator)
        around = [
            sorted({*kept[number], answer.selection[number]})
            if number in free
            else [answer.selection[number]]
            if number in answer.selection
            else positions
            for number, positions in enumerate(kept)
        ]
        unbounded = replace(answer, lower_bound=0.0)
        try:
            found, left = search_among(core, unbounded, extractable(core, around), deadline, rounds=1, effort=_EFFORT)
        except OutOfTime:
            break
        if not found.proven:
            found = prove_by_milp(core, found, min(deadline, time.monotonic() + _PROGRAM_SECONDS), left)
        size = size + 1 if found.proven else max(size - 1, _LEAST_SIZE)
        answer = replace(found, lower_bound=answer.lower_bound)
    return answer


def _neighbours(core: Core, answer: Answer, size: int, generator: random.Random) -> set[int]:
    """A selected class and those that it reaches in the fewest steps, up or down."""
    below = edges(core, answer.selection)
    near: dict[int, list[int]] = {number: list(children) for number, children in below.items()}
    for number, children in below.items():
        for child in children:
            near[child].append(number)
    found = [generator.choice(sorted(near))]
    free = set(found)
    for number in found:
        generator.shuffle(near[number])
        for other in near[number]:
            if len(found) < size and other not in free:
                free.add(other)
                found.append(other)
    return free
