import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rl_rewards.endpoint import EndpointError
from rl_rewards.errors import GraderError, GroundTruthError
from rl_rewards.judge import (
    MAX_RESPONSE,
    RATING_TEMPLATE,
    compute_score,
    filled,
    generative_score,
    read_judgement,
    shortened,
)


class Service:
    """An OpenAI-compatible service on this machine that says what it is told to, in turn."""

    def __init__(self):
        self.says = []
        self.asked = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                service.asked.append((self.path, body, self.headers.get("authorization")))
                said = service.says.pop(0) if len(service.says) > 1 else service.says[0]
                status = said if isinstance(said, int) else 200
                answer = {"choices": [{"message": {"content": said}}]} if status == 200 else {"error": "no"}
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("retry-after", "0")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def service():
    service = Service()
    yield service
    service.close()


def judge(service, *says, function=compute_score, **options):
    service.says = list(says)
    arguments = {"data_source": "x", "solution_str": "it is 7", "ground_truth": "7", "prompt_str": "3 + 4?"}
    return asyncio.run(function(**{**arguments, "url": service.url, "model": "m", "retries": 1, **options}))


def test_the_last_json_score_counts(service):
    result = judge(service, 'I see {"score": 0} here.\n{"score": 1}')
    assert result == 1.0
    assert isinstance(result, float)
    path, body, key = service.asked[0]
    assert (path, body["model"], body["temperature"], key) == ("/v1/chat/completions", "m", 0.0, None)
    (message,) = body["messages"]
    assert all(text in message["content"] for text in ("3 + 4?", "<<reference\n7\n", "<<student\nit is 7\n"))


def test_the_question_of_the_row_goes_before_the_prompt(service):
    judge(service, '{"score": 0}', extra_info={"question": "what is 3 + 4?"})
    assert "what is 3 + 4?" in service.asked[0][1]["messages"][0]["content"]


def test_a_pattern_and_a_range_of_ones_own(service):
    options = {
        "score_pattern": r"Rating: \[\[(\d+)\]\]",
        "min_score": 1,
        "max_score": 9,
        "template": "Rate {response}.",
    }
    assert judge(service, "Rating: [[1]] no, Rating: [[7]]", ground_truth=None, **options) == 0.75
    assert service.asked[0][1]["messages"][0]["content"] == "Rate it is 7."


def test_it_asks_again_when_nothing_can_be_read(service):
    assert judge(service, "hm", '{"score": 3}', '{"score": 1}') == 1.0
    assert len(service.asked) == 3


@pytest.mark.parametrize("said", ["hm", "", '{"score": 2}', '{"score": null}', '{"score": NaN}', "{", '{"verdict": 1}'])
def test_a_judgement_that_cannot_be_read_is_missing_and_never_zero(service, said):
    with pytest.raises(GraderError, match=r"m at http.* gave no score from 0 to 1 in 2 attempts"):
        judge(service, said, attempts=2)
    assert len(service.asked) == 2


def test_a_service_that_fails_is_asked_again_and_then_missing(service):
    assert judge(service, 503, '{"score": 1}') == 1.0
    with pytest.raises(EndpointError, match="status 400"):
        judge(service, 400)
    with pytest.raises(EndpointError, match="did not answer: status 503"):
        judge(service, 503)


def test_nobody_there_is_missing():
    service = Service()
    service.close()
    with pytest.raises(EndpointError, match="did not answer"):
        judge(service, "", retries=0)


def test_the_key_comes_from_the_environment(service, monkeypatch):
    monkeypatch.setenv("ACME_KEY", "s3cret")
    judge(service, '{"score": 1}', api_key_env="ACME_KEY")
    assert service.asked[0][2] == "Bearer s3cret"


def test_a_generative_reward_model_needs_no_reference(service):
    assert judge(service, '{"score": 7}', function=generative_score, ground_truth=None) == pytest.approx(0.7)
    assert "reference" not in service.asked[0][1]["messages"][0]["content"]
    with pytest.raises(GroundTruthError):
        judge(service, '{"score": 1}', ground_truth=None)


def test_many_at_once(service):
    service.says = ['{"score": 1}']

    async def run():
        arguments = {"data_source": "x", "solution_str": "7", "ground_truth": "7", "url": service.url, "model": "m"}
        return await asyncio.gather(*(compute_score(**arguments) for _ in range(20)))

    assert asyncio.run(run()) == [1.0] * 20


def test_a_response_cannot_fill_places_of_the_template():
    text = filled("{question}|{reference}|{response}", question="{response}", ground_truth="r", response="{reference}")
    assert text == "{response}|r|{reference}"
    assert '{"score": 7}' in filled(RATING_TEMPLATE, question="q", ground_truth=None, response="r")
    assert filled("{reference}", question="", ground_truth=["a", "b"], response="") == "a or b"


def test_a_long_response_is_shortened_and_says_so():
    text = shortened("a" * MAX_RESPONSE + "b" * MAX_RESPONSE)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert f"[... {MAX_RESPONSE} characters left out ...]" in text
    assert shortened("x") == "x"


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        ('<think>{"score": 1}</think> {"score": 0}', 0.0),
        ('{"score": "0.5"}', 0.5),
        ('{"score": true}', 1.0),
        ('{"a": {"score": 1}}', 1.0),
        ('```json\n{"score": 1}\n```', 1.0),
        ('{"score": 1} {"score": "high"}', None),
        ("1", None),
    ],
)
def test_reading(judgement, expected):
    assert read_judgement(judgement) == expected
    assert read_judgement("score 0.5", r"score ([\d.]+)") == 0.5
    assert read_judgement("3 4", r"\d") == 4.0


def test_a_score_that_no_float_holds_is_none():
    assert read_judgement('{"score": 1' + "0" * 400 + "}") is None
