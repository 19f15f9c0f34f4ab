"""Bug kinds 6: configuration and command line, with the inputs of the reports; the parts have tests of their own."""

from types import SimpleNamespace

import pytest
from rl_core.config import compose, compose_leniently
from rl_core.config.check import check_config
from rl_core.config.schedule import step_schedule
from rl_core.errors import ConfigError
from rl_core.plugins import get_registry

BASE = ("actor_rollout_ref.rollout.name=fake", "actor_rollout_ref.actor.strategy=fake", "algorithm.adv_estimator=grpo")
ACTOR = "actor_rollout_ref.actor"


def problems(*overrides):
    """Everything that stands against a run, before any worker starts."""
    composition = compose_leniently([*BASE, *overrides])
    report = check_config(composition.config, None, get_registry())
    return " ".join([*map(str, composition.errors), *map(str, report.errors)])


def sizes(train, mini, n, gpus, micro):
    return (
        f"data.train_batch_size={train}",
        f"{ACTOR}.ppo_mini_batch_size={mini}",
        f"actor_rollout_ref.rollout.n={n}",
        f"trainer.n_gpus_per_node={gpus}",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu={micro}",
    )


@pytest.mark.parametrize(
    ("run", "numbers"),
    [
        ((8, 8, 1, 16, 1), ("8", "16")),
        ((12, 6, 2, 4, 2), ("12/4 = 3", "not divisible")),
        ((10, 4, 1, 1, 1), ("10 is not divisible by 4",)),
        ((8, 16, 1, 1, 1), ("16 > 8",)),
    ],
)
def test_b69_sizes_that_do_not_fit_are_refused_with_their_numbers(run, numbers):
    found = problems(*sizes(*run))
    assert all(number in found for number in numbers), found


def test_b69_sizes_that_fit():
    assert problems(*sizes(8, 4, 4, 8, 2)) == ""


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ('trainer.resume_from_path="runs/step=40/actor"', "runs/step=40/actor"),
        ("trainer.resume_from_path=runs/my run/ck", "runs/my run/ck"),
        (r"trainer.resume_from_path=a\=b", "a=b"),
    ],
)
def test_b71_paths_with_equals_signs_and_spaces(override, value):
    assert compose([*BASE, override]).tree.trainer.resume_from_path == value


def test_b71_an_unquoted_equals_sign_shows_the_quoted_form():
    with pytest.raises(ConfigError, match="runs/step=40/actor") as caught:
        compose([*BASE, "trainer.resume_from_path=runs/step=40/actor"])
    assert '"runs/step=40/actor"' in str(caught.value)


@pytest.mark.parametrize(
    ("override", "closest"),
    [(f"{ACTOR}.optim.lrr=1e-6", "lr"), (f"+{ACTOR}.optim.lrr=1e-6", "lr"), ("+algorithm.kl_coeff=0.1", "kl_coef")],
)
def test_b73_misspelt_keys_are_refused_also_with_a_plus(override, closest):
    with pytest.raises(ConfigError, match=closest):
        compose([*BASE, override])


def test_b73_misspelt_key_in_a_file_and_free_sections(tmp_path):
    (tmp_path / "run.yaml").write_text("actor_rollout_ref:\n  rollout:\n    name: fake\n    temprature: 0.7\n")
    with pytest.raises(ConfigError, match=r"temprature(.|\n)*temperature"):
        compose([], config_name="run", config_path=tmp_path)
    tree = compose([*BASE, "+data.apply_chat_template_kwargs.enable_thinking=False"]).tree
    assert tree.data.apply_chat_template_kwargs == {"enable_thinking": False}


@pytest.mark.parametrize(("total", "saves"), [("null", (4, 6)), ("5", (4, 5))])
def test_b75_the_last_step_is_saved_and_validated(total, saves):
    overrides = ("data.train_batch_size=2", f"{ACTOR}.ppo_mini_batch_size=2", "trainer.total_epochs=3")
    tree = compose(
        [*BASE, *overrides, "trainer.save_freq=4", "trainer.test_freq=4", f"trainer.total_training_steps={total}"]
    ).tree
    schedule = step_schedule(tree, dataset_size=5)
    assert schedule.save_steps() == saves
    assert schedule.validation_steps() == (0, *saves)


@pytest.mark.parametrize(("frequency", "saves"), [(-1, (6,)), (0, ())])
def test_b75_minus_one_is_the_last_only_and_zero_is_never(frequency, saves):
    tree = SimpleNamespace(
        data=SimpleNamespace(train_batch_size=2),
        trainer=SimpleNamespace(
            total_epochs=3, total_training_steps=None, save_freq=frequency, test_freq=0, val_before_train=False
        ),
    )
    assert step_schedule(tree, dataset_size=5).save_steps() == saves


@pytest.mark.parametrize("key", [f"{ACTOR}.kl_loss_type", "algorithm.kl_penalty"])
def test_the_exact_kl_is_refused_with_its_reason_and_what_to_take(key):
    found = problems(f"{key}=full")
    assert f"{key}: KL estimator 'full' is not known" in found
    assert "whole distributions at every token" in found
    assert "low_var_kl" in found
