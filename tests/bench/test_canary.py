"""A canary whose inclusion is audited from the trainer's own releases: the bound stays below what is accounted."""

import json
import math

import pytest
from canary_audit import RESULT, audit
from scipy import stats

from .setting import SIGMAS
from .statistics import ALPHA


def test_few_trials_give_no_bound_above_the_accounted_and_the_attack_is_the_strongest_there_is() -> None:
    found = audit(80, confidence=1 - ALPHA)
    assert 2 * stats.norm.sf(abs(found["drift"])) > ALPHA
    assert found["mu"] <= found["accounted_mu"]
    assert all(row["epsilon"] <= row["accounted"] for row in found["epsilon_by_delta"])


def test_the_committed_audit_finds_more_than_half_of_what_is_accounted_and_never_more_than_all() -> None:
    found = json.loads(RESULT.read_text())
    assert 0.5 * found["accounted_mu"] < found["mu"] <= found["accounted_mu"]
    shares = {row["delta"]: row["epsilon"] / row["accounted"] for row in found["epsilon_by_delta"]}
    assert max(shares.values()) <= 1
    assert shares[0.05] > 0.5
    # A record moves each sum by a clip norm, and the sums have noise of sigma clip norms each.
    assert found["accounted_mu"] == pytest.approx(math.hypot(*(1 / sigma for sigma in SIGMAS.values())))
