"""Several roles in one worker process, so that they can share its device and see each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.single_controller.base.worker import Worker


class ClassWithInitArgs:
    """A worker class and what its constructor gets besides the context; built where the worker will live."""

    def __init__(self, cls: type[Worker], *args: Any, **kwargs: Any) -> None:
        """Keep ``cls`` and its arguments for later."""
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def __call__(self, context: WorkerContext) -> Worker:
        """Build the worker."""
        return self.cls(context, *self.args, **self.kwargs)


class FusedWorker(Worker):
    """A worker process with several roles; made by ``create_colocated_worker_cls``.

    A group of it binds every role's methods as ``<role>_<method>``; ``WorkerGroup.spawn`` gives a view for each role
    with the plain names.
    """

    role_classes: ClassVar[dict[str, ClassWithInitArgs]] = {}

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        for name, build in self.role_classes.items():
            role = build(context)
            self.fused_worker_dict[name] = role
            role.fused_worker_dict = self.fused_worker_dict

    def close(self) -> None:
        """Close every role, the last one first; all are closed even if one fails."""
        errors: list[Exception] = []
        for role in reversed(self.fused_worker_dict.values()):
            try:
                role.close()
            except Exception as error:  # raised together below
                errors.append(error)
        if errors:
            msg = "roles of a fused worker failed to close"
            raise ExceptionGroup(msg, errors)


def create_colocated_worker_cls(class_dict: Mapping[str, ClassWithInitArgs]) -> type[FusedWorker]:
    """A worker class that hosts all roles of ``class_dict`` (role name -> class with arguments) in one process.

    Raises:
        ConfigError: there is no role, or a name cannot be part of a method's name.
    """
    bad = [name for name in class_dict if not name.isidentifier()]
    if bad or not class_dict:
        msg = f"a fused worker needs roles with names that can begin a method's name; got {list(class_dict)}"
        raise ConfigError(msg)
    return type("FusedWorker_" + "_".join(class_dict), (FusedWorker,), {"role_classes": dict(class_dict)})
