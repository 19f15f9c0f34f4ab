#!/usr/bin/env bash
# GRPO, then PPO, for a few steps on the fakes of rl-testing: no model, no GPU, about a minute.
# The policy learns to answer with digits: watch the reward rise.
#   bash examples/fakes_demo.sh [key=value ...]     more overrides, for both runs
set -euo pipefail
# Threads only get in each other's way in a model this small.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
run="$(mktemp -d)"
trap 'rm -rf "$run"' EXIT
for i in $(seq 0 63); do
  printf '{"prompt": "what is %d+%d?", "data_source": "digits", "reward_model": {"ground_truth": "%d"}}\n' \
    "$((i % 8))" "$((i / 8))" "$((i % 8 + i / 8))"
done > "$run/train.jsonl"

# The one list of what both runs share.
shared=(
  data.train_files="$run/train.jsonl"
  data.val_files="$run/train.jsonl"
  data.train_batch_size=16
  data.max_prompt_length=32
  data.max_response_length=12
  actor_rollout_ref.model.path=tiny
  actor_rollout_ref.actor.strategy=fake
  actor_rollout_ref.actor.ppo_mini_batch_size=16
  actor_rollout_ref.actor.optim.lr=0.03
  actor_rollout_ref.rollout.name=fake
  custom_reward_function.path="$here/fakes_reward.py"
  trainer.runtime=local
  trainer.device=cpu
  trainer.total_training_steps=12
  trainer.save_freq=0
  trainer.test_freq=0
  trainer.val_before_train=False
  trainer.default_local_dir="$run/run"
)

echo "== GRPO: groups of 8 responses are their own baseline"
python -m rl_core.trainer.main_ppo "${shared[@]}" \
  algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 "$@"

echo "== PPO: a critic is trained beside the policy"
python -m rl_core.trainer.main_ppo "${shared[@]}" \
  algorithm.adv_estimator=gae actor_rollout_ref.rollout.n=4 \
  critic.strategy=fake critic.model.path=tiny critic.ppo_mini_batch_size=16 critic.optim.lr=0.03 "$@"
