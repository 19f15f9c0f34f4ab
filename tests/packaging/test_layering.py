"""Who may import whom. The tables are the law; ARCHITECTURE.md shows them as a picture.

Every rule is also tried on a small tree that breaks it, so that a rule which no longer sees anything fails too.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from source_tree import ROOT, Import, SourceTree, cycles

PYTHON_FOLDERS = ("packages", "tests", "benchmarks", "ci", "examples", "templates")


@dataclass(frozen=True)
class Room:
    """What the modules under one prefix may import.

    Attributes:
        below: rooms of the same package that it may use at any time.
        load: third-party packages that importing the room may load.
        call: third-party packages that its functions may import besides (`{"*"}`: any).
        types: rooms that it may name under TYPE_CHECKING besides; third-party names are free there.
    """

    below: frozenset[str] = frozenset()
    load: frozenset[str] = frozenset()
    call: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


def room(below: str = "", load: str = "", call: str = "", types: str = "") -> Room:
    return Room(*(frozenset(text.split()) for text in (below, load, call, types)))


# Narrower prefixes win. Rooms of rl_core are written without "rl_core.".
CORE_ROOMS = {
    "": room("_version plugins", types="protocol single_controller"),  # rl_core/__init__.py
    "_version": room(),
    "errors": room(),
    "metrics": room("errors"),
    "entry_point": room("errors"),
    "protocol": room(load="rl_dataproto"),
    "plugins": room("_version errors", load="pluggy packaging"),
    "builtins": room("plugins"),
    "config": room("errors plugins", call="hydra omegaconf yaml"),
    "algorithms": room("errors", load="torch numpy"),
    "contracts": room("errors metrics plugins", load="numpy", types="algorithms single_controller config"),
    "single_controller": room("errors metrics protocol plugins contracts", load="numpy rl_dataproto", call="torch"),
    "runtime": room(
        "errors metrics protocol plugins config contracts single_controller",
        load="torch numpy psutil rl_dataproto",
        call="*",
    ),
    "resharding": room("errors metrics contracts", load="torch"),
    "data": room("errors config plugins contracts protocol", load="torch numpy rl_dataproto", call="*"),
    "scoring": room("errors plugins contracts", load="cloudpickle", types="config protocol"),
    "workers": room(
        "errors metrics protocol plugins config algorithms contracts single_controller resharding data",
        load="torch numpy rl_dataproto",
        call="*",
    ),
    "trainer": room(
        "_version errors entry_point metrics protocol plugins config algorithms contracts single_controller runtime "
        "resharding data scoring workers trainer.trackers",
        load="torch numpy rl_dataproto",
        call="*",
    ),
    # One module a tracker, loaded only when a run names it, so each may load its library.
    "trainer.trackers": room("errors plugins config trainer", load="torch rich tensorboard wandb", call="*"),
    "cli": room("_version errors entry_point plugins config trainer data", call="*"),
}
# Importing these must stay cheap, so nothing that they load may be dear, however deep.
LIGHT = (
    "rl_core",
    "rl_core.builtins",
    "rl_core.config",
    "rl_core.entry_point",
    "rl_core.errors",
    "rl_core.metrics",
    "rl_core.plugins",
)
LIGHT_PREFIXES = ("rl_core.cli",)
HEAVY = {"torch", "ray", "transformers", "tensordict", "numpy", "hydra", "omegaconf", "datasets", "peft"}

# Import package -> our packages that it may import.
SHARED = frozenset({"rl_core", "rl_dataproto", "rl_engine", "rl_resharding"})
PACKAGES = {
    "rl_dataproto": frozenset(),
    "rl_core": frozenset({"rl_dataproto"}),
    "rl_testing": frozenset({"rl_core", "rl_dataproto"}),
    "rl_engine": frozenset({"rl_core", "rl_dataproto"}),
    "rl_resharding": frozenset({"rl_core", "rl_dataproto", "rl_engine"}),
}
# Programs for people, at the top: they may use rl_core and each other, nothing uses them (docs/adr/0007).
APPLICATIONS = frozenset({"rl_report", "rl_demo"})
PACKAGES |= {name: APPLICATIONS - {name} | {"rl_core"} for name in APPLICATIONS}
# Import package -> third-party packages that it may load; the others may load what they declare.
THIRD_PARTY = {"rl_dataproto": {"torch", "numpy", "tensordict"}}
PLUGIN_WORDS = re.compile(r"\b(fsdp2?|deepspeed|megatron|vllm|sglang|trtllm)\b|[\"']hf[\"']", re.IGNORECASE)


def room_of(module: str) -> str | None:
    """The room of a module of rl_core, without the package's name; None when the table has none."""
    inner = module.removeprefix("rl_core").removeprefix(".")
    parts = inner.split(".")
    for size in range(len(parts), -1, -1):
        prefix = ".".join(parts[:size])
        if prefix in CORE_ROOMS and (prefix or not inner):
            return prefix
    return None


