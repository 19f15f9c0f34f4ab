"""A mixture of experts from the FSDP engine into a real vLLM engine on the CPU: tokens after an update are transformers'."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.resharding.digest import add_to_digest
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_rollout_vllm.sink import make_sinks
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import SGD
from rl_testing.models import save_tiny_model
from transformers import AutoModelForCausalLM

pytestmark = [pytest.mark.heavy, pytest.mark.engines]

PROMPTS = ((5, 3, 9, 4), (7,), (2, 8, 6))
COUNT = 12
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 32}
ROWS = make_rows(300)


class Client:
    """What sinks ask of the owner of an engine."""

    is_paused = False
    is_idle = True
    version: int | None = None

    def __init__(self, llm: Any) -> None:
        self.llm = llm

    async def rpc(self, method: str, *args: Any) -> list[Any]:
        return self.llm.collective_rpc(method, args=args)

    async def reset_prefix_cache(self) -> None:
        self.llm.reset_prefix_cache()

    def set_version(self, version: int | None) -> None:
        self.version = version


@pytest.fixture
def folder(tmp_path):
    return save_tiny_model(tmp_path / "model", model_type="qwen3_moe", hidden_size=128, with_tokenizer=False, **MOE)


@pytest.fixture
def client(folder, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    llm = LLM(
        model=str(folder), dtype="float32", max_model_len=64, max_num_seqs=4, enforce_eager=True,
        skip_tokenizer_init=True, load_format="dummy", worker_extension_cls="rl_rollout_vllm.worker.WeightWorker",
    )  # fmt: skip
    yield Client(llm)
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()


def test_greedy_tokens_after_an_update_are_those_of_transformers(folder, client, tmp_path):
    context = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())
    engine = FSDPEngine(EngineRole.POLICY, SimpleNamespace(path=str(folder)), EngineConfig(optim=SGD), context)
    engine.initialize()
    sink = make_sinks(client, num_ranks=1, device=torch.device("cpu"), bucket_bytes=1 << 14)[0]

    async def hand_over(version: int) -> None:
        await sink.begin(version, engine.weight_manifest())
        digest: dict[str, int] = {}
        for bucket in engine.named_weights(1 << 14):
            add_to_digest(digest, bucket.slices)
            await sink.put(bucket)
        await sink.end(digest)

    answers = []
    for version in (1, 2):
        asyncio.run(hand_over(version))
        assert client.version == version
        engine.export_hf(tmp_path / str(version))
        answers.append(greedy(client.llm))
        assert answers[-1] == plain_greedy(tmp_path / str(version))
        engine.forward_backward(as_batch(ROWS), PolicyLoss(num_tokens(ROWS)))
        engine.optimizer_step()
    engine.close()
    assert answers[0] != answers[1]


def greedy(llm: Any) -> list[list[int]]:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=COUNT, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in PROMPTS], params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def plain_greedy(folder: Any) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    settings = {"do_sample": False, "max_new_tokens": COUNT, "min_new_tokens": COUNT, "eos_token_id": None}
    return [
        model.generate(torch.tensor([prompt]), pad_token_id=0, **settings)[0, len(prompt) :].tolist()
        for prompt in PROMPTS
    ]
