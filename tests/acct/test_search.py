"""Root searches end on the safe side, close to the root, with few evaluations, or say what is wrong."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct._search import safe_root

SHAPES: dict[str, Callable[[float], float]] = {
    "line": lambda x: -x,
    "steeper and steeper": lambda x: -math.expm1(min(3 * x, 600)),
    "flatter and flatter": lambda x: math.expm1(-3 * x),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@given(root=st.floats(-9, 9), off=st.floats(-2, 2), width=st.floats(-10, -3).map(lambda x: 10.0**x))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_answer_was_evaluated_is_safe_and_just_above_the_root(
    shape: Callable[[float], float], root: float, off: float, width: float
) -> None:
    seen: dict[float, float] = {}

    def excess(x: float) -> float:
        seen[x] = shape(x - root)
        return seen[x]

    found = safe_root(excess, root + off, low=-12, high=12, width=width, below="low", above="high")
    assert seen[found] <= 0
    assert len(seen) < 60
    assert root - 1e-12 <= found <= root + 1.2 * width


def test_a_root_outside_the_range_is_named() -> None:
    with pytest.raises(ValueError, match="too low"):
        safe_root(lambda _: -1.0, 0.0, low=-1, high=1, width=1e-6, below="too low", above="")
    with pytest.raises(ValueError, match="too high"):
        safe_root(lambda _: 1.0, 0.0, low=-1, high=1, width=1e-6, below="", above="too high")


def test_a_start_at_the_root_is_not_searched_forever() -> None:
    for off in (0.0, 1e-9, 1e-7):
        seen: list[float] = []

        def excess(x: float, seen: list[float] = seen) -> float:
            seen.append(x)
            return -x

        assert safe_root(excess, off, low=-1, high=1, width=1e-6, below="", above="") <= 1e-6
        assert len(seen) < 20


@pytest.mark.parametrize("start", [-1.0, 0.3, 0.9])
def test_few_evaluations_for_a_smooth_function(start: float) -> None:
    count = 0

    def excess(x: float) -> float:
        nonlocal count
        count += 1
        return 2 - math.exp(x) - 0.3 * x

    safe_root(excess, start, low=-5, high=5, width=1e-9, below="", above="")
    assert count < 16
