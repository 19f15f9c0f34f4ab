"""Hand-overs into a real vLLM engine in this process, on its CPU build; what it then says is compared with transformers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest
from rl_engine.lora.merge import merged_weight
from rl_engine.lora.settings import LoraSettings
from rl_rollout_vllm import reload
from rl_rollout_vllm.adapters import AdapterFolder
from rl_rollout_vllm.sink import make_sinks, wanted_streams
from rl_testing.models import save_tiny_model, tiny_model
from transformers import PreTrainedModel

pytestmark = [pytest.mark.heavy, pytest.mark.engines]

PROMPTS = ((5, 3, 9, 4), (7,), (2, 8, 6))
MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "head_dim": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


class Served:
    """An engine with its sinks; also their ``EngineClient``."""

    def __init__(self, folder: Any, model_type: str, *, adapters: AdapterFolder | None = None, **model: Any) -> None:
        from vllm import LLM

        with_lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8} if adapters else {}
        self.adapters = adapters

        self.model_type, self.options = model_type, {"hidden_size": 128, "with_tokenizer": False, **model}
        save_tiny_model(folder, model_type=model_type, **self.options)
        (folder / "model.safetensors").unlink()
        self.llm = LLM(
            model=str(folder),
            dtype="float32",
            max_model_len=64,
            max_num_seqs=4,
            enforce_eager=True,
            skip_tokenizer_init=True,
            load_format="dummy",
            worker_extension_cls="rl_rollout_vllm.worker.WeightWorker",
            **with_lora,
        )
        self.version: int | None = None
        self.is_paused = False
        self.is_idle = False
        self.sinks = make_sinks(self, num_ranks=1, device=torch.device("cpu"), bucket_bytes=1 << 14, adapters=adapters)
        self.sink = self.sinks[0]

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()
        cleanup_dist_env_and_memory()

    async def rpc(self, method: str, *args: Any) -> list[Any]:
        return self.llm.collective_rpc(method, args=args)

    async def pause(self) -> None:
        self.is_paused = True

    async def resume(self) -> None:
        self.is_paused = False

    async def reset_prefix_cache(self) -> None:
        self.llm.reset_prefix_cache()

    def set_version(self, version: int | None) -> None:
        self.version = version

    def model(self, version: int, **changed: Any) -> PreTrainedModel:
        options = {name: value for name, value in self.options.items() if name != "with_tokenizer"}
        return tiny_model(self.model_type, seed=version, **{**options, **changed})

    def sync(self, model: PreTrainedModel, version: int, *, manifest: WeightManifest | None = None, **how: Any) -> None:
        run(hand_over(self.sink, model, version, manifest or manifest_of(model), **how))

    def parameters(self) -> dict[str, torch.Tensor]:
        return self.llm.apply_model(lambda model: dict(model.named_parameters()))[0]

    def greedy(self) -> list[list[int]]:
        from vllm import SamplingParams

        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
        lora = self.adapters.request() if self.adapters else None
        outputs = self.llm.generate(prompts, params, use_tqdm=False, lora_request=lora)
        return [list(output.outputs[0].token_ids) for output in outputs]


def run(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def manifest_of(model: PreTrainedModel) -> WeightManifest:
    first: dict[int, str] = {}
    entries = []
    for name, tensor in model.named_parameters(remove_duplicate=False):
        source = first.setdefault(id(tensor), name)
        dtype = str(tensor.dtype).removeprefix("torch.")
        tied_to = None if source == name else source
        entries.append(WeightSpec(name=name, shape=tuple(tensor.shape), dtype=dtype, tied_to=tied_to))
    return WeightManifest(entries=tuple(entries))


async def hand_over(
    sink: Any, model: PreTrainedModel, version: int, manifest: WeightManifest, *, pieces: int = 1, damage: str = ""
) -> None:
    """Two tensors a bucket, so that layers are cut; ``damage`` changes a value behind the digest's back."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    await sink.begin(version, manifest)
    digest: dict[str, int] = {}
    slices: list[WeightSlice] = []
    for spec in manifest.sent:
        whole = tensors[spec.name].detach()
        add_to_digest(digest, [WeightSlice(spec.name, whole)])
        if spec.name == damage:
            whole = whole.clone()
            whole.view(-1)[0] += 1
        start = 0
        for part in whole.tensor_split(pieces):
            region = ((start, start + len(part)), *((0, size) for size in spec.shape[1:]))
            start += len(part)
            slices.append(WeightSlice(spec.name, part.clone(), region if pieces > 1 else None))
    for index in range(0, len(slices), 2):
        await sink.put(WeightBucket(tuple(slices[index : index + 2]), index // 2))
        for part in slices[index : index + 2]:
            part.tensor.fill_(7.0)  # valid during the call only
    await sink.end(digest)


@torch.no_grad()
def greedy_of(model: PreTrainedModel) -> list[list[int]]:
    answers = []
    for prompt in PROMPTS:
        ids = list(prompt)
        for _ in range(12):
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            ids.append(int(logits.argmax()))
        answers.append(ids[len(prompt) :])
    return answers


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    values = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(
    scope="module",
    params=[("qwen2", {}), ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}), ("qwen3_moe", MOE)],
    ids=["qwen2", "qwen3-tied", "qwen3-moe"],
)
def served(request: Any, tmp_path_factory: Any) -> Iterator[Served]:
    """A running engine without weights."""
    model_type, options = request.param
    engine = Served(tmp_path_factory.mktemp(model_type), model_type, **options)
    yield engine
    engine.close()


