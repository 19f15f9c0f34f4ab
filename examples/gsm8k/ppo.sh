#!/usr/bin/env bash
# Stage 2 with a critic in place of the group. The same command again goes on from the newest checkpoint.
source "$(dirname "$0")/settings.sh"
rl train \
  algorithm.adv_estimator=gae \
  data.train_files="$DATA/train.parquet" \
  data.val_files="$DATA/test.parquet" \
  data.train_batch_size=512 \
  data.max_prompt_length=512 \
  data.max_response_length=256 \
  data.filter_overlong_prompts=true \
  actor_rollout_ref.model.path="$RUNS/sft/huggingface" \
  actor_rollout_ref.rollout.name="$ROLLOUT" \
  actor_rollout_ref.rollout.temperature=0.8 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
  actor_rollout_ref.actor.optim.lr=1e-5 \
  actor_rollout_ref.actor.ppo_mini_batch_size=256 \
  critic.model.path="$RUNS/sft/huggingface" \
  critic.optim.lr=1e-5 \
  trainer.critic_warmup=5 \
  trainer.n_gpus_per_node=1 \
  trainer.nnodes=1 \
  trainer.total_training_steps=100 \
  trainer.save_freq=20 \
  trainer.max_actor_ckpt_to_keep=2 \
  trainer.max_critic_ckpt_to_keep=2 \
  trainer.test_freq=-1 \
  trainer.val_before_train=false \
  trainer.default_local_dir="$RUNS/ppo" \
  "$@"
