"""Arithmetic of integers that tensors hold: two's complement of their own width, as ONNX has it.

TVM takes it for granted that sums, differences and products stay within their type, and LLVM is told so: `x + 1 > x`
becomes true. This holds for indices and extents, whose loops are fast for it, but not for values of tensors. Functions
of values are therefore calls of functions of our own, of which TVM's simplifier knows nothing, with vectors as well.
When the kernel is compiled, `define_functions` adds their code in LLVM's language, without promises; LLVM inlines it.

    x + y, x * y    =>    eqfuse.add(x, y), eqfuse.multiply(x, y)    =>    add i32, mul i32

Comparisons are among them: to TVM the least number of 32 bits does not exist. Floating-point numbers have TVM's
operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, te, tirx

Expr = Any

_PURE = 1
"""TVM's number of a call without side effects (`tirx.CallEffectKind.Pure`)."""

_DIVISOR = """\
  %is_zero = icmp eq {type} %b, {zero}
  %is_minus_one = icmp eq {type} %b, {minus_one}
  %traps = or {truth} %is_zero, {is_signed}
  %divisor = select {truth} %traps, {type} {one}, {type} %b
"""
"""Processors stop at a division by zero, and of the least number by -1."""
_QUOTIENT = """\
  %divided = {sign}div {type} %a, %divisor
  %negated = sub {type} {zero}, %a
  %whole = select {truth} {is_signed}, {type} %negated, {type} %divided
  %result = select {truth} %is_zero, {type} {zero}, {type} %whole
"""
_SHIFT = """\
  %is_far = icmp uge {type} %b, {bits}
  %near = select {truth} %is_far, {type} {zero}, {type} %b
  %shifted = {shift} {type} %a, %near
  %result = select {truth} %is_far, {type} {zero}, {type} %shifted
"""
_EXTREME = """\
  %is_first = icmp {order} {type} %a, %b
  %result = select {truth} %is_first, {type} %a, {type} %b
"""

_CODE: Mapping[str, str] = {
    "add": "  %result = add {type} %a, %b\n",
    "subtract": "  %result = sub {type} %a, %b\n",
    "multiply": "  %result = mul {type} %a, %b\n",
    "divide": _DIVISOR + _QUOTIENT,
    "remainder": _DIVISOR + "  %result = {sign}rem {type} %a, %divisor\n",
    "shift_left": _SHIFT.replace("{shift}", "shl"),
    "shift_right": _SHIFT.replace("{shift}", "lshr"),
    "smaller": _EXTREME.replace("{order}", "{sign}lt"),
    "larger": _EXTREME.replace("{order}", "{sign}gt"),
    "equal": "  %result = icmp eq {type} %a, %b\n",
    "less": "  %result = icmp {sign}lt {type} %a, %b\n",
    "less_or_equal": "  %result = icmp {sign}le {type} %a, %b\n",
}
"""The functions in LLVM's language; 0 is the quotient and the remainder of a division by zero, as on Arm."""

