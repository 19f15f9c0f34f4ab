from types import SimpleNamespace

import pytest
from rl_core.data.tokenizer import model_tokenizer
from rl_core.errors import ConfigError


def model(template=None, trust=False):
    return SimpleNamespace(custom_chat_template=template, trust_remote_code=trust)


class OwnLoader:
    """A registry whose backend loads tokenizers itself, or not at all."""

    def __init__(self, loader=None):
        self.loader = loader

    def load_tokenizer(self, strategy):
        assert strategy == "mine"
        return self.loader


def test_the_backends_own_loader_is_asked_first():
    asked = []

    def loader(path, **options):
        asked.append((path, options))
        return "tokenizer"

    found = model_tokenizer(model("{{ x }}", trust=True), "mine", OwnLoader(loader), path="folder", section="model")
    assert found == "tokenizer"
    assert asked == [("folder", {"trust_remote_code": True, "chat_template": "{{ x }}"})]


@pytest.mark.parametrize(("given", "kept"), [(None, "its own"), ("mine", "mine")])
def test_otherwise_that_of_the_folder_with_the_template_that_was_given(monkeypatch, given, kept):
    loaded = SimpleNamespace(chat_template="its own")
    asked = []

    def from_pretrained(path, **options):
        asked.append((path, options))
        return loaded

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", from_pretrained)
    assert model_tokenizer(model(given), "mine", OwnLoader(), path="folder", section="model") is loaded
    assert loaded.chat_template == kept
    assert asked == [("folder", {"trust_remote_code": False})]


@pytest.mark.parametrize("error", [OSError("no such file"), ValueError("no such class")])
def test_a_folder_without_one_is_refused_with_the_key_to_set(monkeypatch, error):
    def from_pretrained(path, **options):
        raise error

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", from_pretrained)
    with pytest.raises(ConfigError, match=r"no tokenizer in 'folder': no such .*Set model\.tokenizer_path to a folder"):
        model_tokenizer(model(), "mine", OwnLoader(), path="folder", section="model")
