"""Bad input: one clear line, the right exit code, no partial file, the input as it was."""

from __future__ import annotations

import errno
import os
import resource

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

from .command_line import RECORD, CommandLine

ADD_TO_SUB = "(rewrite (Add a b) (Sub a b) :ruleset explore"

NO_MODELS = {
    "truncated": None,  # the first half of a model
    "empty": b"",
    "random": np.random.default_rng(0).bytes(3000),
    "text": b"hello, this is no model\n",
    "picture": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xdb\x00C\x00" + bytes(600),
}


def broken_file(eqfuse: CommandLine, kind: str) -> bytes:
    """Make `in.onnx` a file that is no model; what it holds."""
    content = NO_MODELS[kind]
    if content is None:
        whole = eqfuse.chain(20).read_bytes()
        content = whole[: len(whole) // 2]
    eqfuse.write("in.onnx", content)
    return content


@pytest.mark.parametrize("kind", NO_MODELS)
def test_a_file_that_is_no_model(eqfuse: CommandLine, kind: str) -> None:
    content = broken_file(eqfuse, kind)
    assert eqfuse.fail(1, "optimize", "in.onnx", "out.onnx").startswith("in.onnx: ")
    assert eqfuse.files() == ["in.onnx"]
    assert (eqfuse.folder / "in.onnx").read_bytes() == content


@pytest.mark.parametrize("command", ["optimize", "inspect", "bisect", "verify", "diff"])
def test_every_command_says_which_model_is_missing(eqfuse: CommandLine, command: str) -> None:
    eqfuse.small()
    models = ("in.onnx", "missing.onnx") if command in ("verify", "diff") else ("missing.onnx",)
    assert eqfuse.fail(1, command, *models) == "missing.onnx: no such file"


def test_a_folder_as_input(eqfuse: CommandLine) -> None:
    assert eqfuse.fail(1, "optimize", ".") == ".: is a folder, not an ONNX file"


def node(kind: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Frobnicate", "x", "y")], "Frobnicate"),
        ([node("Add", "x", "y")], "Add"),
        ([node("Add", "x nowhere", "y")], "nowhere"),
        ([node("Relu", "a", "y"), node("Relu", "y", "a")], "nodes read each other's results in a circle"),
        ([node("Add", "x y", "y")], "node of 'y' (Add) reads its own result"),
        ([node("Relu", "x", "y"), node("Exp", "x", "y")], "'y'"),
        ([node("Relu", "x", "z")], "'y'"),
        ([node("Transpose", "x", "y", perm="ab")], "perm"),
    ],
    ids=[
        "unknown operator",
        "operands",
        "unknown value",
        "circle",
        "loop",
        "two producers",
        "no producer",
        "attribute type",
    ],
)
def test_a_model_that_fails_the_checker(eqfuse: CommandLine, nodes: list[NodeProto], message: str) -> None:
    eqfuse.model("in.onnx", nodes)
    error = eqfuse.fail(1, "optimize", "in.onnx", "out.onnx")
    assert error.startswith("in.onnx: ")
    assert message in error
    assert eqfuse.files() == ["in.onnx"]


def test_libraries_do_not_talk_to_the_user(eqfuse: CommandLine) -> None:
    """onnx_ir logs a warning for this model, which has no line of its own on standard error."""
    eqfuse.model("in.onnx", [node("Add", "x nowhere", "y")])
    assert "nowhere" in eqfuse.spawn("inspect", "in.onnx").error


@pytest.mark.parametrize(
    ("destination", "code", "message"),
    [
        (".", 2, ".: is a folder"),
        ("no/such/out.onnx", 2, "no/such/out.onnx: the folder no/such does not exist"),
        ("in.onnx/out.onnx", 2, "in.onnx/out.onnx: the folder in.onnx does not exist"),
        ("/proc/out.onnx", 1, "/proc/out.onnx: cannot be written"),
        ("in.onnx", 2, "in.onnx: is the input itself"),
        ("./../{folder}/in.onnx", 2, "is the input itself"),
        ("link.onnx", 2, "link.onnx: is the input itself"),
    ],
)
def test_a_destination_that_cannot_be_written(eqfuse: CommandLine, destination: str, code: int, message: str) -> None:
    content = eqfuse.small().read_bytes()
    (eqfuse.folder / "link.onnx").symlink_to("in.onnx")
    assert message in eqfuse.fail(code, "optimize", "in.onnx", "-o", destination.format(folder=eqfuse.folder.name))
    assert eqfuse.files() == ["in.onnx", "link.onnx"]
    assert (eqfuse.folder / "in.onnx").read_bytes() == content


