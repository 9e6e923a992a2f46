"""What becomes of bodies: in the text of ONNX before, and by operators and outputs afterwards."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.bodies.inference import infer_form
from eqfuse.engine.onnx.model import read as read_model

from ...onnx_runtime import outputs_of

X = np.asarray([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
TARGET = np.asarray(X.shape)
FEEDS = [{"x": X, "c": np.array(c), "n": np.array(n), "target": TARGET} for c in (True, False) for n in (0, 1, 3)]


def read(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\nmain {text}')


def optimise(text: str) -> ir.Model:
    """The optimised model, after a comparison with the original."""
    model = read(text)
    result = optimize_model(model, None, Options(verify=False)).model
    proto = ir.to_proto(result)
    onnx.checker.check_model(proto, full_check=True)
    for feed in FEEDS:
        for expected, output in zip(outputs_of(model, feed), outputs_of(proto, feed), strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    return result


def operators(model: ir.Model) -> Counter[str]:
    """The operators of the main graph and of all bodies."""
    return Counter(node.op_type for node in model.graph.all_nodes())


def outside(model: ir.Model) -> Counter[str]:
    """The operators of the main graph alone."""
    return Counter(node.op_type for node in model.graph)


def test_what_is_known_outside_is_known_inside() -> None:
    """relu(x) is not negative, so that abs changes nothing, and the shape of x is known."""
    result = optimise("""(float[2,3] x, bool c) => (float[2,3] y) {
        r = Relu(x)
        y = If(c) <
            then_branch = g1() => (float[2,3] t) { a = Abs(r)  t = Exp(a) },
            else_branch = g2() => (float[2,3] e) {
                s = Shape(r)  z = ConstantOfShape<value: tensor = float[1] {2.0}>(s)  e = Mul(r, z) }
        >
    }""")
    assert operators(result) == {"Relu": 1, "If": 1, "Exp": 1, "Mul": 1}


def test_states_of_nested_loops_keep_their_shapes() -> None:
    """The inner loop begins with a state of the outer one, which returns what the inner one does."""
    result = optimise("""(float[2,3] x, int64 n) => (float[2,3] y) {
        true = Constant<value: tensor = bool {1}>()
        y = Loop(n, true, x) <body = g1(int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) {
            d = Identity(c)
            t = Loop(i, c, s) <body = g2(int64 j, bool e, float[2,3] u) => (bool f, float[2,3] v) {
                f = Identity(e)  v = Add(u, x) }>
        }>
    }""")
    states = [value for graph in result.graph.subgraphs() for value in graph.inputs[2:]]
    assert [value.shape for value in (*states, *result.graph.outputs)] == [ir.Shape([2, 3])] * 3


def test_results_of_no_iteration_have_the_shape_that_the_body_declares() -> None:
    """Nothing else says what it is where the loop does not run."""
    result = optimise("""(float[2,3] x, int64 n, int64[k] target) => (float[m,2,3] y) {
        true = Constant<value: tensor = bool {1}>()
        y = Loop(n, true) <body = g(int64 i, bool c) => (bool d, float[2,3] s) {
            d = Identity(c)  f = Cast<to = 1>(i)  a = Add(x, f)  r = Reshape(a, target)  s = Identity(r) }>
    }""")
    assert operators(result)["Reshape"] == 1
    assert next(graph.outputs[1].shape for graph in result.graph.subgraphs()) == ir.Shape([2, 3])


def test_branches_that_are_equal_take_the_place_of_an_if() -> None:
    result = optimise("""(float[2,3] x, bool c) => (float[2,3] y) {
        y = If(c) <
            then_branch = g1() => (float[2,3] t) { a = Exp(x)  t = Neg(a) },
            else_branch = g2() => (float[2,3] t) { b = Exp(x)  t = Neg(b) }
        >
    }""")
    assert operators(result) == {"Exp": 1, "Neg": 1}


def test_what_both_branches_compute_moves_in_front() -> None:
    result = optimise("""(float[2,3] x, bool c) => (float[2,3] y) {
        y = If(c) <
            then_branch = g1() => (float[2,3] t) { a = Exp(x)  t = Sin(a) },
            else_branch = g2() => (float[2,3] t) { b = Exp(x)  t = Cos(b) }
        >
    }""")
    assert outside(result) == {"Exp": 1, "If": 1}
    assert operators(result) == {"Exp": 1, "If": 1, "Sin": 1, "Cos": 1}


def test_what_one_branch_computes_stays_there() -> None:
    """Two Ifs compute the same, each for itself: without either condition nobody needs it."""
    result = optimise("""(float[2,3] x, bool c, int64 n) => (float[2,3] y, float[2,3] z) {
        one = Constant<value: tensor = int64 {1}>()
        d = Equal(n, one)
        y = If(c) <
            then_branch = g1() => (float[2,3] t) { a = Exp(x)  t = Sin(a) },
            else_branch = g2() => (float[2,3] t) { t = Neg(x) }
        >
        z = If(d) <
            then_branch = g3() => (float[2,3] t) { a = Exp(x)  t = Cos(a) },
            else_branch = g4() => (float[2,3] t) { t = Abs(x) }
        >
    }""")
    assert outside(result) == {"Equal": 1, "If": 2}
    assert operators(result)["Exp"] == 2


def test_a_condition_inside_its_own_branch_is_known() -> None:
    result = optimise("""(float[2,3] x, bool c) => (float[2,3] y) {
        y = If(c) <
            then_branch = g1() => (float[2,3] t) {
                t = If(c) <
                    then_branch = g2() => (float[2,3] i) { i = Exp(x) },
                    else_branch = g3() => (float[2,3] j) { j = Sin(x) }
                > },
            else_branch = g4() => (float[2,3] t) { t = Neg(x) }
        >
    }""")
    assert operators(result) == {"If": 1, "Exp": 1, "Neg": 1}


def test_a_branch_tells_nothing_of_sizes_outside() -> None:
    """A Squeeze runs only where its axis has one element: here it has two, and the other branch is taken."""
    model = read("""(float[a,b] x) => (float y) {
        s = Shape(x)
        zero = Constant<value: tensor = int64 {0}>()
        one = Constant<value: tensor = int64 {1}>()
        d = Gather(s, zero)
        c = Equal(d, one)
        axes = Constant<value: tensor = int64[1] {0}>()
        z = If(c) <
            then_branch = g1() => (t) { t = Squeeze(x, axes) },
            else_branch = g2() => (t) { t = Neg(x) }
        >
        y = ReduceSum<keepdims = 0>(z)
    }""")
    result = ir.to_proto(optimize_model(model, None, Options(verify=False)).model)
    for feed in ({"x": X}, {"x": X[:1]}):
        np.testing.assert_allclose(outputs_of(result, feed)[0], outputs_of(model, feed)[0], rtol=1e-6)


SQUEEZE = """(float[a,b,d] x, bool c) => (float y) {{
    s = Shape(x)
    two = Constant<value: tensor = int64 {{2}}>()
    one = Constant<value: tensor = int64 {{1}}>()
    last = Gather(s, two)
    is_one = Equal(last, one)
    axes = Constant<value: tensor = int64[1] {{2}}>()
    z = If(is_one) <
        then_branch = g1() => (t) {{ t = Squeeze(x, axes) }},
        else_branch = g2() => (t) {{ t = Identity(x) }}
    >
    w = Constant<value: tensor = float[3,2] {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}>()
    {product}
    y = ReduceSum<keepdims = 0>(p)
}}"""
"""Where the last axis of x has one element it is dropped; only then can x be an operand of Gemm."""


def test_a_branch_with_which_the_model_cannot_run_is_never_taken() -> None:
    model = read(SQUEEZE.format(product="p = Gemm(z, w)"))
    result = optimize_model(model, None, Options(verify=False)).model
    assert operators(result)["If"] == 0
    feed = {"x": X[:, :, None], "c": np.array(True)}
    np.testing.assert_allclose(outputs_of(ir.to_proto(result), feed)[0], outputs_of(model, feed)[0], rtol=1e-6)


def test_a_branch_for_other_sizes_than_the_model_has_is_never_taken() -> None:
    """As in a model with a branch for each sampling rate, once the number of samples is fixed."""
    model = read("""(float[2,3] x, bool c) => (float[a,b] y) {
        sizes = Constant<value: tensor = int64[2] {2, 3}>()
        r = Reshape(x, sizes)
        w = Constant<value: tensor = float[3,2] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>()
        y = If(c) <
            then_branch = g1() => (t) { t = MatMul(r, w) },
            else_branch = g2() => (t) { s = Transpose<perm = [1, 0]>(r)  t = MatMul(s, w) }
        >
    }""")
    result = optimize_model(model, None, Options(verify=False)).model
    assert operators(result)["If"] == 0
    w = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    outputs = outputs_of(ir.to_proto(result), {"x": X, "c": np.array(True)})
    np.testing.assert_allclose(outputs[0], X @ w, rtol=1e-6)


def test_what_fails_in_another_branch_refutes_nothing() -> None:
    model = read(SQUEEZE.format(product="""
        p = If(c) <
            then_branch = g3() => (t) { t = Gemm(z, w) },
            else_branch = g4() => (t) { t = Neg(x) }
        >
        q = Exp(z)
        r = ReduceSum<keepdims = 0>(q)
    """).replace("y = ReduceSum<keepdims = 0>(p)", "o = ReduceSum<keepdims = 0>(p)  y = Add(o, r)"))  # fmt: skip
    result = ir.to_proto(optimize_model(model, None, Options(verify=False)).model)
    for feed in ({"x": X[:, :, None], "c": np.array(True)}, {"x": X[None], "c": np.array(False)}):
        np.testing.assert_allclose(outputs_of(result, feed)[0], outputs_of(model, feed)[0], rtol=1e-6)


LOOP = """(float[2,3] x, int64 n) => (float[2,3] y) {{
    {outer}
    begin = Neg(x)
    y{results} = Loop({limit}, , begin{initial}) <
        body = b(int64 i, bool going, float[2,3] sum{formals}) => (bool go, float[2,3] more{returned}) {{
            {body}
        }}
    >
}}"""
"""A sum over iterations."""


def loop(body: str, outer: str = "", limit: str = "n", results: str = "", initial: str = "", formals: str = "",
         returned: str = "") -> ir.Model:  # fmt: skip
    return optimise(LOOP.format(**locals()))


def test_invariant_operators_leave_a_loop() -> None:
    result = loop("go = Identity(going)  a = Exp(x)  b = Sin(a)  more = Add(sum, b)")
    assert outside(result) == {"Neg": 1, "Exp": 1, "Sin": 1, "Loop": 1}
    assert operators(result)["Add"] == 1


def test_what_may_fail_stays_in_a_loop_that_may_not_run() -> None:
    """Element n of x is read only where there is an iteration."""
    result = loop("""
        go = Identity(going)
        one = Constant<value: tensor = int64 {1}>()
        m = Sub(n, one)
        two = Constant<value: tensor = int64 {2}>()
        k = Min(m, two)
        row = Gather<axis = 1>(x, k)
        axes = Constant<value: tensor = int64[1] {1}>()
        column = Unsqueeze(row, axes)
        more = Add(sum, column)
    """)
    assert outside(result)["Gather"] == 0


def test_what_stands_in_front_of_a_loop_stays_there() -> None:
    result = loop("go = Identity(going)  more = Add(sum, column)", outer="""
        two = Constant<value: tensor = int64 {2}>()
        k = Min(n, two)
        row = Gather<axis = 1>(x, k)
        axes = Constant<value: tensor = int64[1] {1}>()
        column = Unsqueeze(row, axes)
    """)  # fmt: skip
    assert outside(result)["Gather"] == 1


def test_states_that_never_change_are_captured() -> None:
    result = loop(
        "go = Identity(going)  same = Identity(k)  r = Relu(k)  more = Add(sum, r)",
        outer="p = Exp(x)", results=", last", initial=", p", formals=", float[2,3] k", returned=", float[2,3] same",
    )  # fmt: skip
    assert operators(result) == {"Neg": 1, "Exp": 1, "Loop": 1, "Add": 1}
    assert next(len(node.inputs) for node in result.graph if node.op_type == "Loop") == 3


def test_states_and_results_that_nobody_reads_are_gone() -> None:
    result = loop(
        "go = Identity(going)  q = Exp(k)  row = Sin(sum)  more = Add(sum, x)",
        results=", last, rows", initial=", x", formals=", float[2,3] k", returned=", float[2,3] q, float[2,3] row",
    )  # fmt: skip
    assert operators(result) == {"Neg": 1, "Loop": 1, "Add": 1}


@pytest.mark.parametrize("count", [0, 1])
def test_loops_that_run_at_most_once_are_gone(count: int) -> None:
    result = loop(
        "go = Identity(going)  e = Exp(x)  more = Add(sum, e)",
        outer=f"limit = Constant<value: tensor = int64 {{{count}}}>()", limit="limit",
    )  # fmt: skip
    assert "Loop" not in operators(result)


def test_a_scan_loses_what_nobody_reads() -> None:
    result = optimise(
        """(float[2,3] x) => (float[2,3] y) {
        begin = Constant<value: tensor = float[3] {0.0, 0.0, 0.0}>()
        last, y, z = Scan<num_scan_inputs = 2>(begin, x, x) <
            body = b(float[3] s, float[3] r, float[3] unread) => (float[3] t, float[3] u, float[3] v) {
                a = Abs(r)  b = Relu(a)  u = Neg(b)  v = Sin(r)  t = Add(s, r)
            }
        >
    }""".replace("Scan<num_scan_inputs = 2>(begin, x, x) <", "Scan(begin, x, x) <num_scan_inputs: int = 2, ")
    )
    assert operators(result) == {"Scan": 1, "Abs": 1, "Neg": 1}
    assert next(len(node.inputs) for node in result.graph if node.op_type == "Scan") == 1


def test_names_that_branches_share_do_not_meet() -> None:
    result = optimise("""(float[2,3] x, bool c) => (float[2,3] y) {
        y = If(c) <
            then_branch = g1() => (float[2,3] t) { a = Exp(x)  t = Sin(a) },
            else_branch = g2() => (float[2,3] t) { a = Cos(x)  t = Neg(a) }
        >
    }""")
    assert operators(result) == {"If": 1, "Exp": 1, "Sin": 1, "Cos": 1, "Neg": 1}


def test_a_loop_beside_a_body_of_an_operator_that_is_not_known() -> None:
    text = """(float[2] x, int64 n) => (float[2] y, float[2] z) {
        z, unread = own.Repeat (x) <body = once (float[2] a) => (float[2] b) { b = Exp (a) }>
        y = Loop (n, , x) <body = turn (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
            on = Identity (go)
            w = Mul (v, v)
        }>
    }"""
    source = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "own": 1]>\nmain {text}')
    result = optimize_model(source, None, Options(verify=False)).model
    assert operators(result) == {"Repeat": 1, "Exp": 1, "Loop": 1, "Mul": 1}


def test_a_state_that_its_body_declares_without_a_type_has_the_one_it_begins_with() -> None:
    names = ("i", "go", "state")
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["state"], ["next"]), onnx.helper.make_node("Identity", ["go"], ["on"])],
        "body", [onnx.ValueInfoProto(name=name) for name in names],
        [onnx.ValueInfoProto(name=name) for name in ("on", "next")],
    )  # fmt: skip
    port = onnx.helper.make_tensor_value_info
    loop = onnx.helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [port("n", onnx.TensorProto.INT64, []), port("x", 1, ["N", 3])]
    graph = onnx.helper.make_graph([loop], "loop", inputs, [port("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    assert infer_form(read_model(model))[1].types["y"].shape == ("N", 3)
