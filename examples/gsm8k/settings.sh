# What all stages share; each value can be set from outside: ROLLOUT=hf bash examples/gsm8k/sft.sh
set -euo pipefail
DATA=${DATA:-$HOME/data/gsm8k}
MODEL=${MODEL:-$HOME/models/smollm2-135m}
RUNS=${RUNS:-checkpoints/gsm8k}
ROLLOUT=${ROLLOUT:-vllm}
