"""Records: what a plugin says about each part it provides.

A record is data. It names code by ``"module:attribute"`` strings which are resolved on first use, in the process that
needs them, so that reading every record of every installed plugin imports no engine. One class a kind; the class
docstring says what the target must be. Nothing here imports more than the standard library. A class without fields of
its own is no dataclass of its own: it inherits one, which saves a millisecond of every start of every process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, NoReturn

from rl_core.errors import PluginError

MOUNT_POINTS: Final = ("actor", "ref", "critic", "reward_model", "rollout", "algorithm", "data", "trainer")
ADVANTAGE_NEEDS: Final = frozenset({"values", "group", "greedy_baseline", "sum_pi_squared", "process_rewards"})
REWARD_MODEL_GIVES: Final = ("outcome", "process")
ANY: Final = "*"
GENERIC_TRANSPORT: Final = "generic"
NEEDS_GROUND_TRUTH: Final = "ground_truth"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]*")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_HOOK_API = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What every kind of part says about itself.

    Raises:
        PluginError: a field has the wrong type or syntax; says which, and what it should look like.
    """

    kind: ClassVar[str] = ""

    name: str
    """What a user writes in the configuration; unique within the kind. Letters, digits and ``_ . / + -``."""
    target: str
    """``"module:attribute"`` of the part itself; resolved on first use."""
    summary: str
    """One line for ``rl plugins list`` and the documentation."""
    hook_api: str = "1.0"
    """Hook API that the plugin was written for, ``"major.minor"``."""
    aliases: tuple[str, ...] = ()
    """Other names that mean the same part; unique within the kind like the name itself."""
    requires: tuple[str, ...] = ()
    """Requirements of the target, checked before it is imported; alternatives within one are joined by ``|``."""
    capabilities: frozenset[str] = frozenset()
    """What the part can do, as words (``lora``, ``sleep``, ``cpu``, ...); ``rl check`` compares them with the run."""
    config: str | None = None
    """``"module:Dataclass"`` of the part's own keys; its module must be as light as the plugin module."""
    config_key: str | None = None
    """Key of the dataclass in each section of ``mount``; filled with the name when None and ``mount`` is set."""
    mount: tuple[str, ...] = ()
    """Sections of the run configuration that get the dataclass; a subset of ``MOUNT_POINTS``."""

    def __post_init__(self) -> None:
        for field in ("name", "target", "summary", "hook_api"):
            self._check_type(field, str)
        self._check_members("aliases", tuple)
        self._check_members("requires", tuple)
        self._check_members("capabilities", frozenset)
        self._check_members("mount", tuple)
        for name in (self.name, *self.aliases):
            self._check_syntax("name", name, _NAME, "letters, digits and _ . / + -, starting with a letter or digit")
        self._check_syntax("hook_api", self.hook_api, _HOOK_API, "'major.minor' such as '1.0'")
        self._check_target("target")
        self._check_target("config", optional=True)
        if not self.summary.strip():
            self._fail("summary", "is empty; write one line that says what the part does")
        if unknown := sorted(set(self.mount) - set(MOUNT_POINTS)):
            self._fail("mount", f"names {unknown}; the mount points are {list(MOUNT_POINTS)}")
        self._check_mounting()
        if self.requires:
            self._check_requires()

    @property
    def claims(self) -> tuple[str, ...]:
        """Everything that it may be asked for by; ends in ``*`` where only the beginning must agree."""
        return (self.name, *self.aliases)

    def _check_mounting(self) -> None:
        if self.mount and self.config is None:
            self._fail("mount", "needs config, the dataclass to mount")
        if self.config_key is not None and not self.mount:
            self._fail("config_key", "needs mount, the sections it is a key of")
        if self.mount and self.config_key is None:
            object.__setattr__(self, "config_key", self.name)
        if self.config_key is not None and not (isinstance(self.config_key, str) and self.config_key.isidentifier()):
            self._fail("config_key", f"is {self.config_key!r}; it must be a Python identifier")

    def _check_requires(self) -> None:
        # Reads packaging, which records without requirements (all of core's) do not pay for.
        from rl_core.plugins.requirements import parse_alternatives  # noqa: PLC0415

        for requirement in self.requires:
            parse_alternatives(requirement)

    def _check_type(self, field: str, expected: type) -> None:
        value = getattr(self, field)
        if not isinstance(value, expected):
            self._fail(field, f"must be a {expected.__name__}; it is {type(value).__name__} {value!r}")

    def _check_members(self, field: str, expected: type) -> None:
        self._check_type(field, expected)
        if strangers := [value for value in getattr(self, field) if not isinstance(value, str)]:
            self._fail(field, f"must hold strings; it holds {strangers!r}")

    def _check_target(self, field: str, *, optional: bool = False) -> None:
        value = getattr(self, field)
        if value is None and optional:
            return
        self._check_syntax(field, value, _TARGET, "'package.module:attribute'")

    def _check_syntax(self, field: str, value: object, pattern: re.Pattern[str], shape: str) -> None:
        if not (isinstance(value, str) and pattern.fullmatch(value)):
            self._fail(field, f"is {value!r}; it must look like {shape}")

    def _fail(self, field: str, problem: str) -> NoReturn:
        msg = f"{type(self).__name__} {self.name!r}: {field} {problem}."
        raise PluginError(msg)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendRecord(Record):
    """A training engine. Target: a class that implements the ``TrainingEngine`` contract."""

    kind: ClassVar[str] = "backend"

    tokenizer: str | None = None
    """``"module:callable"`` called as ``f(path, **kwargs)`` where the engine brings its own tokenizer; None uses the
    model's."""
    memory: str | None = None
    """``"module:function"`` that predicts the engine's memory, a ``TrainingMemory`` of ``rl_core.config.memory_question``; its
    module must load no torch. None predicts nothing."""

    def __post_init__(self) -> None:
        # With slots the decorator makes a second class, and super() without arguments would look at the first.
        Record.__post_init__(self)
        self._check_target("tokenizer", optional=True)
        self._check_target("memory", optional=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRecord(Record):
    """A generation engine. Target: a class that implements the ``RolloutEngine`` contract."""

    kind: ClassVar[str] = "rollout"

    memory: str | None = None
    """As of a backend, a ``RolloutMemory``."""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        self._check_target("memory", optional=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReshardingRecord(Record):
    """A way of moving weights from a backend into a rollout. Target: a class that implements ``Resharding``."""

    kind: ClassVar[str] = "resharding"

    backend: str = ANY
    """Name of the one backend it is for, or ``"*"``."""
    rollout: str = ANY
    """Name of the one rollout it is for, or ``"*"``."""
    transport: str = GENERIC_TRANSPORT
    """How the bytes travel; ``"generic"`` works between any two processes."""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        for field in ("backend", "rollout"):
            if getattr(self, field) != ANY:
                self._check_syntax(field, getattr(self, field), _NAME, "a plugin's name, or '*' for any")
        self._check_syntax("transport", self.transport, _NAME, "a name such as 'generic'")


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRecord(Record):
    """A reward function. Target: ``compute_score(data_source, solution_str, ground_truth, extra_info=None)``.

    It may be async; it returns a float, or a dict with ``score``. The capability ``ground_truth`` (``NEEDS_GROUND_TRUTH``) says
    that it compares with the row's right answer: a row without one is refused before a model is loaded.
    """

    kind: ClassVar[str] = "reward"

    prefixes: tuple[str, ...] = ()
    """Beginnings of data sources that it scores. A name or alias goes before a prefix, a longer prefix before a shorter."""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        self._check_members("prefixes", tuple)
        for prefix in self.prefixes:
            self._check_syntax(
                "prefixes", prefix, _NAME, "letters, digits and _ . / + -, starting with a letter or digit"
            )

    @property
    def claims(self) -> tuple[str, ...]:
        """Name, aliases, and prefixes followed by ``*``."""
        return (self.name, *self.aliases, *(f"{prefix}{ANY}" for prefix in self.prefixes))


class RewardManagerRecord(Record):
    """What runs reward functions over a batch. Target: a class that implements ``RewardManager``."""

    __slots__ = ()
    kind: ClassVar[str] = "reward_manager"


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardModelRecord(Record):
    """A learned scorer. Target: the worker class of the role, built as ``f(context, config, total_training_steps=...)``.

    It has ``compute_rm_score(batch)``, which gives jagged ``rm_scores``; one that is trained also has
    ``update_reward_model(batch)``, ``save_checkpoint`` and ``load_checkpoint``.
    """

    kind: ClassVar[str] = "reward_model"

    trained: bool = False
    """Whether it learns during the run, from the rows it has scored and their rewards."""
    gives: str = "outcome"
    """``outcome``: the score on a row's last token stands in for the reward function's; ``process``: a score for each
    token, which the advantage estimator reads beside the reward function's outcome."""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        self._check_type("trained", bool)
        if self.gives not in REWARD_MODEL_GIVES:
            self._fail("gives", f"is {self.gives!r}; a reward model gives one of {list(REWARD_MODEL_GIVES)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageRecord(Record):
    """An advantage estimator. Target: ``f(inputs: AdvantageInputs, config) -> (advantages [B, T], returns [B, T])``."""

    kind: ClassVar[str] = "advantage"

    needs: frozenset[str] = frozenset()
    """What must be computed before it can run; a subset of ``ADVANTAGE_NEEDS``. ``values`` brings the critic."""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        self._check_members("needs", frozenset)
        if unknown := sorted(self.needs - ADVANTAGE_NEEDS):
            self._fail("needs", f"names {unknown}; an estimator may need {sorted(ADVANTAGE_NEEDS)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyLossRecord(Record):
    """A policy loss. Target: ``f(inputs: PolicyLossInputs, config) -> PolicyLossOutputs`` with one loss a token."""

    kind: ClassVar[str] = "policy_loss"

    prepare: str | None = None
    """``"module:f"``, ``f(inputs: PrepareInputs, config) -> [B, T]``, run once a step on the controller over all its
    rows; each row's part reaches the loss as ``inputs.prepared``. For what a shard cannot know: means, ranks, draws."""
    aggregation: str | None = None
    """The ``loss_agg_mode`` that makes the token losses the method's loss; ``rl check`` warns about another one."""

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        self._check_target("prepare", optional=True)
        if self.aggregation is not None:
            self._check_syntax("aggregation", self.aggregation, _NAME, "the name of a loss aggregation")


class LossAggregationRecord(Record):
    """How token losses become one number.

    Target: ``f(token_loss, mask, totals, loss_scale_factor=None) -> scalar``, this shard's additive share.
    """

    __slots__ = ()
    kind: ClassVar[str] = "loss_aggregation"


class KLEstimatorRecord(Record):
    """A per-token KL estimate. Target: ``f(log_prob, ref_log_prob) -> kl``, all ``[B, T]``."""

    __slots__ = ()
    kind: ClassVar[str] = "kl_estimator"


class AgentLoopRecord(Record):
    """A conversation with an environment. Target: a class that implements the ``AgentLoop`` contract."""

    __slots__ = ()
    kind: ClassVar[str] = "agent_loop"


class ToolRecord(Record):
    """A tool that agent loops offer to the model. Target: a class that implements the tool contract."""

    __slots__ = ()
    kind: ClassVar[str] = "tool"


class ToolParserRecord(Record):
    """What finds tool calls in a response. Target: a class that implements the tool parser contract."""

    __slots__ = ()
    kind: ClassVar[str] = "tool_parser"


class DatasetRecord(Record):
    """A source of prompts. Target: a map-style data set class; one row is one prompt."""

    __slots__ = ()
    kind: ClassVar[str] = "dataset"


class SamplerRecord(Record):
    """A schedule of generation. Target: a class that implements the ``Sampler`` contract."""

    __slots__ = ()
    kind: ClassVar[str] = "sampler"


class OptimizerRecord(Record):
    """An optimizer. Target: ``f(parameters, config) -> torch.optim.Optimizer``."""

    __slots__ = ()
    kind: ClassVar[str] = "optimizer"


class TrackerRecord(Record):
    """Where metrics go. Target: a class that implements the tracker contract."""

    __slots__ = ()
    kind: ClassVar[str] = "tracker"


class DispatchModeRecord(Record):
    """A way to split a call over workers and gather the results. Target: a dispatch mode object."""

    __slots__ = ()
    kind: ClassVar[str] = "dispatch_mode"


class RecipeRecord(Record):
    """A named set of configuration values. Target: ``f() -> dict`` of overrides, nested as the configuration is."""

    __slots__ = ()
    kind: ClassVar[str] = "recipe"


class CommandRecord(Record):
    """A subcommand of ``rl``. Target: ``main(argv: list[str]) -> int``, the exit status."""

    __slots__ = ()
    kind: ClassVar[str] = "command"


RECORD_CLASSES: Final[dict[str, type[Record]]] = {
    cls.kind: cls
    for cls in (
        BackendRecord,
        RolloutRecord,
        ReshardingRecord,
        RewardRecord,
        RewardManagerRecord,
        RewardModelRecord,
        AdvantageRecord,
        PolicyLossRecord,
        LossAggregationRecord,
        KLEstimatorRecord,
        AgentLoopRecord,
        ToolRecord,
        ToolParserRecord,
        DatasetRecord,
        SamplerRecord,
        OptimizerRecord,
        TrackerRecord,
        DispatchModeRecord,
        RecipeRecord,
        CommandRecord,
    )
}
KINDS: Final = tuple(RECORD_CLASSES)


def kind_label(kind: str, *, plural: bool = False) -> str:
    """The kind as prose: ``policy_loss`` is "policy loss", in the plural "policy losses"."""
    label = "KL estimator" if kind == "kl_estimator" else kind.replace("_", " ")
    if not plural:
        return label
    return f"{label}es" if label.endswith("s") else f"{label}s"
