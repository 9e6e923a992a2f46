"""Each step of a plan as a statement of the generated C."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from .plan import Call, Callback, Choose, Copy, Measure, Step
from .size_code import SizeCode
from .sizes import c_expression
from .templates import MEASURE, literal


@singledispatch
def emit_step(step: Step, sizes: SizeCode, first: int) -> str:
    """The statement of a step whose arguments begin at that place of the context's."""
    raise TypeError(type(step).__name__)


@emit_step.register
def _(step: Call, sizes: SizeCode, first: int) -> str:
    """A special kernel where the sizes are its own, else the one for all calls."""
    count = len(step.inputs) + len(step.outputs)
    texts, place = [], first + count
    for special in step.special:
        is_size = " && ".join(f"context->{sizes.variables[name]} == {size}" for name, size in special.sizes)
        texts.append(f"if ({is_size}) {{ {_call(special.kernel, place, count)} }} else ")
        place += count
    return "".join([*texts, _call(step.kernel, first, count)])


def _call(kernel: str, first: int, count: int) -> str:
    return f"if ((status = eqfuse_call(__tvm_ffi_{kernel}, context->arguments + {first}, {count}))) return status;"


@emit_step.register
def _(step: Callback, sizes: SizeCode, first: int) -> str:
    count = len(step.inputs) + len(step.outputs)
    called = f"eqfuse_call_back(context, {step.number}, context->arguments + {first}, {count})"
    return f"if ((status = {called})) return status;"


@emit_step.register
def _(step: Copy, sizes: SizeCode, first: int) -> str:
    return f"eqfuse_copy(&context->tensors[{step.source}], &context->tensors[{step.result}]);"


@emit_step.register
def _(step: Choose, sizes: SizeCode, first: int) -> str:
    chosen = f"{_truth(step.condition)} ? {step.then} : {step.otherwise}"
    return f"eqfuse_copy(&context->tensors[{chosen}], &context->tensors[{step.result}]);"


def emit_condition(conditions: Iterable[tuple[int, bool]]) -> str:
    """The head of a branch."""
    return f"if ({' && '.join(('' if when else '!') + _truth(buffer) for buffer, when in conditions)}) {{"


def _truth(buffer: int) -> str:
    return f"*(const _Bool *)context->tensors[{buffer}].data"


@emit_step.register
def _(step: Measure, sizes: SizeCode, first: int) -> str:
    """Later statements see the size; extents that were as large as its bound get what it says."""
    measured = [measure.name for measure in sizes.plan.measures]
    later = measured[measured.index(step.name) + 1 :]
    value = f"((const int64_t *)context->tensors[{step.source}].data)[{step.element}]"
    size = sizes.variables[step.name]
    bound = "INT64_MAX" if step.bound is None else c_expression(step.bound, sizes.variables)
    extend = sizes.extend({step.name}, set(sizes.plan.symbols) - set(later))
    return MEASURE.format(name=literal(step.name), value=value, bound=bound, size=size, extend=extend)
