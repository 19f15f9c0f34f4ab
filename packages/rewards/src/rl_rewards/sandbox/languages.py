"""Languages that the sandbox can run. Add one with an entry in ``LANGUAGES``."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rl_rewards.sandbox.errors import SandboxError


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """How programs of one language are run.

    Attributes:
        file_name: of the program in the scratch folder.
        command: absolute path of the interpreter and its arguments; ``{file}`` is the program.
        folders: gives the folders and files that the interpreter reads; besides them nothing exists. The system's
            libraries are always there.
        environment: all of the environment; ``{scratch}`` is the scratch folder.
    """

    file_name: str
    command: tuple[str, ...]
    folders: Callable[[], tuple[str, ...]] = tuple
    environment: Mapping[str, str] = field(default_factory=dict)


ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/bin:/bin",
    "HOME": "{scratch}",
    "TMPDIR": "{scratch}",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",  # one thread for each core would count as so many processes
    "OPENBLAS_NUM_THREADS": "1",
}
"""For every language; entries of a ``Language`` come on top."""

_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


def interpreter() -> str:
    """The Python that runs this process, without the virtual environment around it.

    Raises:
        SandboxError: there is none (an embedded interpreter).
    """
    base = getattr(sys, "_base_executable", None) or sys.executable
    path = os.path.realpath(base) if base else ""
    if not os.access(path, os.X_OK):
        msg = f"the sandbox runs code with the Python of this process, but sys.executable is {sys.executable!r}"
        raise SandboxError(msg)
    return path


@functools.cache
def _python_folders() -> tuple[str, ...]:
    prefixes = {os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.base_exec_prefix)}
    libraries = {str(Path(prefix, name)) for prefix in prefixes for name in ("lib", sys.platlibdir)}
    return (interpreter(), *sorted(libraries), *_loaded_libraries())


def _loaded_libraries() -> list[str]:
    """Shared libraries of this process that lie in none of the usual places, as an interpreter's own may."""
    text = Path("/proc/self/maps").read_text("utf-8", "replace")
    paths = {line.split(maxsplit=5)[5] for line in text.splitlines() if "/libpython" in line}
    return sorted(path for path in paths if os.path.exists(path))


def python(packages: tuple[str, ...] = ()) -> Language:
    """Python, with the standard library alone unless folders of packages are named.

    Args:
        packages: folders to import from, readable for the code; what is installed beside this program, say.
    """
    program: tuple[str, ...] = ("{file}",)
    if packages:
        # -S leaves sys.path without site-packages, and with it the code that a site-packages can run at every start.
        start = f"import sys; sys.path += {list(packages)!r}; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
        program = ("-c", start, "{file}")
    return Language(
        file_name="main.py",
        command=(interpreter(), "-s", "-S", "-P", "-B", *program),
        folders=lambda: (*_python_folders(), *packages),
        environment={"PYTHONHASHSEED": "0"},  # the same answer gets the same score every time
    )


LANGUAGES: dict[str, Callable[[], Language]] = {"python": python}
"""Name -> what makes it; called at every start of a sandbox."""


def folders_of(language: Language) -> list[str]:
    """Folders and files of the language and of the system that exist, without those that lie in another one."""
    there = sorted({path for path in (*_SYSTEM_LIBRARIES, *language.folders()) if os.path.lexists(path)})
    targets = {os.path.realpath(path) for path in there if os.path.islink(path)}
    wanted = sorted({*there, *targets})
    outer: list[str] = []
    for path in wanted:
        if not any(path.startswith(f"{other}/") and not os.path.islink(other) for other in outer):
            outer.append(path)
    return outer


def find(name: str) -> Language:
    """The language of that name.

    Raises:
        SandboxError: there is none.
    """
    if name not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        msg = f"the sandbox was asked to run {name!r}, but knows {known}; see rl_rewards.sandbox.LANGUAGES"
        raise SandboxError(msg)
    return LANGUAGES[name]()
