import json
from types import SimpleNamespace

from rl_core.trainer.trackers.jsonl import JsonlTracker


def tracker(tmp_path):
    return JsonlTracker(SimpleNamespace(trainer=SimpleNamespace(default_local_dir=str(tmp_path / "run"))))


def lines(tmp_path, name="metrics.jsonl"):
    return [json.loads(line) for line in (tmp_path / "run" / name).read_text().splitlines()]


def test_one_object_a_step_appended_over_restarts(tmp_path):
    for step in (1, 2):
        one = tracker(tmp_path)
        one.log(step, {"critic/score/mean": 0.5 * step})
        one.close()
    assert lines(tmp_path) == [{"step": 1, "critic/score/mean": 0.5}, {"step": 2, "critic/score/mean": 1.0}]


def test_a_resumed_run_has_each_step_once(tmp_path):
    first = tracker(tmp_path)
    for step in (1, 2, 3):
        first.log(step, {"x": step})
    first.close()

    second = tracker(tmp_path)
    second.resume(2)
    second.log(3, {"x": 30})
    second.close()
    assert [(line["step"], line["x"]) for line in lines(tmp_path)] == [(1, 1), (2, 2), (3, 30)]


def test_generations_have_a_file_of_their_own(tmp_path):
    one = tracker(tmp_path)
    one.log_generations(4, [{"output": "a\nb", "score": 1.0}])
    one.close()
    assert lines(tmp_path, "generations.jsonl") == [{"output": "a\nb", "score": 1.0}]