@pytest.mark.parametrize("pieces", [1, 3])
def test_greedy_answers_are_those_of_the_new_weights(served, pieces):
    answers = []
    for version in (1, 2):
        served.sync(served.model(version), version, pieces=pieces)
        assert served.version == version
        assert not served.is_paused
        answers.append(served.greedy())
        assert answers[-1] == greedy_of(served.model(version))
    assert answers[0] != answers[1]


def test_what_does_not_fit_is_listed_before_a_weight_changes(served):
    served.sync(served.model(1), 1)
    before = served.greedy()
    manifest = manifest_of(served.model(1))
    names = [spec.name for spec in manifest.sent]
    attention, feed = (next(name for name in names if part in name) for part in ("0.self_attn.k_proj", "1.mlp."))
    norm = next(name for name in names if "1.input_layernorm" in name)
    entries = [
        replace(spec, shape=(spec.shape[0] * 2, *spec.shape[1:])) if spec.name == attention else spec
        for spec in manifest.entries
        if spec.name not in (feed, norm)
    ]
    entries.append(WeightSpec(name="a.stranger.weight", shape=(2, 3), dtype="float32"))
    entries.append(WeightSpec(name="model.layers.0.self_attn.stranger.weight", shape=(2, 3), dtype="float32"))
    with pytest.raises(WeightSyncError) as refused:
        run(served.sink.begin(2, WeightManifest(entries=tuple(entries))))
    gone = feed.replace("experts.gate_up_proj", "experts.0.gate_proj.weight")
    for name in (attention, gone, norm, "a.stranger.weight", "self_attn.stranger.weight"):
        assert repr(name) in str(refused.value) or f"{name}'" in str(refused.value), name
    assert served.version is None
    assert served.greedy() == before


def test_a_type_that_differs_from_the_others_is_refused(served):
    manifest = manifest_of(served.model(1))
    first = manifest.entries[0]
    odd = WeightManifest(entries=(replace(first, dtype="float16"), *manifest.entries[1:]))
    with pytest.raises(WeightSyncError, match=f"'{first.name}' is float16, in the model float32"):
        run(served.sink.begin(2, odd))


def test_weights_may_come_in_another_type_than_the_engine_has(served):
    model = served.model(3, dtype=torch.bfloat16)
    served.sync(model, 3)
    assert served.greedy() == greedy_of(model.float())


@pytest.mark.parametrize("which", [0, -1])
def test_changed_bytes_are_refused_and_the_next_hand_over_is_good(served, which):
    model = served.model(2)
    damaged = manifest_of(model).sent[which].name
    with pytest.raises(WeightSyncError, match=damaged):
        served.sync(model, 2, damage=damaged)
    assert served.version is None
    assert not served.is_paused
    served.sync(model, 3)
    assert served.greedy() == greedy_of(model)


def test_an_aborted_hand_over_leaves_an_engine_that_takes_the_next(served):
    model = served.model(1)
    served.sync(model, 1)

    async def half() -> None:
        other = served.model(2)
        await served.sink.begin(2, manifest_of(other))
        assert served.is_paused
        name, tensor = next(iter(other.named_parameters()))
        await served.sink.put(WeightBucket((WeightSlice(name, tensor.detach()),)))
        await served.sink.abort("the trainer lost a rank")

    run(half())
    assert served.version is None
    assert not served.is_paused
    served.greedy()  # the model is whole, though not of one version
    served.sync(model, 3)
    assert served.greedy() == greedy_of(model)


def test_what_did_not_come_is_named(served):
    manifest = manifest_of(served.model(1))

    async def nothing() -> None:
        await served.sink.begin(4, manifest)
        await served.sink.end({})

    with pytest.raises(WeightSyncError, match=manifest.entries[-1].tied_to or manifest.entries[-1].name):
        run(nothing())
    assert served.version is None


def test_memory_of_the_engine_is_compared_with_the_digest(served, monkeypatch):
    """A value that vLLM stored wrongly is found where its layout shows it."""
    finish = reload.finish

    def careless(model: Any, model_config: Any) -> None:
        finish(model, model_config)
        model.get_parameter(damaged).data.view(-1)[0] += 1

    model = served.model(2)
    parameters = served.parameters()
    assert {name for name, tensor in parameters.items() if tensor.numel()} >= {"model.norm.weight"}
    for damaged in (name for name, tensor in parameters.items() if tensor.numel() and not name.startswith("lm_head")):
        with monkeypatch.context() as patch:
            patch.setattr(reload, "finish", careless)
            with pytest.raises(WeightSyncError, match=f"stored wrongly by vLLM: .*{damaged}"):
                served.sync(model, 3)
        assert served.version is None
    served.sync(model, 4)
    assert served.greedy() == greedy_of(model)


