import os
import time

import psutil
import pytest


class Watched:
    """A run's groups with a watchdog over them, as the Ray runtime has it, on a cluster that other runs share."""

    def __init__(self, cluster, folder, secrets, settings):
        import ray
        from rl_core.config.trainer import WatchdogConfig
        from rl_core.runtime.ray import RunLink
        from rl_core.runtime.ray.health import RunHealth
        from rl_core.runtime.ray.heartbeat import Board
        from rl_core.runtime.ray.watchdog import Watchdog, redactor

        self._cluster = cluster
        self._groups, self._pools = [], []
        watching = {name: settings.pop(name) for name in ("soft_deadline_s", "silence_s") if name in settings}
        self.folder = folder
        self.reports = (folder / "reports").open("w+")
        self.health = RunHealth(redactor(secrets, "<redacted>"))
        self._board = ray.remote(num_cpus=0)(Board).remote()
        config = WatchdogConfig(heartbeat_s=0.3, **watching)
        self.watchdog = Watchdog(self._board, self.health, config, log_dir=folder / "logs", out=self.reports)
        self.watchdog.start()
        self.link = RunLink(
            health=self.health,
            environment=cluster.worker_environment(on_cuda=False) | secrets,
            board=self._board,
            beat_s=0.3,
            watchdog=self.watchdog,
            **settings,
        )

    def group(self, worker_cls, world_size, *, name="actor", deadline_s=60.0):
        from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

        pool = RayResourcePool([world_size], use_gpu=False, name_prefix=name)
        pool.reserve(self._cluster.nodes(), 60.0)
        self._pools.append(pool)
        group = RayWorkerGroup(pool, RayClassWithInitArgs(worker_cls), name=name, deadline_s=deadline_s, link=self.link)
        self._groups.append(group)
        return group

    def log(self, worker):
        return (self.folder / "logs" / f"{worker}.log").read_text()

    def report(self):
        self.reports.seek(0)
        return self.reports.read()

    def close(self):
        import ray

        for group in self._groups:
            group.shutdown()
        for pool in self._pools:
            pool.release()
        self.watchdog.stop()
        ray.kill(self._board)
        self.reports.close()


@pytest.fixture
def watched(cluster, tmp_path):
    """``watched(secrets, soft_deadline_s=, silence_s=, collective_deadline_s=, ...)``: a run that ends with the test."""
    runs = []

    def build(secrets=None, **settings):
        runs.append(Watched(cluster, tmp_path, secrets or {}, settings))
        return runs[-1]

    yield build
    for run in runs:
        run.close()


@pytest.fixture
def gone():
    """``gone(pids)``: wait until these processes are, and give back those that are not."""

    def wait(pids, within_s=5.0):
        ends = time.monotonic() + within_s
        while (left := [pid for pid in pids if _runs(pid)]) and time.monotonic() < ends:
            time.sleep(0.05)
        return left

    return wait


def _runs(pid):
    try:
        return pid != os.getpid() and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
