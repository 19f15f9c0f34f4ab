import pytest
from rl_core.errors import ConfigError, PluginApiError
from rl_core.plugins import Registry, get_registry
from rl_core.plugins.selection import Selection
from rl_core.trainer.ppo.reward import check_data_sources
from rl_rewards import plugin

SOURCES = {
    "openai/gsm8k": "gsm8k:compute_score",
    "gsm8k": "gsm8k:compute_score",
    "gsm8k_flexible": "gsm8k:flexible_score",
    "lighteval/MATH": "math:compute_score",
    "DigitalLearningGmbH/MATH-lighteval": "math:compute_score",
    "HuggingFaceH4/MATH-500": "math:compute_score",
    "math": "math:compute_score",
    "math_dapo": "math:compute_score",
    "math_dapo_reasoning": "math:compute_score",
    "aime2024": "math:compute_score",
    "aime_2025_ii": "math:compute_score",
    "numina_olympiads": "math:compute_score",
    "hiyouga/geometry3k": "geometry3k:compute_score",
    "codecontests": "code:compute_score",
    "apps": "code:compute_score",
    "codeforces": "code:compute_score",
    "taco": "code:compute_score",
    "searchR1_nq": "search_qa:compute_score",
    "searchR1_hotpotqa": "search_qa:compute_score",
    "reasoning_gym/chain_sum": "reasoning_gym:compute_score",
    "countdown": "countdown:compute_score",
    "multiple_choice": "multiple_choice:compute_score",
    "exact": "exact:compute_score",
    "numeric": "numeric:compute_score",
    "format": "format:compute_score",
    "search_qa": "search_qa:compute_score",
    "search_qa_f1": "search_qa:f1_score",
    "llm_judge": "judge:compute_score",
    "generative_reward_model": "judge:generative_score",
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_data_source_finds_its_verifier(source):
    assert get_registry().require("reward", source).target == f"rl_rewards.{SOURCES[source]}"
    assert callable(get_registry().load("reward", source))


@pytest.mark.parametrize("source", ["", None, "my/gsm8k-copy", "MATH", "reasoning_gymnastics", "searchr1_nq"])
def test_b54_an_unknown_data_source_is_refused_with_its_row_and_what_is_known(source):
    check_data_sources(dict.fromkeys(SOURCES, 0), get_registry())
    with pytest.raises(ConfigError) as raised:
        check_data_sources({"gsm8k": 0, source: 12}, get_registry())
    text = str(raised.value)
    told = "row 12 has no data_source" if source is None else f"row 12 has data_source {source!r}"
    assert told in text
    assert all(known in text for known in ("openai/gsm8k", "lighteval/MATH", "aime*", "searchR1_*", "reasoning_gym/*"))


def test_a_verifier_without_its_library_says_what_to_install(monkeypatch):
    from importlib import metadata

    distribution = metadata.distribution

    def without_games(name):
        if name == "reasoning-gym":
            raise metadata.PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(metadata, "distribution", without_games)
    registry = Registry(Selection())
    registry.register_distribution("rl-rewards", "1.0", plugin)
    with pytest.raises(PluginApiError, match=r"pip install 'reasoning-gym>="):
        check_data_sources({"reasoning_gym/chain_sum": 0}, registry)
    check_data_sources({"openai/gsm8k": 0}, registry)
