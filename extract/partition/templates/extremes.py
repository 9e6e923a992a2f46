"""Operators that make a tensor, and its largest and smallest elements: as of a DynamicQuantizeLinear, which begins with
them. The schedule finds them where the tensor is written (lowering/schedules/extremes.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

from .operator_set import Members, OperatorSet
from .template import Template

_FOUND = frozenset({"ReduceMax", "ReduceMin"})
_SHARE = 1 / 3
"""Of an extreme's arithmetic: each element is in a register when it counts, so neither loads nor loops are left."""


@dataclass(frozen=True)
class _Split:
    """The operators that make the tensors, the extremes, and what follows from them."""

    makers: OperatorSet
    extremes: Members
    rest: Members


def finds_extremes(makers: Sequence[Template]) -> Template:
    """The template of kernels that one of the others makes, with extremes of what they return."""

    def making(split: _Split) -> float:
        """Seconds without the extremes, of which many sets of operators behind the same makers ask."""
        made, operators = split.makers.within.made, split.makers
        if operators.members not in made:
            costs = (template.cost(operators) for template in makers if template.accepts(operators) is None)
            made[operators.members] = min(costs, default=inf)
        return made[operators.members]

    def accepts(operators: OperatorSet) -> str | None:
        split = _split(operators)
        if split is None:
            return "it does not find extremes of its own results"
        return "what makes the results is no kernel" if making(split) == inf else None

    def cost(operators: OperatorSet) -> float:
        split = _split(operators)
        assert split is not None
        compute = operators.within.compute
        found = _SHARE * sum(compute[m] for m in split.extremes) + sum(compute[m] for m in split.rest)
        return making(split) + found

    return Template("extremes", accepts, cost)


def _split(operators: OperatorSet) -> _Split | None:
    """The parts; None if an extreme is not of all elements of a result, or something larger follows from one."""
    if _FOUND.isdisjoint(operators.names):
        return None
    extremes = [member for member in operators.members if _is_extreme(operators, member)]
    if not extremes:
        return None
    behind = set(extremes)
    for member in operators.members:
        if not behind.isdisjoint(operators.graph.predecessors[member]):
            behind.add(member)
    makers = operators.part(operators.inside - behind)
    sources = {operators.graph.operators[member].inputs[0] for member in extremes}
    results = (value for member in behind for value in operators.graph.operators[member].outputs)
    are_numbers = all(_is_number(operators, value) for value in results)
    if not are_numbers or not all(value is not None and operators.leaves(value) for value in sources):
        return None
    return _Split(makers, tuple(extremes), tuple(sorted(behind.difference(extremes))))


def _is_extreme(operators: OperatorSet, member: int) -> bool:
    """Whether an operator finds the largest or smallest of all elements of a value that another one makes."""
    operator, values = operators.graph.operators[member], operators.graph.values
    source = operator.inputs[0] if operator.op in _FOUND and not operator.is_opaque else None
    if source is None or values[source].producer not in operators.inside:
        return False
    type_ = values[source].type
    return type_ is not None and type_.dtype == "float32" and _is_number(operators, operator.outputs[0])


def _is_number(operators: OperatorSet, value: int) -> bool:
    """Whether a value has one element, whatever the sizes of a call."""
    type_ = operators.graph.values[value].type
    return type_ is not None and type_.is_static and prod(operators.within.shape(value)) == 1
