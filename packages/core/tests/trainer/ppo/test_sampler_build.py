from types import SimpleNamespace

import pytest
from rl_core.errors import ConfigError
from rl_core.plugins import get_registry
from rl_core.trainer.ppo.sampler import SyncSampler
from rl_core.trainer.ppo.sampler_async import ColocateAsyncSampler
from rl_core.trainer.ppo.sampler_build import build_sampler
from rl_core.trainer.ppo.sampler_filter import FilterGroups
from rl_core.trainer.ppo.sampler_greedy import GreedyBaseline
from rl_core.trainer.ppo.sampler_refill import RefillingSampler

MINE = """
from rl_core.trainer.ppo.sampler import SyncSampler

class Mine(SyncSampler):
    @classmethod
    def from_workers(cls, config, loader, workers, *, answer):
        made = super().from_workers(config, loader, workers)
        made.answer = answer
        return made

class Other: ...
"""


def built(mode="sync", refills=False, greedy=False, drops=False, estimator="grpo", path=None, name=None, kwargs=None):
    keys = SimpleNamespace(
        sync_refill_failed_groups=refills,
        custom_sampler=SimpleNamespace(path=path, name=name),
        sampler_kwargs=kwargs or {},
        max_off_policy_strategy="drop",
        max_off_policy_threshold=8,
    )
    v1 = SimpleNamespace(trainer_mode=mode, sampler=keys, colocate_async=SimpleNamespace(num_warmup_batches=1))
    config = SimpleNamespace(
        algorithm=SimpleNamespace(adv_estimator=estimator, filter_groups=SimpleNamespace(enable=drops)),
        actor_rollout_ref=SimpleNamespace(
            rollout=SimpleNamespace(greedy_baseline=greedy), actor=SimpleNamespace(ppo_epochs=1, ppo_mini_batch_size=1)
        ),
        trainer=SimpleNamespace(v1=v1),
    )
    workers = SimpleNamespace(generate_sequences=lambda prompts: prompts)
    return build_sampler(config, None, workers, lambda batch: [], get_registry())


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, SyncSampler),
        ({"mode": "colocate_async"}, ColocateAsyncSampler),
        ({"refills": True}, RefillingSampler),
        ({"refills": True, "mode": "colocate_async"}, ColocateAsyncSampler),
    ],
)
def test_schedules(changes, kind):
    assert type(built(**changes)) is kind


def test_strategies_stand_around_any_schedule():
    assert type(built(greedy=True)) is GreedyBaseline
    both = built(greedy=True, drops=True, mode="colocate_async")
    assert type(both) is FilterGroups
    assert type(both._inner) is GreedyBaseline
    assert type(both._inner._inner) is ColocateAsyncSampler


def test_a_row_without_a_baseline_is_left_out_only_where_the_estimator_works_on_it():
    assert built(greedy=True, estimator="remax")._is_needed
    assert not built(greedy=True, estimator="grpo")._is_needed


def test_a_class_from_a_file_with_its_arguments(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    mine = built(path=str(tmp_path / "mine.py"), name="Mine", kwargs={"answer": 42}, mode="colocate_async", drops=True)
    assert mine._inner.answer == 42
    assert isinstance(mine._inner, SyncSampler)


@pytest.mark.parametrize(
    ("name", "match"),
    [(None, r"custom_sampler\.name is not set"), ("Other", "no subclass of"), ("None_", "it has .*Mine, Other")],
)
def test_files_without_a_sampler_are_refused(name, match, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises(ConfigError, match=match):
        built(path=str(tmp_path / "mine.py"), name=name)
