from pathlib import Path

import pytest
from rl_core.errors import CheckpointError
from rl_core.trainer.checkpoint import CheckpointStore
from rl_core.trainer.evaluation.source import find_source, run_values

CONFIG = """
data: {max_response_length: 8, val_max_samples: 3, seed: 7}
trainer: {seed: 1, project_name: p}
ray_kwargs: {ray_init: {runtime_env: {env_vars: {TOKEN: <redacted>}}}}
actor_rollout_ref:
  model: {path: base}
  rollout: {response_length: 8, prompt_length: 100, val_kwargs: {temperature: 0.0, do_sample: false}}
"""


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    store = CheckpointStore(folder)
    for step in (2, 10):
        store.save(step, lambda path: (path / "actor").mkdir(), {"global_step": step}, {"model": "m"})
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def test_a_run_folder_is_its_newest_complete_checkpoint(run):
    source = find_source(str(run))
    assert source.checkpoint.step == 10
    assert source.path == run / "global_step_10"
    (run / "global_step_10" / "checkpoint.json").unlink()
    assert find_source(str(run)).checkpoint.step == 2


def test_one_checkpoint_brings_the_configuration_of_its_run(run):
    source = find_source(str(run / "global_step_2"))
    assert source.checkpoint.step == 2
    assert source.values["actor_rollout_ref"]["model"] == {"path": "base"}


def test_derived_values_secrets_and_the_runs_own_limit_of_rows_are_left_out(run):
    values, redacted = run_values(run / "config.yaml")
    rollout = values["actor_rollout_ref"]["rollout"]
    assert rollout == {"prompt_length": 100, "val_kwargs": {"temperature": 0.0}}  # the length follows again
    assert values["data"] == {"max_response_length": 8, "seed": 7}
    assert "ray_kwargs" not in values
    assert redacted == ("ray_kwargs.ray_init.runtime_env.env_vars.TOKEN",)


def test_a_value_that_lost_a_part_is_not_taken_for_what_was_given(run):
    (run / "config.yaml").write_text(
        "actor_rollout_ref: {a: 'https://<redacted>@host', b: [x, '<redacted>'], c: kept}\n"
    )
    values, redacted = run_values(run / "config.yaml")
    assert redacted == ("actor_rollout_ref.a", "actor_rollout_ref.b")
    assert values["actor_rollout_ref"] == {"c": "kept"}


def test_a_hugging_face_folder_is_a_model_without_a_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    source = find_source(str(tmp_path))
    assert source.checkpoint is None
    assert source.values == {"actor_rollout_ref": {"model": {"path": str(tmp_path)}}}


def incomplete(run: Path) -> Path:
    (run / "global_step_11").mkdir()
    return run / "global_step_11"


def without_checkpoints(run: Path) -> Path:
    folder = run.parent / "fresh"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def with_other_files(run: Path) -> Path:
    folder = run.parent / "other"
    folder.mkdir()
    (folder / "notes.txt").touch()
    return folder


def without_configuration(run: Path) -> Path:
    (run / "config.yaml").unlink()
    return run


def of_another_kind(run: Path) -> Path:
    (run / "config.yaml").write_text("prices: {apples: 1}\n")
    return run


def of_fine_tuning(run: Path) -> Path:
    (run / "config.yaml").write_text("model: {path: base}\nengine: {strategy: s}\n")
    return run / "global_step_2"


def of_fine_tuning_that_ended(run: Path) -> Path:
    of_fine_tuning(run)
    (run / "huggingface").mkdir()
    (run / "huggingface" / "config.json").write_text("{}")
    return run / "global_step_2"


def of_a_reward_model(run: Path) -> Path:
    (run / "config.yaml").write_text("model: {path: base}\nengine: {strategy: s}\nloss: {center_coef: 0.0}\n")
    return run


def exported_elsewhere(run: Path) -> Path:
    folder = run.parent / "tuned"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    config = f"model: {{path: base}}\nengine: {{strategy: s}}\ntrainer: {{export_dir: '{folder}/model'}}\n"
    (folder / "config.yaml").write_text(config)
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda run: run / "gone", r"gone: no such folder. CHECKPOINT takes a run folder"),
        (lambda run: run / "global_step_2" / "actor", r"a part of the checkpoint .*global_step_2. Name that folder"),
        (incomplete, r"global_step_11, which is not complete. Complete ones beside it: global_step_2, global_step_10"),
        (without_checkpoints, "a run folder without a complete checkpoint. trainer.save_freq"),
        (with_other_files, "holds no checkpoint but notes.txt. CHECKPOINT takes"),
        (without_configuration, "config.yaml is missing"),
        (of_another_kind, r"no configuration of 'rl train' .*CHECKPOINT takes"),
        (of_fine_tuning, r"run is a run of 'rl sft'.*after its last step \(trainer.export_dir\); it is not there"),
        (of_fine_tuning_that_ended, r"run is a run of 'rl sft'.*exported after its last step: .*run/huggingface$"),
        (of_a_reward_model, r"run is a run of 'rl rm': its model scores answers"),
        (exported_elsewhere, r"tuned is a run of 'rl sft'.*exported after its last step: .*tuned/model$"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_the_way_out(run, make, message):
    with pytest.raises(CheckpointError, match=message):
        find_source(str(make(run)))
