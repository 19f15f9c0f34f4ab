from __future__ import annotations

import sys

from rl_core.cli.main import main

sys.exit(main())
