import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rl_rewards.sandbox import Limits, SandboxError
from rl_rewards.sandbox.service import SandboxService


def answer(told="Success", /, **ran):
    return {"status": told, "message": "", "compile_result": None, "run_result": ran or None}


class Service:
    """Answers what the test puts on its list, the last one for ever."""

    def __init__(self):
        self.answers = []
        self.questions = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.questions.append((self.path, body))
                    outer.at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer.at_once)
                    code, content = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                time.sleep(0.05)
                with outer.lock:
                    outer.at_once -= 1
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def service():
    service = Service()
    yield service
    service.close()


def box(service, **options):
    options = {"code": "print(1)", "limits": Limits(wall_s=3.0, memory_mb=99), "patience_s": 5.0} | options
    return SandboxService(url=service.url, **options)


def test_question_and_answer(service):
    service.answers = [(200, answer(status="Finished", return_code=0, execution_time=0.5, stdout="1\n", stderr=""))]
    result = box(service).run("in", wall_s=2.0)
    assert (result.status, result.stdout, result.exit_code, result.seconds) == ("ok", "1\n", 0, 0.5)
    assert service.questions == [
        (
            "/run_code",
            {
                "code": "print(1)",
                "language": "python",
                "stdin": "in",
                "compile_timeout": 30.0,
                "run_timeout": 2.0,
                "memory_limit_MB": 99,
            },
        )
    ]


@pytest.mark.parametrize(
    ("ran", "status"),
    [
        ({"status": "Finished", "return_code": 1, "stderr": "ValueError"}, "error"),
        ({"status": "Finished", "return_code": 1, "stderr": "Traceback\nMemoryError"}, "memory"),
        ({"status": "TimeLimitExceeded", "return_code": None, "stdout": None, "stderr": None}, "timeout"),
    ],
)
def test_failures_of_the_program_are_results(service, ran, status):
    service.answers = [(200, answer("Failed", **ran))]
    assert box(service).run().status == status


def test_failures_of_the_service_are_tried_again(service):
    good = answer(status="Finished", return_code=0, stdout="1")
    service.answers = [(503, b"busy"), (429, b""), (200, b"no json"), (200, answer("SandboxError")), (200, good)]
    assert box(service, patience_s=30.0).run().stdout == "1"
    assert len(service.questions) == 5


@pytest.mark.parametrize("bad", [(500, b"down"), (200, answer("SandboxError")), (200, b"[]"), (200, b"7")])
def test_a_service_that_stays_broken_is_no_reward(service, bad):
    service.answers = [bad]
    begin = time.monotonic()
    with pytest.raises(SandboxError, match="failed for 1 s"):
        box(service, patience_s=1.0).run()
    assert time.monotonic() - begin < 5


def test_a_refused_request_is_not_repeated(service):
    service.answers = [(422, b"no such language")]
    with pytest.raises(SandboxError, match="HTTP 422: no such language"):
        box(service).run()
    assert len(service.questions) == 1


def test_nobody_there():
    with pytest.raises(SandboxError, match="failed for 0 s"):
        SandboxService(url="http://127.0.0.1:9/run_code", code="", limits=Limits(), patience_s=0.1).run()


def test_no_more_requests_at_a_time_than_allowed(service):
    service.answers = [(200, answer(status="Finished", return_code=0, stdout="1"))]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: box(service, max_concurrent=2).run().status, range(8)))
    assert results == ["ok"] * 8
    assert service.most_at_once <= 2


@pytest.mark.parametrize("url", ["ftp://x", "/tmp", "localhost:8080"])
def test_an_address_that_is_none(url):
    with pytest.raises(SandboxError, match=r"sandbox_fusion\.url is"):
        SandboxService(url=url, code="", limits=Limits())
