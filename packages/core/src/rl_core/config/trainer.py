"""``trainer.*``: cluster shape, length of the run, files, limits and deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_core.config.node import Node, choice, number, plugins
from rl_core.config.sampler import V1Config


@dataclass
class ParityConfig(Node):
    """How far the sampler's log-probs may lie from the training engine's.

    Both numbers compare the same tokens of the same weights under two engines, in nats.
    """

    max_logprob_gap: float | None = number(None, gt=0)
    """Stop the run when the mean absolute gap of a step exceeds this; null only reports it. Float32 on both sides
    stays below 1e-4, bfloat16 against float32 around 1e-2."""

    first_sync_tolerance: float = number(0.1, gt=0)
    """Largest mean absolute gap after the first weight synchronisation. A wrong or stale weight gives far more, so
    the run stops before the first update."""

    report_above: float = number(0.05, gt=0)
    """Show cause and outliers of a step on the console when its mean absolute gap exceeds this, and again whenever that has
    doubled. Such a step always stands in ``parity.jsonl`` of the run folder, of the others about 200."""

    outliers: int = number(5, ge=0)
    """Tokens with the largest gap that a report shows, with the text around them."""


@dataclass
class WatchdogConfig(Node):
    """What the driver does about workers that are slow, stopped or gone (Ray runtime)."""

    heartbeat_s: float = number(1.0, gt=0)
    """Seconds between a worker's heartbeats. Each carries what the worker does, where its code stands, and what it printed."""

    soft_deadline_s: float = number(300.0, gt=0)
    """Print who waits for whom once a call takes longer than this; again after twice the time."""

    silence_s: float = number(120.0, gt=0)
    """Stop the run when a worker has sent no heartbeat for so long: its process is stopped or its machine is cut off."""


@dataclass
class RunConfig(Node):
    """What every kind of run has."""

    nnodes: int = number(1, ge=1)
    """Nodes."""

    n_gpus_per_node: int = number(1, ge=1)
    """Workers per node: one per GPU, or that many processes on the CPU."""

    device: str = choice("auto", "auto", "cpu", "cuda")
    """Device of the workers; ``auto`` takes CUDA where there is one."""

    device_memory_gib: float | None = number(None, gt=0)
    """Memory of each worker's GPU in GiB, for what ``rl check`` predicts; null asks the GPUs of this machine."""

    runtime: str = choice("auto", "auto", "local", "ray")
    """Where workers live: in this process, or as Ray actors. ``auto`` is local for one worker on the CPU only."""

    seed: int = 1
    """Seed of the run: order of rows, draws, initialisation. The same seed and data repeat a synchronous run."""

    total_epochs: int = number(30, ge=1)
    """Passes over the training rows."""

    total_training_steps: int | None = number(None, ge=1)
    """Stop after this many steps, if the epochs do not end first."""

    project_name: str = "rl_examples"
    """Project in the trackers, and in the default run folder."""

    experiment_name: str = "gsm8k"
    """Name of the run in the trackers, and in the default run folder."""

    logger: list[str] = plugins("tracker", "console", "jsonl")
    """Trackers by name."""

    save_freq: int = -1
    """Save a checkpoint every this many steps and after the last one; -1 after the last only; 0 never."""

    test_freq: int = -1
    """Validate every this many steps and after the last one; -1 after the last only; 0 never."""

    val_before_train: bool = True
    """Validate before the first step."""

    default_local_dir: str = "checkpoints/${trainer.project_name}/${trainer.experiment_name}"
    """Run folder: configuration, metrics, checkpoints, logs."""

    resume_mode: str = choice("auto", "auto", "disable", "resume_path")
    """``auto`` continues from the newest complete checkpoint of the run folder, ``disable`` starts anew,
    ``resume_path`` continues from ``resume_from_path``."""

    resume_from_path: str | None = None
    """Checkpoint folder (``global_step_N``) to continue from."""

    worker_deadline_s: float = number(3600.0, gt=0)
    """Seconds one call of a worker method may take; then the run stops and names the worker and the phase."""

    placement_deadline_s: float = number(120.0, gt=0)
    """Seconds to wait for devices that others hold; devices that the cluster does not have are an error at once."""

    ray_wait_register_center_timeout: float = number(300.0, gt=0)
    """Seconds to wait for workers to start once they have their devices."""

    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    """Heartbeats of the workers, and what their absence means."""


@dataclass
class TrainerConfig(RunConfig):
    """The run."""

    val_only: bool = False
    """Validate once and stop."""

    log_val_generations: int = number(0, ge=0)
    """Validation answers written to the trackers each time."""

    run_folder_samples: int = number(8, ge=0)
    """Samples in ``samples.jsonl`` of the run folder, for its report: so many responses of a step, and the answers to so
    many held-out prompts, the same ones at each validation. Long texts are cut, and a long run keeps the responses of
    about 200 steps; 0 keeps none."""

    rollout_data_dir: str | None = None
    """Folder for every step's rollouts as JSON lines; null writes none."""

    validation_data_dir: str | None = None
    """Folder for every validation's rollouts as JSON lines; null writes none."""

    default_hdfs_dir: str | None = None
    """Remote copy of the checkpoints."""

    del_local_ckpt_after_load: bool = False
    """Delete a checkpoint once it has been loaded."""

    max_actor_ckpt_to_keep: int | None = number(None, ge=1)
    """Newest checkpoints of the actor that are kept; null keeps all. The newest complete one is never deleted."""

    max_critic_ckpt_to_keep: int | None = number(None, ge=1)
    """The same for the critic."""

    checkpoint_callback_class: str | None = None
    """Class called after each save, as ``module:Class``."""

    esi_redundant_time: float = number(0, ge=0)
    """Save this many seconds before a known end of the machine's lease."""

    balance_batch: bool = True
    """Spread long and short responses evenly over the workers. Changes speed, never a number."""

    critic_warmup: int = number(0, ge=0)
    """First steps in which only the critic is updated."""

    max_failed_rollout_fraction: float = number(0.1, ge=0, le=1)
    """Stop the run when more than this share of a step's rollouts failed; failed ones are left out and counted."""

    max_failed_reward_fraction: float = number(0.1, ge=0, le=1)
    """Stop the run when more than this share of a step's rewards is missing; missing ones are left out and counted."""

    rollout_deadline_s: float = number(1800.0, gt=0)
    """Seconds one rollout may take, tools and environment included; then it is cancelled and counts as failed."""

    parity: ParityConfig = field(default_factory=ParityConfig)
    """Limits of the gap between sampler and training engine."""

    use_v1: bool = True
    """There is one trainer; the key is accepted for commands written for others."""

    v1: V1Config = field(default_factory=V1Config)
    """Schedule of generation and training."""
