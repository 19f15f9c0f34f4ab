"""What `import rl_core` and `rl plugins list` cost beyond starting Python.

Rounds alternate between the commands, so that a busy moment of the machine hits all of them alike; medians are compared.
Processor time stands beside wall time: where wall time is much more, other work kept the processors. Prints a table,
writes it to benchmarks/results/import_time.md, and exits with 1 when the wall time of a command is over the target.

    python benchmarks/import_time.py [--rounds 21] [--target-s 0.3] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "import_time.md"
BARE = "bare Python"
COMMANDS = {
    BARE: [sys.executable, "-c", "pass"],
    "import rl_core": [sys.executable, "-c", "import rl_core"],
    "from rl_core import hookimpl": [sys.executable, "-c", "from rl_core import hookimpl"],
    "rl plugins list": [sys.executable, "-m", "rl_core.cli", "plugins", "list"],
}


def processor_s() -> float:
    """Processor seconds of every child that has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, processor) seconds of each command, `rounds` times in turn, after a warm-up that fills the file caches."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for round_ in range(rounds + 1):
        for name, command in COMMANDS.items():
            before, start = processor_s(), time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if round_ > 0:
                seconds[name].append((time.perf_counter() - start, processor_s() - before))
    return seconds


def table(seconds: dict[str, list[tuple[float, float]]], target_s: float) -> tuple[str, bool]:
    """The result as Markdown, and whether every command keeps to the target."""
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in seconds.items()
    }
    bare_wall, bare_processor = medians[BARE]
    lines = [
        "| command | wall [s] | processor [s] | wall beyond bare [s] | processor beyond bare [s] | target [s] |",
        "|---|---|---|---|---|---|",
    ]
    for name, (wall, processor) in medians.items():
        row = f"| {name} | {wall:.3f} | {processor:.3f} |"
        beyond = f" {wall - bare_wall:.3f} | {processor - bare_processor:.3f} | < {target_s} |"
        lines.append(row + (" | | |" if name == BARE else beyond))
    return "\n".join(lines), all(wall - bare_wall < target_s for wall, _ in medians.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--target-s", type=float, default=0.3)
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    text, kept = table(measure(options.rounds), options.target_s)
    where = (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}, {os.cpu_count()} CPUs"
    )
    load = f"load average {os.getloadavg()[0]:.1f}, niceness {os.nice(0)}"
    page = f"# Import time\n\n{options.rounds} alternating rounds, medians. {where}, {load}.\n\n{text}\n"
    print(page)
    if not options.no_write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(page)
    if not kept:
        print(f"over the target of {options.target_s} s", file=sys.stderr)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
