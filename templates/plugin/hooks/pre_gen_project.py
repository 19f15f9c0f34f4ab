"""Refuses a name that cannot be part of a module's name."""

import re
import sys

name = "{{cookiecutter.name}}"
if not re.fullmatch(r"[a-z][a-z0-9]*", name):
    sys.exit(f"name is {name!r}; use lower-case letters and digits, starting with a letter.")
