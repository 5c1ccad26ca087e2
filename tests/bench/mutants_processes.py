"""Bugs that take two processes to show."""

from __future__ import annotations

from raptor_train import noise, step
from raptor_train.distributed import Group

from . import checks_noise, checks_processes
from .mutant import Mutant

PROCESSES = (
    Mutant(
        name="noise twice across processes",
        function=step.release,
        edits={
            "group.sum_(sums)\n": "pass\n",
            "if group.rank == 0 and stream": "if stream",
            "group.broadcast_(sums)": "group.sum_(sums)",
        },
        caught_by=checks_noise.empty_batches_get_the_same_noise,
        processes=2,
    ),
    Mutant(
        name="noise averaged away across processes",
        function=step.release,
        edits={
            "group.sum_(sums)\n": "pass\n",
            "if group.rank == 0 and stream": "if stream",
            "noise(total, std)": "noise(total, std) / group.world",
            "group.broadcast_(sums)": "group.sum_(sums)",
        },
        caught_by=checks_noise.empty_batches_get_the_same_noise,
        processes=2,
    ),
    Mutant(
        name="noise of its own on every process",
        function=step.release,
        edits={"if group.rank == 0 and stream": "if stream", "group.broadcast_(sums)": "pass"},
        caught_by=checks_processes.ranks_release_the_same_bits,
        processes=2,
    ),
    Mutant(
        name="the whole batch on every process",
        function=step.release,
        edits={"[group.rank :: group.world]": ""},
        caught_by=checks_processes.processes_release_what_one_does,
        processes=2,
    ),
    Mutant(
        name="coins of its own on every process",
        function=noise.Randomness.begin,
        edits={"group.from_first(coins.entropy)": "group.from_first(coins.entropy) + group.rank"},
        caught_by=checks_processes.processes_release_what_one_does,
        processes=2,
    ),
    Mutant(
        name="sums averaged across processes",
        function=Group.sum_,
        edits={"_unflatten(flat, tensors)": "_unflatten(flat / self.world, tensors)"},
        caught_by=checks_processes.processes_release_what_one_does,
        processes=2,
    ),
)
