"""The trainer as it is passes every check, in one process, on every family."""

import pytest

from .matrix import CHECKS, OF_A_MODEL, checks_for
from .mutant import Check
from .setting import FAMILIES
from .system import System


@pytest.fixture(scope="module")
def switch() -> System:
    return System()


@pytest.mark.parametrize("check", checks_for(1), ids=lambda check: check.__name__)
def test_the_trainer_passes(switch: System, check: Check) -> None:
    check(switch)


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_every_family_passes(family: str) -> None:
    system = System(family)
    assert len(set(system.reference.owners)) > 2
    for check in OF_A_MODEL:
        check(system)


def test_every_check_is_named_once() -> None:
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
