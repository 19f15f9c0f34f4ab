"""Low-rank adapters through the command line: they learn, their reference is the base model, what they leave is a model."""

import json

import pytest
import torch
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file
from sft_runs import fine_tune
from tiny_runs import train
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.heavy
LORA = ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"]


def test_the_reward_rises_and_generator_and_trainer_agree(model, tmp_path):
    """The generator gets merged weights; the KL term's reference is the policy without its adapters."""
    metrics = train(
        model,
        tmp_path,
        *LORA,
        "actor_rollout_ref.actor.optim.lr=1e-2",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        "trainer.save_freq=20",
    )
    rewards = [step["critic/score/mean"] for step in metrics]
    fifth = len(rewards) // 5
    assert sum(rewards[-fifth:]) / fifth > sum(rewards[:fifth]) / fifth + 0.2
    assert max(step["training/logprob_gap/max"] for step in metrics) < 1e-4
    assert metrics[0]["actor/kl_loss"] == 0.0
    assert metrics[-1]["actor/kl_loss"] > 0.0
    (record,) = (tmp_path / "run").rglob("actor/engine.json")
    shapes = json.loads(record.read_text())["shapes"]
    assert all(".lora_A." in name or ".lora_B." in name for name in shapes)


def test_a_critic_with_adapters_takes_part(model, tmp_path):
    metrics = train(
        model,
        tmp_path,
        *LORA,
        "algorithm.adv_estimator=gae",
        "critic.model.lora_rank=4",
        "trainer.total_training_steps=6",
    )
    assert metrics[-1]["critic/vf_loss"] < metrics[0]["critic/vf_loss"]
    assert all(step["critic/grad_norm"] > 0 for step in metrics)


@pytest.mark.parametrize("export", ["merged", "adapter"])
def test_fine_tuning_leaves_a_model_or_an_adapter(tmp_path, export):
    save_tiny_model(tmp_path / "model", initializer_range=0.05)
    metrics = fine_tune(
        tmp_path,
        f"model.path={tmp_path}/model",
        "engine.strategy=fsdp",
        "model.lora_rank=8",
        f"model.lora.export={export}",
        "optim.optimizer=AdamW",
        "optim.lr=1e-2",
        "data.train_batch_size=6",
        "data.max_token_len_per_gpu=256",
        "trainer.total_training_steps=20",
        "trainer.total_epochs=10",
    )
    assert metrics[-1]["train/loss"] < metrics[1]["train/loss"] - 0.5
    folder = tmp_path / "run" / "huggingface"
    if export == "adapter":
        fields = json.loads((folder / "adapter_config.json").read_text())
        assert (fields["r"], fields["lora_alpha"]) == (8, 16)
        assert len(load_file(folder / "adapter_model.safetensors")) == 2 * 2 * 7
        return
    before, after = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (tmp_path / "model", folder))
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.split(".")[-2] for name in moved} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
