"""Where weights arrive in vLLM's own workers: each opens the staged buckets and takes its slices through vLLM's loader.

An error that leaves the worker in order is an answer, not an exception: vLLM's workers answer in turn, and one that raises
leaves the others' answers in the queue. Only what cannot be put right is raised, and the engine is lost with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightSlice, fingerprint
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import bit_sums
from rl_core.resharding.intake import Intake, Region
from rl_resharding.inboxes import LocalInbox
from rl_resharding.manifests import decode_manifest
from torch import Tensor

from rl_rollout_vllm import reload
from rl_rollout_vllm.fitting import try_manifest
from rl_rollout_vllm.naming import as_loaded, as_wrapped, wrapped_pieces


class WeightWorker:
    """Mixed into vLLM's worker class, so ``self`` is a worker of vLLM. Arguments and answers are text, bytes and integers.

    Answers are JSON: ``{"error": text or null, ...}``.
    """

    def rl_weights_fit(self, manifest: str) -> str:
        """What this worker's model takes of a manifest; see ``fitting.try_manifest``."""
        return self._rl_answer(lambda reception: reception.fit(decode_manifest(manifest)))

    def rl_weights_begin(self, version: int, manifest: str, ties: str) -> str:
        """A hand-over begins; ``ties`` is JSON: sent tensor -> names that get it too."""
        return self._rl_answer(
            lambda reception: reception.begin(int(version), decode_manifest(manifest), json.loads(ties))
        )

    def rl_weights_put(self, handle: bytes) -> str:
        """Load a staged bucket."""
        return self._rl_answer(lambda reception: reception.put(bytes(handle)))

    def rl_weights_end(self, digest: str) -> str:
        """Check that all came as it was sent. Answers ``sums``: vLLM's name -> sum of the bits in its memory."""
        return self._rl_answer(lambda reception: reception.end(json.loads(digest)))

    def rl_weights_abort(self) -> None:
        """The hand-over will not end. Does nothing when none is under way."""
        _reception(self).abort()

    def rl_adapter_load(self, number: int, name: str, folder: str) -> str:
        """Take the adapter in ``folder`` in the place of the one with the same number."""
        return self._rl_answer(lambda reception: reception.load_adapter(int(number), name, folder))

    def _rl_answer(self, step: Callable[[Reception], Mapping[str, Any] | None]) -> str:
        reception = _reception(self)
        try:
            return json.dumps({"error": None, **(step(reception) or {})})
        except Exception as error:
            reception.abort()
            text = str(error) if isinstance(error, WeightSyncError) else f"{type(error).__name__}: {error}"
            return json.dumps({"error": text})


def _reception(worker: Any) -> Reception:
    found: Reception = worker.__dict__.setdefault("rl_reception", Reception(worker))
    return found


