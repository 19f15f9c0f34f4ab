from __future__ import annotations

import pytest
from rl_core.config.secrets import REDACTED, is_secret_path, redact_override, redact_tree


@pytest.mark.parametrize(
    "path",
    [
        "ray_kwargs.ray_init.runtime_env.env_vars.ANYTHING",
        "a.api_key",
        "a.OPENAI_API_KEY",
        "a.hf_token",
        "a.token",
        "a.password",
        "a.client-secret",
        "x.aws_secret_access_key",
    ],
)
def test_secret_names(path):
    assert is_secret_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "data.max_tokens",
        "a.eos_token",
        "data.messages_key",
        "data.reward_fn_key",
        "a.stop_token_ids",
        "a.image_token",
        "rollout.ppo_max_token_len_per_gpu",
        "a.tokenizer",
        "a.env_vars",
        "keys",
    ],
)
def test_ordinary_names(path):
    assert not is_secret_path(path)


def test_names_stay_and_values_go():
    tree = {"runtime_env": {"env_vars": {"A": "1", "B": {"c": "2"}}, "pip": ["x"]}, "api_key": None, "n": 3}
    assert redact_tree(tree) == {
        "runtime_env": {"env_vars": {"A": REDACTED, "B": {"c": REDACTED}}, "pip": ["x"]},
        "api_key": None,
        "n": 3,
    }
    assert tree["runtime_env"]["env_vars"]["A"] == "1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("+ray_kwargs.ray_init.runtime_env.env_vars.T=abc", f"+ray_kwargs.ray_init.runtime_env.env_vars.T={REDACTED}"),
        ("a.runtime_env.env_vars={T:abc}", f"a.runtime_env.env_vars={REDACTED}"),
        ("a.runtime_env={env_vars:{T:abc},pip:[x]}", f"a.runtime_env={REDACTED}"),
        ("trainer.nnodes=2", "trainer.nnodes=2"),
        ("~trainer.nnodes", "~trainer.nnodes"),
    ],
)
def test_overrides_are_safe_to_print(text, shown):
    assert redact_override(text) == shown


@pytest.mark.parametrize(
    "override",
    [
        "custom_reward_function.reward_kwargs={api_key: sk-1}",
        "custom_reward_function.reward_kwargs={'api_key':'sk-1'}",
        "data.x.github_token=sk-1",
        "data.x.openai_key=sk-1",
        "data.url=https://user:sk-1@host/path",
        "data.x.judge_token=sk-1",
        "data.url=https://host/path?api_key=sk-1",
        "custom_reward_function.reward_kwargs={judge: {discord_token: sk-1}}",
    ],
)
def test_an_override_shows_no_secret_wherever_it_stands(override):
    assert "sk-1" not in redact_override(override)


@pytest.mark.parametrize("override", ["data.prompt_key=prompt", "rollout.max_token=5", "data.files=http://host:80/a"])
def test_an_override_without_a_secret_stays(override):
    assert redact_override(override) == override


def test_the_login_of_a_url_is_hidden_in_a_tree():
    assert redact_tree({"url": "https://me:sk-1@host/a"}) == {"url": f"https://{REDACTED}@host/a"}
