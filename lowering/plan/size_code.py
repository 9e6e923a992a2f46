"""The part of generated C that computes the sizes of a call, and lays memory out for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ...ir.size_relations import Relation
from ...ir.sizes import ZERO, Size
from .arena import lives_of
from .plan import Branch, Plan, Requirement
from .sizes import Demand, Solution, c_expression, size_of, upper_bound
from .templates import OF_SIZES, SIZES, literal, table


@dataclass(frozen=True)
class SizeCode:
    """Texts about the sizes of a plan; those of a static plan are empty."""

    plan: Plan

    @cached_property
    def first_extents(self) -> list[int]:
        """Where the extents of each buffer begin."""
        return list(accumulate((len(buffer.shape) for buffer in self.plan.buffers), initial=0))

    @cached_property
    def variables(self) -> dict[str, str]:
        """How the generated C calls each size."""
        return {name: f"sizes[{number}]" for number, name in enumerate(self.plan.symbols)}

    @property
    def _arena_views(self) -> list[tuple[int, int]]:
        in_arena = {life.buffer for life in lives_of(self.plan)}
        return [(b, s) for b, s in enumerate(self.plan.storage) if s != b and s in in_arena]

    @cached_property
    def _filled_in_branches(self) -> frozenset[int]:
        """The buffers that have no sizes, in place of negative ones, if a branch is not taken."""
        numbers = (number for branch in self.plan.branches for number in range(branch.first, branch.end))
        return frozenset(buffer for number in numbers for buffer in self.plan.steps[number].outputs)

    def functions(self) -> str:
        """Tables, and the functions that compute sizes and extents."""
        plan = self.plan
        if plan.is_static:
            return ""
        return SIZES.format(
            lives="\n".join([*(f"    {{{e.buffer}, {e.first}, {e.last}}}," for e in lives_of(plan)), "    {0},"]),
            views=table(b for view in self._arena_views for b in view),
            solve="\n".join(
                [*(f"    status |= {self._solve(step)};" for step in plan.solution), *self._requirements()]
            ),
            extend=self.extend(frozenset(), set(plan.symbols) - {m.name for m in plan.measures}),
        )

    def _requirements(self) -> Iterator[str]:
        for each in self.plan.requirements:
            if not each.conditions and self._is_solved(each):
                failed = f'eqfuse_fail("%s", {literal(each.text)})'
                yield f"    if (!status && !({holds(each.relation, self.variables)})) status = {failed};"

    def branch_requirements(self, branch: Branch) -> Iterator[str]:
        """Statements at the head of a branch: what has to hold under its conditions only."""
        variables = {name: f"context->{variable}" for name, variable in self.variables.items()}
        for each in self.plan.requirements:
            if each.conditions and set(each.conditions) <= set(branch.conditions) and self._is_solved(each):
                failed = f'eqfuse_fail("%s", {literal(each.text)}), EQFUSE_REFUSED'
                yield f"    if (!({holds(each.relation, variables)})) return {failed};"

    def _is_solved(self, requirement: Requirement) -> bool:
        """Whether it is about sizes that follow from the shapes of the inputs."""
        solved = {step.name for step in self.plan.solution if isinstance(step, Solution)}
        return requirement.relation.names() <= solved

    def _solve(self, step: Solution | Demand) -> str:
        extent = f"shapes[{step.port}][{step.axis}]"
        if isinstance(step, Demand):
            name = literal(self.plan.buffers[self.plan.inputs[step.port]].name)
            return f"eqfuse_demand({name}, {step.axis}, {extent}, {c_expression(step.extent, self.variables)})"
        value = f"{extent} - {c_expression(step.rest, self.variables)}"
        return f"eqfuse_solve({literal(step.name)}, {value}, {step.factor}, &{self.variables[step.name]})"

    def extend(self, new: Set[str], known: Set[str]) -> str:
        """Statements that set the extents of which the `known` sizes tell, and that have `new` ones if there are any.

        Without new sizes extents of which more is known later have their upper bounds; 0 if there are none.
        """
        bounds = {m.name: m.bound or ZERO for m in self.plan.measures if m.name not in known}
        places: dict[tuple[Size, bool], list[int]] = {}
        for number, (buffer, first) in enumerate(zip(self.plan.buffers, self.first_extents, strict=False)):
            may_be_skipped = self.plan.storage[number] in self._filled_in_branches
            for axis, extent in enumerate(buffer.shape):
                if not isinstance(extent, Size):
                    continue
                if new and not (new & extent.names() and extent.names() <= known):
                    continue
                size = size_of(upper_bound(extent, bounds))
                places.setdefault((size, may_be_skipped), []).append(first + axis)
        lines = []
        for (size, may_be_skipped), positions in places.items():
            targets = " = ".join(f"extents[{position}]" for position in positions)
            value = c_expression(size, self.variables)
            lines.append(f"    {targets} = {f'{value} < 0 ? 0 : {value}' if may_be_skipped else value};")
        return "\n".join(lines)

    def fields(self) -> str:
        """The fields of the model's description."""
        if self.plan.is_static:
            return ""
        counts = {
            "sizes": len(self.plan.symbols),
            "lives": len(lives_of(self.plan)),
            "views": len(self._arena_views),
            "measures": len(self.plan.measures),
        }
        return OF_SIZES.format(**counts)


def holds(relation: Relation, variables: Mapping[str, str]) -> str:
    """The C expression that is true if a relation holds."""
    left, right = c_expression(relation.left, variables), c_expression(relation.right, variables)
    if relation.name in ("least", "most"):
        return f"{left} {'>=' if relation.name == 'least' else '<='} {right}"
    return f"{left} == {right}" + (f" || {left} == 1" if relation.name == "broadcast" else "")
