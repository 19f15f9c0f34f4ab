"""The tokens on which generator and trainer disagree most, with the text around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from rl_dataproto import lengths

from rl_core.trainer.ppo.parity_tokens import UNKNOWN

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.trainer.ppo.parity_tokens import ParityTokens

TOKENS_BEFORE: Final = 12
TOKENS_BEHIND: Final = 4
CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class Outlier:
    """One token.

    Attributes:
        uid: of its prompt.
        row: row of the batch.
        position: place in the response, 0 for its first token.
        length: tokens of the response.
        token_id: its id.
        token: its text.
        rollout_log_prob: the generator's.
        trainer_log_prob: the training engine's.
        version: policy version that drew it; None where that is not known.
        before: the text in front of it, of the prompt too.
        behind: the text that follows it in the response.
    """

    uid: str
    row: int
    position: int
    length: int
    token_id: int
    token: str
    rollout_log_prob: float
    trainer_log_prob: float
    version: int | None
    before: str
    behind: str

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def line(self) -> str:
        """For people, with the token marked."""
        version = "" if self.version is None else f", version {self.version}"
        return (
            f"{self.rollout_log_prob:9.4f} {self.trainer_log_prob:9.4f}  token {self.position + 1} of {self.length}, id "
            f"{self.token_id}, prompt {self.uid}{version}\n      {_shown(self.before, tail=True)}⟦{_shown(self.token)}⟧"
            f"{_shown(self.behind)}"
        )


def find_outliers(batch: DataProto, tokens: ParityTokens, tokenizer: Any, count: int) -> list[Outlier]:
    """The ``count`` tokens with the largest gap, largest first; a log-prob that is no number comes before all others.

    Args:
        batch: jagged ``prompts`` and ``responses``, object ``uid``.
        tokens: those to choose from.
        tokenizer: decodes tokens.
        count: how many.
    """
    size = torch.nan_to_num(tokens.gap, nan=torch.inf)
    prompts, responses = batch.batch["prompts"].unbind(), batch.batch["responses"].unbind()
    total = lengths(batch.batch["responses"]).tolist()
    found = []
    for index in size.argsort(descending=True, stable=True)[:count].tolist():
        row, position = int(tokens.row[index]), int(tokens.position[index])
        response, version = responses[row].tolist(), int(tokens.version[index])
        past = [*prompts[row].tolist()[-TOKENS_BEFORE:], *response[:position]][-TOKENS_BEFORE:]
        decode = tokenizer.decode
        found.append(
            Outlier(
                uid=str(batch.non_tensor_batch["uid"][row]),
                row=row,
                position=position,
                length=total[row],
                token_id=response[position],
                token=_cut(decode([response[position]])),
                rollout_log_prob=float(tokens.rollout[index]),
                trainer_log_prob=float(tokens.trainer[index]),
                version=None if version == UNKNOWN else version,
                before=_cut(decode(past), tail=True),
                behind=_cut(decode(response[position + 1 : position + 1 + TOKENS_BEHIND])),
            )
        )
    return found


def outlier_lines(outliers: Sequence[Outlier]) -> list[str]:
    """A heading and two lines for each; nothing for none."""
    if not outliers:
        return []
    return ["largest gaps: log-prob of the generator, of the trainer", *(item.line() for item in outliers)]


def _cut(text: str, *, tail: bool = False) -> str:
    return text[-CHARACTERS:] if tail else text[:CHARACTERS]


def _shown(text: str, *, tail: bool = False) -> str:
    """On one line, in at most about 40 characters, with what is no plain character written out."""
    plain = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return plain[-40:] if tail else plain[:40]
