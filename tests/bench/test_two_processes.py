"""The trainer as it is passes every check in two processes, and the bugs that take two are caught."""

from collections.abc import Iterator

import pytest

from .checks_release import sensitivity_is_the_clip_norm, sums_are_exact
from .matrix import checks_for, outcomes
from .mutant import Check, Mutant
from .mutants import MUTANTS
from .pair import Pair
from .setting import FAMILIES
from .system import System


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as processes:
        yield processes


@pytest.fixture(scope="module")
def switch(pair: Pair) -> System:
    return pair.system()


@pytest.mark.parametrize("check", checks_for(2), ids=lambda check: check.__name__)
def test_the_trainer_passes(switch: System, check: Check) -> None:
    check(switch)


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_every_family_passes(pair: Pair, family: str) -> None:
    system = pair.system(family)
    sums_are_exact(system)
    sensitivity_is_the_clip_norm(system)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS.values() if m.processes == 2], ids=lambda mutant: mutant.name)
def test_every_bug_is_caught_by_the_check_that_is_meant_to(pair: Pair, mutant: Mutant) -> None:
    assert outcomes(mutant, (mutant.caught_by,), pair) == {mutant.caught_by.__name__: "caught"}