def outside(target: str) -> bool:
    """Whether a module is neither ours nor of the standard library."""
    root = target.split(".")[0]
    return root not in sys.stdlib_module_names and not root.startswith("rl_")


def is_ours(target: str, package: str) -> bool:
    return target == package or target.startswith(package + ".")


def core_violations(tree: SourceTree) -> list[str]:
    """Imports of rl_core that CORE_ROOMS does not allow, and modules without a room."""
    found = []
    for name in tree.files:
        if is_ours(name, "rl_core") and room_of(name) is None:
            found.append(f"{name} belongs to no room of the table")
    for item in tree.imports():
        here = room_of(item.source) if is_ours(item.source, "rl_core") else None
        if here is None:
            continue
        rules = CORE_ROOMS[here]
        if is_ours(item.target, "rl_core"):
            there = room_of(item.target)
            allowed = rules.below | (rules.types if item.when == "types" else frozenset())
            # `from rl_core import x` is x of the root package, which everyone but the root's own parts may use.
            if there != here and there not in allowed and not (there == "" and "plugins" in rules.below):
                found.append(str(item))
        elif item.target.split(".")[0] == "rl_dataproto" or outside(item.target):
            root = item.target.split(".")[0]
            allowed = rules.load | (rules.call if item.when == "call" else frozenset())
            if item.when != "types" and root not in allowed and "*" not in allowed:
                found.append(str(item))
    return found


def package_violations(tree: SourceTree) -> list[str]:
    """Imports between packages that PACKAGES does not allow, private ones among them, and foreign third parties."""
    found = []
    for item in tree.imports():
        package, target = item.source.split(".")[0], item.target.split(".")[0]
        if target.startswith("rl_") and target != package:
            private = any(part.startswith("_") for part in item.target.split("."))
            if target not in PACKAGES.get(package, SHARED) or private:
                found.append(str(item))
        elif outside(item.target) and item.when != "types" and target not in THIRD_PARTY.get(package, {target}):
            found.append(str(item))
    return found


def declared_imports(project: dict, distributions: dict[str, list[str]]) -> set[str]:
    """Import names that a `[project]` table's requirements, optional ones too, bring directly."""
    listed = [*project.get("dependencies", []), *chain(*project.get("optional-dependencies", {}).values())]
    names = {canonicalize_name(Requirement(text).name) for text in listed}
    brought = {
        import_name
        for import_name, found in distributions.items()
        if names & {canonicalize_name(name) for name in found}
    }
    # What is not installed here brings at least a module of its own name.
    return brought | {name.replace("-", "_") for name in names}


def required_applications(project: dict) -> set[str]:
    """Applications that a `[project]` table requires without being one."""
    if project["name"].replace("-", "_") in APPLICATIONS:
        return set()
    listed = [*project.get("dependencies", []), *chain(*project.get("optional-dependencies", {}).values())]
    return {Requirement(text).name for text in listed if Requirement(text).name.replace("-", "_") in APPLICATIONS}


def undeclared_imports(tree: SourceTree, package: str, declared: set[str]) -> list[str]:
    """Third-party imports of a package, type-only ones aside, that it gets from somebody else's requirements."""
    return [
        str(item)
        for item in tree.imports()
        if is_ours(item.source, package)
        and outside(item.target)
        and item.when != "types"
        and item.target.split(".")[0] not in declared
    ]


def plugin_module_violations(tree: SourceTree) -> list[str]:
    """Imports of a plugin's registration module other than rl_core, its own package and the standard library.

    Discovery loads these modules in every process, so its own package counts only as far as that is light too.
    """
    found = []
    for name in tree.files:
        if name.count(".") != 1 or not name.endswith(".plugin"):
            continue
        for item in tree.imports_of(name):
            light = item.target == "rl_core" or is_ours(item.target, "rl_core.plugins")
            own = is_ours(item.target, name.split(".")[0])
            if not light and not own and (outside(item.target) or item.target.startswith("rl_")):
                found.append(str(item))
        found += heavy_closure(tree, name)
    return found


def heavy_closure(tree: SourceTree, module: str) -> list[str]:
    """Heavy third-party imports that loading `module` causes, through every module of the tree that it loads.

    Unlike the cycle check this follows parent packages too: loading `a.b` runs `a`.
    """
    found, todo, seen = [], [module], set()
    while todo:
        name = todo.pop()
        if name in seen or name not in tree.files:
            continue
        seen.add(name)
        parts = name.split(".")
        todo += [".".join(parts[:size]) for size in range(1, len(parts))]
        for item in tree.imports_of(name):
            if item.when != "load":
                continue
            todo.append(item.target)
            if item.target.split(".")[0] in HEAVY:
                found.append(f"loading {module} loads {item.target} ({item.source}:{item.line})")
    return found


