"""What this package registers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rl_core import hookimpl
from rl_core.plugins.records import NEEDS_GROUND_TRUTH, CommandRecord, Record, RewardManagerRecord, RewardRecord

_COMPARES: Final = frozenset({NEEDS_GROUND_TRUTH})


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """Verifiers, found by data source, reward managers, and the command that tries a reward."""
    return [
        *_managers(),
        *_mathematics(),
        *_short_answers(),
        *_models(),
        CommandRecord(
            name="reward",
            target="rl_rewards.cli.reward_command:main",
            summary="Try a reward: what it gives to the rows of a file.",
        ),
        RewardRecord(
            name="code",
            aliases=("codecontests", "apps", "codeforces", "taco"),
            target="rl_rewards.code:compute_score",
            capabilities=_COMPARES,
            summary="Last code block, run against test cases in the sandbox.",
        ),
    ]


def _mathematics() -> Iterable[Record]:
    return [
        RewardRecord(
            name="openai/gsm8k",
            aliases=("gsm8k",),
            target="rl_rewards.gsm8k:compute_score",
            capabilities=_COMPARES,
            summary="Number after the last ####, compared by value.",
        ),
        RewardRecord(
            name="gsm8k_flexible",
            target="rl_rewards.gsm8k:flexible_score",
            capabilities=_COMPARES,
            summary="Last number of the response, compared by value.",
        ),
        RewardRecord(
            name="math",
            aliases=(
                "lighteval/MATH",
                "DigitalLearningGmbH/MATH-lighteval",
                "HuggingFaceH4/MATH-500",
                "math_dapo",
                "math_dapo_reasoning",
            ),
            prefixes=("aime", "numina_"),
            target="rl_rewards.math:compute_score",
            summary="Last box or announced answer, compared as strings, numbers and by computer algebra.",
        ),
        RewardRecord(
            name="hiyouga/geometry3k",
            aliases=("geometry3k",),
            target="rl_rewards.geometry3k:compute_score",
            capabilities=_COMPARES,
            summary="As math, and a tenth of the score for the form.",
        ),
        RewardRecord(
            name="countdown",
            target="rl_rewards.countdown:compute_score",
            capabilities=_COMPARES,
            summary="Expression of the given numbers, each used once, whose value is the target.",
        ),
        RewardRecord(
            name="numeric",
            target="rl_rewards.numeric:compute_score",
            capabilities=_COMPARES,
            summary="Marked or last number, compared within a tolerance.",
        ),
    ]


def _short_answers() -> Iterable[Record]:
    return [
        RewardRecord(
            name="multiple_choice",
            target="rl_rewards.multiple_choice:compute_score",
            capabilities=_COMPARES,
            summary="Letter of the chosen option.",
        ),
        RewardRecord(
            name="exact",
            target="rl_rewards.exact:compute_score",
            capabilities=_COMPARES,
            summary="Marked answer or whole response, compared as text.",
        ),
        RewardRecord(
            name="format",
            target="rl_rewards.format:compute_score",
            summary="Whether the response keeps its tags, or matches a pattern.",
        ),
        RewardRecord(
            name="search_qa",
            prefixes=("searchR1_",),
            target="rl_rewards.search_qa:compute_score",
            capabilities=_COMPARES,
            summary="Exact match after SQuAD normalisation, with any of several right texts.",
        ),
        RewardRecord(
            name="search_qa_f1",
            target="rl_rewards.search_qa:f1_score",
            capabilities=_COMPARES,
            summary="F1 of the words in common after SQuAD normalisation.",
        ),
        RewardRecord(
            name="reasoning_gym",
            prefixes=("reasoning_gym/",),
            target="rl_rewards.reasoning_gym:compute_score",
            capabilities=_COMPARES,
            summary="Any data set of reasoning-gym, by its own scorer.",
            requires=("reasoning-gym>=0.1.19,<0.2",),
        ),
    ]


def _models() -> Iterable[Record]:
    return [
        RewardRecord(
            name="llm_judge",
            target="rl_rewards.judge:compute_score",
            summary="A model behind an OpenAI-compatible endpoint compares with the reference.",
        ),
        RewardRecord(
            name="generative_reward_model",
            target="rl_rewards.judge:generative_score",
            summary="A model behind an OpenAI-compatible endpoint rates the response.",
        ),
    ]


def _managers() -> Iterable[Record]:
    """Ways to run reward functions besides core's own."""
    keys = "rl_rewards.managers.keys"
    return [
        RewardManagerRecord(
            name="batch",
            target="rl_rewards.managers.batch:BatchRewardManager",
            summary="One call of the reward function for many rows.",
            config=f"{keys}:BatchKeys",
        ),
        RewardManagerRecord(
            name="prime",
            target="rl_rewards.managers.prime:PrimeRewardManager",
            summary="Single rows in a pool of processes, as naive has it too.",
            config=f"{keys}:PrimeKeys",
        ),
        RewardManagerRecord(
            name="rate_limited",
            target="rl_rewards.managers.rate_limited:RateLimitedRewardManager",
            summary="At most so many calls at once, and so many calls and tokens a minute.",
            config=f"{keys}:RateLimitedKeys",
        ),
        RewardManagerRecord(
            name="remote",
            target="rl_rewards.managers.remote:RemoteRewardManager",
            summary="A service of your own scores, asked over HTTP.",
            config=f"{keys}:RemoteKeys",
            capabilities=frozenset({"scores_itself"}),
        ),
    ]
