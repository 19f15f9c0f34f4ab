import threading

from rl_core.single_controller.base.progress import current_progress, progress


def test_nowhere_at_first():
    assert str(current_progress()) == ""


def test_the_innermost_place_counts_and_the_outer_one_comes_back():
    with progress(step=3):
        assert str(current_progress()) == "step 3"
        with progress(phase="update_actor"):
            assert str(current_progress()) == "step 3, phase update_actor"
        assert str(current_progress()) == "step 3"
    assert str(current_progress()) == ""


def test_it_comes_back_after_an_error():
    try:
        with progress(step=1, phase="gen"):
            raise RuntimeError
    except RuntimeError:
        pass
    assert current_progress().step is None


def test_another_thread_is_somewhere_else():
    seen = []
    with progress(step=3):
        thread = threading.Thread(target=lambda: seen.append(current_progress().step))
        thread.start()
        thread.join()
    assert seen == [None]