class Reception:
    """The hand-overs of one worker."""

    def __init__(self, worker: Any) -> None:
        """Of vLLM's ``worker``."""
        self._worker = worker
        self._inbox = LocalInbox()
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._intake: Intake | None = None
        self._ties: Mapping[str, list[str]] = {}
        self._parts: dict[str, _Parts] = {}

    @property
    def _model(self) -> Any:
        return self._worker.model_runner.get_model()

    def fit(self, manifest: WeightManifest) -> Mapping[str, Any]:
        """See ``WeightWorker.rl_weights_fit``; the answer is kept, as the model stays what it is."""
        self.abort()
        key = fingerprint(manifest)
        if key not in self._answers:
            self._answers = {key: try_manifest(self._worker, manifest)}
        return self._answers[key]

    def begin(self, version: int, manifest: WeightManifest, ties: Mapping[str, list[str]]) -> None:
        """See ``WeightWorker.rl_weights_begin``."""
        self.abort()
        self._intake, self._ties, self._parts = Intake(version, manifest), ties, {}
        reload.begin(self._model)

    def put(self, handle: bytes) -> None:
        """See ``WeightWorker.rl_weights_put``."""
        intake = self._under_way()
        bucket = self._inbox.open(handle)
        accepted = intake.accept(bucket)
        with reload.engine_settings(self._worker.vllm_config), torch.no_grad():
            reload.load(self._model, self._loadable(intake, accepted))
            reload.own_waiting(self._model, {part.tensor.untyped_storage().data_ptr() for part in bucket.slices})
        _wait_for(bucket)

    def end(self, digest: WeightDigest) -> Mapping[str, Any]:
        """See ``WeightWorker.rl_weights_end``."""
        intake = self._under_way()
        intake.check_complete(digest)
        with reload.engine_settings(self._worker.vllm_config), torch.no_grad():
            reload.finish(self._model, self._worker.vllm_config.model_config)
        self._intake = None
        self._inbox.close()
        self._forget_derived()
        return {"sums": self._sums(intake.manifest)}

    def load_adapter(self, number: int, name: str, folder: str) -> None:
        """See ``WeightWorker.rl_adapter_load``."""
        from vllm.lora.request import LoRARequest  # noqa: PLC0415 - loading vLLM takes seconds

        self._worker.remove_lora(number)
        if not self._worker.add_lora(LoRARequest(name, number, folder)):
            msg = f"vLLM did not take the adapter in {folder}"
            raise WeightSyncError(msg)

    def abort(self) -> None:
        """See ``WeightWorker.rl_weights_abort``."""
        intake, self._intake, self._parts = self._intake, None, {}
        self._inbox.close()
        if intake is not None:
            reload.put_back(self._model)

    def _under_way(self) -> Intake:
        if self._intake is None:
            msg = "weights came outside of a hand-over, or after its end by an error; call begin first"
            raise WeightSyncError(msg)
        return self._intake

    def _loadable(self, intake: Intake, accepted: list[tuple[WeightSlice, Region]]) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors under the names of vLLM's loader; parts are kept until the last one has come."""
        model_type = str(self._worker.vllm_config.model_config.hf_text_config.model_type)
        pieces = wrapped_pieces(self._model)
        for part, region in accepted:
            shape = intake.manifest.spec(part.name).shape
            tensor = part.tensor
            if tuple(tensor.shape) != tuple(shape):
                parts = self._parts.setdefault(part.name, _Parts(tensor.new_empty(shape)))
                if not parts.add(tensor, region):
                    continue
                tensor = self._parts.pop(part.name).whole
            for name in (part.name, *self._ties.get(part.name, ())):
                for loaded, values in as_loaded(name, tensor, model_type):
                    yield as_wrapped(loaded, pieces), values

    def _forget_derived(self) -> None:
        """What the runner has computed with the old weights, as vLLM's own reload does."""
        runner = self._worker.model_runner
        for name in ("reset_lora_state", "reset_encoder_cache", "reset_mm_cache"):
            if hasattr(runner, name):
                getattr(runner, name)()

    def _sums(self, manifest: WeightManifest) -> dict[str, int]:
        params = self._answers.get(fingerprint(manifest), {"params": {}})["params"]
        held = reload.named_tensors(self._model)
        readable = {
            name: held[name]
            for name, param in params.items()
            if param["exact"]
            and name in held
            and reload.is_resident(held[name])
            and str(held[name].dtype) == f"torch.{param['dtype']}"
        }
        return dict(zip(readable, bit_sums([tensor.data for tensor in readable.values()]), strict=True))


class _Parts:
    """A tensor that comes in regions."""

    def __init__(self, whole: Tensor) -> None:
        self.whole = whole
        self._left = whole.numel()

    def add(self, values: Tensor, region: Region) -> bool:
        """Take some; whether all have come (that none came twice is checked at the end)."""
        self.whole[tuple(slice(start, stop) for start, stop in region)] = values
        self._left -= values.numel()
        return self._left <= 0


def _wait_for(bucket: WeightBucket) -> None:
    """The sender may overwrite the bucket once this returns."""
    for device in {part.tensor.device for part in bucket.slices if part.tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
