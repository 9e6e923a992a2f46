"""Schedules without search: rules from the device file, in the style of TVM's dlight, and the passes behind them.

    function --rule--> Tiled --passes--> Scheduled

The first of RULES that matches a function tiles its loops, and PASSES (in `passes/`) finish them. A function that no
rule does well is divided into stages, each of which is scheduled in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial

from tvm import tirx

from ...costmodels.device import Device
from ..base.decisions import Trace
from .base.blocks import Inspected
from .base.draft import CONSTANTS, EXACT_PAIRS, Draft, Scheduled
from .base.packing import Repack
from .base.turned import find_turned_product
from .estimate import least_cycles
from .extremes import EXTREMES, has_extremes, schedule_extremes
from .intensive.convolution_chain import convolution_chain
from .intensive.map_chain import find_map_chain
from .intensive.product_chain import product_chain
from .pairs import pair_activations
from .passes import PASSES, REFUSALS, Rule, apply_rule
from .rules.channels import channels
from .rules.contraction import contraction
from .rules.fallback import fallback, plain
from .rules.joins import joins
from .rules.pointwise import pointwise
from .rules.recurrence import recurrence
from .rules.rows import rows
from .rules.transposition import transposition
from .rules.window import window
from .rules.winograd import pooled_convolution
from .stages import STAGES, Estimated, find_needed_cuts, schedule_stages, split_sum, turn_reads, turn_rows

RULES: tuple[Rule, ...] = (
    recurrence, joins, transposition, pointwise, pooled_convolution, convolution_chain, product_chain, contraction,
    channels, window, rows,
)  # fmt: skip
"""The rules in the order in which they are tried; `fallback` follows, and always matches."""
FAR = 4.0
"""A schedule is estimated to be far off above this multiple of the least cycles: then stages are tried, too, as they
always are for the rule that fits everything."""
FEWEST_CYCLES = 2000.0
"""Cycles, about those of a call of a kernel, below which no better schedule is looked for."""
CLEARLY = 1.3
"""The factor by which stages have to be estimated to be better, for estimates are rough."""
_MATCHES = {convolution_chain.__name__: find_map_chain}
"""The functions that say whether a rule matches, for rules that can tell without a schedule."""

__all__ = [
    "CONSTANTS", "PASSES", "RULES", "Draft", "Repack", "Rule", "Scheduled", "Trace", "apply_rule", "fallback",
    "fits_rule", "list_candidates", "mark_constants", "mark_exact_pairs", "plain", "schedule",
]  # fmt: skip


def mark_constants(function: tirx.PrimFunc, parameters: tuple[int, ...]) -> tirx.PrimFunc:
    """The function with those parameters marked as constants, which a schedule may want repacked."""
    return function.with_attr(CONSTANTS, list(parameters))


def mark_exact_pairs(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function marked as one all of whose constants of int8 have pairs that `has_exact_pairs` finds exact."""
    return function.with_attr(EXACT_PAIRS, True)


def fits_rule(name: str, function: tirx.PrimFunc, device: Device, threads: int = 1) -> bool:
    """Whether the rule of that name matches."""
    (rule,) = (rule for rule in RULES if rule.__name__ == name)
    draft = Draft.of(function, device, threads)
    with suppress(*REFUSALS):
        return (_MATCHES[name](draft) if name in _MATCHES else apply_rule(rule, draft)) is not None
    return False


def schedule(function: tirx.PrimFunc, device: Device, threads: int = 1, trace: Trace | None = None) -> Scheduled:
    """The schedule of the first rule that matches; its module's only function is "main".

    The function comes from `te.create_prim_func` with static shapes. Its outputs must not share memory with its inputs.
    """
    trace = trace or Trace()
    for candidate in list_candidates(function, device, threads, with_rules=True):
        try:
            scheduled = candidate(trace)
        except REFUSALS:
            continue  # a primitive refused a block that looked right; the next rule asks less
        if scheduled is not None:
            return scheduled
    raise AssertionError("the plain schedule is always one")


def list_candidates(
    function: tirx.PrimFunc, device: Device, threads: int, *, with_rules: bool, without: Collection[str] = ()
) -> Iterator[Callable[[Trace], Scheduled | None]]:
    """Schedules to try, the best first, each made for a trace; None if a rule does not match.

    Those by the rules `without`, of which "stages" is one, are left out. The last is so plain that every function has
    it, and LLVM compiles it.
    """

    def apply(rule: Rule, trace: Trace) -> Scheduled | None:
        return apply_rule(rule, Draft.of(function, device, threads, trace))

    if with_rules:
        rules = [rule for rule in (*RULES, fallback) if rule.__name__ not in without]
        schedule_best = partial(_schedule_best, device, threads, rules, STAGES not in without)
        draft = Draft.of(function, device, threads)
        if EXTREMES not in without and has_extremes(draft):
            yield lambda trace: schedule_extremes(draft, lambda rest: schedule_best(rest, trace))
        yield partial(schedule_best, function)
        for rule in rules:
            yield partial(apply, rule)
    yield partial(apply, plain)


def _schedule_best(
    device: Device, threads: int, rules: Sequence[Rule], may_cut: bool, function: tirx.PrimFunc, trace: Trace
) -> Scheduled:
    """The schedule of the first rule that matches; stages if it is estimated to be far from the least cycles, and they
    are estimated to be better."""
    inspected: Inspected = {}

    def schedule_whole(part: tirx.PrimFunc, scope: str = "") -> Estimated:
        """The schedule of the first rule that matches; decisions are named after the scope."""
        draft = Draft.of(part, device, threads, inspected=inspected)
        for rule in (*rules, plain):
            draft = draft.for_rule(part, own := Trace(trace.wanted, scope))
            with suppress(*REFUSALS):  # a primitive refused a block that looked right
                scheduled = apply_rule(rule, draft)
                if scheduled is not None:
                    return Estimated.of(scheduled, own, device)
        raise AssertionError("the plain schedule is always one")

    draft = Draft.of(function, device, threads, inspected=inspected)
    draft = pair_activations(draft) or draft
    is_cut = bool(find_needed_cuts(draft))
    chosen = schedule_stages(draft, schedule_whole) if is_cut else schedule_whole(function)
    assert chosen is not None  # there is a cut if one is needed
    is_turned = chosen.scheduled.rule == channels.__name__ and find_turned_product(draft) is not None
    limit = least_cycles(function, device) * (1.0 if is_turned or chosen.scheduled.rule == fallback.__name__ else FAR)
    if may_cut and not is_cut and chosen.cycles > max(FEWEST_CYCLES, limit):
        for change in (Draft.copy, turn_rows, turn_reads):
            with suppress(*REFUSALS):
                changed = change(Draft.of(function, device, threads, inspected=inspected))
                staged = schedule_stages(changed, schedule_whole) if changed is not None else None
                clearly = 1.0 if is_turned else CLEARLY
                chosen = staged if staged is not None and clearly * staged.cycles < chosen.cycles else chosen
    if may_cut and not is_cut:
        with suppress(*REFUSALS):
            deep = split_sum(draft, chosen.scheduled)
            chosen = (None if deep is None else schedule_stages(deep, schedule_whole)) or chosen
    trace.sites.extend(chosen.sites)
    return chosen.scheduled
