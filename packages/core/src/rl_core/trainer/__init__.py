"""The controller: the loop, its sampler, schedules, checkpoints and metrics. It holds no weights."""
