import json
import sys

from rl_core.plugins import get_registry
from rl_core.trainer.json_text import to_json
from rl_core.trainer.run_folder import environment


def test_the_command_is_kept_without_its_secrets(monkeypatch):
    typed = ["rl", "trainer.seed=1", "ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN=hush", "model.api_key=hush"]
    monkeypatch.setattr(sys, "argv", typed)
    kept = json.loads(to_json(environment(get_registry())))["command"]
    assert kept[:2] == typed[:2]
    assert "hush" not in " ".join(kept)
    assert [text.partition("=")[0] for text in kept] == [text.partition("=")[0] for text in typed]
