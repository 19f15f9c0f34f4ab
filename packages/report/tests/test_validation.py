from rl_report import load_run
from rl_report.validation import headlines


def test_one_headline_for_each_source_by_name(logged):
    run = load_run(
        logged(
            {
                "step": 0,
                "val-core/b/acc/mean@4": 0.1,
                "val-core/b/acc/best@4/mean": 0.3,
                "val-core/x/y/reward/mean@1": -1.0,
            },
            {"step": 5, "val-core/b/acc/mean@4": 0.6, "val-aux/b/len/mean@4": 9.0},
        )
    )
    first, second = headlines(run)
    assert (first.source, first.variable, first.answers) == ("b", "accuracy", 4)
    assert (first.before, first.after, first.steps, first.is_compared) == (0.1, 0.6, (0, 5), True)
    assert (second.source, second.variable, second.is_compared) == ("x/y", "reward", False)


def test_held_out_loss(sft_folder):
    (only,) = headlines(load_run(sft_folder))
    assert (only.source, only.variable, only.before, only.after) == ("", "loss", 5.0, 1.25)
