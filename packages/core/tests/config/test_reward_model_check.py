from __future__ import annotations

import pytest
from rl_core.config.reward_model_check import reward_model_errors, unread_by_reward_model
from rl_core.config.roles import reward_model_record, scores_by_model, trains_reward_model
from rl_core.plugins import AdvantageRecord, Registry, RewardModelRecord, Selection

MODEL = ["reward_model.enable=true", "reward_model.model.path=/m"]
KINDS = {
    "outcome": RewardModelRecord(name="outcome", target="a:b", summary="x"),
    "process": RewardModelRecord(name="process", target="a:b", summary="x", trained=True, gives="process"),
}


class Chosen:
    """A composed configuration in which ``reward_model.type`` names a record of these."""

    def __init__(self, config, kind, needs=frozenset()):
        self.tree, self.given = config.tree, config.given
        estimator = AdvantageRecord(name="mine", target="a:b", summary="x", needs=needs)
        self.records = {"reward_model.type": KINDS[kind], "algorithm.adv_estimator": estimator}


@pytest.fixture
def chosen(composed):
    return lambda kind, *overrides, **more: Chosen(composed(*overrides), kind, **more)


def test_a_run_without_one_has_nothing_to_say(chosen):
    config = chosen("process", "reward_model.ppo_epochs=2")
    assert [*reward_model_errors(config), *unread_by_reward_model(config)] == []


def test_it_needs_a_model(chosen):
    (error,) = reward_model_errors(chosen("outcome", "reward_model.enable=true"))
    assert "reward_model.model.path is not set" in error


def test_mini_batches_of_one_that_is_trained_have_to_fit(chosen):
    sizes = [
        "data.train_batch_size=8",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "reward_model.ppo_mini_batch_size=3",
    ]
    (error,) = reward_model_errors(chosen("process", *MODEL, *sizes))
    assert "reward_model.ppo_mini_batch_size (3)" in error
    assert not list(reward_model_errors(chosen("outcome", *MODEL, *sizes)))
    assert not list(reward_model_errors(chosen("process", *MODEL, *sizes, "reward_model.update=none")))
    assert not list(reward_model_errors(chosen("process", *MODEL, *sizes[:2])))


@pytest.mark.parametrize(("kind", "more"), [("outcome", MODEL), ("process", [])])
def test_an_estimator_that_works_on_token_rewards_needs_a_model_that_gives_them(kind, more, chosen):
    needs = frozenset({"process_rewards"})
    (error,) = reward_model_errors(chosen(kind, *more, needs=needs))
    assert "'gae' works on a reward for each token" in error
    assert not list(reward_model_errors(chosen("process", *MODEL, needs=needs)))


@pytest.mark.parametrize(
    ("kind", "more", "silent", "reason"),
    [
        ("outcome", [], ["grad_clip", "optim.lr", "update"], "reward model 'outcome' is not trained"),
        ("process", ["reward_model.update=none"], ["grad_clip", "optim.lr"], "reward_model.update is none"),
        ("process", ["reward_model.update=before"], [], ""),
    ],
)
def test_keys_of_one_that_is_trained(kind, more, silent, reason, chosen):
    given = ["reward_model.optim.lr=0.5", "reward_model.grad_clip=2.0", *(more or ["reward_model.update=before"])]
    found = list(unread_by_reward_model(chosen(kind, *MODEL, *given)))
    assert found == [(f"reward_model.{key}", reason) for key in silent]


def test_one_that_scores_tokens_reads_no_text_of_its_own(chosen):
    given = ["reward_model.max_length=64", "reward_model.model.input_tokenizer=t"]
    found = dict(unread_by_reward_model(chosen("process", *MODEL, *given, "reward_model.update=before")))
    assert set(found) == {"reward_model.max_length", "reward_model.model.input_tokenizer"}
    assert set(found.values()) == {"reward model 'process' scores the policy's own tokens"}
    assert not list(unread_by_reward_model(chosen("outcome", *MODEL, *given)))


def test_what_the_roles_say_about_each_kind(composed):
    registry = Registry(Selection())
    registry.register_distribution("acme", "1", list(KINDS.values()))
    tree = lambda *more: composed(*MODEL, *more).tree  # noqa: E731
    process = [composed(*MODEL, f"reward_model.update={when}").tree for when in ("after", "none")]
    for section in (item.reward_model for item in process):
        object.__setattr__(section, "type", "process")
    assert reward_model_record(composed().tree, registry) is None
    assert [scores_by_model(composed().tree, registry), trains_reward_model(composed().tree, registry)] == [
        False,
        False,
    ]
    assert [scores_by_model(tree(), registry), trains_reward_model(tree(), registry)] == [True, False]
    assert [scores_by_model(process[0], registry), trains_reward_model(process[0], registry)] == [False, True]
    assert trains_reward_model(process[1], registry) is False
