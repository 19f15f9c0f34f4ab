import pytest
from rl_report import load_run
from rl_report.charts import charts, moving_average, parity_chart
from rl_report.run import Series


def test_curves_of_a_run(folder):
    found = {chart.title: chart for chart in charts(load_run(folder))}
    assert list(found) == [
        "Reward",
        "Held-out",
        "Reward components",
        "Response length",
        "KL",
        "Entropy",
        "Gradient norm",
        "Learning rate",
        "Tokens a second",
    ]
    assert [line.label for line in found["Held-out"].lines] == ["digits, accuracy"]
    assert found["Held-out"].has_legend
    assert not found["Reward"].has_legend
    assert found["Response length"].lines[0].high.values == (8.0, 8.0, 8.0)


def test_the_reward_after_a_penalty_is_a_curve_where_it_differs(logged, row):
    (reward, *_) = charts(load_run(logged(row(1, 0.1), row(2, 0.3) | {"critic/rewards/mean": 0.2})))
    assert [line.label for line in reward.lines] == ["reward", "after the KL penalty"]
    assert reward.has_legend


def test_curves_of_fine_tuning(sft_folder):
    found = charts(load_run(sft_folder))
    assert [chart.title for chart in found] == ["Loss", "Learning rate"]
    assert [(line.label, line.series.steps) for line in found[0].lines] == [
        ("training", (1, 2, 3)),
        ("held-out", (0, 3)),
    ]


def test_a_gap_over_magnitudes_is_logarithmic(folder, logged):
    assert parity_chart(load_run(folder)).is_log
    flat = {"training/logprob_gap/mean": 1.0, "training/logprob_gap/max": 2.0}
    assert not parity_chart(load_run(logged({"step": 1} | flat))).is_log


def test_no_gap_no_chart(logged):
    assert parity_chart(load_run(logged({"step": 1, "x": 1.0}))) is None


def test_moving_average():
    assert moving_average(Series((1, 2, 3, 4), (0.0, 3.0, 6.0, 0.0))).values == (1.5, 3.0, 3.0, 3.0)
    long = Series(tuple(range(200)), tuple(float(step % 2) for step in range(200)))
    assert moving_average(long).values[100] == pytest.approx(5 / 9, abs=0.12)
    assert len(moving_average(long).values) == 200
