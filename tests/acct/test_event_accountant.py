"""The accountant for dp-accounting's events: the same numbers as the plan's guarantee, and refusals in that style."""

import math
import subprocess
import sys
import time

import dp_accounting as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct import EventAccountant, Mechanism, RolePlan, SubsampledGaussian, calibrate_sigma
from raptor_acct.adjacency import Adjacency

RELATIONS: dict[Adjacency, dp.NeighboringRelation] = {
    "add_remove": dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": dp.NeighboringRelation.REPLACE_ONE,
}
STREAMS = st.builds(
    SubsampledGaussian,
    num_steps=st.integers(1, 40),
    sampling_probability=st.sampled_from([0.01, 0.1, 1.0]),
    noise_multiplier=st.floats(1.0, 5.0),
)
PLANS: st.SearchStrategy[Mechanism] = STREAMS | st.builds(RolePlan, shared=STREAMS, expert=STREAMS)
STEP = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.5))


def epsilon(event: dp.DpEvent, delta: float = 1e-5, relation: str = "add_remove") -> float:
    return EventAccountant(RELATIONS[relation]).compose(event).get_epsilon(delta)  # type: ignore[index, no-any-return]


@settings(max_examples=10, deadline=None)
@given(plan=PLANS, adjacency=st.sampled_from(list(RELATIONS)))
def test_a_plans_event_gives_the_plans_guarantee(plan: Mechanism, adjacency: Adjacency) -> None:
    guarantee = plan.guarantee(adjacency)
    accountant = EventAccountant(RELATIONS[adjacency]).compose(plan.to_dp_event())
    assert accountant.get_epsilon(1e-6) == pytest.approx(guarantee.epsilon(1e-6), rel=2e-4)
    assert accountant.get_delta(1.0) == pytest.approx(guarantee.delta(1.0), rel=1e-2, abs=1e-9)


def test_the_order_and_shape_of_a_composition_make_no_difference() -> None:
    other = dp.GaussianDpEvent(4.0)
    shapes = [
        dp.ComposedDpEvent([STEP, STEP, other, dp.NoOpDpEvent()]),
        dp.ComposedDpEvent([STEP, dp.SelfComposedDpEvent(dp.ComposedDpEvent([other]), 1), STEP]),
        dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(STEP, 2), 1),
    ]
    accountant = EventAccountant().compose(STEP).compose(other).compose(STEP)
    assert epsilon(shapes[0]) == epsilon(shapes[1]) == accountant.get_epsilon(1e-5) > epsilon(shapes[2])
    assert accountant.ledger == dp.ComposedDpEvent([STEP, other, STEP])


def test_a_query_does_not_freeze_the_accountant() -> None:
    accountant = EventAccountant().compose(STEP)
    before = accountant.get_epsilon(1e-5)
    assert accountant.compose(STEP, 2).get_epsilon(1e-5) == epsilon(dp.SelfComposedDpEvent(STEP, 3)) > before


def test_several_gaussians_on_one_sample_are_one_mechanism() -> None:
    parts = [dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 2), dp.GaussianDpEvent(3.0)]
    noise = (2 / 2.0**2 + 1 / 3.0**2) ** -0.5
    together = dp.PoissonSampledDpEvent(0.01, dp.ComposedDpEvent(parts))
    one = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(noise))
    assert epsilon(together) == pytest.approx(epsilon(one), rel=1e-9)
    independent = dp.ComposedDpEvent([dp.PoissonSampledDpEvent(0.01, part) for part in parts])
    assert epsilon(together) > epsilon(independent)


def test_same_batch_of_theory_p4() -> None:
    both = dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.GaussianDpEvent(1.0)])
    assert epsilon(dp.PoissonSampledDpEvent(0.01, both)) == pytest.approx(0.815963, rel=2e-4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_dp_accountings_own_accountant_agrees(relation: str) -> None:
    event = dp.ComposedDpEvent([dp.SelfComposedDpEvent(STEP, 20), dp.GaussianDpEvent(3.0)])
    referee = dp.pld.PLDAccountant(RELATIONS[relation]).compose(event)  # type: ignore[index]
    assert epsilon(event, relation=relation) == pytest.approx(referee.get_epsilon(1e-5), rel=3e-4)
    ours = EventAccountant(RELATIONS[relation]).compose(event)  # type: ignore[index]
    assert ours.get_delta(2.0) == pytest.approx(referee.get_delta(2.0), rel=2e-3)


@pytest.mark.parametrize(
    "event",
    [
        dp.NonPrivateDpEvent(),
        dp.GaussianDpEvent(0),
        dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(0.0)),
        dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.NonPrivateDpEvent()])),
        dp.ComposedDpEvent([STEP, dp.SelfComposedDpEvent(dp.NonPrivateDpEvent(), 3)]),
    ],
    ids=str,
)
def test_what_is_not_private_has_no_finite_epsilon(event: dp.DpEvent) -> None:
    accountant = EventAccountant().compose(event)
    assert (accountant.get_epsilon(1e-5), accountant.get_delta(10.0)) == (math.inf, 1)
    assert dp.pld.PLDAccountant().compose(dp.NonPrivateDpEvent()).get_delta(10.0) == 1


