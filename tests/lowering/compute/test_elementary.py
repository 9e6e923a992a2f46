"""The elementary functions are right to the last places over their whole range, and are vector instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from scipy import special
from tvm import s_tir, te

from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.compute import elementary

from ..in_tvm import Array

Function = Callable[..., Any]
NAN, INFINITY = float("nan"), float("inf")
LEAST_NORMAL = 2.0**-126

WITHOUT_FUSED: Mapping[str, Any] = {"kind": "llvm"}
HOST: Mapping[str, Any] = target_of("host").description
VECTOR_TARGETS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "AVX-512": ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "sapphirerapids"}, 16),
    "AVX2": ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"}, 8),
    "NEON": ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "mattr": ["+neon"]}, 4),
}


@dataclass(frozen=True)
class Accuracy:
    """A function, what it computes in float64, and by how many units of the last place it may differ.

    `flushes`: it may give 0 for a subnormal number. `limits` are its values at -infinity and infinity.
    """

    ours: Function
    reference: Function
    ulps: float
    limits: tuple[float, float]
    flushes: bool = True


def softplus(x: Array) -> Any:
    return np.logaddexp(x, 0)


def mish(x: Array) -> Any:
    return x * np.tanh(softplus(x))


ACCURACIES = {
    "exp": Accuracy(elementary.exp, np.exp, 2, (0, INFINITY), flushes=False),
    "sigmoid": Accuracy(elementary.sigmoid, special.expit, 3, (0, 1)),
    "tanh": Accuracy(elementary.tanh, np.tanh, 6, (-1, 1), flushes=False),
    "erf": Accuracy(elementary.erf, special.erf, 8, (-1, 1)),
    "log": Accuracy(elementary.log, np.log, 1.5, (NAN, INFINITY), flushes=False),
    "sin": Accuracy(elementary.sin, np.sin, 3, (NAN, NAN), flushes=False),
    "cos": Accuracy(elementary.cos, np.cos, 3, (NAN, NAN), flushes=False),
    "tan": Accuracy(elementary.tan, np.tan, 4, (NAN, NAN), flushes=False),
    "atan": Accuracy(elementary.atan, np.arctan, 3, (-np.pi / 2, np.pi / 2), flushes=False),
    "asin": Accuracy(elementary.asin, np.arcsin, 3, (NAN, NAN), flushes=False),
    "acos": Accuracy(elementary.acos, np.arccos, 3, (NAN, NAN), flushes=False),
    "softplus": Accuracy(elementary.softplus, softplus, 3, (0, INFINITY)),
}
functions = pytest.mark.parametrize("function", ACCURACIES.values(), ids=ACCURACIES.keys())


def prim_func(function: Function, size: int, dtype: str, name: str) -> Any:
    source = te.placeholder((size,), dtype, "x")
    result = te.compute((size,), lambda i: function(source(i)), "y")
    return te.create_prim_func([source, result]).with_attr("global_symbol", name)


def values(function: Function, x: Array, target: Mapping[str, Any] = HOST) -> Array:
    module = tvm.IRModule({"f": prim_func(function, len(x), str(x.dtype), "f")})
    result = tvm.runtime.tensor(np.empty_like(x))
    tvm.compile(module, target=tvm.target.Target(dict(target)))["f"](tvm.runtime.tensor(x), result)
    return np.asarray(result.numpy())


def singles() -> Array:
    """Numbers of every sign and exponent, subnormal ones too, and more where functions bend."""
    patterns = np.arange(0, 2**32, 20011, dtype=np.uint64).astype(np.uint32).view(np.float32)
    spread = [np.linspace(-105, 90, 60001), np.linspace(-10, 10, 60001), np.linspace(0.5, 2, 20001)]
    return np.concatenate([patterns[np.isfinite(patterns)], *spread]).astype(np.float32)


def ulps(computed: Array, expected: Array, flushes: bool) -> Array:
    """The distances in units of the last place of the expected numbers; if it `flushes`, at least of a normal one."""
    nearest = expected.astype(np.float32)
    spacing = np.spacing(np.where(np.isfinite(nearest), np.abs(nearest), np.float32(1))).astype(np.float64)
    same = (computed == nearest) | (np.isnan(computed) & np.isnan(expected))
    unit = np.where(np.abs(nearest) < LEAST_NORMAL, LEAST_NORMAL, spacing) if flushes else spacing
    return np.asarray(np.where(same, 0, np.abs(computed - expected) / unit))


@pytest.mark.representatives(4)
@pytest.mark.parametrize("target", [HOST, WITHOUT_FUSED], ids=["host", "without fused instructions"])
@functions
def test_right_to_the_last_places(function: Accuracy, target: Mapping[str, Any]) -> None:
    x = singles()
    with np.errstate(all="ignore"):
        distances = ulps(values(function.ours, x, target), function.reference(x.astype(np.float64)), function.flushes)
    assert distances.max() <= function.ulps, f"at {x[distances.argmax()]}"


@pytest.mark.representatives(6)
@functions
def test_in_double_precision(function: Accuracy) -> None:
    x = np.linspace(0.01, 50, 5001)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(values(function.ours, x), function.reference(x), 1e-13, 1e-300)


@pytest.mark.representatives(6)
@functions
def test_what_is_no_number_and_what_is_infinite(function: Accuracy) -> None:
    computed = values(function.ours, np.array([-INFINITY, INFINITY, NAN], np.float32))
    np.testing.assert_array_equal(computed, np.array([*function.limits, NAN], np.float32))


def test_the_exponential_ends_where_float_does() -> None:
    computed = values(elementary.exp, np.array([88.72283, 88.72284, -103.97, -103.98], np.float32))
    assert [float(v) for v in computed] == [pytest.approx(3.4027993e38), INFINITY, 2.0**-149, 0]


def test_the_short_exponential_up_to_88() -> None:
    x = singles()
    x = np.append(x[x <= 88], np.float32(-INFINITY))
    assert ulps(values(elementary.exp_below_88, x), np.exp(x.astype(np.float64)), True).max() <= 1.2


def test_the_hyperbolic_tangent_is_never_beyond_one() -> None:
    assert np.abs(values(elementary.tanh, np.linspace(5, 12, 200001).astype(np.float32))).max() <= 1


def test_the_logarithm_of_zero_and_below() -> None:
    computed = values(elementary.log, np.array([0.0, -0.0, -1e-45, -1.0], np.float32))
    np.testing.assert_array_equal(computed, np.array([-INFINITY, -INFINITY, NAN, NAN], np.float32))


def test_mish_right_to_the_last_places() -> None:
    x = singles()
    x = x[x > -80]
    assert ulps(values(elementary.mish, x), mish(x.astype(np.float64)), True).max() <= 6


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", VECTOR_TARGETS)
def test_no_calls_of_a_library(name: str) -> None:
    target, lanes = VECTOR_TARGETS[name]
    ours = [f.ours for f in ACCURACIES.values()] + [elementary.exp_below_88, elementary.mish]
    module = tvm.IRModule({f"f{n}": vectorise(f, lanes, f"f{n}") for n, f in enumerate(ours)})
    text = tvm.compile(module, target=tvm.target.Target(dict(target))).mod.inspect_source("ll")
    intrinsics = r"llvm\.(?:exp|log|pow|tanh|a?tan|a?sin|a?cos)\S*"
    called = set(re.findall(rf"call [^@\n]*@(\w+f)\(|call [^@\n]*@({intrinsics})\(", text))
    assert not called


def vectorise(function: Function, lanes: int, name: str) -> Any:
    schedule = s_tir.Schedule(prim_func(function, 8 * lanes, "float32", name))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, lanes])
    schedule.vectorize(inner)
    return schedule.mod["main"]
