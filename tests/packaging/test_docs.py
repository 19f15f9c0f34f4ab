"""What the documents say can be done: links lead somewhere, commands exist, paths are those of the tree."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex

import pytest
from rl_core.plugins import Registry
from rl_core.plugins.selection import Selection
from scripts import load
from source_tree import ROOT

environments = load("ci/test.py").environments

DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "packages/*/*.md", "templates/**/*.md") for path in ROOT.glob(pattern)
)
USER_DOCUMENTS = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]


def name(path) -> str:
    return str(path.relative_to(ROOT))


def code_blocks(text: str) -> list[str]:
    """Contents of the fenced blocks that hold shell lines, or that do not say what they hold."""
    blocks = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for language, body in blocks if language in ("", "bash", "sh", "console")]


def prose_of(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```\w*[^\n]*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Command lines of the programs that are checked, from blocks and inline code, split into words."""
    lines = [line for block in code_blocks(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", prose_of(text))
    found = []
    for line in lines:
        bare = re.sub(r"^(\$ )?([A-Z_]+=\S* )*", "", line.strip())
        if re.match(r"(rl|make|python3?|bash) ", bare):
            found.append(shlex.split(bare, comments=True))
    return found


def headings(text: str) -> set[str]:
    """Anchors of a document, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path, text: str) -> list[str]:
    found = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose_of(text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in headings(there.read_text())):
            found.append(target)
    return found


def module_exists(module: str) -> bool:
    """Whether a dotted name is a module of some package here; nothing is imported."""
    parts = module.replace(".", "/")
    return any(list(ROOT.glob(f"packages/*/src/{parts}{tail}")) for tail in (".py", "/__main__.py"))


@functools.cache
def names(kind: str) -> frozenset[str]:
    """Names of a kind that the packages here provide, whatever a developer's environment blocks."""
    registry = Registry(Selection())
    registry.load_entry_points()
    return frozenset(registry.names(kind)) | names_of_engine_packages(kind)


def names_of_engine_packages(kind: str) -> frozenset[str]:
    """Of packages that are installed in the environment of the engines only; their registration needs no engine."""
    found: set[str] = set()
    for package in environments.engine_packages(ROOT):
        (path,) = (ROOT / "packages" / package / "src").glob("*/plugin.py")
        spec = importlib.util.spec_from_file_location(f"plugin_of_{package.replace('-', '_')}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.update(record.name for record in module.rl_plugins() if record.kind == kind)
    return frozenset(found)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unknown_commands(text: str) -> list[str]:
    """Commands that name a module, subcommand, target or script which is not there."""
    found = []
    for words in commands(text):
        program, rest = words[0], words[1:]
        if program in ("python", "python3") and rest[:1] == ["-m"] and rest[1].startswith("rl_"):
            ok = module_exists(rest[1])
        elif (
            program in ("python", "python3", "bash")
            and rest
            and "/" in rest[0]
            and not rest[0].startswith(("/", "~", "$"))
        ):
            ok = (ROOT / rest[0]).exists()
        elif program == "rl" and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            ok = rest[0] in names("command")
        elif program == "make":
            ok = all("=" in word or word in make_targets() for word in rest)
        else:
            continue
        if not ok:
            found.append(" ".join(words))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    assert broken_links(path, path.read_text()) == []


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=name)
def test_commands_exist(path):
    assert unknown_commands(path.read_text()) == []


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=name)
def test_files_named_in_prose_exist(path):
    text = path.read_text()
    prose = prose_of(text)
    named = re.findall(r"`((?:packages|ci|constraints|tests|docs|templates|benchmarks|examples)/[\w./-]+)`", prose)
    # A line that announces a file for later says so.
    later = {p for line in prose.splitlines() if "with issue: " in line for p in re.findall(r"`([^`]+)`", line)}
    assert [file for file in named if file not in later and not (ROOT / file).exists()] == []


def test_every_package_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert [
        p.parent.name for p in ROOT.glob("packages/*/pyproject.toml") if f"packages/{p.parent.name}" not in text
    ] == []


def pairings(text: str) -> dict[tuple[str, str], str]:
    """(backend, rollout) -> cell of the README's table; a row or column may stand for several names."""
    table = text.split("## What can be paired today", 1)[1].split("\n\n")[1]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {
        (backend, rollout): cell
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
        for backend in re.findall(r"`([^`]+)`", row[0])
        for rollout in re.findall(r"`([^`]+)`", column)
    }


def test_the_pairing_table_says_not_yet_of_what_is_not_here_and_only_of_that():
    told = {pair for pair, cell in pairings((ROOT / "README.md").read_text()).items() if cell != "not yet"}
    assert told == {(backend, rollout) for backend in names("backend") for rollout in names("rollout")}


def test_the_default_goal_lists_every_target():
    described = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert described | {"help"} == make_targets()


def test_faults_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](page.md#one-two) [b](#three) [c](gone.md) [d](https://example.org)\n")
    assert broken_links(page, page.read_text()) == ["#three", "gone.md"]
    text = "```bash\nX=1 python -m rl_core.no_such a=b\nmake nothing\nrl dance\npip install x\n```\n`make test`\n"
    assert unknown_commands(text) == ["python -m rl_core.no_such a=b", "make nothing", "rl dance"]
