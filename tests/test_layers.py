"""Each layer imports only from those to its right, and no modules import each other in a circle:
`cli > driver > tools, lowering > extract > engine > costmodels, rules > ir > support`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import eqfuse

PACKAGE = "eqfuse"
LAYERS = (
    ("cli",), ("driver",), ("tools", "lowering"), ("extract",), ("engine",), ("costmodels", "rules"), ("ir",),
    ("support",),
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NOT_LAYERS = frozenset({"tests", "benchmarks", "examples", "docs", "build", "dist", "models"})


@dataclass(frozen=True)
class Import:
    """One import of the package by itself: the importer, the line, and the absolute name of the imported module."""

    file: Path
    line: int
    target: str


def layer(module: str) -> str:
    """The layer of a module named relative to the package; a root module belongs to the outermost, `cli`."""
    return module.split(".")[0] if module.split(".")[0] in RANK else "cli"


def source_files(root: Path) -> list[Path]:
    folders = [path for path in root.iterdir() if path.name not in NOT_LAYERS and not path.name.startswith(".")]
    return sorted([*root.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))])


def absolute_names(node: ast.stmt, package: tuple[str, ...]) -> list[str]:
    """What an import statement in `package` takes, as absolute dotted names; [] for other statements."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else ()
    stem = ".".join((*base, *filter(None, [node.module])))
    return [f"{stem}.{alias.name}" for alias in node.names]


@cache
def own_imports(root: Path) -> tuple[Import, ...]:
    """Every import of the package by one of its own modules, those inside functions included."""
    return tuple(each for path in source_files(root) for each in imports_of(path, root))


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    package = (PACKAGE, *path.relative_to(root).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            names = (name.split(".", 1) for name in absolute_names(node, package))
            yield from (Import(path, node.lineno, rest[0]) for head, *rest in names if head == PACKAGE and rest)


def allowed(importer: str, target: str) -> bool:
    if target.startswith("__"):
        return True
    inner, outer = layer(target), layer(importer)
    return inner == outer or RANK[inner] > RANK[outer]


def violations(root: Path) -> list[str]:
    """One line per import that goes to the left, and per package that is in no layer."""
    packages = {path.parent.name for path in root.glob("*/__init__.py")}
    unknown = [f"{name}/ is in no layer" for name in sorted(packages - RANK.keys() - NOT_LAYERS)]
    return unknown + [
        f"{found.file.relative_to(root)}:{found.line}: imports {found.target}"
        for found in own_imports(root)
        if not allowed(found.file.relative_to(root).with_suffix("").as_posix().replace("/", "."), found.target)
    ]


def circle(root: Path) -> tuple[str, ...]:
    """The modules of a circle of imports, those inside functions included; () where there is none."""
    names = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in source_files(root)
    }
    imported: dict[str, set[str]] = {name: set() for name in names}
    by_file = {path: name for name, path in names.items()}
    for found in own_imports(root):
        importer, target = by_file[found.file], found.target
        while target and target not in names:
            target = target.rpartition(".")[0]
        if target and target != importer:
            imported[importer].add(target)
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_package_keeps_its_layers() -> None:
    assert violations(Path(eqfuse.__file__).parent) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(Path(eqfuse.__file__).parent) == ()


@pytest.mark.parametrize("later", ["from .lint import check", "def f():\n    from .lint import check"])
def test_a_circle_is_found(tmp_path: Path, later: str) -> None:
    files = {"rules/lint.py": "from .loader import read", "rules/loader.py": later, "rules/records.py": ""}
    assert set(circle(tree(tmp_path, files))) == {"rules.lint", "rules.loader"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("engine/model.py", "from ..extract import greedy"),
        ("engine/model.py", "from .. import extract"),
        ("engine/model.py", "import eqfuse.extract.greedy"),
        ("engine/model.py", "from eqfuse import lowering"),
        ("engine/model.py", "from eqfuse.cli import main"),
        ("engine/model.py", "from ..api import optimize"),
        ("driver/optimize.py", "from ..cli import main"),
        ("lowering/te.py", "from ..driver.optimize import optimize_model"),
        ("engine/model.py", "def f():\n    from ..extract.greedy import select"),
        ("engine/verification/compare.py", "from ...extract import greedy"),
        ("extract/__init__.py", "from ..lowering import te"),
        ("rules/loader.py", "from ..engine.model import read"),
        ("rules/loader.py", "from ..costmodels.device import Device"),
        ("ir/types.py", "from ..rules.loader import read_file"),
        ("costmodels/flops.py", "from ..rules import loader"),
        ("lowering/te.py", "from .. import optimize"),
        ("support/files.py", "from ..rules import loader"),
        ("tuning/__init__.py", ""),
    ],
)
def test_a_violation_is_found(tmp_path: Path, file: str, text: str) -> None:
    assert len(violations(tree(tmp_path, {file: text}))) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cli.py", "from .lowering import te"),
        ("api.py", "from .extract import greedy"),
        ("__init__.py", "from . import api"),
        ("lowering/te.py", "from ..rules import loader"),
        ("engine/model.py", "from .nodes import Node"),
        ("engine/verification/compare.py", "from ..model import read"),
        ("engine/model.py", "from .. import __version__"),
        ("lowering/te.py", "from ..support.version import __version__"),
        ("rules/loader.py", "from ..support.errors import RuleError"),
        ("engine/model.py", "import numpy, onnx.helper"),
        ("tests/test_model.py", "from eqfuse.cli import main"),
        (".venv/lib/eqfuse/rules/loader.py", "from ..engine import model"),
    ],
)
def test_a_permitted_import_passes(tmp_path: Path, file: str, text: str) -> None:
    assert violations(tree(tmp_path, {file: text})) == []
