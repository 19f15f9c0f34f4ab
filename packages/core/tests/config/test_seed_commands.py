"""Every key of the commands people copy: the walkthrough's labs and the agent page."""

from __future__ import annotations

import shlex

import pytest

QUICKSTART_PPO = """
  algorithm.adv_estimator=gae
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  data.train_batch_size=256
  data.max_prompt_length=512
  data.max_response_length=512
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct
  actor_rollout_ref.actor.optim.lr=1e-6
  actor_rollout_ref.actor.ppo_mini_batch_size=64
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4
  critic.model.path=Qwen/Qwen2.5-0.5B-Instruct
  critic.optim.lr=1e-5
  trainer.n_gpus_per_node=1
  trainer.nnodes=1
  trainer.total_epochs=15
"""
QUICKSTART_GRPO = """
  algorithm.adv_estimator=grpo
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.n=8
  actor_rollout_ref.actor.use_kl_loss=True
  actor_rollout_ref.actor.kl_loss_coef=0.001
  actor_rollout_ref.actor.kl_loss_type=low_var_kl
  trainer.n_gpus_per_node=8
  trainer.nnodes=1
  trainer.total_epochs=15
"""
LAB_1 = """
  algorithm.adv_estimator=gae
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4
  critic.model.path=Qwen/Qwen2.5-0.5B-Instruct
  trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.total_epochs=2
"""
LAB_2 = """
  algorithm.adv_estimator=grpo
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.n=8
  actor_rollout_ref.actor.use_kl_loss=True
  actor_rollout_ref.actor.kl_loss_coef=0.001
  trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.total_epochs=2
"""
LAB_3 = """
  algorithm.adv_estimator=grpo
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct
  actor_rollout_ref.rollout.name=sglang
  actor_rollout_ref.rollout.n=8
  trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.total_epochs=1
"""
LAB_5 = """
  algorithm.adv_estimator=grpo
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.n=8
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5
  actor_rollout_ref.actor.fsdp_config.param_offload=True
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
  trainer.n_gpus_per_node=2 trainer.nnodes=1 trainer.total_epochs=1
"""
LAB_6 = """
  algorithm.adv_estimator=grpo
  data.train_files=/home/me/data/gsm8k/train.parquet
  data.val_files=/home/me/data/gsm8k/test.parquet
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8
  custom_reward_function.path=/home/me/my_reward.py
  custom_reward_function.name=compute_score
  trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.total_epochs=1
"""
AGENT = """
  actor_rollout_ref.rollout.name=vllm
  data.train_files=data/train.parquet data.val_files=data/eval.parquet
  data.return_raw_chat=True +data.apply_chat_template_kwargs.enable_thinking=False
  actor_rollout_ref.rollout.multi_turn.enable=True
  actor_rollout_ref.rollout.multi_turn.format=hermes
  actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4
  actor_rollout_ref.rollout.multi_turn.max_tool_response_length=8192
  actor_rollout_ref.rollout.agent.agent_loop_config_path=data/agent_loop.yaml
  actor_rollout_ref.rollout.agent.default_agent_loop=agentenv
  actor_rollout_ref.rollout.layered_summon=False
  trainer.v1.sampler.sync_refill_failed_groups=True
  algorithm.adv_estimator=grpo
  data.train_batch_size=4 data.max_prompt_length=3072
  actor_rollout_ref.actor.ppo_mini_batch_size=4
  actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.temperature=1.1
  actor_rollout_ref.rollout.val_kwargs.temperature=1.1
  actor_rollout_ref.rollout.val_kwargs.do_sample=True
  actor_rollout_ref.model.path=qwen3-4b-gridsim-sft
  actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=64
  actor_rollout_ref.model.target_modules=all-linear
  actor_rollout_ref.model.use_remove_padding=False
  actor_rollout_ref.actor.optim.lr=2e-5
  actor_rollout_ref.actor.optim.lr_scheduler_type=cosine
  actor_rollout_ref.actor.optim.lr_warmup_steps=3
  actor_rollout_ref.actor.use_torch_compile=False
  actor_rollout_ref.actor.entropy_from_logits_with_chunking=True
  trainer.total_training_steps=40 trainer.test_freq=20 trainer.val_before_train=True
  trainer.validation_data_dir=dumps/eval trainer.rollout_data_dir=dumps/train
  trainer.v1.trainer_mode=sync
  ray_kwargs.ray_init.runtime_env.env_vars.AGENTENV_TOKEN=t0ken
"""
AGENT_ASYNC = (
    AGENT.replace("trainer_mode=sync", "trainer_mode=colocate_async").replace("format=hermes", "format=qwen3_coder")
    + "trainer.v1.colocate_async.num_warmup_batches=1"
)


@pytest.mark.parametrize(
    "command",
    [QUICKSTART_PPO, QUICKSTART_GRPO, LAB_1, LAB_2, LAB_3, LAB_5, LAB_6, AGENT, AGENT_ASYNC],
    ids=["quickstart-ppo", "quickstart-grpo", "lab1", "lab2", "lab3", "lab5", "lab6", "agent", "agent-async"],
)
def test_the_command_is_accepted_as_written(command, registry):
    from rl_core.config import compose
    from rl_core.config.check import check_config

    config = compose(shlex.split(command), registry=registry)
    report = check_config(config, None, registry, dataset_size=7473)
    assert report.errors == []
    missing = [text for text in shlex.split(command) if text.lstrip("+").partition("=")[0] not in config.given]
    assert missing == []


def test_values_arrive(composed):
    tree = composed(*shlex.split(AGENT)).tree
    rollout = tree.actor_rollout_ref.rollout
    assert tree.data.apply_chat_template_kwargs == {"enable_thinking": False}
    assert rollout.agent.default_agent_loop == "agentenv"
    assert rollout.multi_turn.max_tool_response_length == 8192
    assert tree.trainer.v1.sampler.sync_refill_failed_groups is True
    assert tree.actor_rollout_ref.actor.optim.lr == 2e-5
    assert tree.ray_kwargs.ray_init.runtime_env == {"env_vars": {"AGENTENV_TOKEN": "t0ken"}}
