"""``python -m rl_core.trainer.rm KEY=VALUE ...``."""

from __future__ import annotations

import sys

from rl_core.entry_point import report_errors
from rl_core.trainer.rm.command import main

sys.exit(report_errors(main, sys.argv[1:]))
