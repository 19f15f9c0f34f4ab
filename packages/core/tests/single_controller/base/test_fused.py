import pickle
from typing import ClassVar

import cloudpickle
import pytest
from rl_core.errors import ConfigError
from rl_core.single_controller.base import (
    ClassWithInitArgs,
    FusedWorker,
    SoloCollective,
    Worker,
    WorkerContext,
    create_colocated_worker_cls,
)

CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())


class Role(Worker):
    closed: ClassVar[list[str]] = []

    def __init__(self, context, name, *, fails=False):
        super().__init__(context)
        self.name, self.fails = name, fails

    def close(self):
        Role.closed.append(self.name)
        if self.fails:
            raise OSError(self.name)


def test_every_role_is_built_with_its_own_arguments():
    worker = create_colocated_worker_cls(
        {"actor": ClassWithInitArgs(Role, "a"), "critic": ClassWithInitArgs(Role, name="c")}
    )(CONTEXT)
    assert isinstance(worker, FusedWorker)
    assert {key: role.name for key, role in worker.fused_worker_dict.items()} == {"actor": "a", "critic": "c"}
    assert worker.fused_worker_dict["actor"].context is CONTEXT


def test_roles_see_each_other():
    roles = {"actor": ClassWithInitArgs(Role, "a"), "critic": ClassWithInitArgs(Role, "c")}
    worker = create_colocated_worker_cls(roles)(CONTEXT)
    actor = worker.fused_worker_dict["actor"]
    assert actor.get_fused_worker_by_name("critic").name == "c"
    with pytest.raises(ConfigError, match=r"no role 'rm' .* 'actor', 'critic'"):
        actor.get_fused_worker_by_name("rm")


def test_all_roles_are_closed_last_first_even_if_one_fails():
    Role.closed.clear()
    roles = {
        "actor": ClassWithInitArgs(Role, "a", fails=True),
        "critic": ClassWithInitArgs(Role, "c", fails=True),
        "rm": ClassWithInitArgs(Role, "r"),
    }
    with pytest.raises(ExceptionGroup) as group:
        create_colocated_worker_cls(roles)(CONTEXT).close()
    assert Role.closed == ["r", "c", "a"]
    assert [str(error) for error in group.value.exceptions] == ["c", "a"]


def test_two_fused_classes_do_not_share_their_roles():
    first = create_colocated_worker_cls({"actor": ClassWithInitArgs(Role, "a")})
    second = create_colocated_worker_cls({"critic": ClassWithInitArgs(Role, "c")})
    assert set(first.role_classes) == {"actor"}
    assert set(second.role_classes) == {"critic"}
    assert FusedWorker.role_classes == {}


def test_the_class_reaches_another_process():
    fused = create_colocated_worker_cls({"actor": ClassWithInitArgs(Worker)})
    copy = pickle.loads(cloudpickle.dumps(fused))
    assert set(copy(CONTEXT).fused_worker_dict) == {"actor"}


@pytest.mark.parametrize("roles", [{}, {"actor-ref": ClassWithInitArgs(Role, "a")}])
def test_role_names_begin_method_names(roles):
    with pytest.raises(ConfigError, match="names that can begin a method's name"):
        create_colocated_worker_cls(roles)
