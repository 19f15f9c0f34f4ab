#!/usr/bin/env bash
# All 1,319 test problems, greedy and eight times at temperature 1: evaluate.sh CHECKPOINT NAME. Answers go to $RUNS/answers.
source "$(dirname "$0")/settings.sh"
checkpoint=$1 name=$2
shift 2
common=(
  data.max_prompt_length=512
  data.max_response_length=256
  actor_rollout_ref.rollout.name="$ROLLOUT"
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4
)
mkdir -p "$RUNS/answers"
rl eval "$checkpoint" "$DATA/test.parquet" --out "$RUNS/answers/$name.jsonl" "${common[@]}" "$@"
rl eval "$checkpoint" "$DATA/test.parquet" --n 8 --out "$RUNS/answers/$name-8.jsonl" "${common[@]}" "$@"
