import pytest
from rl_core.config import check_config, compose
from rl_core.plugins import get_registry
from rl_recipes import plugin

RECORDS = plugin.rl_plugins()
RECIPES = [record.name for record in RECORDS if record.kind == "recipe"]
RUN = [
    "actor_rollout_ref.model.path=tiny",
    "actor_rollout_ref.actor.strategy=fake",
    "actor_rollout_ref.rollout.name=fake",
    "data.train_files=train.jsonl",
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
]
WANTED = {
    "grpo": {
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.04,
        "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-mean",
    },
    "dr_grpo": {
        "algorithm.norm_adv_by_std_in_grpo": False,
        "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
        "actor_rollout_ref.actor.use_kl_loss": False,
    },
    "gspo": {
        "actor_rollout_ref.actor.policy_loss.loss_mode": "gspo",
        "actor_rollout_ref.actor.clip_ratio_low": 3e-4,
        "actor_rollout_ref.actor.clip_ratio_high": 4e-4,
    },
    "cispo": {"actor_rollout_ref.actor.policy_loss.loss_mode": "cispo", "actor_rollout_ref.actor.clip_ratio_low": 1.0},
    "dapo": {
        "algorithm.adv_estimator": "grpo",
        "algorithm.filter_groups.enable": True,
        "algorithm.filter_groups.metric": "acc",
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.28,
        "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
        "actor_rollout_ref.actor.use_kl_loss": False,
        "reward_model.reward_manager": "dapo",
    },
    "prime": {
        "algorithm.adv_estimator": "prime",
        "reward_model.enable": True,
        "reward_model.type": "prime",
        "reward_model.model.path": "tiny",
        "reward_model.update": "after",
        "reward_model.ppo_mini_batch_size": 8,
        "reward_model.prime.beta": 0.05,
        "algorithm.prime.granularity": "token",
    },
}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.kind}-{record.name}")
def test_every_part_loads(record):
    assert callable(get_registry().load(record.kind, record.name))
    if record.config:
        assert get_registry().load_config(record.kind, record.name)().__doc__


@pytest.mark.parametrize("name", RECIPES)
def test_a_check_of_each_recipe_finds_nothing(name):
    config = compose([f"recipe={name}", *RUN])
    report = check_config(config, None, get_registry())
    assert [str(finding) for finding in (*report.errors, *report.warnings, *report.blockers)] == []
    assert [finding.text for finding in report.notes if "no effect" in finding.text] == []


@pytest.mark.parametrize("name", RECIPES)
def test_what_each_recipe_sets(name):
    config = compose([f"recipe={name}", *RUN])
    for path, value in WANTED[name].items():
        node = config.tree
        for part in path.split("."):
            node = getattr(node, part)
        assert node == value, path


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_given_wins(name):
    config = compose([f"recipe={name}", *RUN, "actor_rollout_ref.rollout.n=5", "actor_rollout_ref.actor.optim.lr=0.5"])
    assert config.tree.actor_rollout_ref.rollout.n == 5
    assert config.tree.actor_rollout_ref.actor.optim.lr == 0.5


def test_one_key_of_a_free_section_leaves_the_others():
    config = compose(["recipe=dapo", *RUN, "reward_model.reward_kwargs.overlong_buffer_cfg.len=4"])
    assert config.tree.reward_model.reward_kwargs["overlong_buffer_cfg"] == {
        "enable": True,
        "penalty_factor": 1.0,
        "log": True,
        "len": 4,
    }


def errors(*overrides):
    report = check_config(compose([*RUN, *overrides]), None, get_registry())
    return [finding.text for finding in report.errors]


def test_the_estimator_without_its_reward_model():
    (error,) = errors("algorithm.adv_estimator=prime", "actor_rollout_ref.rollout.n=4")
    assert "works on a reward for each token" in error
    outcome = ["reward_model.enable=true", "reward_model.model.path=tiny"]
    (error,) = errors("algorithm.adv_estimator=prime", "actor_rollout_ref.rollout.n=4", *outcome)
    assert "works on a reward for each token" in error


def test_mini_batches_of_the_reward_model_have_to_fit():
    (error,) = errors("recipe=prime", "reward_model.ppo_mini_batch_size=3")
    assert error.startswith("data.train_batch_size (8) is not a multiple of reward_model.ppo_mini_batch_size (3)")
    assert errors("recipe=prime", "reward_model.ppo_mini_batch_size=3", "reward_model.update=none") == []
