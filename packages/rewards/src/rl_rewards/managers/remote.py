"""``remote``: a service of your own scores; it is asked over HTTP.

One row a request: the body is ``{"data_source", "solution_str", "ground_truth", "extra_info"}``, the answer a number or an
object with ``score``. With ``batch_size`` the body is ``{"samples": [...]}`` and the answer ``{"rewards": [...]}``, one for
each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rl_core.errors import ConfigError

from rl_rewards.endpoint import Endpoint
from rl_rewards.managers.kwargs import KEY, batch_size, read_kwargs
from rl_rewards.managers.rate_limited import RateLimitedRewardManager

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig

_DEFAULTS: Mapping[str, Any] = {"url": None, "batch_size": None, "retries": 3, "api_key_env": None}


class RemoteScore:
    """Asks for the score of one row."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Store whom to ask."""
        self._endpoint = endpoint

    async def __call__(self, data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> Any:
        """What the service answers: a number, or an object with ``score``."""
        return await self._endpoint.post(_sample(data_source, solution_str, ground_truth, extra_info))


class RemoteScores:
    """Asks for the scores of many rows at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Store whom to ask."""
        self._endpoint = endpoint

    async def __call__(
        self,
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any],
    ) -> Any:
        """One reward for each row."""
        rows = zip(data_sources, solution_strs, ground_truths, extra_infos, strict=True)
        answer = await self._endpoint.post({"samples": [_sample(*row) for row in rows]})
        return answer.get("rewards") if isinstance(answer, Mapping) else answer


class RemoteRewardManager(RateLimitedRewardManager):
    """Scores rows by ``reward_model.reward_kwargs.url``; the limits are those of ``rate_limited``."""

    def __init__(self, reward_function: Callable[..., Any], tokenizer: Any, config: PPOTrainerConfig) -> None:
        """Store whom to ask; ``reward_function`` is not called.

        Raises:
            ConfigError: there is no address, or an argument that the manager does not take.
        """
        given = read_kwargs(config.reward_model.reward_kwargs, _DEFAULTS, "remote")
        url = given["url"]
        if not (isinstance(url, str) and url.startswith(("http://", "https://"))):
            msg = f"reward_model.reward_manager is remote, but {KEY}.url is {url!r}; give the address of your service"
            raise ConfigError(msg)
        self._batch_size = batch_size(given["batch_size"])
        endpoint = Endpoint(url, api_key_env=given["api_key_env"], retries=given["retries"])
        asked = RemoteScore(endpoint) if self._batch_size is None else RemoteScores(endpoint)
        super().__init__(asked, tokenizer, config)

    def batch_rows(self) -> int | None:
        """See ``PooledRewardManager``."""
        return self._batch_size


def _sample(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
    return {
        "data_source": data_source,
        "solution_str": solution_str,
        "ground_truth": ground_truth,
        "extra_info": extra_info,
    }
