"""A certified number stays one: as a float, through copies and through JSON."""

import copy
import json
import math
import pickle
from dataclasses import asdict, dataclass
from typing import Literal

import pytest

from raptor_acct import SubsampledGaussian
from raptor_acct.bound import Bound

STREAM = SubsampledGaussian(num_steps=100, sampling_probability=0.01, noise_multiplier=1.0)


@dataclass(frozen=True)
class Holder:
    value: Bound


def parts(bound: Bound) -> tuple[float, float, float, float, str, type]:
    return float(bound), bound.lower, bound.upper, bound.width, bound.method, type(bound)


@pytest.mark.parametrize("safe", ["lower", "upper"])
def test_the_safe_end_is_the_float(safe: Literal["lower", "upper"]) -> None:
    bound = Bound(0.25, 0.5, safe=safe, method="by hand")
    assert float(bound) == {"lower": 0.25, "upper": 0.5}[safe] == getattr(bound, safe)
    assert bound.width == 0.25
    assert type(bound + 1) is float
    assert f"{bound:.3g}" == f"{float(bound):.3g}"
    assert hash(bound) == hash(float(bound))


@pytest.mark.parametrize("safe", ["lower", "upper"])
def test_copies_keep_everything(safe: Literal["lower", "upper"]) -> None:
    bound = Bound(0.25, 0.5, safe=safe, method="by hand")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert parts(pickle.loads(pickle.dumps(bound, protocol))) == parts(bound)
    assert parts(copy.copy(bound)) == parts(copy.deepcopy(bound)) == parts(bound)
    assert parts(asdict(Holder(bound))["value"]) == parts(bound)
    assert json.loads(json.dumps(asdict(Holder(bound)))) == {"value": float(bound)}
    assert json.loads(json.dumps(bound.to_dict())) == {
        "value": float(bound), "lower": 0.25, "upper": 0.5, "method": "by hand",
    }  # fmt: skip


def test_what_a_guarantee_returns_survives_too() -> None:
    guarantee = STREAM.guarantee()
    for bound in (guarantee.epsilon(1e-5), guarantee.delta(0.5), guarantee.fnr(0.01), guarantee.advantage()):
        assert parts(pickle.loads(pickle.dumps(bound))) == parts(bound)
        assert bound.lower <= bound.upper
        assert bound.method
        assert all(math.isfinite(x) for x in (bound.lower, bound.upper))
    mu = guarantee.gdp_mu()
    assert parts(pickle.loads(pickle.dumps(mu))) == parts(copy.deepcopy(mu)) == parts(mu)
    assert pickle.loads(pickle.dumps(mu)).regret == copy.copy(mu).regret == mu.regret
