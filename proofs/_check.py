"""What a proof's steps are checked with; each function raises :class:`Unproved` with the step's name."""

import random
from collections.abc import Callable

import mpmath as mp
import sympy

DIGITS = 40


class Unproved(AssertionError):
    """A step of a proof does not hold."""


def equal(step: str, left: object, right: object = 0) -> None:
    """Check symbolically that two expressions are the same."""
    difference = sympy.sympify(left) - sympy.sympify(right)
    if difference != 0 and sympy.simplify(difference) != 0 and sympy.simplify(difference.rewrite(sympy.exp)) != 0:
        raise Unproved(f"{step}: {left} is not {right}")


def positive(step: str, expression: sympy.Expr) -> None:
    """Check that sympy finds an expression positive from the assumptions on its symbols alone."""
    if not any(form.is_positive for form in _forms(expression)):
        raise Unproved(f"{step}: {expression} is not known to be positive")


def not_negative(step: str, expression: sympy.Expr) -> None:
    """Check that sympy finds an expression not negative from the assumptions on its symbols alone."""
    if not any(form.is_nonnegative for form in _forms(expression)):
        raise Unproved(f"{step}: {expression} is not known to be at least 0")


def _forms(expression: sympy.Expr) -> tuple[sympy.Expr, ...]:
    return expression, sympy.factor(expression), sympy.expand(expression)


def close(step: str, left: mp.mpf, right: mp.mpf, digits: int = DIGITS) -> None:
    """Check that two numbers agree to so many digits, relatively, or absolutely where they are below 1."""
    if abs(left - right) > mp.mpf(10) ** -digits * max(1, abs(left), abs(right)):
        raise Unproved(f"{step}: {left} is not {right}")


def at_most(step: str, left: mp.mpf, right: mp.mpf) -> None:
    """Check left <= right, but for rounding 10 digits short of the working precision."""
    if not left <= right + mp.mpf(10) ** (10 - mp.mp.dps) * max(1, abs(left), abs(right)):
        raise Unproved(f"{step}: {left} exceeds {right}")


def instances(step: str, claim: Callable[..., bool], *ranges: tuple[float, float], count: int = 100) -> None:
    """Check a claim, numerically, on random instances: one 50-digit number from each of ``ranges``."""
    draw = random.Random(step)
    with mp.workdps(50):
        for _ in range(count):
            values = [mp.mpf(draw.uniform(low, high)) for low, high in ranges]
            if not claim(*values):
                raise Unproved(f"{step}: fails at {[mp.nstr(value, 17) for value in values]}")
