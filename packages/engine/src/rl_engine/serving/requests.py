"""Whether a request can be served at all."""

from __future__ import annotations

from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_core.errors import RlError


def check_request(
    request: RolloutRequest, *, engine: str, vocab_size: int, max_model_len: int, takes_images: bool = False
) -> None:
    """Refuse what cannot be served.

    Args:
        request: what was asked.
        engine: name of the rollout engine.
        vocab_size: ids of the model are below it.
        max_model_len: most tokens of prompt and response together.
        takes_images: whether the engine serves prompts with images.

    Raises:
        RlError: says what is wrong with it, and what to change.
    """
    problem = (
        _image_problem(request, engine, takes_images=takes_images)
        or _prompt_problem(request, vocab_size, max_model_len)
        or _sampling_problem(request.sampling)
        or _response_problem(request, max_model_len)
    )
    if problem is not None:
        msg = f"request {request.request_id!r} has {problem}"
        raise RlError(msg)


def _image_problem(request: RolloutRequest, engine: str, *, takes_images: bool) -> str | None:
    if request.images and not takes_images:
        return (
            f"{len(request.images)} images; rollout {engine!r} serves text alone here, choose another model or engine "
            "(rollout.name)"
        )
    return None


def _prompt_problem(request: RolloutRequest, vocab_size: int, max_model_len: int) -> str | None:
    ids = request.prompt_ids
    if not ids:
        return "an empty prompt; give at least one token"
    if len(ids) >= max_model_len:
        return (
            f"a prompt of {len(ids)} tokens; with rollout.max_model_len {max_model_len} it must be shorter to leave room "
            "for a response"
        )
    given = (*ids, *request.response_ids)
    if min(given) < 0 or max(given) >= vocab_size:
        strangers = sorted({token for token in given if not 0 <= token < vocab_size})
        return f"token ids {strangers[:5]}; the model has ids 0 to {vocab_size - 1}. Does the tokenizer belong to it?"
    return None


def _response_problem(request: RolloutRequest, max_model_len: int) -> str | None:
    drawn, limit = len(request.response_ids), request.sampling.max_tokens
    if drawn >= limit or len(request.prompt_ids) + drawn >= max_model_len:
        return (
            f"{drawn} response tokens already; max_tokens {limit} and rollout.max_model_len {max_model_len} leave no token "
            "to draw"
        )
    return None


def _sampling_problem(sampling: SamplingParams) -> str | None:
    if sampling.max_tokens < 1:
        return f"max_tokens {sampling.max_tokens}; ask for at least one token"
    if not sampling.temperature >= 0:
        return f"temperature {sampling.temperature}; it must be 0 (greedy) or more"
    if not 0 < sampling.top_p <= 1:
        return f"top_p {sampling.top_p}; it must be above 0 and at most 1"
    if sampling.top_k != -1 and sampling.top_k < 1:
        return f"top_k {sampling.top_k}; it must be -1 (all) or at least 1"
    if "" in sampling.stop:
        return "an empty stop string, which stands in every text; leave it out"
    return None
