"""Real models on Ray: how many processes train, and which share a pool, changes no optimizer step."""

import pytest
import torch
from safetensors.torch import load_file
from sft_runs import fine_tune
from tiny_runs import train

pytestmark = pytest.mark.heavy

RAY = "trainer.runtime=ray"
SHORT = [
    "trainer.total_training_steps=2",
    "trainer.device=cpu",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    # Steps of SGD are the gradients themselves; Adam's would turn a rounding of a tiny gradient into a whole step.
    "actor_rollout_ref.actor.optim.optimizer=SGD",
    "actor_rollout_ref.actor.optim.lr=0.1",
    "critic.optim.optimizer=SGD",
    "critic.optim.lr=0.1",
]
ALGORITHMS = {
    "grpo": ["algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.use_kl_loss=True"],
    "ppo": ["algorithm.adv_estimator=gae"],
}
SPLIT = ["critic.enable_resource_pool=True", "critic.nnodes=1", "critic.n_gpus_per_node=1"]
# The walkthrough's commands with their own keys (Lab 4 trains nothing), on the engines that run on a CPU.
LABS = {
    "1 PPO": [
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
        "critic.model.path=MODEL",
    ],
    "2 GRPO": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
    ],
    "3 another rollout, and 6 a reward of one's own": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.n=8",
    ],
    "5 offload": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.5",
        "actor_rollout_ref.actor.fsdp_config.param_offload=True",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
        "trainer.n_gpus_per_node=2",
    ],
}
COMPARED = ("actor/", "critic/", "response_length/")
ROUNDING = {"actor/ppo_kl": 1e-6}
"""A mean of differences of log-probs around -6 has the rounding of those: two units of float32 there are 1e-6."""


@pytest.fixture(scope="module")
def ray_here():
    """One cluster of this process for the runs of this module."""
    import ray

    ray.init(address="local", num_cpus=16, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def in_one_process(model, tmp_path_factory):
    """Algorithm -> the metrics of its run in one process; each is run once."""
    found = {}

    def run(algorithm):
        if algorithm not in found:
            folder = tmp_path_factory.mktemp(algorithm)
            found[algorithm] = train(model, folder, *SHORT, *ALGORITHMS[algorithm])
        return found[algorithm]

    return run


def assert_same_steps(run, reference):
    assert len(run) == len(reference) == 2
    for ours, theirs in zip(run, reference, strict=True):
        compared = [key for key in theirs if key.startswith(COMPARED)]
        assert len(compared) > 10
        for key in compared:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5, abs=ROUNDING.get(key, 1e-7)), key


@pytest.mark.parametrize("workers", [2, 4])
def test_grpo_takes_the_same_steps_on_more_workers(workers, model, in_one_process, tmp_path, ray_here):
    run = train(model, tmp_path, *SHORT, *ALGORITHMS["grpo"], RAY, f"trainer.n_gpus_per_node={workers}")
    assert_same_steps(run, in_one_process("grpo"))


def test_ppo_on_split_pools_takes_the_steps_of_shared_workers(model, in_one_process, tmp_path, ray_here):
    run = train(model, tmp_path, *SHORT, *ALGORITHMS["ppo"], RAY, *SPLIT, "trainer.n_gpus_per_node=2")
    assert_same_steps(run, in_one_process("ppo"))


@pytest.mark.parametrize("lab", LABS)
def test_every_lab_trains(lab, model, tmp_path, ray_here):
    keys = [key.replace("MODEL", str(model)) for key in LABS[lab]]
    (step,) = train(model, tmp_path, *keys, RAY, "trainer.device=cpu", "trainer.total_training_steps=1")
    assert step["actor/grad_norm"] > 0
    assert step["training/logprob_gap/max"] < 1e-4
    assert step["reward_extra/length/mean"] > 0
    assert step["rollout/failed"] == 0
    assert ("critic/vf_loss" in step) == (lab == "1 PPO")
    assert ("actor/kl_loss" in step) == (lab == "2 GRPO")


@pytest.mark.slow
def test_a_run_that_stopped_goes_on_exactly(model, tmp_path, ray_here):
    long = [*SHORT, *ALGORITHMS["ppo"], RAY, "trainer.n_gpus_per_node=2", "trainer.save_freq=2"]
    straight = train(model, tmp_path / "straight", *long, "trainer.total_training_steps=4")
    train(model, tmp_path / "stopped", *long, "trainer.total_training_steps=2")
    resumed = train(model, tmp_path / "stopped", *long, "trainer.total_training_steps=4")
    untimed = [
        [
            {key: value for key, value in step.items() if not key.startswith(("timing_s/", "perf/", "memory/"))}
            for step in steps
        ]
        for steps in (straight, resumed)
    ]
    assert [step | {"training/total_steps": 4} for step in untimed[1]] == untimed[0]


def test_fine_tuning_takes_the_same_steps_on_two_workers(model, tmp_path, ray_here):
    options = [f"model.path={model}", "engine.strategy=fsdp", "optim.optimizer=SGD", "optim.lr=0.1"]
    options += ["data.train_batch_size=6", "data.max_token_len_per_gpu=256", "trainer.total_training_steps=2"]
    one = fine_tune(tmp_path / "one", *options)
    two = fine_tune(tmp_path / "two", *options, RAY, "trainer.n_gpus_per_node=2", "trainer.device=cpu")
    for ours, theirs in zip(two, one, strict=True):
        for key in theirs:
            if key.startswith(("train/loss", "train/grad_norm", "val/")):
                assert ours[key] == pytest.approx(theirs[key], rel=1e-5), key
    weights = [load_file(tmp_path / name / "run/huggingface/model.safetensors") for name in ("one", "two")]
    for name in weights[0]:
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-5, atol=1e-7, msg=name)
