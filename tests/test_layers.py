"""Each layer imports only from those to its right, and neither modules nor folders import each other in a circle:
`cli > driver > tools, lowering > extract > engine > costmodels, rules > ir > support`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import eqfuse
from eqfuse.lowering.plan.manifest import BACK_ENDS

PACKAGE = "eqfuse"
LAYERS = (
    ("cli",), ("driver",), ("tools", "lowering"), ("extract",), ("engine",), ("costmodels", "rules"), ("ir",),
    ("support",),
)  # fmt: skip
CLI = frozenset({"cli", "driver", "support"})
"""What the command line imports: for each stage that a command runs, `driver/` has a function."""
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ORDERS = {
    "lowering": (
        "base", "plan", "compute", "arm", "bundle", "loops", "schedules", "kernels", "program", "running", "tuning",
    ),
    "lowering/dsa": ("network", "program", "schedule", "simulate", "tiles", "codegen", "clusters", "report", "bundle"),
    "lowering/schedules": ("base", "tiling", "passes", "winograd", "rules", "intensive"),
}  # fmt: skip
"""Folders, and the folders in them: each of these imports only from those before it."""
PROCESSES = "support/processes"
"""The folder that starts processes and hands work to them."""
OWN_PROCESSES = {"driver/session/verdicts.py", "lowering/running/throughput.py"}
"""Modules with a process that outlives its parent, and with threads that stand for clients."""
DOORS = {f"lowering/{name}": "back_end" for name in BACK_ENDS}
"""Folders that come after all others beside them, and of which other layers import only this module."""
NOT_LAYERS = frozenset({"tests", "benchmarks", "examples", "docs", "build", "dist", "models"})


@dataclass(frozen=True)
class Import:
    """One import by a module of the package: the importer, the line, and the absolute name of what is imported. Where
    only imports of the package by itself are meant, the name is relative to the package."""

    file: Path
    line: int
    target: str

    def path(self, root: Path) -> Path:
        """The importer, relative to the package."""
        return self.file.relative_to(root)


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
def all_imports(root: Path) -> tuple[Import, ...]:
    """Every import by a module of the package, those inside functions included."""
    return tuple(each for path in source_files(root) for each in imports_of(path, root))


@cache
def own_imports(root: Path) -> tuple[Import, ...]:
    """Those of the package by itself."""
    own = f"{PACKAGE}."
    found = (each for each in all_imports(root) if each.target.startswith(own))
    return tuple(replace(each, target=each.target.removeprefix(own)) for each in found)


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    package = (PACKAGE, *path.relative_to(root).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            yield from (Import(path, node.lineno, name) for name in absolute_names(node, package))


def allowed(importer: str, target: str) -> bool:
    if target.startswith("__"):
        return True
    if importer.split(".")[0] == "cli":
        return layer(target) in CLI
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


def climbs(root: Path) -> list[str]:
    """One line per import that goes against one of the `ORDERS`, and per folder that is missing there."""
    found = []
    for folder, names in ORDERS.items():
        order = (*names, *(Path(each).name for each in DOORS if Path(each).parent == Path(folder)))
        folders = {path.parent.name for path in (root / folder).glob("*/__init__.py")}
        found += [f"{folder}/{name}/ is in no order" for name in sorted(folders - {*order})]
        for each in own_imports(root):
            importer, target = (_name_in(folder, path) for path in (each.path(root), Path(*each.target.split("."))))
            if importer in order and target in order and order.index(target) > order.index(importer):
                found.append(f"{each.file.relative_to(root)}:{each.line}: imports {each.target}")
    return found


def break_ins(root: Path) -> list[str]:
    """One line per import of what lies behind one of the `DOORS`."""
    return [
        f"{each.file.relative_to(root)}:{each.line}: imports {each.target}"
        for folder, door in DOORS.items()
        for each in own_imports(root)
        if _name_in(folder, each.path(root)) is None
        and _name_in(folder, Path(*each.target.split("."))) not in (None, door)
    ]


def _name_in(folder: str, path: Path) -> str | None:
    """The name right below a folder on the way to a path; None outside of the folder."""
    return path.relative_to(folder).parts[0] if Path(folder) in path.parents else None


@cache
def imported_files(root: Path) -> dict[Path, set[Path]]:
    """The modules that each module imports, those inside functions included, all relative to the package."""
    paths = [path.relative_to(root) for path in source_files(root)]
    files = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    imported: dict[Path, set[Path]] = {path: set() for path in paths}
    for found in own_imports(root):
        target = found.target
        while target and target not in files:
            target = target.rpartition(".")[0]
        if target and files[target] != found.path(root):
            imported[found.path(root)].add(files[target])
    return imported


def circle(imported: Mapping[Path, Collection[Path]]) -> tuple[str, ...]:
    """Modules or folders that import each other in a circle; () if there are none."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return tuple(map(str, error.args[1]))
    return ()


