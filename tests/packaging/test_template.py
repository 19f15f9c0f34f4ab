"""`templates/plugin/` as a third party uses it: rendered, built, installed offline, listed, tested, trained with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from source_tree import ROOT

TEMPLATE = ROOT / "templates/plugin"
PARTS = {
    ("reward", "acme/overlap"),
    ("policy_loss", "acme-unclipped"),
    ("advantage", "acme-leave-one-out"),
}

# Five steps of the plugin's parts on the fakes of rl-testing, the sizes as in examples/fakes_demo.sh. `{data}` is a file
# of prompts whose data_source is the plugin's reward, `{out}` the run's folder. Names and keys of the fakes stand here
# and nowhere else; the plugin's three names are what is tested.
TRAIN_OVERRIDES = (
    "algorithm.adv_estimator=acme-leave-one-out",
    "actor_rollout_ref.actor.policy_loss.loss_mode=acme-unclipped",
    "actor_rollout_ref.actor.strategy=fake",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.optim.lr=0.03",
    "actor_rollout_ref.model.path=tiny",
    "actor_rollout_ref.rollout.name=fake",
    "actor_rollout_ref.rollout.n=4",
    "data.train_files={data}",
    "data.val_files={data}",
    "data.train_batch_size=8",
    "data.max_prompt_length=32",
    "data.max_response_length=12",
    "trainer.runtime=local",
    "trainer.device=cpu",
    "trainer.total_training_steps=5",
    "trainer.save_freq=0",
    "trainer.test_freq=0",
    "trainer.val_before_train=False",
    "trainer.default_local_dir={out}",
)


def render(template: Path, out: Path, **values: str) -> Path:
    """What cookiecutter does with a template that uses plain variables only: in paths and in files."""

    def fill(text: str) -> str:
        return re.sub(r"\{\{cookiecutter\.(\w+)\}\}", lambda match: context[match.group(1)], text)

    context = json.loads((template / "cookiecutter.json").read_text()) | values
    (source,) = template.glob("*{{cookiecutter.*}}*")
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            target = out / fill(str(path.relative_to(template)))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(fill(path.read_text()))
    return out / fill(source.name)


def run(command: list[str], folder: Path, status: int = 0) -> subprocess.CompletedProcess:
    """A finished command that must end with `status`. No index is within reach, and no plugin is kept out."""
    environ = {name: value for name, value in os.environ.items() if name not in ("RL_PLUGINS", "RL_BLOCK_PLUGINS")}
    environ |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def listing(python: Path, folder: Path) -> dict:
    return json.loads(run([str(python), "-m", "rl_core.cli", "plugins", "list", "--json"], folder).stdout)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return render(TEMPLATE, tmp_path_factory.mktemp("rendered"), name="acme", author="A. Third-Party")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory, project):
    """The Python of an environment that sees this one's packages, and has the plugin's wheel installed besides."""
    folder = tmp_path_factory.mktemp("scratch")
    dist = folder / "dist"
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)], project)
    venv.create(folder / "env", symlinks=True)
    python = folder / "env/bin/python"
    ours = sysconfig.get_paths()["purelib"]
    theirs = run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], folder
    ).stdout.strip()
    # addsitedir and not a bare path, because this environment may hold its packages by .pth files (editable installs).
    Path(theirs, "outer.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    run([str(python), "-m", "pip", "install", "--no-index", "--find-links", str(dist), "rl-acme"], folder)
    return python


def test_rendering_leaves_no_placeholder(project):
    files = [path for path in project.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert "cookiecutter" not in f"{path.relative_to(project.parent)}{path.read_text()}"


@pytest.mark.parametrize(
    ("name", "good"), [("acme", True), ("a2", True), ("a-b", False), ("2a", False), ("Acme", False)]
)
def test_names_that_make_no_module_are_refused(name, good):
    hook = (TEMPLATE / "hooks/pre_gen_project.py").read_text().replace("{{cookiecutter.name}}", name)
    if good:
        exec(hook, {})
        return
    with pytest.raises(SystemExit, match="use lower-case letters and digits"):
        exec(hook, {})


def test_the_ranges_admit_what_is_here(project):
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    listed = [Requirement(text) for text in about["dependencies"] + about["optional-dependencies"]["test"]]
    assert {requirement.name for requirement in listed} == {"rl-core", "torch", "pytest", "rl-testing"}
    for requirement in listed:
        assert requirement.specifier.contains(metadata.version(requirement.name), prereleases=True), requirement


@pytest.mark.heavy
def test_its_parts_are_listed_where_it_is_installed_and_nowhere_else(scratch, tmp_path):
    plugins = [row for row in listing(scratch, tmp_path)["plugins"] if row["dist"] == "rl-acme"]
    assert {(row["kind"], row["name"]) for row in plugins} == PARTS
    assert {(row["version"], row["status"], row["reason"]) for row in plugins} == {("0.1.0", "ok", "")}
    assert "rl-acme" not in {row["name"] for row in listing(Path(sys.executable), tmp_path)["distributions"]}


@pytest.mark.heavy
def test_its_parts_load(scratch, tmp_path):
    out = run([str(scratch), "-m", "rl_core.cli", "plugins", "check", "rl-acme"], tmp_path).stdout
    assert out.count(": ok\n") == len(PARTS)


@pytest.mark.heavy
def test_its_own_tests_pass(scratch, project):
    out = run([str(scratch), "-m", "pytest", "-q", "-p", "no:cacheprovider"], project).stdout
    assert re.search(r"^\d+ passed", out, re.MULTILINE), out


@pytest.mark.heavy
def test_blocking_it_takes_its_parts_away(scratch, tmp_path):
    command = [str(scratch), "-m", "rl_core.cli", "--block-plugin", "rl-acme", "plugins", "check", "acme-unclipped"]
    error = run(command, tmp_path, status=2).stderr
    assert "no plugin and no distribution is named 'acme-unclipped'" in error
    assert "may have it: rl-acme 0.1.0 (blocked: RL_BLOCK_PLUGINS names it)" in error


@pytest.mark.heavy
def test_its_parts_train_on_the_fakes(scratch, tmp_path):
    data, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    rows = [
        {
            "data_source": "acme/overlap",
            "prompt": f"write digits and {digit}",
            "reward_model": {"ground_truth": f"0123456789 {digit}"},
        }
        for digit in range(8)
    ]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    overrides = [override.format(data=data, out=out) for override in TRAIN_OVERRIDES]
    run([str(scratch), "-m", "rl_core.trainer.main_ppo", *overrides], tmp_path)
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    for step in steps:
        # One mini-batch a step, so the policy that is updated is still the one that sampled.
        assert step["actor/acme_ratio"] == pytest.approx(1.0, abs=1e-9)
        assert step["actor/grad_norm"] > 0.0
        assert step["reward/missing"] == 0.0
    assert steps[-1]["critic/score/mean"] > steps[0]["critic/score/mean"]
