"""The mathematics of RL post-training: pure functions of tensors, one algorithm a file.

Nothing here knows of workers, configuration files, loggers or clocks; only torch and numpy are imported. Every
function takes ``[B, T]`` tensors (B responses, T padded response length) with a bool ``response_mask`` and never
lets a value at a masked position reach its result. Losses are returned per token; ``aggregation`` turns them into
this shard's additive share of the loss of the whole mini-batch, so no number depends on how the rows were cut.

A new advantage estimator is one file in ``advantages/`` with ``f(inputs: AdvantageInputs, config)``; a new policy
loss is one file in ``policy_losses/`` with ``f(inputs: PolicyLossInputs, config)``; each plus one plugin record.
"""
