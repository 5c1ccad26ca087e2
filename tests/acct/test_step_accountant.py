"""The accountant for Opacus' code: its history, its state, its hook, and numbers beside those of Opacus 1.6."""

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor_acct import StepAccountant, SubsampledGaussian, sequential_across_streams

Run = tuple[float, float, int]


def accountant(*runs: Run) -> StepAccountant:
    result = StepAccountant()
    for noise, rate, steps in runs:
        for _ in range(steps):
            result.step(noise_multiplier=noise, sample_rate=rate)
    return result


# get_epsilon of Opacus 1.6.0 after these steps: of RDPAccountant, and of PRVAccountant with its eps_error of 0.01.
OPACUS = [
    ([(1.0, 0.01, 1000)], 1e-5, 2.1013652716430564, 1.8383716370172951),
    ([(0.8, 0.02, 200), (1.2, 0.01, 300), (0.8, 0.02, 100)], 1e-6, 5.251160095199743, 4.565785588101054),
    ([(2.0, 0.1, 50)], 1e-4, 1.560028881318573, 1.3776289107659512),
]


@pytest.mark.parametrize(("runs", "delta", "rdp", "prv"), OPACUS)
def test_epsilon_beside_opacus(runs: list[Run], delta: float, rdp: float, prv: float) -> None:
    epsilon = accountant(*runs).get_epsilon(delta)
    assert prv - 0.02 <= epsilon <= prv < rdp


@pytest.mark.parametrize(("runs", "delta", "rdp", "prv"), OPACUS)
def test_history_is_that_of_opacus(runs: list[Run], delta: float, rdp: float, prv: float) -> None:
    steps = accountant(*runs)
    assert steps.history == runs
    assert len(steps) == sum(count for _, _, count in runs)


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0]), st.sampled_from([0.1, 0.2]))))
def test_only_consecutive_equal_steps_are_merged(steps: list[tuple[float, float]]) -> None:
    history = accountant(*((noise, rate, 1) for noise, rate in steps)).history
    assert [(noise, rate) for noise, rate, count in history for _ in range(count)] == steps
    assert all(one[:2] != two[:2] for one, two in pairwise(history))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_epsilon_is_that_of_the_streams(adjacency: Any) -> None:
    steps = StepAccountant(adjacency=adjacency)
    steps.history = [(1.0, 0.1, 3), (2.0, 1.0, 2), (1.0, 0.1, 4)]
    streams = [
        SubsampledGaussian(num_steps=7, sampling_probability=0.1, noise_multiplier=1.0),
        SubsampledGaussian(num_steps=2, sampling_probability=1.0, noise_multiplier=2.0),
    ]
    expected = sequential_across_streams(streams).guarantee(adjacency).epsilon(1e-5)
    assert steps.get_epsilon(1e-5) == pytest.approx(expected, rel=1e-9)


def test_a_query_does_not_freeze_the_accountant() -> None:
    steps = accountant((1.0, 0.1, 2))
    before = steps.get_epsilon(1e-5)
    steps.step(noise_multiplier=1.0, sample_rate=0.1)
    assert steps.get_epsilon(1e-5) == accountant((1.0, 0.1, 3)).get_epsilon(1e-5) > before
    steps.history = [(1.0, 0.1, 2)]
    assert steps.get_epsilon(1e-5) == before


def test_before_the_first_step_nothing_is_spent() -> None:
    assert (len(StepAccountant()), StepAccountant().get_epsilon(1e-5), StepAccountant().history) == (0, 0.0, [])


def test_the_history_is_a_copy() -> None:
    steps = accountant((1.0, 0.1, 2))
    steps.history.clear()
    assert len(steps) == 2


@dataclass
class Optimizer:
    """The two attributes of Opacus' DPOptimizer that its hooks read."""

    noise_multiplier: float
    accumulated_iterations: int


def test_the_hook_counts_accumulated_batches_as_opacus_does() -> None:
    steps = StepAccountant()
    hook = steps.get_optimizer_hook_fn(sample_rate=0.125)
    for batches in (1, 1, 2, 2, 1):
        hook(Optimizer(1.1, batches))
    assert steps.history == [(1.1, 0.125, 2), (1.1, 0.25, 2), (1.1, 0.125, 1)]  # what Opacus 1.6.0 recorded
    with pytest.raises(ValueError, match=r"expected sample_rate in .*got sample_rate=1\.125"):
        hook(Optimizer(1.1, 9))
    assert len(steps) == 5