def test_values_lie_where_they_lay(served):
    """Captured graphs and sleeping memory know tensors by their addresses."""
    served.sync(served.model(1), 1)
    before = {name: tensor.data_ptr() for name, tensor in served.parameters().items()}
    served.sync(served.model(2), 2)
    assert {name: tensor.data_ptr() for name, tensor in served.parameters().items()} == before


# Adapters beside the base weights.

RANK, LAYERS = 4, ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj", "model.layers.1.mlp.down_proj")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: Any) -> Iterator[Served]:
    """An engine that takes adapters."""
    folder = AdapterFolder(LoraSettings(rank=RANK, alpha=8.0))
    engine = Served(tmp_path_factory.mktemp("lora"), "qwen2", adapters=folder)
    yield engine
    engine.close()
    folder.close()


def adapter_of(model: PreTrainedModel, seed: int) -> dict[str, torch.Tensor]:
    """Matrices that change every answer, under the names of a trainer."""
    draw = torch.Generator().manual_seed(seed)
    found = {}
    for layer in LAYERS:
        rows, columns = model.get_parameter(f"{layer}.weight").shape
        for matrix, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
            found[f"base_model.model.{layer}.lora_{matrix}.weight"] = torch.randn(shape, generator=draw) * 0.3
    return found


@torch.no_grad()
def merged(model: PreTrainedModel, adapter: dict[str, torch.Tensor]) -> PreTrainedModel:
    for layer in LAYERS:
        a, b = (adapter[f"base_model.model.{layer}.lora_{matrix}.weight"] for matrix in "AB")
        weight = model.get_parameter(f"{layer}.weight")
        weight.copy_(merged_weight(weight, a, b, 8.0 / RANK))
    return model


async def send(sink: Any, version: int, stream: str, tensors: dict[str, torch.Tensor]) -> None:
    entries = tuple(WeightSpec(name=name, shape=tuple(one.shape), dtype="float32") for name, one in tensors.items())
    digest: dict[str, int] = {}
    slices = tuple(WeightSlice(name, one.detach()) for name, one in tensors.items())
    add_to_digest(digest, slices)
    await sink.begin(version, WeightManifest(entries=entries, stream=stream))
    for index, part in enumerate(slices):
        await sink.put(WeightBucket((part,), index))
    await sink.end(digest)


def test_adapters_come_beside_the_base_that_came_once(adapted):
    base = dict(adapted.model(1).named_parameters())
    first, second = adapter_of(adapted.model(1), 1), adapter_of(adapted.model(1), 2)
    assert wanted_streams(adapted.sinks) == ("base", "adapter")
    run(send(adapted.sink, 1, "base", base))
    assert adapted.version is None
    run(send(adapted.sink, 1, "adapter", first))
    assert (adapted.version, adapted.is_paused) == (1, False)
    expected = [greedy_of(merged(adapted.model(1), adapter)) for adapter in (first, second)]
    assert expected[0] != expected[1] != greedy_of(adapted.model(1))
    assert adapted.greedy() == expected[0]

    assert wanted_streams(adapted.sinks) == ("adapter",)
    run(send(adapted.sink, 2, "adapter", second))
    assert adapted.greedy() == expected[1]

    # The weights are discarded (sleep level 2): the base must come again, and the adapter right behind it.
    adapted.set_version(None)
    assert wanted_streams(adapted.sinks) == ("base", "adapter")
    with pytest.raises(WeightSyncError, match="holds no base weights"):
        run(send(adapted.sink, 3, "adapter", first))
    run(send(adapted.sink, 3, "base", dict(adapted.model(5).named_parameters())))
    run(send(adapted.sink, 3, "adapter", first))
    assert adapted.version == 3
    assert adapted.greedy() == greedy_of(merged(adapted.model(5), first))


def test_an_adapter_that_does_not_fit_is_refused_and_listed(adapted):
    run(send(adapted.sink, 1, "base", dict(adapted.model(1).named_parameters())))
    wrong = adapter_of(adapted.model(1), 1)
    wrong.pop(next(iter(wrong)))
    wrong["base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"] = torch.zeros(RANK, 128)
    with pytest.raises(
        WeightSyncError, match=r"layers.9.*not in the model.*layers.0.self_attn.q_proj.lora_A.* is missing"
    ):
        run(send(adapted.sink, 1, "adapter", wrong))
    assert (adapted.version, adapted.is_paused) == (None, False)


def test_whole_weights_are_refused_by_an_engine_that_takes_adapters(adapted):
    with pytest.raises(WeightSyncError, match="takes base and adapter"):
        run(send(adapted.sink, 1, "weights", dict(adapted.model(1).named_parameters())))
