import pytest
import torch
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import ConfigError
from rl_engine.file_form import FileForm, Stored, find_file_form
from rl_engine.weights import build_manifest, weight_stream
from rl_testing.models import tiny_model
from safetensors.torch import load_file
from torch import nn
from transformers.core_model_loading import Chunk, Concatenate, MergeModulelist, Transpose, WeightConverter

EXPERTS = "model.layers.0.mlp.experts"
MOE = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
TYPES = {
    "qwen2": {},
    "qwen2, tied": {"tie_word_embeddings": True},
    "qwen3_moe": MOE,
    "qwen3_moe, some layers": MOE | {"mlp_only_layers": [0]},
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 12},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "phimoe": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "olmoe": {"num_experts": 2, "num_experts_per_tok": 1},
    "granitemoe": {"num_local_experts": 2, "num_experts_per_tok": 1},
}


def tiny(name):
    return tiny_model(
        name.split(",")[0], vocab_size=33, hidden_size=16, num_heads=2, num_key_value_heads=1, **TYPES[name]
    )


def form_of(model):
    return find_file_form(model, ((name, tensor.shape) for name, tensor in model.named_parameters()))


@pytest.mark.parametrize("name", TYPES)
def test_names_and_bytes_are_those_that_transformers_saves(name, tmp_path):
    model = tiny(name)
    model.save_pretrained(tmp_path)
    form = form_of(model)
    found = {key: part for own, tensor in model.named_parameters() for key, part in form.parts(own, tensor)}
    saved = load_file(tmp_path / "model.safetensors")
    assert found.keys() == saved.keys()
    assert all(torch.equal(found[key], saved[key]) for key in saved)
    cut = [own for own in dict(model.named_parameters()) if len(form.of(own).names) > 1]
    assert list(form.cut) == cut
    assert bool(cut) == (name not in ("qwen2", "qwen2, tied", "granitemoe"))


def test_the_numbers_of_a_layer_with_two_experts():
    """B80: two experts, two rows of each projection, three inputs."""
    model = tiny("qwen3_moe")
    sizes = {f"{EXPERTS}.gate_up_proj": torch.Size([2, 4, 3]), f"{EXPERTS}.down_proj": torch.Size([2, 3, 2])}
    form = find_file_form(model, sizes.items())
    fused = torch.arange(24.0).view(2, 4, 3)
    parts = dict(form.parts(f"{EXPERTS}.gate_up_proj", fused))
    assert {key: part.tolist() for key, part in parts.items()} == {
        f"{EXPERTS}.0.gate_proj.weight": [[0, 1, 2], [3, 4, 5]],
        f"{EXPERTS}.1.gate_proj.weight": [[12, 13, 14], [15, 16, 17]],
        f"{EXPERTS}.0.up_proj.weight": [[6, 7, 8], [9, 10, 11]],
        f"{EXPERTS}.1.up_proj.weight": [[18, 19, 20], [21, 22, 23]],
    }
    assert all(part.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr() for part in parts.values())
    down = torch.arange(12.0).view(2, 3, 2)
    parts = dict(form.parts(f"{EXPERTS}.down_proj", down))
    assert list(parts) == [f"{EXPERTS}.0.down_proj.weight", f"{EXPERTS}.1.down_proj.weight"]
    assert all(torch.equal(part, down[expert]) for expert, part in enumerate(parts.values()))


@pytest.mark.parametrize(
    ("operations", "shape", "reason"),
    [
        ([Transpose(1, 2)], (2, 4, 3), "Transpose, which is not undone by views"),
        ([Concatenate(dim=1), MergeModulelist(dim=0)], (2, 4, 3), "SplitModulelist and then Chunk"),
        ([MergeModulelist(dim=0), Concatenate(dim=1)], (2, 3, 3), r"\(2, 3, 3\) is not 2 equal pieces"),
        ([Chunk(dim=0)], (2, 4, 3), "Concatenate, which is not undone by views"),
    ],
)
def test_what_views_cannot_undo_is_refused_by_name(operations, shape, reason):
    model = tiny("qwen3_moe")
    sources = ["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"]
    if not isinstance(operations[-1], Concatenate | MergeModulelist):
        sources = sources[:1]
    model._weight_conversions = [WeightConverter(sources, "mlp.experts.gate_up_proj", operations)]
    with pytest.raises(ConfigError, match=f"'qwen3_moe' keeps {EXPERTS}.gate_up_proj in memory in another.*{reason}"):
        find_file_form(model, [(f"{EXPERTS}.gate_up_proj", torch.Size(shape))])


FORM = FileForm({"fused": Stored(("0.gate", "1.gate", "0.up", "1.up"), ((1, 2), (0, None))), "old": Stored(("new",))})


def test_a_manifest_lists_parts_and_their_twins():
    fused, other = nn.Parameter(torch.zeros(2, 4, 3)), nn.Parameter(torch.zeros(5))
    form = FileForm({**FORM.stored, "twin": Stored(("a", "b", "c", "d"), ((1, 2), (0, None)))})
    named = [("old", other), ("fused", fused), ("twin", fused), ("tied", other)]
    memory = build_manifest(named, wire_dtype=None, owner_ranks=lambda tensor: (0, 1))
    entries = form.manifest(memory).entries
    assert [(spec.name, spec.shape, spec.tied_to) for spec in entries] == [
        ("new", (5,), None),
        *((name, (2, 3), None) for name in ("0.gate", "1.gate", "0.up", "1.up")),
        *((name, (2, 3), twin) for name, twin in zip("abcd", ("0.gate", "1.gate", "0.up", "1.up"), strict=True)),
        ("tied", (5,), "new"),
    ]
    assert {spec.owner_ranks for spec in entries} == {(0, 1)}


def test_a_tensor_larger_than_a_bucket_is_gathered_alone_and_sent_in_several():
    specs = (("first", (5,)), ("fused", (2, 4, 3)), ("old", (2,)))
    manifest = WeightManifest(entries=tuple(WeightSpec(name=n, shape=s, dtype="float32") for n, s in specs))
    values = {name: torch.arange(float(torch.Size(shape).numel())).view(shape) for name, shape in specs}
    gathered = []

    def gather(wanted):
        gathered.append([spec.name for spec in wanted])
        return [values[spec.name] for spec in wanted]

    buckets = list(weight_stream(manifest, 48, gather, FORM))  # room for twelve numbers; the experts are 24
    assert gathered == [["first"], ["fused"], ["old"]]
    assert [[part.name for part in bucket.slices] for bucket in buckets] == [
        ["first"], ["0.gate", "1.gate"], ["0.up", "1.up"], ["new"]
    ]  # fmt: skip
    assert [bucket.index for bucket in buckets] == [0, 1, 2, 3]
    sent = [part.name for bucket in buckets for part in bucket.slices]
    assert sent == [spec.name for spec in FORM.manifest(manifest).sent]
    assert torch.equal(buckets[2].slices[1].tensor, values["fused"][1, 2:])
