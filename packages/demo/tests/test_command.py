import pytest
from rl_core.errors import ConfigError, PluginNotFoundError
from rl_demo.command import main, parse


def test_the_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo = parse([])
    assert demo.seed == 1
    assert demo.folder.parent.as_posix() == "outputs/demo"
    assert demo.folder.name.endswith("-seed1")
    assert not demo.folder.exists()


def test_what_can_be_said(tmp_path):
    demo = parse(["--seed", "0", "--folder", str(tmp_path), "--steps", "3", "--lr", "0", "--sft-steps", "9"])
    assert (demo.seed, demo.folder, demo.steps, demo.learning_rate, demo.sft_steps) == (0, tmp_path, 3, 0.0, 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "one"], "argument --seed: must be a whole number from 0 to 4294967295, found 'one'"),
        (["--seed", "-1"], "argument --seed: must be a whole number from 0 to 4294967295, found '-1'"),
        (["--seed", "1.5"], "found '1.5'"),
        (["--seed", "4294967296"], "found '4294967296'"),
        (["--seed", ""], "found ''"),
        (["--steps", "0"], "argument --steps: must be a whole number from 1 to 100000, found '0'"),
        (["--lr", "-1"], "argument --lr: must be a number from 0 on, found '-1'"),
        (["--lr", "nan"], "found 'nan'"),
        (["--lr", "fast"], "found 'fast'"),
        (["7"], "unrecognized arguments: 7"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        parse(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(ConfigError, match="not an empty folder; name one that is empty or not there yet"):
        main(["--folder", str(tmp_path)])
    with pytest.raises(ConfigError, match="not an empty folder"):
        main(["--folder", str(tmp_path / "thesis.txt")])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"file/demo cannot be made: Not a directory\. Name another one: --folder DIR"
    ):
        main(["--folder", str(tmp_path / "file" / "demo")])


def test_ctrl_c_says_what_stays_and_promises_no_resume(tmp_path, monkeypatch, capsys):
    def interrupted(demo):
        raise KeyboardInterrupt

    monkeypatch.setattr("rl_demo.command.run_demo", interrupted)
    monkeypatch.setattr("rl_demo.command.require_engines", lambda: None)
    assert main(["--folder", str(tmp_path / "demo")]) == 130
    said = capsys.readouterr().err
    assert said.startswith(f"interrupted. What there is stays in {tmp_path / 'demo'};")
    assert said.endswith("demo begins at the beginning.\n")


class RegistryWithout:
    def __init__(self, kind):
        self.kind = kind

    def record(self, kind, name):
        if kind == self.kind:
            msg = f"{kind} {name!r} is not installed"
            raise PluginNotFoundError(msg)


@pytest.mark.parametrize(("kind", "name"), [("backend", "fsdp"), ("rollout", "hf")])
def test_without_an_engine_it_says_what_to_install(kind, name, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_demo.command.get_registry", lambda: RegistryWithout(kind))
    wanted = rf"needs the {kind} '{name}'.*pip install rl-demo rl-backend-fsdp rl-rollout-hf"
    with pytest.raises(PluginNotFoundError, match=wanted):
        main(["--folder", str(tmp_path / "demo")])
    assert not (tmp_path / "demo").exists()