@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "in.onnx", "-o", "none/out.onnx"),
        ("optimize", "in.onnx", "--report", "none/out.html"),
        ("optimize", "in.onnx", "--partition", "ago", "--certificate", "none/out.json"),
        ("extract", "in.onnx", "-o", "none/out.onnx"),
        ("reduce", "in.onnx", "--check", "false", "-o", "none/out.onnx"),
        ("compile", "in.onnx", "-o", "none/out"),
        ("tune", "in.onnx", "-o", "none/out", "--trials", "4"),
        ("run", "bundle", "--output", "none/out.npz"),
        ("rules", "discover", "--ops", "Add", "--size", "1", "--output", "none/out.egg"),
        ("profile", "export", "none/out.json"),
        ("profile", "import", "in.json", "--database", "none/out.db"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_the_folder_of_an_output_must_exist(eqfuse: CommandLine, arguments: tuple[str, ...]) -> None:
    """As for cp: a name that is mistyped makes no folders."""
    eqfuse.small()
    eqfuse.write("in.json", "{}")
    error = eqfuse.fail(2, *arguments)
    assert error.endswith("none does not exist")
    assert eqfuse.files() == ["in.json", "in.onnx"]


def test_a_full_disk_while_a_bundle_is_written(eqfuse: CommandLine) -> None:
    """The message names the bundle, not the folder beside it that is filled first."""
    weight = np.random.default_rng(0).standard_normal((600, 600))
    eqfuse.model("in.onnx", [node("MatMul", "x w", "y")], (2, 600), w=weight)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    outcome = eqfuse.spawn("compile", "in.onnx", "-o", "build", "--format", "c", "--no-verify", before=limit)
    assert outcome.code == 1
    assert outcome.error.startswith("build: cannot be written: ")
    assert eqfuse.files() == ["in.onnx"]


def test_a_file_that_may_not_be_read(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "in.onnx")

    eqfuse.small()
    monkeypatch.setattr(onnx, "load", refuse)
    assert eqfuse.fail(1, "inspect", "in.onnx") == "in.onnx: cannot be read: Permission denied"


def test_a_full_disk_keeps_the_earlier_output(eqfuse: CommandLine) -> None:
    """A limit on the size of files stands for the disk: both end a write halfway."""
    weight = np.random.default_rng(0).standard_normal((600, 600))
    eqfuse.model("in.onnx", [node("MatMul", "x w", "y")], (2, 600), w=weight)
    eqfuse.write("out.onnx", "from before")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    outcome = eqfuse.spawn("optimize", "in.onnx", "out.onnx", "--no-verify", before=limit)
    assert outcome.code == 1
    assert outcome.error.startswith("out.onnx: cannot be written: ")
    assert eqfuse.files() == ["in.onnx", "out.onnx"]
    assert (eqfuse.folder / "out.onnx").read_text() == "from before"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--device", "toaster"), 2, "--device: there is no device 'toaster'"),
        (("--device", "broken.toml"), 2, "broken.toml: not a TOML file"),
        (("--only", "distributiv"), 2, "did you mean distributive?"),
        (("--skip", "no-such-tag"), 2, "'no-such-tag'"),
        (("--opset", "999"), 2, "--opset: 999 is not known here; the newest is"),
        (("--input-shapes", "z:2,3"), 2, "no input 'z'; it has x"),
        (("--outputs", "z"), 2, "computes no value 'z'; it has y"),
        (("--input-shapes", "x:2,3,4"), 2, "x has 2 dimensions, not 3"),
        (("-o", "a.onnx", "b.onnx"), 2, "two files to write: b.onnx and a.onnx"),
        (("--rules", "missing.egg"), 4, "missing.egg"),
        (("--rules", "folder"), 4, "folder: no .egg file is in this folder"),
    ],
)
def test_an_option_that_does_not_fit(eqfuse: CommandLine, options: tuple[str, ...], code: int, message: str) -> None:
    eqfuse.small()
    eqfuse.write("broken.toml", "= = =")
    (eqfuse.folder / "folder").mkdir()
    assert message in eqfuse.fail(code, "optimize", "in.onnx", *options)
    assert eqfuse.files() == ["broken.toml", "folder", "in.onnx"]


@pytest.mark.representatives(9)
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('(rewrite (Add a b) (Sub a b) :ruleset explore :name "x"\n', "1:1: this parenthesis is not closed"),
        (f'{RECORD}(rewrite (Add a b) (Sub a c) :ruleset explore :name "x")', "7:27: the variable c is not bound"),
        (f'{RECORD}(rewrite (Addd a b) (Sub a b) :ruleset explore :name "x")', "7:10: there is no constructor"),
        (f'{RECORD}{ADD_TO_SUB} :name "x")\n{RECORD}{ADD_TO_SUB} :name "x")', "14:1: the name x is taken"),
        (f'{ADD_TO_SUB} :name "x")', "1:1: the rule has no comment"),
        (f"{RECORD}{ADD_TO_SUB})", "7:1: "),
        ("\xff", "1:1: "),
    ],
    ids=["syntax", "unbound variable", "unknown operator", "duplicate name", "no record", "no name", "no command"],
)
@pytest.mark.parametrize("command", [("optimize", "in.onnx", "out.onnx", "--rules"), ("bisect", "in.onnx", "--rules")])
def test_a_rule_file_with_a_fault(eqfuse: CommandLine, command: tuple[str, ...], text: str, place: str) -> None:
    eqfuse.small()
    eqfuse.write("bad.egg", text)
    assert eqfuse.fail(4, *command, "bad.egg").startswith(f"bad.egg:{place}")
    assert eqfuse.files() == ["bad.egg", "in.onnx"]


