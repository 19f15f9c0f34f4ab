"""Requirements of a record, compared with what is installed before anything heavy is imported.

``"acme>=1.2,<2 | acme-cpu>=1.1"`` is one requirement with two alternatives: one of them must be installed in its range.
The comparison reads distribution metadata only.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from rl_core.errors import PluginError
from rl_core.plugins.distributions import metadata_field

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """How one requirement compares with this environment."""

    requirement: str
    """As the record wrote it, alternatives included."""
    satisfied: bool
    found: str
    """What is installed, ``"acme 1.1, acme-cpu 1.1"``, or ``"nothing"``."""

    def __str__(self) -> str:
        return f"{self.requirement} (found {self.found})"


def parse_alternatives(requirement: str) -> tuple[Requirement, ...]:
    """Split one requirement at ``|`` and parse each part.

    Raises:
        PluginError: a part is no valid requirement, or points to a URL, which cannot be compared with a version.
    """
    parsed = []
    for part in requirement.split("|"):
        try:
            alternative = Requirement(part.strip())
        except InvalidRequirement as error:
            msg = f"requires has {part.strip()!r}, which is no requirement ({error}); write it like 'acme>=1.2,<2'."
            raise PluginError(msg) from error
        if alternative.url is not None:
            msg = f"requires has {part.strip()!r}; an address cannot be compared with a version, name a range instead."
            raise PluginError(msg)
        parsed.append(alternative)
    return tuple(parsed)


def check_requirements(requires: Iterable[str]) -> tuple[RequirementResult, ...]:
    """Compare each requirement with the installed distributions; imports none of them."""
    return tuple(_check(requirement) for requirement in requires)


def _check(requirement: str) -> RequirementResult:
    alternatives = parse_alternatives(requirement)
    # A marker that is false here ("; sys_platform == 'darwin'") takes its alternative out of the question.
    applicable = [part for part in alternatives if part.marker is None or part.marker.evaluate()]
    if not applicable:
        return RequirementResult(requirement, satisfied=True, found="nothing needed on this platform")
    found = {part.name: _installed_version(part.name) for part in applicable}
    satisfied = any(_in_range(part, found[part.name]) for part in applicable)
    present = [f"{name} {version}" for name, version in found.items() if version is not None]
    return RequirementResult(requirement, satisfied=satisfied, found=", ".join(present) or "nothing")


def _installed_version(name: str) -> str | None:
    try:
        return metadata_field(metadata.distribution(name), "Version", "of unknown version")
    except metadata.PackageNotFoundError:
        return None


def _in_range(requirement: Requirement, installed: str | None) -> bool:
    if installed is None:
        return False
    try:
        version = Version(installed)
    except InvalidVersion:
        return False
    # Nightly builds of engines are pre-releases, and who installed one means to use it.
    return requirement.specifier.contains(version, prereleases=True)
