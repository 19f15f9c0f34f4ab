"""Values that follow from others when they are not given. After this no derived key is null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rl_core.plugins import AdvantageRecord

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rl_core.plugins import Record

_ACTOR: Final = "actor_rollout_ref.actor"
_MODEL: Final = "actor_rollout_ref.model"
_REF: Final = "actor_rollout_ref.ref"
_ROLLOUT: Final = "actor_rollout_ref.rollout"

FOLLOWS: Final[tuple[tuple[str, str], ...]] = (
    ("data.seed", "trainer.seed"),
    ("data.tool_config_path", f"{_ROLLOUT}.multi_turn.tool_config_path"),
    ("data.function_tool_path", f"{_ROLLOUT}.multi_turn.function_tool_path"),
    (f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio"),
    (f"{_ACTOR}.clip_ratio_high", f"{_ACTOR}.clip_ratio"),
    (f"{_ACTOR}.loss_scale_factor", "data.max_response_length"),
    (f"{_ACTOR}.checkpoint.load_contents", f"{_ACTOR}.checkpoint.save_contents"),
    (f"{_ROLLOUT}.seed", "trainer.seed"),
    (f"{_ROLLOUT}.prompt_length", "data.max_prompt_length"),
    (f"{_ROLLOUT}.response_length", "data.max_response_length"),
    (f"{_ROLLOUT}.n_gpus_per_node", "trainer.n_gpus_per_node"),
    (f"{_ROLLOUT}.log_prob_max_token_len_per_gpu", f"{_ACTOR}.ppo_max_token_len_per_gpu"),
    (f"{_REF}.strategy", f"{_ACTOR}.strategy"),
    (f"{_REF}.log_prob_max_token_len_per_gpu", f"{_ACTOR}.ppo_max_token_len_per_gpu"),
    (f"{_REF}.ulysses_sequence_parallel_size", f"{_ACTOR}.ulysses_sequence_parallel_size"),
    (f"{_REF}.use_torch_compile", f"{_ACTOR}.use_torch_compile"),
    ("critic.strategy", f"{_ACTOR}.strategy"),
    ("critic.model.path", f"{_MODEL}.path"),
    ("critic.model.trust_remote_code", f"{_MODEL}.trust_remote_code"),
    ("critic.model.use_remove_padding", f"{_MODEL}.use_remove_padding"),
    ("critic.ppo_mini_batch_size", f"{_ACTOR}.ppo_mini_batch_size"),
    ("critic.ppo_epochs", f"{_ACTOR}.ppo_epochs"),
    ("critic.shuffle", f"{_ACTOR}.shuffle"),
    ("critic.data_loader_seed", f"{_ACTOR}.data_loader_seed"),
    ("critic.loss_agg_mode", f"{_ACTOR}.loss_agg_mode"),
    ("critic.forward_max_token_len_per_gpu", "critic.ppo_max_token_len_per_gpu"),
    ("critic.checkpoint.load_contents", "critic.checkpoint.save_contents"),
    ("reward_model.strategy", f"{_ACTOR}.strategy"),
    ("reward_model.model.trust_remote_code", f"{_MODEL}.trust_remote_code"),
    ("reward_model.model.use_remove_padding", f"{_MODEL}.use_remove_padding"),
    ("reward_model.forward_max_token_len_per_gpu", "critic.forward_max_token_len_per_gpu"),
    ("reward_model.ppo_mini_batch_size", f"{_ACTOR}.ppo_mini_batch_size"),
    ("reward_model.ppo_epochs", f"{_ACTOR}.ppo_epochs"),
    ("reward_model.shuffle", f"{_ACTOR}.shuffle"),
    ("reward_model.data_loader_seed", f"{_ACTOR}.data_loader_seed"),
)
"""Key that may be null -> key whose value it then takes. Earlier lines may feed later ones."""

PASSES: Final[tuple[tuple[str, str, str, str | None], ...]] = (
    (_ACTOR, "use_dynamic_bsz", "ppo_micro_batch_size", None),
    ("critic", "use_dynamic_bsz", "ppo_micro_batch_size", _ACTOR),
    (_ROLLOUT, "log_prob_use_dynamic_bsz", "log_prob_micro_batch_size", _ACTOR),
    (_REF, "log_prob_use_dynamic_bsz", "log_prob_micro_batch_size", _ACTOR),
    ("reward_model", "use_dynamic_bsz", "micro_batch_size", _ACTOR),
)
"""Section, its switch for packing by tokens, its micro-batch key (``_per_gpu`` is appended for the other), and the
section it follows when it sets none of the three."""


def derive(raw: DictConfig, records: Mapping[str, Record]) -> None:
    """Fill in every derived key of ``raw`` that is null, in place.

    Args:
        raw: the composed tree, interpolations filled in.
        records: key -> plugin it names; the advantage estimator decides whether there is a critic, whether squared
            probabilities are summed and whether a greedy response is drawn to each prompt.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    for key, source in FOLLOWS:
        if OmegaConf.select(raw, key) is None:
            OmegaConf.update(raw, key, OmegaConf.select(raw, source))
    for section, switch, micro_batch, followed in PASSES:
        _derive_passes(raw, section, switch, micro_batch, followed)
    _derive_value_passes(raw)
    validation = OmegaConf.select(raw, f"{_ROLLOUT}.val_kwargs")
    if validation.do_sample is None:
        validation.do_sample = validation.temperature > 0
    if OmegaConf.select(raw, "critic.enable") is None:
        OmegaConf.update(raw, "critic.enable", needs_values(records))
    if OmegaConf.select(raw, f"{_ROLLOUT}.greedy_baseline") is None:
        OmegaConf.update(raw, f"{_ROLLOUT}.greedy_baseline", estimator_needs(records, "greedy_baseline"))
    if OmegaConf.select(raw, f"{_ACTOR}.calculate_sum_pi_squared") is None:
        OmegaConf.update(raw, f"{_ACTOR}.calculate_sum_pi_squared", estimator_needs(records, "sum_pi_squared"))


