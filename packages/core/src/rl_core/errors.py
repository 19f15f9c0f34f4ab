"""Every exception a user of this project sees.

A message says what was asked, what was found, and what to do, with names and values. ``RlError`` and
its subclasses are *expected*: the command line prints them as text, without a traceback. Anything else
is a bug, either ours or a plugin's.
"""

from __future__ import annotations


class RlError(Exception):
    """Base of every expected error."""


class ConfigError(RlError):
    """A configuration key is unknown, contradicts another one, or holds a value that cannot work."""


class DataError(RlError):
    """A data file, column or row cannot be used."""


class PluginError(RlError):
    """Base of everything that can be wrong with a plugin."""


class PluginNotFoundError(PluginError):
    """No installed plugin provides the asked name (not installed, or misspelt)."""


class PluginBlockedError(PluginError):
    """The plugin is installed, but ``RL_PLUGINS`` or ``RL_BLOCK_PLUGINS`` keeps it out."""


class PluginConflictError(PluginError):
    """Two distributions provide the same name of the same kind."""


class PluginApiError(PluginError):
    """The plugin was written for another version of the hook API, or an engine is out of its range."""


class PluginLoadError(PluginError):
    """The plugin is installed but its code does not import; the cause is chained."""


class ShapeError(RlError, ValueError):
    """A tensor has another shape, rank or dtype than the function works on."""


class WorkerError(RlError):
    """A method of a worker failed; says role, rank, node, step and phase. The cause is chained."""


class OutOfMemoryError(RlError, MemoryError):
    """A worker ran out of memory; says phase, role, rank, who holds what, and which key to lower. The cause is chained."""


class DeadlineError(RlError, TimeoutError):
    """Something that was waited for did not come in time; says what, and for how long."""


class WeightSyncError(RlError):
    """Weights did not arrive as they were sent, or the generator would sample from stale ones."""


class MissingRolloutError(RlError):
    """More rollouts failed than ``trainer`` tolerates."""


class MissingRewardError(RlError):
    """More rewards failed than ``trainer`` tolerates."""


class FilteredGroupsError(RlError):
    """Dynamic sampling (``algorithm.filter_groups``) did not find enough groups that teach something."""


class CheckpointError(RlError):
    """A checkpoint is incomplete, or belongs to another model or algorithm."""
