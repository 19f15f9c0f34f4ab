"""Prompts without files: each names a letter, and a response is as good as the share of that letter in it."""

from __future__ import annotations

from typing import Any

from rl_core.data.prompt_row import PASSED_ON

_LETTERS = "abcdefgh"


def letter_rows(num_rows: int, *, letter: str | None = None) -> list[dict[str, Any]]:
    """Rows as a data file has them, for the reward ``count_letter``.

    Args:
        num_rows: how many; all prompts differ.
        letter: the same one in every row; None goes round through a to h.
    """
    return [
        {
            "prompt": [{"role": "user", "content": f"row {row}: say {letter or _LETTERS[row % len(_LETTERS)]}"}],
            "data_source": "count_letter",
            "reward_model": {"style": "rule", "ground_truth": letter or _LETTERS[row % len(_LETTERS)]},
            "extra_info": {"index": row},
        }
        for row in range(num_rows)
    ]


class LetterDataset:
    """``letter_rows`` as a data set of prompts."""

    def __init__(self, files: Any, config: Any, tokenizer: Any, *, max_samples: int = -1) -> None:
        """Render every row.

        Args:
            files: number of rows, in place of files; 64 where it is no number.
            config: the ``data`` section; not used, all prompts are short.
            tokenizer: of the policy.
            max_samples: first rows that are used; -1 uses all.
        """
        num_rows = int(files) if str(files).isdecimal() else 64
        rows = letter_rows(num_rows if max_samples < 0 else min(num_rows, max_samples))
        self.num_filtered = 0
        self.items = [
            {name: row.get(name) for name in PASSED_ON}
            | {
                "prompt_ids": tokenizer.apply_chat_template(row["prompt"], tokenize=True, add_generation_prompt=True),
                "raw_prompt": row["prompt"],
                "index": index,
            }
            for index, row in enumerate(rows)
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]
