"""Sizes that a reader can hold: the loop, every function, every file of the packages."""

from __future__ import annotations

from source_tree import ROOT, SourceTree, functions

LONGEST_FUNCTION, LONGEST_FILE, LONGEST_LOOP = 80, 500, 90


def too_long(tree: SourceTree) -> list[str]:
    """Functions over the limit; the training loop has its own."""
    return [str(f) for f in functions(tree) if f.lines > (LONGEST_LOOP if f.name == "fit" else LONGEST_FUNCTION)]


def test_functions():
    assert too_long(SourceTree.of_repository()) == []


def test_files():
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in ROOT.glob("packages/*/src/**/*.py")}
    assert {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > LONGEST_FILE} == {}


def test_there_is_a_loop_and_it_fits_on_a_page():
    loops = [f for f in functions(SourceTree.of_repository()) if f.module == "rl_core.trainer.ppo.trainer"]
    (fit,) = [f for f in loops if f.name == "fit"]
    assert fit.lines <= LONGEST_LOOP


def test_a_long_function_is_seen(tmp_path):
    body = "    x = 1\n" * LONGEST_FUNCTION
    (tmp_path / "m.py").write_text(f"def short():\n{body[10:]}def long():\n{body}def fit():\n{body}")
    assert too_long(SourceTree(tmp_path)) == [f"m:{LONGEST_FUNCTION + 1} long has {LONGEST_FUNCTION + 1} lines"]