def light_violations(tree: SourceTree) -> list[str]:
    """Heavy packages behind the modules that every process and every `rl plugins list` loads."""
    names = [
        name
        for name in tree.files
        if name in LIGHT
        or any(name.startswith(f"{light}.") for light in (*LIGHT[1:], *LIGHT_PREFIXES))
        or name in LIGHT_PREFIXES
    ]
    return sorted({problem for name in names for problem in heavy_closure(tree, name)})


def plugin_names(root: Path) -> list[str]:
    """Places in core's source that name a plugin, other than the hint table."""
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.parts[-2:] == ("plugins", "hints.py"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := PLUGIN_WORDS.search(line):
                found.append(f"{path.relative_to(root)}:{number} names {match.group()}")
    return found


def optional_imports(source: str) -> list[int]:
    """Lines of `except ImportError` handlers that put None, or nothing, in the place of what is missing."""
    found = []
    # Templates are Python once their placeholders are filled in.
    for node in ast.walk(ast.parse(re.sub(r"\{\{[^{}]*\}\}", "x", source))):
        if not isinstance(node, ast.ExceptHandler) or node.type is None:
            continue
        caught = {ast.unparse(part) for part in getattr(node.type, "elts", [node.type])}
        if not caught & {"ImportError", "ModuleNotFoundError"}:
            continue
        values = [part for part in ast.walk(node) if isinstance(part, ast.Assign | ast.AnnAssign)]
        if any(v.value is None or (isinstance(v.value, ast.Constant) and v.value.value is None) for v in values):
            found.append(node.lineno)
    return found


@pytest.fixture(scope="module")
def repository() -> SourceTree:
    return SourceTree.of_repository()


def test_core_rooms(repository):
    assert core_violations(repository) == []


def test_packages(repository):
    assert package_violations(repository) == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_packages_declare_what_they_import(repository, path):
    project = tomllib.loads(path.read_text())["project"]
    declared = declared_imports(project, packages_distributions())
    assert undeclared_imports(repository, project["name"].replace("-", "_"), declared) == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_no_package_requires_an_application(path):
    assert required_applications(tomllib.loads(path.read_text())["project"]) == set()


def test_plugin_modules_load_the_registry_and_nothing_heavy(repository):
    assert plugin_module_violations(repository) == []


def test_what_every_process_loads_is_light(repository):
    assert light_violations(repository) == []


def test_no_import_cycles(repository):
    assert cycles(repository.load_graph()) == []


def test_core_names_no_plugin():
    assert plugin_names(ROOT / "packages/core/src") == []


def test_no_optional_imports_that_end_in_none():
    files = [path for folder in PYTHON_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = [f"{path.relative_to(ROOT)}:{n}" for path in files for n in optional_imports(path.read_text("utf-8"))]
    assert found == []


# --- The rules on trees that break them -----------------------------------------------------------------------------


def planted(tmp_path: Path, files: dict[str, str]) -> SourceTree:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SourceTree(tmp_path)


LAZY = "def f():\n    import {}\n"
TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {}\n"


@pytest.mark.parametrize(
    ("path", "text", "caught"),
    [
        ("rl_core/algorithms/kl.py", "import ray", True),
        ("rl_core/algorithms/kl.py", LAZY.format("ray"), True),
        ("rl_core/algorithms/kl.py", "import torch", False),
        ("rl_core/algorithms/kl.py", "from rl_core.trainer import x", True),
        ("rl_core/algorithms/kl.py", TYPED.format("rl_core.trainer"), True),
        ("rl_core/config/run.py", "import omegaconf", True),
        ("rl_core/config/run.py", LAZY.format("omegaconf"), False),
        ("rl_core/plugins/registry.py", "import torch", True),
        ("rl_core/plugins/registry.py", "from . import records", False),
        ("rl_core/contracts/engine.py", TYPED.format("torch"), False),
        ("rl_core/contracts/engine.py", "import torch", True),
        ("rl_core/workers/critic.py", "from rl_core import trainer", True),
        ("rl_core/workers/critic.py", "from ..trainer import loop", True),
        ("rl_core/runtime/local.py", "from rl_core.algorithms import kl", True),
        ("rl_core/cellar/wine.py", "", True),
    ],
)
def test_planted_core_imports(tmp_path, path, text, caught):
    tree = planted(tmp_path, {path: text, "rl_core/trainer/__init__.py": "", "rl_core/trainer/loop.py": ""})
    assert bool(core_violations(tree)) is caught


@pytest.mark.parametrize(
    ("path", "text", "caught"),
    [
        ("rl_dataproto/batch.py", "import rl_core", True),
        ("rl_dataproto/batch.py", "import ray", True),
        ("rl_dataproto/batch.py", "import tensordict", False),
        ("rl_backend_x/engine.py", "import rl_rollout_y", True),
        ("rl_backend_x/engine.py", "import rl_engine", False),
        ("rl_backend_x/engine.py", "from rl_core.plugins._secret import x", True),
        ("rl_testing/fakes/engine.py", "import rl_backend_x", True),
        ("rl_demo/stages.py", "import rl_core.config, rl_report", False),
        ("rl_report/story.py", "import rl_engine", True),
        ("rl_report/story.py", "import rl_backend_x", True),
        ("rl_backend_x/engine.py", "import rl_report", True),
        ("rl_core/trainer/loop.py", LAZY.format("rl_report"), True),
    ],
)
def test_planted_package_imports(tmp_path, path, text, caught):
    assert bool(package_violations(planted(tmp_path, {path: text}))) is caught


def test_planted_undeclared_imports(tmp_path):
    project = {"dependencies": ["PyYAML>=6"], "optional-dependencies": {"cpu": ["torch==2"]}}
    declared = declared_imports(project, {"yaml": ["pyyaml"], "torch": ["torch"], "safetensors": ["safetensors"]})
    assert declared == {"pyyaml", "yaml", "torch"}
    tree = planted(tmp_path, {"rl_x/a.py": "import os, yaml, torch.nn\nimport safetensors\n" + TYPED.format("ray")})
    assert undeclared_imports(tree, "rl_x", declared) == ["rl_x.a:2 imports safetensors (load)"]


@pytest.mark.parametrize(
    ("name", "caught"), [("rl-core", {"rl-report"}), ("rl-backend-x", {"rl-report"}), ("rl-demo", set())]
)
def test_planted_requirement_of_an_application(name, caught):
    project = {"name": name, "dependencies": ["numpy"], "optional-dependencies": {"page": ["rl-report~=0.1.0"]}}
    assert required_applications(project) == caught


@pytest.mark.parametrize(
    ("files", "caught"),
    [
        ({"rl_backend_x/plugin.py": "from rl_core import hookimpl"}, False),
        ({"rl_backend_x/plugin.py": "import torch"}, True),
        ({"rl_backend_x/plugin.py": "from rl_core.trainer import x"}, True),
        ({"rl_backend_x/plugin.py": "", "rl_backend_x/__init__.py": "import torch"}, True),
        ({"rl_backend_x/plugin.py": "from rl_backend_x import config", "rl_backend_x/config.py": "import ray"}, True),
    ],
)
def test_planted_plugin_modules(tmp_path, files, caught):
    assert bool(plugin_module_violations(planted(tmp_path, files))) is caught


@pytest.mark.parametrize(
    ("files", "caught"),
    [
        ({"rl_core/cli/main.py": "import torch"}, True),
        ({"rl_core/cli/main.py": LAZY.format("torch")}, False),
        ({"rl_core/cli/main.py": "from rl_core.trainer import a", "rl_core/trainer/a.py": "import ray"}, True),
        ({"rl_core/config/x.py": "from rl_core import errors", "rl_core/errors.py": "import numpy"}, True),
        ({"rl_core/__init__.py": "from rl_core import protocol", "rl_core/protocol.py": "import torch"}, True),
    ],
)
def test_planted_heavy_imports(tmp_path, files, caught):
    assert bool(light_violations(planted(tmp_path, files))) is caught


def test_planted_cycles(tmp_path):
    files = {
        "p/a.py": "from p import b",
        "p/b.py": "from .c import x",
        "p/c.py": "import p.a",
        "p/d.py": "from p import e",
        "p/e.py": TYPED.format("p.d") + LAZY.format("p.d"),
    }
    assert cycles(planted(tmp_path, files).load_graph()) == [["p.a", "p.b", "p.c"]]


def test_planted_plugin_names(tmp_path):
    planted(
        tmp_path,
        {
            "a.py": "x = 'vllm'\n# for FSDP only\ny = 'hf'\nhf = 1\nfsdp_config = 2\n",
            "plugins/hints.py": "z = 'sglang'",
        },
    )
    assert plugin_names(tmp_path) == ["a.py:1 names vllm", "a.py:2 names FSDP", "a.py:3 names 'hf'"]


@pytest.mark.parametrize(
    ("handler", "caught"),
    [
        ("except ImportError:\n    x = None", True),
        ("except (ImportError, RuntimeError):\n    x: int", True),
        ("except ModuleNotFoundError as e:\n    raise ValueError from e", False),
        ("except KeyError:\n    x = None", False),
    ],
)
def test_planted_optional_imports(handler, caught):
    assert bool(optional_imports(f"try:\n    import x\n{handler}\n")) is caught


def test_import_says_where_it_stands():
    assert str(Import("a.b", "torch", 3, "load")) == "a.b:3 imports torch (load)"
