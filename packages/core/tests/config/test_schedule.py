from __future__ import annotations

import pytest
from rl_core.config.root import PPOTrainerConfig
from rl_core.config.schedule import step_schedule
from rl_core.errors import ConfigError


def schedule(rows=5, batch=2, **trainer):
    config = PPOTrainerConfig()
    config.data.train_batch_size = batch
    config.trainer.total_epochs = 3
    for key, value in trainer.items():
        setattr(config.trainer, key, value)
    return step_schedule(config, rows)


def test_the_last_step_is_saved_and_validated():
    plan = schedule(save_freq=4, test_freq=4, val_before_train=True)
    assert (plan.steps_per_epoch, plan.total_steps) == (2, 6)
    assert plan.save_steps() == (4, 6)
    assert plan.validation_steps() == (0, 4, 6)


def test_validation_before_training_only_if_asked():
    assert schedule(test_freq=4, val_before_train=False).validation_steps() == (4, 6)


def test_a_given_number_of_steps_ends_the_run():
    plan = schedule(save_freq=4, test_freq=4, total_training_steps=5)
    assert plan.total_steps == 5
    assert plan.save_steps() == (4, 5)
    assert plan.is_last(5)
    assert not plan.is_last(6)


def test_epochs_end_first_when_they_are_fewer():
    assert schedule(total_training_steps=100).total_steps == 6


def test_no_step_is_saved_twice():
    assert schedule(save_freq=3).save_steps() == (3, 6)


def test_minus_one_means_the_last_only_and_zero_never():
    assert schedule(save_freq=-1, test_freq=-1, val_before_train=False).save_steps() == (6,)
    assert schedule(save_freq=-1, test_freq=-1, val_before_train=False).validation_steps() == (6,)
    assert schedule(save_freq=0, test_freq=0, val_before_train=False).save_steps() == ()
    assert schedule(save_freq=0, test_freq=0, val_before_train=False).validation_steps() == ()


@pytest.mark.parametrize(("generation", "steps"), [(None, 6), (1, 7), (2, 6), (3, 4), (5, 7)])
def test_steps_of_dynamic_sampling_are_as_many_as_the_generations_could_fill(generation, steps):
    config = PPOTrainerConfig()
    config.data.train_batch_size, config.data.gen_batch_size = 2, generation
    config.trainer.total_epochs = 3
    config.algorithm.filter_groups.enable = True
    assert step_schedule(config, 5).total_steps == steps
    config.algorithm.filter_groups.enable = False
    assert step_schedule(config, 5).total_steps == 6


def test_a_generation_that_the_rows_do_not_fill_is_refused():
    config = PPOTrainerConfig()
    config.data.train_batch_size, config.data.gen_batch_size = 2, 6
    config.algorithm.filter_groups.enable = True
    with pytest.raises(ConfigError, match=r"gen_batch_size \(6\) exceeds the 5 training rows"):
        step_schedule(config, 5)


def test_rows_that_fill_no_batch_are_refused():
    with pytest.raises(ConfigError, match=r"train_batch_size \(8\) exceeds the 5 training rows"):
        schedule(rows=5, batch=8)