@pytest.mark.parametrize(
    "event",
    [
        dp.NoOpDpEvent(),
        dp.PoissonSampledDpEvent(0, dp.GaussianDpEvent(0.0)),
        dp.PoissonSampledDpEvent(0.1, dp.NoOpDpEvent()),
        dp.SelfComposedDpEvent(dp.ComposedDpEvent([]), 3),
    ],
    ids=str,
)
def test_what_releases_nothing_spends_nothing(event: dp.DpEvent) -> None:
    accountant = EventAccountant().compose(event)
    assert accountant.get_epsilon(1e-5) == accountant.get_delta(0.0) == accountant.get_epsilon(0.0) == 0


def test_the_ends_of_delta() -> None:
    accountant = EventAccountant().compose(STEP)
    assert (accountant.get_epsilon(0.0), accountant.get_epsilon(1.0)) == (math.inf, 0.0)


UNSUPPORTED = {
    "Laplace": (dp.LaplaceDpEvent(1.0), "expected Gaussians"),
    "no event known": (dp.UnsupportedDpEvent(), "expected Gaussians"),
    "without replacement": (dp.SampledWithoutReplacementDpEvent(10, 1, dp.GaussianDpEvent(1.0)), "expected Gaussians"),
    "sample in a sample": (dp.PoissonSampledDpEvent(0.1, STEP), "another Poisson sample"),
    "Laplace inside": (dp.ComposedDpEvent([STEP, dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0))]), "Laplace"),
    "negative noise": (dp.GaussianDpEvent(-1.0), "noise_multiplier in [0, inf), got noise_multiplier=-1.0"),
    "little noise": (dp.GaussianDpEvent(1e-200), "noise_multiplier=1e-200"),
    "noise nan": (dp.GaussianDpEvent(math.nan), "noise_multiplier=nan"),
    "q too large": (dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(1.0)), "got sampling_probability=1.5"),
    "q too small": (dp.PoissonSampledDpEvent(1e-300, dp.GaussianDpEvent(1.0)), "got sampling_probability=1e-300"),
    "count -1": (dp.ComposedDpEvent([STEP, dp.SelfComposedDpEvent(STEP, -1)]), "count=-1"),
    "count 2.5": (dp.ComposedDpEvent([dp.SelfComposedDpEvent(STEP, 2.5)]), "count=2.5"),  # type: ignore[arg-type]
    "crowded sample": (
        dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 10**6)),
        "all releases of one sample",
    ),
}


@pytest.mark.parametrize(("event", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_anything_else_is_unsupported(event: dp.DpEvent, message: str) -> None:
    accountant = EventAccountant()
    assert not accountant.supports(event)
    with pytest.raises(dp.UnsupportedEventError) as error:
        accountant.compose(event)
    assert message in str(error.value)
    assert accountant.get_epsilon(1e-5) == 0
    assert accountant.supports(STEP)


def test_dp_accountings_calibration_takes_it() -> None:
    noise = dp.calibrate_dp_mechanism(
        EventAccountant,
        lambda sigma: dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(sigma)), 20),
        target_epsilon=1.0,
        target_delta=1e-5,
        tol=1e-4,
    )
    assert noise == pytest.approx(calibrate_sigma(1.0, 1e-5, q=0.05, steps=20), rel=1e-3)
    steps = dp.calibrate_dp_mechanism(
        lambda: EventAccountant(RELATIONS["replace_one"]),
        lambda count: dp.SelfComposedDpEvent(dp.GaussianDpEvent(10.0), count),
        3.0,
        1e-5,
        dp.LowerEndpointAndGuess(1, 2),
        discrete=True,
    )
    assert isinstance(steps, int)
    spent = [SubsampledGaussian(num_steps=steps + i, sampling_probability=1, noise_multiplier=10.0) for i in (0, 1)]
    at, above = (stream.guarantee("replace_one").epsilon(1e-5) for stream in spent)
    assert at <= 3.0 < above


def test_ten_thousand_settings_take_no_time() -> None:
    event = dp.ComposedDpEvent([dp.GaussianDpEvent(1 + i / 1e4) for i in range(10_000)])
    started = time.process_time()
    assert EventAccountant().supports(event)
    assert time.process_time() - started < 1.0


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="expected neighboring_relation"):
        EventAccountant(dp.NeighboringRelation.REPLACE_SPECIAL)
    accountant = EventAccountant().compose(STEP)
    with pytest.raises(ValueError, match=r"expected target_delta in \[0, 1\], got target_delta=2"):
        accountant.get_epsilon(2)
    with pytest.raises(ValueError, match=r"expected target_epsilon in \[0, inf\)"):
        accountant.get_delta(-1.0)
    with pytest.raises(TypeError):
        accountant.compose("event")


def test_the_package_does_not_import_dp_accounting_until_asked() -> None:
    code = (
        "import sys, raptor_acct, raptor_acct.cli; assert 'dp_accounting' not in sys.modules; "
        "raptor_acct.EventAccountant; assert 'dp_accounting' in sys.modules; "
        "assert 'EventAccountant' in raptor_acct.__all__; "
        "assert not hasattr(raptor_acct, 'EventAcountant')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
