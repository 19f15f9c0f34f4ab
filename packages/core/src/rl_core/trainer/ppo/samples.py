"""A few rollouts of every run, kept in its folder: what the numbers look like as text.

``samples.jsonl`` holds one JSON object a line: responses of training steps (``split`` "train") and answers to the same
held-out prompts at each validation (``split`` "val"). It stays small: long texts are cut, and of a long run the responses
of about ``KEPT_STEPS`` steps stay. Whole rollouts are what ``trainer.rollout_data_dir`` is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.trainer.json_lines import keep_up_to, put_aside
from rl_core.trainer.json_text import to_json
from rl_core.trainer.ppo.seeding import group_uid
from rl_core.trainer.ppo.validation import VALIDATION_STEP

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import TrainerConfig
    from rl_core.contracts.reward import RewardResult

KEPT_STEPS: Final = 200
PROMPT_CHARACTERS: Final = 2000
RESPONSE_CHARACTERS: Final = 4000
VALUE_CHARACTERS: Final = 500


class SampleFile:
    """Writes ``samples.jsonl`` of one run."""

    def __init__(self, config: TrainerConfig, tokenizer: Any, total_steps: int) -> None:
        """Settle what is kept.

        Args:
            config: ``trainer``: the run folder and the number of samples.
            tokenizer: decodes tokens.
            total_steps: length of the run.
        """
        self._path = Path(config.default_local_dir).expanduser() / "samples.jsonl"
        self._count = config.run_folder_samples
        self._tokenizer = tokenizer
        self._total_steps = total_steps
        self._every = -(-total_steps // KEPT_STEPS)

    def trained(self, step: int, batch: DataProto, results: Sequence[RewardResult]) -> None:
        """Keep the first rows of a training step: the responses to its first prompt, then to the next.

        Args:
            step: global step.
            batch: jagged ``prompts`` and ``responses``, object ``uid``, ``reward_model``, ``data_source``, ``finish_reason``.
            results: one for each row.
        """
        if step % self._every == 0 or step in (1, self._total_steps):
            self._write(step, "train", range(min(self._count, len(batch))), batch, results)

    def validated(self, step: int, batch: DataProto, results: Sequence[RewardResult]) -> None:
        """Keep the first answer to each of the first held-out prompts; arguments as for ``trained``."""
        uids = batch.non_tensor_batch["uid"].tolist()
        wanted = [group_uid(VALIDATION_STEP, number) for number in range(self._count)]
        self._write(step, "val", [uids.index(uid) for uid in wanted if uid in uids], batch, results)

    def start(self) -> None:
        """Put the samples of an earlier run aside."""
        put_aside(self._path)

    def resume(self, step: int) -> None:
        """Drop the samples of steps after ``step``; they come again."""
        keep_up_to(self._path, step)

    def _write(
        self, step: int, split: str, rows: Iterable[int], batch: DataProto, results: Sequence[RewardResult]
    ) -> None:
        if not self._count:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        prompts, responses = batch.batch["prompts"].unbind(), batch.batch["responses"].unbind()
        with self._path.open("a", encoding="utf-8") as file:
            for row in rows:
                ids = {"prompt": prompts[row].tolist(), "response": responses[row].tolist()}
                record = {"step": step, "split": split} | self._record(row, ids, batch, results[row])
                file.write(to_json(record) + "\n")

    def _record(self, row: int, ids: dict[str, list[int]], batch: DataProto, result: RewardResult) -> dict[str, Any]:
        columns = batch.non_tensor_batch
        decode = self._tokenizer.decode
        return {
            "uid": columns["uid"][row],
            "data_source": columns["data_source"][row],
            "prompt": shortened(decode(ids["prompt"]), PROMPT_CHARACTERS),
            "response": shortened(decode(ids["response"], skip_special_tokens=True), RESPONSE_CHARACTERS),
            "num_tokens": len(ids["response"]),
            "finish_reason": columns["finish_reason"][row],
            "ground_truth": _value((columns["reward_model"][row] or {}).get("ground_truth")),
            "score": result.score,
            "components": {name: _value(value) for name, value in result.extra.items()},
            "error": None if result.error is None else shortened(result.error, VALUE_CHARACTERS),
        }


def shortened(text: str, limit: int) -> str:
    """At most about ``limit`` characters: a longer text loses its middle, since the answer often stands at the end."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    left_out = len(text) - limit
    return f"{text[: limit - tail]} […{left_out} characters left out…] {text[-tail:]}"


def _value(value: Any) -> Any:
    """A number as it is; anything else as a text of bounded length."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "item") and getattr(value, "size", None) == 1:  # a numpy scalar
        return value.item()
    return shortened(str(value), VALUE_CHARACTERS)
