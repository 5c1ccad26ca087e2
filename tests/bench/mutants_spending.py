"""Bugs of what is charged, and of what is chosen before."""

from __future__ import annotations

from raptor_train import resolve, step
from raptor_train.loop import Trainer

from . import checks_spending
from .mutant import Mutant

SPENDING = (
    Mutant(
        name="skipped step uncharged",
        function=step.release,
        edits={"charge()\n": "_ = len(batch) and charge()\n"},
        caught_by=checks_spending.ledger_equals_releases,
    ),
    Mutant(
        name="charge after the noise",
        function=step.release,
        edits={"charge()\n": "pass\n", "group.broadcast_(sums)": "charge()\n    group.broadcast_(sums)"},
        caught_by=checks_spending.charges_come_before_noise,
    ),
    Mutant(
        name="charges forgotten that the checkpoint has not seen",
        function=Trainer._charged_before,
        edits={
            "return checkpoint.charged_releases(ledger.Ledger.verify(self.ledger.path), self.streams)": (
                "return dict(saved.charged) if saved else {stream.role.name: 0 for stream in self.streams}"
            )
        },
        caught_by=checks_spending.a_crash_stays_spent,
    ),
    Mutant(
        name="the larger sigma charged for both streams",
        function=Trainer._charge,
        edits={
            "noise_multiplier=stream.noise_multiplier": "noise_multiplier=max(s.noise_multiplier for s in self.streams)"
        },
        caught_by=checks_spending.ledger_equals_releases,
    ),
    Mutant(
        name="public statistics computed on private rows",
        function=resolve.resolve,
        edits={
            "choose_in_public(config, inputs.public,": (
                "choose_in_public(config, PublicRecords(records=inputs.private, labelled=True, source='public'),"
            )
        },
        caught_by=checks_spending.public_choices_ignore_private_rows,
    ),
)