def folder_imports(root: Path, depth: int) -> dict[Path, set[Path]]:
    """The folders that each folder imports; what lies deeper than `depth` counts as of its folder there, and a module
    of the root as a folder."""

    def folder(path: Path) -> Path:
        return Path(*path.parent.parts[:depth]) if path.parent.parts else path

    imported: dict[Path, set[Path]] = {}
    for path, others in imported_files(root).items():
        imported.setdefault(folder(path), set()).update({*map(folder, others)} - {folder(path)})
    return imported


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_package_keeps_its_layers() -> None:
    assert violations(Path(eqfuse.__file__).parent) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(imported_files(Path(eqfuse.__file__).parent)) == ()


@pytest.mark.parametrize("depth", range(1, 6))
def test_no_folders_import_each_other_in_a_circle(depth: int) -> None:
    assert circle(folder_imports(Path(eqfuse.__file__).parent, depth)) == ()


def test_folders_keep_their_order() -> None:
    assert climbs(Path(eqfuse.__file__).parent) == []


def test_a_folder_with_a_door_is_entered_by_it() -> None:
    assert break_ins(Path(eqfuse.__file__).parent) == []


@pytest.mark.parametrize("later", ["from .lint import check", "def f():\n    from .lint import check"])
def test_a_circle_is_found(tmp_path: Path, later: str) -> None:
    files = {"rules/lint.py": "from .loader import read", "rules/loader.py": later, "rules/records.py": ""}
    assert set(circle(imported_files(tree(tmp_path, files)))) == {"rules/lint.py", "rules/loader.py"}


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        (
            {"ir/a/x.py": "from ..b import y", "ir/b/y.py": "", "ir/b/z.py": "def f():\n    from ..a import x"},
            {2: {"ir/a", "ir/b"}, 3: {"ir/a", "ir/b"}},
        ),
        (
            {"ir/a.py": "from .b.y import f", "ir/b/y.py": "", "ir/b/z.py": "from ..c import g", "ir/c.py": ""},
            {2: {"ir", "ir/b"}, 3: {"ir", "ir/b"}},
        ),
        (
            {"ir/b/c/x.py": "from ..d import y", "ir/b/d/y.py": "", "ir/b/d/z.py": "from ..c import x"},
            {3: {"ir/b/c", "ir/b/d"}},
        ),
        (
            {"ir/b/c/x.py": "from ...d import y", "ir/d/y.py": "", "ir/d/z.py": "from ..b import e", "ir/b/e.py": ""},
            {2: {"ir/b", "ir/d"}},
        ),
        ({"ir/a/x.py": "from ..b import y", "ir/b/y.py": "from ..c import z", "ir/c/z.py": ""}, {}),
    ],
)
def test_a_circle_of_folders_is_found(tmp_path: Path, files: dict[str, str], folders: dict[int, set[str]]) -> None:
    root = tree(tmp_path, files)
    assert {depth: set(found) for depth in range(1, 4) if (found := circle(folder_imports(root, depth)))} == folders


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("lowering/base/target.py", "from ..plan.plan import Plan"),
        ("lowering/plan/plan.py", "def f():\n    from ..running import runner"),
        ("lowering/kernels/pool.py", "from eqfuse.lowering.program import planning"),
        ("lowering/schedules/rules/rows.py", "from ...tuning.tasks import Task"),
        ("lowering/schedules/base/draft.py", "from ..tiling import tiles"),
        ("lowering/tuning/tuner.py", "from ..dsa.back_end import load"),
        ("lowering/dsa/network/graph.py", "from ..tiles import work"),
        ("lowering/ethos/__init__.py", ""),
    ],
)
def test_a_climb_is_found(tmp_path: Path, file: str, text: str) -> None:
    assert len(climbs(tree(tmp_path, {file: text}))) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("lowering/plan/plan.py", "from ..base.target import target_of"),
        ("lowering/plan/plan.py", "from .sizes import Sizes"),
        ("lowering/dsa/back_end.py", "from .bundle import files"),
        ("lowering/dsa/tiles/kernels.py", "from ...tuning import tasks"),
    ],
)
def test_an_import_downward_is_no_climb(tmp_path: Path, file: str, text: str) -> None:
    assert climbs(tree(tmp_path, {file: text})) == []


@pytest.mark.parametrize(
    ("file", "text", "count"),
    [
        ("lowering/running/runner.py", "from ..dsa.bundle import files", 1),
        ("driver/bench.py", "from ..lowering.dsa import program", 1),
        ("driver/bench.py", "def f():\n    from ..lowering.dsa.program.cost import cycles", 1),
        ("driver/bench.py", "from ..lowering.dsa.back_end import load", 0),
        ("driver/bench.py", "from ..lowering.dsa import back_end", 0),
        ("lowering/dsa/tiles/kernels.py", "from ..network import graph", 0),
    ],
)
def test_a_break_in_is_found(tmp_path: Path, file: str, text: str, count: int) -> None:
    assert len(break_ins(tree(tmp_path, {file: text}))) == count


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
        ("cli/run.py", "from ..lowering import te"),
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
        ("cli/run.py", "from ..driver.run import run_bundle"),
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


def test_processes_are_started_in_one_place() -> None:
    root = Path(eqfuse.__path__[0])
    libraries = {"subprocess", "multiprocessing", "concurrent"}
    found = {each.path(root) for each in all_imports(root) if each.target.partition(".")[0] in libraries}
    assert {path.as_posix() for path in found if path.parent != Path(PROCESSES)} == OWN_PROCESSES