def test_a_rule_file_that_is_nested_too_deep(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.write("deep.egg", f"{RECORD}{'(' * 5000}{')' * 5000}")
    error = eqfuse.fail(4, "optimize", "in.onnx", "out.onnx", "--rules", "deep.egg")
    assert error.startswith("deep.egg:7:101: parentheses are nested deeper than 100 levels")


@pytest.mark.parametrize("command", [("optimize", "in.onnx"), ("bisect", "in.onnx"), ("rules", "list")])
def test_a_rule_file_that_is_a_pipe(eqfuse: CommandLine, command: tuple[str, ...]) -> None:
    eqfuse.small()
    os.mkfifo("endless.egg")
    assert eqfuse.fail(4, *command, "--rules", "endless.egg") == "endless.egg: is a device or a pipe, not a rule file"


@pytest.mark.parametrize(("target", "code"), [([-1, -1], 1), ([2, 3], 4)])
def test_a_rule_is_blamed_only_where_the_model_itself_runs(eqfuse: CommandLine, target: list[int], code: int) -> None:
    """A Reshape cannot find two sizes, but shape inference lets it pass."""
    eqfuse.rule("bad.egg", '(rewrite (Transpose x p) x :ruleset explore :name "flat-earth")')
    shape = node("Constant", "", "shape", value=numpy_helper.from_array(np.array(target)))
    eqfuse.model("in.onnx", [node("Transpose", "x", "t", perm=[1, 0]), shape, node("Reshape", "t shape", "y")])
    error = eqfuse.fail(code, "optimize", "in.onnx", "out.onnx", "--rules", "bad.egg", "--trust-rules")
    assert ("bad.egg:7:1: rule flat-earth united two terms" in error) == (code == 4)
    assert eqfuse.files() == ["bad.egg", "in.onnx"]


@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_a_model_without_outputs(eqfuse: CommandLine, options: tuple[str, ...]) -> None:
    model = onnx.load(eqfuse.small())
    del model.graph.output[:]
    eqfuse.write("in.onnx", model.SerializeToString())
    error = eqfuse.fail(1, "optimize", "in.onnx", "out.onnx", *options)
    assert error == "in.onnx: the graph has no outputs, so there is nothing to compute; name some"
    assert eqfuse.files() == ["in.onnx"]


@pytest.mark.parametrize("flags", [(), ("-v",), ("-vv",)])
def test_only_two_v_show_a_traceback(eqfuse: CommandLine, flags: tuple[str, ...]) -> None:
    outcome = eqfuse.run("inspect", "missing.onnx", *flags)
    assert outcome.code == 1
    assert ("Traceback" in outcome.err) == (flags == ("-vv",))
    assert outcome.err.endswith("eqfuse: error: missing.onnx: no such file\n")


def test_a_reader_that_goes_away_is_no_error(eqfuse: CommandLine) -> None:
    outcome = eqfuse.pipe("rules", "list", into="head -n 1")
    assert outcome.err == ""
    assert outcome.out.endswith(" rules\n")


def test_an_output_that_is_full(eqfuse: CommandLine) -> None:
    outcome = eqfuse.pipe("rules", "list", into="cat > /dev/null", output="/dev/full")
    assert outcome.error == "standard output or a temporary file: No space left on device"


@pytest.mark.parametrize("further", [(), ("--no-verify",)])
@pytest.mark.parametrize("shape", ["x:1,3,9,9", "x:1,4,8,8"])
def test_input_shapes_that_the_model_cannot_have_are_refused(
    eqfuse: CommandLine, shape: str, further: tuple[str, ...]
) -> None:
    """Maps that a product of matrices does not fit, and channels that a convolution does not."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    eqfuse.model("in.onnx", nodes, (1, 3, 8, 8), w=np.ones((2, 3, 3, 3), np.float32), v=np.ones((128, 5), np.float32))
    error = eqfuse.fail(2, "optimize", "in.onnx", "out.onnx", "--input-shapes", shape, *further)
    assert error.startswith(f"--input-shapes {shape}: in.onnx cannot have these: the original ")
    assert error.endswith("; give others")
    assert eqfuse.files() == ["in.onnx"]
