"""The referee: dp-accounting's number, and what it is taken to say about ours."""

import json
import math

import pytest

from raptor_acct import RolePlan, SubsampledGaussian
from raptor_acct.adjacency import Adjacency
from raptor_acct.referee import Comparison, compare, referee_epsilon

STREAM = SubsampledGaussian(num_steps=20, sampling_probability=0.1, noise_multiplier=1.5)
PLAN = RolePlan(shared=STREAM, expert=SubsampledGaussian(num_steps=5, sampling_probability=1, noise_multiplier=4.0))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("mechanism", [STREAM, PLAN], ids=["stream", "plan"])
def test_the_engines_agree(mechanism: SubsampledGaussian | RolePlan, adjacency: Adjacency) -> None:
    epsilon = mechanism.guarantee(adjacency).epsilon(1e-6)
    found = compare(epsilon, mechanism, 1e-6, adjacency)
    assert found.verdict in {"agree", "within"}
    assert abs(found.relative_difference) < 3e-4
    assert found.epsilon == epsilon
    assert found.referee == referee_epsilon(mechanism, 1e-6, adjacency)


def test_a_coarser_interval_is_looser() -> None:
    assert referee_epsilon(STREAM, 1e-5, interval=0.1) > referee_epsilon(STREAM, 1e-5, interval=1e-3) * (1 + 1e-4)


def test_the_referee_under_reports_at_a_tiny_delta() -> None:
    # The truth is 3.93931, by a tilted FFT on ever finer grids (3.939521, 3.939361, 3.939320). Untilted, the tail is
    # rounding noise, whose size depends on the machine's FFT.
    stream = SubsampledGaussian(num_steps=10_000, sampling_probability=0.01, noise_multiplier=2.0)
    referee = referee_epsilon(stream, 1e-13)
    assert 3.9 < referee < 3.9393
    found = Comparison(epsilon=3.9394, lower=3.9393, referee=referee)
    assert found.verdict == "referee_below"
    assert "below our certified lower bound 3.939300" in found.explain()


@pytest.mark.parametrize(
    ("referee", "verdict", "difference"),
    [(2.002, "agree", 1e-3), (2.0, "agree", 0.0), (1.9999, "within", -5e-5), (1.8, "referee_below", -0.1)],
)
def test_verdicts(referee: float, verdict: str, difference: float) -> None:
    found = Comparison(epsilon=2.0, lower=1.999, referee=referee)
    assert found.verdict == verdict
    assert found.relative_difference == pytest.approx(difference)
    assert ("DISAGREE" in found.explain()) == (verdict == "referee_below")


def test_no_number_is_printed_that_json_lacks() -> None:
    found = Comparison(epsilon=2.0, lower=1.999, referee=math.inf)
    assert found.verdict == "no_answer"
    assert "no finite epsilon" in found.explain()
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["referee_epsilon"] is None
    assert Comparison(epsilon=0.0, lower=0.0, referee=0.1).to_dict()["relative_difference"] is None
    assert Comparison(epsilon=0.0, lower=0.0, referee=0.0).relative_difference == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((STREAM, 0.0), "expected delta in"),
        ((STREAM, 1e-5, "other"), "expected adjacency"),
        ((STREAM, 1e-5, "add_remove", 0.0), "expected interval in"),
    ],
)
def test_bad_arguments(arguments: tuple[SubsampledGaussian, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        referee_epsilon(*arguments)
