"""The single controller: a plain Python loop over worker groups. It holds no weights and does almost no math."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rl_core.algorithms.kl_controller import build_kl_controller
from rl_core.config.correction import old_log_prob_switch
from rl_core.config.roles import needs_critic, needs_reference, scores_by_model, trains_reward_model
from rl_core.config.schedule import generation_prompts, step_schedule
from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.data.build import prompt_loader, train_prompts, val_prompts
from rl_core.single_controller.base.mesh import BALANCE_KEY, row_costs
from rl_core.trainer.placement import start_workers
from rl_core.trainer.ppo.advantage import compute_advantage, resample
from rl_core.trainer.ppo.dumps import dump_rollouts, rollout_records
from rl_core.trainer.ppo.end_of_data import end_early
from rl_core.trainer.ppo.metrics import trained_tokens
from rl_core.trainer.ppo.mini_batch_plan import plan_mini_batches
from rl_core.trainer.ppo.parity import check_parity
from rl_core.trainer.ppo.parity_file import ParityFile
from rl_core.trainer.ppo.prepare_loss import prepare_policy_loss
from rl_core.trainer.ppo.profiles import StepProfiles
from rl_core.trainer.ppo.resume import checkpoint_saver, checkpoint_state, load_checkpoint, save_checkpoint
from rl_core.trainer.ppo.reward import (
    attach_rewards,
    check_rewards_exist,
    reward_manager,
    score_rows,
    scored_rows,
    taken_results,
)
from rl_core.trainer.ppo.rollout_correction import correct_rollouts, generator_log_probs
from rl_core.trainer.ppo.sampler_build import build_sampler
from rl_core.trainer.ppo.samples import SampleFile
from rl_core.trainer.ppo.sharing import sharing_metrics
from rl_core.trainer.ppo.step import StepLog, phase_metrics
from rl_core.trainer.ppo.validation import Validator
from rl_core.trainer.trackers import Trackers
from rl_core.workers.roles import Role

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig
    from rl_core.contracts.reward import RewardResult
    from rl_core.plugins import Registry
    from rl_core.runtime.choose import Runtime


class PPOTrainer:
    """PPO, GRPO and their kin: which one, only the configuration knows."""

    def __init__(self, config: PPOTrainerConfig, tokenizer: Any, runtime: Runtime, registry: Registry) -> None:
        """Read the data and settle the length of the run; no worker is started before ``init_workers``.

        Args:
            config: the composed configuration of the run.
            tokenizer: of the policy.
            runtime: starts worker groups.
            registry: finds algorithms, sampler, rewards and trackers by name.
        """
        self.config = config
        self.tokenizer = tokenizer
        self.runtime = runtime
        self.registry = registry
        self.use_critic = needs_critic(config)
        self.use_reference = needs_reference(config)
        self.is_scored_by_model = scores_by_model(config, registry)
        self.trains_reward_model = trains_reward_model(config, registry)
        self.trusts_generator = old_log_prob_switch(config) is not None
        # Some estimators read more of that pass than log-probs.
        self.rescores = not self.trusts_generator or bool(config.actor_rollout_ref.actor.calculate_sum_pi_squared)
        self.kl_controller = (
            build_kl_controller(config.algorithm.kl_ctrl) if config.algorithm.use_kl_in_reward else None
        )
        data = config.data
        dataset = train_prompts(data, tokenizer)
        self.val_dataset = val_prompts(data, tokenizer) if data.val_files else None
        for what, prompts in (("training", dataset), ("validation", self.val_dataset)):
            for note in prompts.notes(what) if prompts else ():
                print(f"note: {note}")  # noqa: T201 - a run that cuts or drops data says so
        self.data_counts = {
            "data/filtered_prompts": dataset.num_filtered,
            "data/truncated_prompts": dataset.num_truncated,
        }
        self.schedule = step_schedule(config, len(dataset))
        self.loader = prompt_loader(
            data,
            dataset,
            batch_size=generation_prompts(config),
            epochs=config.trainer.total_epochs,
            seed=data.seed if data.seed is not None else config.trainer.seed,
        )
        self.total_steps = self.schedule.total_steps
        check_rewards_exist(config, filter(None, (dataset, self.val_dataset)), registry)
        self.reward_manager = reward_manager(config, tokenizer, registry)
        self.trackers = Trackers.from_config(config, registry)
        self.samples = SampleFile(config.trainer, tokenizer, self.total_steps)
        self.parity = ParityFile(config, tokenizer, self.total_steps)
        self.saver = checkpoint_saver(config.trainer, use_critic=self.use_critic)
        self.global_step = 0
        self.step_start: dict[str, Any] | None = None

    def init_workers(self) -> None:
        """Start one worker group for each role, load the models, and go on from a checkpoint if there is one."""
        wanted = {
            Role.ActorRolloutRef: True,
            Role.RefPolicy: self.use_reference,
            Role.Critic: self.use_critic,
            Role.RewardModel: self.config.reward_model.enable,
        }
        roles = [role for role, is_wanted in wanted.items() if is_wanted]
        groups = start_workers(self.runtime, self.config, roles, total_training_steps=self.total_steps)
        self.actor_rollout_wg = groups[Role.ActorRolloutRef]
        self.ref_policy_wg: Any = groups.get(Role.RefPolicy)
        self.critic_wg: Any = groups.get(Role.Critic)
        self.reward_model_wg: Any = groups.get(Role.RewardModel)
        generate = self.actor_rollout_wg.generate_sequences
        submit = None if self.is_scored_by_model else self.reward_manager.submit
        self.sampler = build_sampler(self.config, self.loader, self.actor_rollout_wg, self.score, self.registry, submit)
        self.validator = Validator(self.config, self.val_dataset, generate, self.score) if self.val_dataset else None
        self.profiles = StepProfiles(
            self.config, [self.actor_rollout_wg, self.ref_policy_wg, self.critic_wg, self.reward_model_wg]
        )
        load_checkpoint(self)
        self.first_step = self.global_step + 1

    def fit(self) -> None:
        """Train to the last step, or until the data is used up."""
        config = self.config
        validates_now = config.trainer.val_only or (self.global_step == 0 and self.schedule.validates_after(0))
        if self.validator and validates_now:
            self.trackers.log(self.global_step, self.validate())
        save_time: dict[str, float] = {}
        while self.global_step < self.total_steps and not config.trainer.val_only:
            self.saver.poll()
            self.step_start = checkpoint_state(self)
            self.global_step += 1
            log = StepLog(self.global_step, self.registry)
            log.add({"training/epoch": self.loader.epoch, "training/total_steps": self.total_steps} | save_time)
            log.add(self.data_counts)
            with self.profiles.step(self.global_step), log.timer("step"):
                try:
                    with log.timer("gen"):
                        batch = self.sampler.next()
                except StopIteration as end:
                    end_early(self, end.value)
                    break
                batch = self.step(batch, log)
                if self.validator and self.schedule.validates_after(self.global_step):
                    with log.timer("testing"):
                        log.add(self.validate())
            log.merge(phase_metrics(self))
            self.trackers.log(self.global_step, log.finish(batch, config.data.max_response_length))
            # After the log, so that no step of a checkpoint lacks its numbers; its time stands with the next step.
            save_time = save_checkpoint(self) if self.schedule.saves_after(self.global_step) else {}
        self.saver.wait()

    def step(self, batch: DataProto, log: StepLog) -> DataProto:
        """One step on finished responses. Each line ships one DataProto to workers and gathers the result.

        Returns:
            The batch with every column that the step has computed.
        """
        config, seed = self.config, (self.config.trainer.seed, self.global_step)
        log.take(batch)
        log.add(sharing_metrics(batch, config, self.actor_rollout_wg.world_size))
        if config.trainer.balance_batch:
            batch.meta_info[BALANCE_KEY] = True
        results = taken_results(batch)  # of a sampler that had to know the rewards
        if results is None and not self.is_scored_by_model:
            self.reward_manager.submit(batch)  # one with processes of its own scores during the lines below

        # Roles with devices of their own compute at the same time, those that share devices one after another.
        is_first = self.global_step == self.first_step
        stages = []
        if self.rescores or is_first:  # the first hand-over of weights is checked whatever the old log-probs are
            stages.append(log.start("old_log_prob", self.actor_rollout_wg.compute_log_prob, batch))
        if self.use_reference:
            stages.append(log.start("ref", self.ref_policy_wg.compute_ref_log_prob, batch))
        if self.use_critic:
            stages.append(log.start("values", self.critic_wg.compute_values, batch))
        if self.reward_model_wg and not (self.is_scored_by_model and results):
            stages.append(log.start("reward", self.reward_model_wg.compute_rm_score, batch))
        for stage in stages:
            batch = batch.union(stage.result())
        log.add(check_parity(batch, config.trainer.parity, self.global_step, self.parity, is_first=is_first))
        if self.trusts_generator:
            batch = generator_log_probs(batch)

        with log.timer("reward"):
            batch = self._rewarded(batch, results, log)
        if self.trains_reward_model:
            batch = self._reward_model_updated(batch, log)

        with log.timer("adv"):
            batch, corrected = correct_rollouts(batch, config.algorithm)
            batch, metrics = compute_advantage(batch, config.algorithm, self.kl_controller, self.registry)
            trained, drawn = resample(batch, config.algorithm, seed)
        log.merge(corrected | metrics | drawn)

        self.step_start = None  # from here on the weights are no longer those of the step before
        if self.use_critic:
            with log.timer("update_critic"):
                log.merge(self.critic_wg.update_critic(self._planned(trained, config.critic)))
        if self.global_step > config.trainer.critic_warmup:
            with log.timer("update_actor"):
                actor = config.actor_rollout_ref.actor
                prepared = prepare_policy_loss(trained, actor, seed, self.registry)
                log.merge(self.actor_rollout_wg.update_actor(self._planned(prepared, actor)))
        return batch

    def validate(self) -> dict[str, float]:
        """Answer and score the validation set; write the answers down where the configuration wants them."""
        if self.validator is None:
            return {}
        metrics, batch, results = self.validator.run()
        trainer = self.config.trainer
        self.samples.validated(self.global_step, batch, results)
        if trainer.validation_data_dir:
            dump_rollouts(trainer.validation_data_dir, self.global_step, batch, results, self.tokenizer)
        if trainer.log_val_generations:
            records = rollout_records(self.global_step, batch, results, self.tokenizer)
            self.trackers.log_generations(self.global_step, records[: trainer.log_val_generations])
        return metrics

    def score(self, batch: DataProto) -> list[RewardResult]:
        """The reward of each row: of a model that takes the reward function's place, or of the function."""
        return score_rows(batch, self.reward_manager, self.reward_model_wg if self.is_scored_by_model else None)

    def _rewarded(self, batch: DataProto, results: list[RewardResult] | None, log: StepLog) -> DataProto:
        """The batch with scores, without the rows whose reward is missing; ``results`` if they are there already."""
        trainer = self.config.trainer
        if results is None:
            results = scored_rows(batch) if self.is_scored_by_model else self.reward_manager.collect(batch)
        self.samples.trained(self.global_step, batch, results)
        if trainer.rollout_data_dir:
            dump_rollouts(trainer.rollout_data_dir, self.global_step, batch, results, self.tokenizer)
        batch, metrics = attach_rewards(batch, results, trainer.max_failed_reward_fraction)
        log.merge(metrics)
        return batch

    def _reward_model_updated(self, batch: DataProto, log: StepLog) -> DataProto:
        """Train the reward model on the rows and their rewards; with ``update=before`` the rows are scored once more."""
        config = self.config.reward_model
        self.step_start = None  # its weights are no longer those of the step before
        with log.timer("update_reward_model"):
            log.merge(self.reward_model_wg.update_reward_model(self._planned(batch, config)))
        if config.update == "before":
            with log.timer("reward"):
                scored = self.reward_model_wg.compute_rm_score(batch)
            batch = batch.select()
            batch.pop(batch_keys=list(scored.batch.keys()))
            batch = batch.union(scored)
        return batch

    def _planned(self, batch: DataProto, role: Any) -> DataProto:
        """The batch with the role's optimizer steps in its meta data."""
        plan = plan_mini_batches(
            batch.non_tensor_batch["uid"],
            trained_tokens(batch),
            mini_batch_size=role.ppo_mini_batch_size,
            epochs=role.ppo_epochs,
            shuffle=role.shuffle,
            seed=(role.data_loader_seed, self.global_step),
            max_response_length=self.config.data.max_response_length,
            costs=row_costs(batch) if self.config.trainer.balance_batch else None,
        )
        planned = batch.select()
        planned.meta_info[PLAN_KEY] = plan
        return planned

    def close(self) -> None:
        """End workers, reward processes and trackers; safe after a failure."""
        with ExitStack() as stack:
            stack.callback(self.runtime.shutdown)
            stack.callback(self.trackers.close)
            stack.callback(self.reward_manager.close)
