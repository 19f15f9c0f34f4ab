"""What every test of the repository runs under."""

from __future__ import annotations

import os

from hypothesis import settings

# How long an example takes says something about the machine only. CI loads hypothesis' own profile, which also repeats.
settings.register_profile("house", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("house")
