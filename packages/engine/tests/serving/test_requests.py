from __future__ import annotations

import pytest
from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_core.errors import RlError
from rl_engine.serving.requests import check_request


def check(prompt=(1, 2), images=(), takes_images=False, **sampling):
    request = RolloutRequest(
        request_id="r7", prompt_ids=prompt, sampling=SamplingParams(**sampling), seed=0, images=images
    )
    check_request(request, engine="some", vocab_size=10, max_model_len=5, takes_images=takes_images)


def test_good_requests_pass():
    check((0, 9, 1, 1), temperature=0.0, top_p=1.0, top_k=1, max_tokens=1)
    check(images=("a",), takes_images=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"prompt": ()}, "empty prompt"),
        ({"prompt": (1,) * 5}, "5 tokens.*max_model_len 5"),
        ({"prompt": (1, 10)}, r"\[10\].*0 to 9"),
        ({"prompt": (-1, 2)}, r"\[-1\]"),
        ({"images": ("a",)}, "1 images.*'some'.*rollout.name"),
        ({"max_tokens": 0}, "max_tokens 0"),
        ({"temperature": -1.0}, "temperature -1.0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"top_p": 0.0}, "top_p 0.0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"top_k": 0}, "top_k 0"),
        ({"stop": ("a", "")}, "empty stop string"),
    ],
)
def test_bad_requests_say_what_is_wrong(options, named):
    with pytest.raises(RlError, match=f"'r7' has .*{named}"):
        check(**options)