def derive_offline(raw: DictConfig) -> None:
    """The same for runs that train one model on a file (``rl sft``, ``rl rm``)."""
    if raw.data.seed is None:
        raw.data.seed = raw.trainer.seed
    if raw.data.use_dynamic_bsz is None:
        raw.data.use_dynamic_bsz = raw.data.micro_batch_size_per_gpu is None


def needs_values(records: Mapping[str, Record]) -> bool:
    """Whether the advantage estimator works on a critic's values."""
    return estimator_needs(records, "values")


def estimator_needs(records: Mapping[str, Record], what: str) -> bool:
    """Whether the record of the advantage estimator names ``what`` among its ``needs``."""
    estimator = records.get("algorithm.adv_estimator")
    return isinstance(estimator, AdvantageRecord) and what in estimator.needs


def _derive_passes(raw: DictConfig, section: str, switch: str, micro_batch: str, followed: str | None) -> None:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    node = OmegaConf.select(raw, section)
    per_gpu = f"{micro_batch}_per_gpu"
    if node[switch] is not None:
        return
    if node[micro_batch] is not None or node[per_gpu] is not None:
        node[switch] = False
        return
    if followed is None:
        node[switch] = True
        return
    leader = OmegaConf.select(raw, followed)
    node[switch] = leader.use_dynamic_bsz
    if not leader.use_dynamic_bsz:
        node[micro_batch] = leader.ppo_micro_batch_size
        node[per_gpu] = leader.ppo_micro_batch_size_per_gpu


def _derive_value_passes(raw: DictConfig) -> None:
    critic = raw.critic
    if critic.forward_micro_batch_size is None and critic.forward_micro_batch_size_per_gpu is None:
        critic.forward_micro_batch_size = critic.ppo_micro_batch_size
        critic.forward_micro_batch_size_per_gpu = critic.ppo_micro_batch_size_per_gpu
