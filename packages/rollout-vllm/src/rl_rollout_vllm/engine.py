"""One running vLLM engine: the only module that calls vLLM, so its versions differ here and nowhere else.

vLLM is imported when an engine starts: loading it takes seconds and sets up its logging.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from rl_core.errors import ConfigError, RlError

from rl_rollout_vllm.draws import DrawMode
from rl_rollout_vllm.environment import Variables, inherited
from rl_rollout_vllm.log import EngineLog, explained
from rl_rollout_vllm.settings import require_known

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

_LOOK_S: Final = 0.5
"""Seconds between two looks at whether the engine still lives, while it is waited for."""
_CHUNK: Final = 128
"""Outputs that vLLM hands out before it lets others run."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says about itself.

    Attributes:
        draw_mode: how its draws depend on the seed.
        cache_tokens: tokens that its cache holds.
        max_model_len: most tokens of one sequence.
        vocab_size: ids are below it.
        takes_images: whether its model reads images.
        start_s: seconds that the start took.
    """

    draw_mode: DrawMode
    cache_tokens: int
    max_model_len: int
    vocab_size: int
    takes_images: bool
    start_s: float


class Engine:
    """vLLM's asynchronous engine, on the event loop that first awaits it."""

    def __init__(self, llm: AsyncLLM, log: EngineLog, start_s: float) -> None:
        """Take over what ``start_engine`` has started."""
        self._llm: Any = llm  # of vLLM; None once closed
        self._log = log
        self._start_s = start_s
        self._is_explained = False
        self._max_num_seqs: int = llm.vllm_config.scheduler_config.max_num_seqs

    async def prepare(self) -> Facts:
        """Install what the workers need, and look around."""
        modes = await self.rpc("rl_prepare")
        await self._call("say what it can do", self._llm.get_supported_tasks())  # kept; requests need not ask again
        config, model = self._llm.vllm_config, self._llm.vllm_config.model_config
        cache = config.cache_config
        tokens = cache.kv_cache_size_tokens or (cache.num_gpu_blocks or 0) * cache.block_size
        return Facts(
            draw_mode=modes[-1],
            cache_tokens=int(tokens),
            max_model_len=model.max_model_len,
            vocab_size=model.get_vocab_size(),
            takes_images=bool(getattr(model, "is_multimodal_model", False)),
            start_s=self._start_s,
        )

    @property
    def is_dead(self) -> bool:
        """Whether its processes are gone."""
        return self._llm is None or bool(self._llm.errored)

    def death(self, what: str, error: BaseException | None = None) -> RlError:
        """The error to raise when ``what`` failed because the engine did; the first one quotes vLLM."""
        if self._is_explained:
            return RlError(f"{what}; vLLM's last lines stand in the first error about it")
        self._is_explained = self.is_dead
        return RlError(explained(what, error, self._log))

    async def generate(self, prompt: Any, params: Any, name: str, lora: Any = None) -> AsyncGenerator[RequestOutput]:
        """What vLLM draws for one request, until the end or until this is closed, which aborts it.

        Raises:
            RlError: vLLM refuses the request, or has died.
        """
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError  # noqa: PLC0415 - see the module

        try:
            async with aclosing(self._llm.generate(prompt, params, name, lora_request=lora)) as outputs:
                async for output in outputs:
                    yield output
        except ValueError as error:
            msg = f"vLLM refuses request {name!r}: {error}"
            raise RlError(msg) from error
        except (EngineDeadError, EngineGenerateError) as error:
            what = "died" if self.is_dead else "failed"
            msg = f"the vLLM engine {what} while it answered request {name!r}"
            raise self.death(msg, error.__cause__ or error) from error

    def progress(self, name: str) -> int:
        """Tokens that request ``name`` has drawn so far; exact while the engine is paused."""
        processor = self._llm.output_processor
        states = (processor.request_states.get(internal) for internal in processor.external_req_ids.get(name, ()))
        counts = [state.detokenizer.num_output_tokens() for state in states if state is not None and state.detokenizer]
        return max(counts, default=0)

    async def abort(self, names: Collection[str]) -> None:
        """End these requests; their outputs say so."""
        if not self.is_dead:
            await self._llm.abort(list(names))

    async def pause(self) -> None:
        """Stop drawing and keep what is in flight; when this returns, every drawn token has been counted."""
        await self._call("pause", self._llm.pause_generation(mode="keep", clear_cache=False))
        queue = self._llm.engine_core.outputs_queue
        while not queue.empty() and not self.is_dead:
            await asyncio.sleep(0)
        # The last step's outputs may be in the hands of vLLM's own task, which lets others run after each chunk.
        for _ in range(2 + self._max_num_seqs // _CHUNK):
            await asyncio.sleep(0)

    async def resume(self) -> None:
        """Draw on."""
        await self._call("resume", self._llm.resume_generation())

    async def forget_prefixes(self) -> bool:
        """Drop the cache of everything, requests in flight included, which are read again. Only while paused, or idle."""
        done = await self._call("drop its cache", self._llm.reset_prefix_cache(reset_running_requests=True))
        if self._llm.model_config.is_multimodal_model:
            await self._call("drop its images", self._llm.reset_encoder_cache())
        return bool(done)

    async def sleep(self, level: int) -> None:
        """Give device memory back; requests in flight are aborted."""
        await self._call(f"sleep (level {level})", self._llm.sleep(level))

    async def wake(self, tags: Collection[str]) -> None:
        """Take the memory of ``tags`` again."""
        await self._call(f"wake its {' and '.join(tags)}", self._llm.wake_up(list(tags)))

    async def rpc(self, method: str, *args: Any) -> list[Any]:
        """Call a method of the worker extension on every worker; answers in rank order.

        Raises:
            RlError: a worker raised, or the engine has died.
        """
        answers: list[Any] = await self._call(
            f"run {method} on its workers", self._llm.collective_rpc(method, args=args)
        )
        return answers

    async def close(self) -> None:
        """End the processes."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        if (handler := llm.output_handler) is not None:
            handler.cancel()  # it would report the end of the processes as an error
        await asyncio.to_thread(llm.shutdown)
        # vLLM's destructor calls it once more, at a time when the interpreter may have taken its modules apart.
        llm.shutdown = _do_nothing
        self._log.close()

    async def _call(self, what: str, call: Any) -> Any:
        try:
            return await self._unless_dead(what, call)
        except Exception as error:
            if isinstance(error, RlError):
                raise
            msg = f"the vLLM engine could not {what}"
            raise self.death(msg, error) from error

    async def _unless_dead(self, what: str, call: Any) -> Any:
        """The result of ``call``, which vLLM leaves open for ever when its processes die meanwhile."""
        task = asyncio.ensure_future(call)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_LOOK_S)
                if not task.done() and self.is_dead:
                    msg = f"the vLLM engine died before it could {what}"
                    raise self.death(msg)
            return task.result()
        finally:
            task.cancel()


async def start_engine(arguments: Mapping[str, Any], variables: Variables) -> Engine:
    """Start the engine's processes.

    Args:
        arguments: see ``settings.engine_arguments``.
        variables: what the processes inherit; see ``environment``.

    Raises:
        ConfigError: vLLM does not know an argument, or does not accept its value.
        RlError: it did not start; the message quotes vLLM.
    """
    return await asyncio.to_thread(_start, arguments, variables)


def _start(arguments: Mapping[str, Any], variables: Variables) -> Engine:
    started = time.perf_counter()
    log = EngineLog()
    try:
        with inherited({**variables, **log.variables()}):
            llm = _launch(arguments, log)
    except BaseException:
        log.close()
        raise
    return Engine(llm, log, time.perf_counter() - started)


def _launch(arguments: Mapping[str, Any], log: EngineLog) -> AsyncLLM:
    import vllm  # noqa: PLC0415 - see the module
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

    require_known(arguments, [field.name for field in dataclasses.fields(AsyncEngineArgs)], vllm.__version__)
    try:
        with _random_state_kept():
            config = AsyncEngineArgs(**arguments).create_engine_config()
    except (ValueError, TypeError, NotImplementedError, AssertionError) as error:
        msg = f"vLLM {vllm.__version__} does not accept its arguments (actor_rollout_ref.rollout.*): {error}"
        raise ConfigError(msg) from error
    _require_head_size(config.model_config)
    try:
        return AsyncLLM.from_vllm_config(config, disable_log_stats=bool(arguments["disable_log_stats"]))
    except Exception as error:
        raise RlError(explained("the vLLM engine did not start", error, log)) from error


def _do_nothing(*_: Any, **__: Any) -> None:
    """In the place of what has been done."""


def _require_head_size(model: Any) -> None:
    """Refuse a model that the CPU build has no attention for; it would say so at the first request only.

    Raises:
        ConfigError: names the sizes that it has.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 - see the module

    if not current_platform.is_cpu():
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend  # noqa: PLC0415 - only where there is one

    size, known = model.get_head_size(), CPUAttentionBackend.get_supported_head_sizes()
    if size not in known:
        msg = (
            f"attention heads of model {model.model} have size {size}, and vLLM's CPU build knows the sizes {known}. "
            "Use rollout.name=hf for it"
        )
        raise ConfigError(msg)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Seeds that vLLM sets in its parent do not reach the trainer, which lives in this process."""
    python, array = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
