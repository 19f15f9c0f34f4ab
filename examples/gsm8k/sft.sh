#!/usr/bin/env bash
# Stage 1: the solutions of the training split, two epochs. More arguments are overrides of `rl sft`.
source "$(dirname "$0")/settings.sh"
rl sft \
  model.path="$MODEL" \
  data.train_files="$DATA/sft_train.parquet" \
  data.val_files="$DATA/sft_val.parquet" \
  data.train_batch_size=64 \
  data.max_token_len_per_gpu=32768 \
  optim.lr=2e-4 \
  optim.lr_scheduler_type=cosine \
  optim.lr_warmup_steps_ratio=0.03 \
  trainer.total_epochs=2 \
  trainer.test_freq=50 \
  trainer.save_freq=-1 \
  trainer.default_local_dir="$RUNS/sft" \
  "$@"
