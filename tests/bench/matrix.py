"""Which check catches which planted bug."""

from __future__ import annotations

from . import checks_noise, checks_processes, checks_release, checks_sampling, checks_spending
from .mutant import Check, Mutant
from .pair import Pair
from .system import System

OF_A_MODEL: tuple[Check, ...] = (  # what could differ from family to family
    checks_release.sums_are_exact,
    checks_release.not_finite_records_count_nothing,
    checks_release.sensitivity_is_the_clip_norm,
    checks_release.nothing_leaks_to_non_owners,
    checks_release.silent_records_change_no_byte,
    checks_release.only_the_roles_train,
    checks_noise.noise_is_asked_for_once,
)
OF_THE_TRAINER: tuple[Check, ...] = (
    checks_release.denominators_are_public,
    checks_noise.noise_has_the_stated_scale_and_law,
    checks_noise.empty_batches_get_the_same_noise,
    checks_noise.experts_without_records_get_the_same_noise,
    checks_noise.noise_is_independent,
    checks_noise.one_seed_draws_no_noise_twice,
    checks_sampling.samples_are_poisson,
    checks_sampling.samples_are_independent,
    checks_spending.ledger_equals_releases,
    checks_spending.charges_come_before_noise,
    checks_spending.a_crash_stays_spent,
)
OF_A_RUN: tuple[Check, ...] = (checks_spending.public_choices_ignore_private_rows,)
OF_PROCESSES: tuple[Check, ...] = (
    checks_processes.ranks_release_the_same_bits,
    checks_processes.processes_release_what_one_does,
)
CHECKS = (*OF_A_MODEL, *OF_THE_TRAINER, *OF_A_RUN, *OF_PROCESSES)


def checks_for(processes: int) -> tuple[Check, ...]:
    """The checks that apply to a system in so many processes."""
    return (*OF_A_MODEL, *OF_THE_TRAINER, *(OF_A_RUN if processes == 1 else OF_PROCESSES))


def outcomes(mutant: Mutant | None, checks: tuple[Check, ...], pair: Pair | None = None) -> dict[str, str]:
    """What each check says of a bug, or of the code as it is: "passed", "caught", or "refused" by the trainer itself.

    Any other exception is raised: then the bug is none, it only breaks the code.

    Args:
        mutant: The bug.
        checks: What to run.
        pair: The processes that it takes, if it is more than one.
    """
    if pair is not None:
        return _outcomes(pair.system(mutant=mutant.name if mutant else None), checks)
    system = System()
    if mutant is None:
        return _outcomes(system, checks)
    with mutant.planted():
        return _outcomes(system, checks)


def _outcomes(system: System, checks: tuple[Check, ...]) -> dict[str, str]:
    found = {}
    for check in checks:
        try:
            check(system)
            found[check.__name__] = "passed"
        except AssertionError:
            found[check.__name__] = "caught"
        except ValueError:
            found[check.__name__] = "refused"
    return found
