"""What `rl check` says about the profiler's keys."""

from types import SimpleNamespace

from rl_core.config.profiler import GlobalProfilerConfig, profiler_findings


def findings(*, total=10, device="auto", contents=None, **keys):
    section = GlobalProfilerConfig(**keys)
    if contents:
        section.global_tool_config.torch.contents = contents
    trainer = SimpleNamespace(total_training_steps=total, device=device)
    return list(profiler_findings(SimpleNamespace(tree=SimpleNamespace(global_profiler=section, trainer=trainer))))


def test_nothing_to_say():
    assert findings() == []
    assert findings(tool="torch", steps=[3]) == []
    assert findings(tool="torch", steps=[300], total=None) == []


def test_mistakes():
    ((severity, text),) = findings(steps=[3])
    assert (severity, "without global_profiler.tool" in text) == ("warning", True)
    ((severity, text),) = findings(tool="torch")
    assert (severity, "Set global_profiler.steps" in text) == ("error", True)
    ((severity, text),) = findings(tool="torch", steps=[2, 11])
    assert (severity, "from 2 to 11; this run has steps 1 to 10" in text) == ("error", True)
    assert findings(tool="torch", steps=[0])[0][0] == "error"
    ((severity, text),) = findings(tool="nsys", steps=[2], device="cpu")
    assert (severity, "records CUDA; trainer.device is cpu" in text) == ("error", True)
    ((severity, text),) = findings(tool="torch", steps=[2], contents=["cpu", "gpu"])
    assert (severity, "names ['gpu']" in text) == ("error", True)
