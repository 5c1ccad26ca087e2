"""Every planted bug is caught by the check that is meant to; the committed matrix is of these bugs and checks."""

import json

import pytest
from mutation_matrix import RESULT, rows, table

from .matrix import CHECKS, outcomes
from .mutant import Mutant
from .mutants import MUTANTS


@pytest.mark.parametrize("mutant", [m for m in MUTANTS.values() if m.processes == 1], ids=lambda mutant: mutant.name)
def test_every_bug_is_caught_by_the_check_that_is_meant_to(mutant: Mutant) -> None:
    assert outcomes(mutant, (mutant.caught_by,)) == {mutant.caught_by.__name__: "caught"}


def test_the_committed_matrix_is_of_these_bugs_and_checks() -> None:
    matrix = json.loads(RESULT.read_text())
    assert matrix["checks"] == [check.__name__ for check in CHECKS]
    assert [row["bug"] for row in matrix["bugs"]] == list(MUTANTS)
    for row in matrix["bugs"]:
        mutant = MUTANTS[row["bug"]]
        described = rows(mutant)
        assert {key: row[key] for key in described} == described
        assert row["outcomes"][mutant.caught_by.__name__] == "caught"
    assert set(matrix["no bug"].values()) == {"passed"}
    assert RESULT.with_suffix(".md").read_text() == table(matrix)
