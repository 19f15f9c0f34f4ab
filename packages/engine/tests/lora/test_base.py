import pytest
import torch
from rl_core.errors import CheckpointError
from rl_core.single_controller.base.collective import SoloCollective
from rl_engine.lora.base import BaseReference, check_base, fingerprint_of
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file, save_file

SAVED = BaseReference(path="models/base", fingerprint="aa", rank=8, alpha=16.0)


def fingerprint(folder):
    return fingerprint_of(folder, SoloCollective())


@pytest.fixture
def folder(tmp_path):
    return save_tiny_model(tmp_path / "model", hidden_size=16, with_tokenizer=False)


def test_it_depends_on_every_weight(folder):
    before = fingerprint(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][17, 3] += 0.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert fingerprint(folder) != before


def test_it_does_not_depend_on_how_files_cut_them(folder, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    other = tmp_path / "bin"
    other.mkdir()
    torch.save(tensors, other / "pytorch_model.bin")
    assert fingerprint(other) == fingerprint(folder)


def test_a_base_may_move(tmp_path):
    check_base(SAVED, BaseReference(path="elsewhere", fingerprint="aa", rank=8, alpha=16.0), tmp_path)
    check_base(None, None, tmp_path)


@pytest.mark.parametrize(
    ("saved", "expected", "message"),
    [
        (
            SAVED,
            BaseReference(path="other", fingerprint="bb", rank=8, alpha=16.0),
            "base model models/base .*Set model.path",
        ),
        (SAVED, BaseReference(path="models/base", fingerprint="aa", rank=8, alpha=32.0), "alpha 16; this .* alpha 32"),
        (SAVED, BaseReference(path="models/base", fingerprint="aa", rank=4, alpha=16.0), "rank 8 .* rank 4"),
        (SAVED, None, "holds adapters only .* trains all weights .*lora_rank is 0"),
        (None, SAVED, "holds all weights .* trains adapters .*lora_rank is 8"),
    ],
)
def test_adapters_of_something_else_are_refused(saved, expected, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        check_base(saved, expected, tmp_path)
