"""All planted bugs, by name."""

from __future__ import annotations

from .mutants_noise import NOISE
from .mutants_processes import PROCESSES
from .mutants_release import RELEASE
from .mutants_sampling import SAMPLING
from .mutants_spending import SPENDING

MUTANTS = {mutant.name: mutant for mutant in (*NOISE, *RELEASE, *SAMPLING, *SPENDING, *PROCESSES)}
