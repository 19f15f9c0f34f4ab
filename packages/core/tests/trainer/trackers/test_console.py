import io

from rl_core.trainer.trackers.console import ConsoleTracker


def printed(call):
    stream = io.StringIO()
    tracker = ConsoleTracker(None, stream)
    call(tracker)
    tracker.close()
    return stream.getvalue()


def test_a_line_shows_what_is_watched_and_where_the_time_went():
    metrics = {
        "critic/score/mean": 0.25,
        "actor/grad_norm": 1.5,
        "unwatched": 7,
        "timing_s/step": 2.0,
        "timing_s/gen": 1.25,
        "timing_s/adv": 0.001,
        "val-core/x/acc/mean@1": 0.125,
    }
    assert printed(lambda tracker: tracker.log(3, metrics)) == (
        "step 3: reward 0.25  grad 1.5  2s (gen 1.2s)  val-core/x/acc/mean@1 0.125\n"
    )


def test_long_answers_are_cut_and_markup_is_not_interpreted():
    text = printed(
        lambda tracker: tracker.log_generations(1, [{"output": "[bold]x[/bold]\n" + "y" * 400, "score": 0.5}])
    )
    assert text.startswith("  step 1 score 0.5: [bold]x[/bold]\\ny")
    assert text.endswith("… \n".replace(" ", ""))


def test_resume_is_said():
    assert printed(lambda tracker: tracker.resume(4)) == "resumed after step 4\n"