@pytest.mark.parametrize("through", [lambda x: x, lambda x: json.loads(json.dumps(x))], ids=["as is", "through JSON"])
def test_state_round_trip(through: Any) -> None:
    steps = StepAccountant(adjacency="replace_one")
    steps.history = [(1.0, 0.1, 2), (2.0, 0.1, 1)]
    other = StepAccountant(adjacency="replace_one")
    other.load_state_dict(through(steps.state_dict()))
    assert other.history == steps.history
    assert other.state_dict() == {"history": steps.history, "mechanism": "raptor", "adjacency": "replace_one"}


def test_state_goes_into_a_given_mapping() -> None:
    state = {"other": 1}
    assert accountant((1.0, 0.1, 2)).state_dict(state) is state
    assert state == {"other": 1, "history": [(1.0, 0.1, 2)], "mechanism": "raptor", "adjacency": "add_remove"}


@pytest.mark.parametrize("mechanism", ["rdp", "prv", "gdp"])
def test_a_state_of_opacus_is_taken_over(mechanism: str) -> None:
    steps = StepAccountant()
    steps.load_state_dict({"history": [(1.0, 0.01, 3), (1.0, 0.01, 2), (2.0, 0.01, 1)], "mechanism": mechanism})
    assert steps.history == [(1.0, 0.01, 5), (2.0, 0.01, 1)]


GOOD = {"history": [[1.0, 0.1, 2]], "mechanism": "raptor", "adjacency": "add_remove"}
DAMAGED: dict[str, tuple[Any, str]] = {
    "None": (None, "expected state_dict"),
    "a list": ([1], "expected state_dict"),
    "empty": ({}, "expected state_dict"),
    "no history": ({"mechanism": "raptor"}, "expected state_dict"),
    "no mechanism": ({"history": []}, "expected state_dict"),
    "mechanism": ({**GOOD, "mechanism": "other"}, "expected mechanism"),
    "adjacency": ({**GOOD, "adjacency": "replace_one"}, "expected adjacency"),
    "history": ({**GOOD, "history": "abc"}, "expected history"),
    "pair": ({**GOOD, "history": [[1.0, 0.1]]}, "expected history"),
    "noise": ({**GOOD, "history": [[1.0, 0.1, 2], [0.0, 0.1, 2]]}, "noise_multiplier=0.0"),
    "text": ({**GOOD, "history": [["1.0", 0.1, 2]]}, "noise_multiplier='1.0'"),
    "rate": ({**GOOD, "history": [[1.0, 1.1, 2]]}, "sample_rate=1.1"),
    "steps": ({**GOOD, "history": [[1.0, 0.1, 0]]}, "num_steps=0"),
    "steps 1.5": ({**GOOD, "history": [[1.0, 0.1, 1.5]]}, "num_steps=1.5"),
}


@pytest.mark.parametrize(("state", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_state_is_refused_and_changes_nothing(state: Any, message: str) -> None:
    steps = accountant((3.0, 0.3, 1))
    with pytest.raises(ValueError, match="expected") as error:
        steps.load_state_dict(state)
    assert message in str(error.value)
    assert steps.history == [(3.0, 0.3, 1)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_multiplier", 0), ("noise_multiplier", float("nan")), ("sample_rate", 0.0), ("sample_rate", 1.3)],
)
def test_a_bad_step_is_refused_at_once(name: str, value: float) -> None:
    steps = StepAccountant()
    with pytest.raises(ValueError, match=f"expected {name} in .*got {name}={value}"):
        steps.step(**{"noise_multiplier": 1.0, "sample_rate": 0.1, name: value})
    assert len(steps) == 0


def test_other_bad_arguments() -> None:
    with pytest.raises(ValueError, match="expected adjacency"):
        StepAccountant(adjacency="zero_out")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected sample_rate"):
        StepAccountant().get_optimizer_hook_fn(2.0)
    with pytest.raises(ValueError, match=r"expected delta in \(0, 1\)"):
        StepAccountant().get_epsilon(0)