_TRUNCATION = """\
  %is_high = fcmp {is_high} {type} %a, {top}
  %lower = fsub {type} %a, {top}
  %moved = select {truth} %is_high, {type} %lower, {type} %a
  %is_above = fcmp oge {type} %moved, {bottom}
  %is_below = fcmp olt {type} %moved, {top}
  %fits = and {truth} %is_above, %is_below
  %number = fptosi {type} %moved to {word}
  %signed = select {truth} %fits, {word} %number, {word} {least}
  %flipped = xor {word} %signed, {least}
  %word = select {truth} %is_high, {word} %flipped, {word} %signed
  %result = {narrow} {word} %word to {result}
"""
"""A float without its fraction, by the instruction of x86-64 that makes a signed word of it: what does not fit is the
least word. Numbers of 64 bits without a sign from 2^63 on are moved by 2^63 (`is_high`), as compilers of C do."""
_TRUNCATIONS: Mapping[str, str] = {
    f"truncate_to_{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""The names of the functions that make an integer of a float: its type."""
_PREFIX = "eqfuse."


def _register(name: str) -> None:
    tvm_ffi.get_global_func("ir.RegisterOp")(_PREFIX + name, f"{name} of integers that wrap around")
    ir.register_op_attr(_PREFIX + name, "TCallEffectKind", _PURE)
    ir.register_op_attr(_PREFIX + name, "TVectorizable", True)


for _name in (*_CODE, *_TRUNCATIONS):
    _register(_name)


def _binary(name: str, of_floats: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """The function of two numbers of one type; of floats and truth values it is TVM's."""

    def function(x: Expr, y: Expr) -> Expr:
        x, y = tirx.convert(x), tirx.convert(y)
        dtype = str(x.ty.dtype)
        if not is_integer(dtype):
            return of_floats(x, y)
        return tirx.call_intrin("bool" if _is_comparison(name) else dtype, _PREFIX + name, x, y)

    return function


def is_integer(dtype: str) -> bool:
    """Whether a type is one of integers, by numpy's name."""
    return dtype.startswith(("int", "uint"))


def _is_comparison(name: str) -> bool:
    return "icmp" in _CODE[name].splitlines()[-1]


add = _binary("add", lambda x, y: x + y)
subtract = _binary("subtract", lambda x, y: x - y)
multiply = _binary("multiply", lambda x, y: x * y)
divide = _binary("divide", lambda x, y: x / y)
"""The quotient: of integers towards zero, and 0 by zero."""
remainder = _binary("remainder", tirx.truncmod)
"""The remainder of integers, with the sign of the dividend; 0 by zero."""
shift_left = _binary("shift_left", tirx.shift_left)
"""Unsigned integers, shifted; 0 if all bits are shifted out."""
shift_right = _binary("shift_right", tirx.shift_right)
"""Unsigned integers, shifted; 0 if all bits are shifted out."""
smaller = _binary("smaller", te.min)
larger = _binary("larger", te.max)
equal = _binary("equal", tirx.EQ)
less = _binary("less", tirx.LT)
less_or_equal = _binary("less_or_equal", tirx.LE)


def negate(x: Expr) -> Expr:
    """-x; the least integer is its own."""
    return subtract(tirx.const(0, str(x.ty.dtype)), x) if is_integer(str(x.ty.dtype)) else -x


def absolute(x: Expr) -> Expr:
    """|x|; the least integer is its own. It reads `x` three times."""
    dtype = str(x.ty.dtype)
    if not is_integer(dtype):
        return tirx.abs(x)
    return x if dtype.startswith("uint") else tirx.Select(less(x, tirx.const(0, dtype)), negate(x), x)


def truncate(x: Expr, dtype: str) -> Expr:
    """A float as an integer of a type, without its fraction.

    What the type cannot hold is what ONNX Runtime's code has of it: the least number of 32 or 64 bits, whose last bits
    are kept. docs/lowering.md has the table.
    """
    source = str(x.ty.dtype)
    if source not in ("float32", "float64"):
        return truncate(x.astype("float32"), dtype)
    return tirx.call_intrin(dtype, f"{_PREFIX}truncate_to_{dtype}", x)


def is_arithmetic(expression: Any) -> bool:
    """Whether an expression is a function of integers from here."""
    return isinstance(expression, ir.Call) and _name_of(expression) is not None


def _name_of(call: Any) -> str | None:
    name = str(call.op.name) if isinstance(call.op, ir.Op) else ""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def word_bits(dtype: str) -> int:
    """The bits of the signed word that a float becomes on its way to an integer type."""
    return 32 if dtype in ("int8", "uint8", "int16", "uint16", "int32") else 64


_WRAPPING = {tirx.Add: add, tirx.Sub: subtract, tirx.Mul: multiply}


def define_functions(body: Any) -> Any:
    """A statement in which functions of integers are calls of functions that come with it.

    Sums and products that are stored wrap as well, if a tensor is loaded for them: reductions are made of TVM's own,
    which schedules know, C = C + A * B.
    """
    definitions: dict[str, str] = {}

    def call_function(call: Any) -> Any:
        name = _name_of(call)
        if name is None:
            return call
        operands = str(call.args[0].ty.dtype)
        symbol = f"eqfuse_{name}_{operands}"
        definitions[symbol] = _definition(symbol, name, operands)
        return tirx.call_pure_extern(str(call.ty.dtype), symbol, *call.args)

    def store(statement: Any) -> Any:
        value = statement.value
        if not is_integer(str(value.ty.dtype)) or not _loads(value):
            return statement
        return tirx.BufferStore(statement.buffer, _wrapped(value), statement.indices)

    body = tvm_ffi.structural_map(body, [(tirx.BufferStore, store)])
    body = tvm_ffi.structural_map(body, [(ir.Call, call_function)])
    if not definitions:
        return body
    text = ir.StringImm("".join(definitions.values()))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, body)


def _loads(value: Any) -> bool:
    if type(value) in _WRAPPING:
        return _loads(value.a) or _loads(value.b)
    return isinstance(value, ir.TensorLoad)


def _wrapped(value: Any) -> Any:
    """The value with the sums and products at its top as functions of integers; indices are left alone."""
    function = _WRAPPING.get(type(value))
    return value if function is None else function(_wrapped(value.a), _wrapped(value.b))


def _definition(symbol: str, name: str, operands: str) -> str:
    """The function of operands of a type, which may be a vector, in LLVM's language."""
    dtype = tvm_ffi.dtype(operands)

    def of_lanes(element: str) -> str:
        return f"<{dtype.lanes} x {element}>" if dtype.lanes > 1 else element

    def constant(element: str, value: str) -> str:
        return f"splat ({element} {value})" if dtype.lanes > 1 else value

    truth = of_lanes("i1")
    if name in _TRUNCATIONS:
        element, target = "float" if dtype.bits == 32 else "double", tvm_ffi.dtype(_TRUNCATIONS[name])
        bits = word_bits(_TRUNCATIONS[name])
        type_, word, result = of_lanes(element), of_lanes(f"i{bits}"), of_lanes(f"i{target.bits}")
        code = _TRUNCATION.format(
            type=type_,
            truth=truth,
            word=word,
            result=result,
            top=constant(element, f"{2.0 ** (bits - 1):.1f}"),
            bottom=constant(element, f"{-(2.0 ** (bits - 1)):.1f}"),
            least=constant(f"i{bits}", str(-(2 ** (bits - 1)))),
            is_high="oge" if _TRUNCATIONS[name] == "uint64" else "false",
            narrow="trunc" if target.bits < bits else "bitcast",
        )
        return f"define {result} @{symbol}({type_} %a) {{\n{code}  ret {result} %result\n}}\n"
    element = f"i{dtype.bits}"
    type_, is_signed = of_lanes(element), operands.startswith("int")
    code = _CODE[name].format(
        type=type_,
        truth=truth,
        zero=constant(element, "0"),
        one=constant(element, "1"),
        minus_one=constant(element, "-1"),
        bits=constant(element, str(dtype.bits)),
        is_signed="%is_minus_one" if is_signed else constant("i1", "false"),
        sign="s" if is_signed else "u",
    )
    result = truth if _is_comparison(name) else type_
    return f"define {result} @{symbol}({type_} %a, {type_} %b) {{\n{code}  ret {result} %result\n}}\n"
