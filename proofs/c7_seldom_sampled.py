"""A record that is hardly ever sampled is hardly ever exposed, however little noise there is.

Claim. Let p be the probability that a record is sampled in any of the steps. For every eps >= 0,
    delta(eps) <= p · delta'(eps),    delta' that of the same steps without sampling.

Assumptions. Whether a step samples the record does not depend on the noise, nor on the other records.

Source. Joint convexity of the hockey-stick divergence; "Poisson sampling, independent by record": theory P1.

Code. raptor_acct.accountants.sampled.SampledProfile
"""

import itertools
from fractions import Fraction

import sympy as sp

from proofs._check import Unproved, equal, not_negative


def convexity() -> None:
    """H(P, Q) = Σ (P - αQ)₊ is convex in the pair (symbolic).

    Conditional on which steps sample the record, both laws are those of the steps without sampling that remain; so
    H of the mixtures, with the same weights on both sides, is at most the mean of H over what is sampled.
    """
    u, v = sp.symbols("u v", nonnegative=True)
    # (a + b)₊ <= a₊ + b₊: with both above 0, with both below, and with one on either side.
    equal("u, v", sp.Max(u, 0) + sp.Max(v, 0) - sp.Max(u + v, 0), 0)
    equal("-u, -v", sp.Max(-u, 0) + sp.Max(-v, 0) - sp.Max(-u - v, 0), 0)
    gap = (sp.Max(u, 0) + sp.Max(-v, 0) - sp.Max(u - v, 0)).rewrite(sp.Piecewise)
    equal("u, -v", gap, sp.Min(u, v).rewrite(sp.Piecewise))
    not_negative("the smaller of u and v", sp.Min(u, v))


def never() -> None:
    """Not sampled at all, both laws are the same and H is 0; sampled less often, it is no larger (symbolic)."""
    p, excess = sp.symbols("p excess", positive=True)
    equal("(p - (1 + excess) p)₊", sp.Max(0, sp.expand(p - (1 + excess) * p)), 0)
    # A release left out is summed over, and (Σ x)₊ <= Σ x₊ by the first step.


def example() -> None:
    """Two steps of randomised response, every event, exactly."""
    keep, q = Fraction(4, 5), Fraction(1, 10)
    without, with_it = {0: 1 - keep, 1: keep}, {0: keep, 1: 1 - keep}
    sampled = {x: (1 - q) * without[x] + q * with_it[x] for x in (0, 1)}
    outcomes = list(itertools.product((0, 1), repeat=2))

    def divergence(upper: dict[int, Fraction], lower: dict[int, Fraction], alpha: Fraction) -> Fraction:
        return sum(
            (max(Fraction(0), upper[x] * upper[y] - alpha * lower[x] * lower[y]) for x, y in outcomes), Fraction(0)
        )

    ever = 1 - (1 - q) ** 2
    for alpha in (Fraction(1), Fraction(5, 4), Fraction(2), Fraction(10)):
        for pair, bound in (((sampled, without), (with_it, without)), ((without, sampled), (without, with_it))):
            if divergence(*pair, alpha) > ever * divergence(*bound, alpha):
                raise Unproved(f"seldom sampled, at {alpha}")


def prove() -> None:
    """Check every step."""
    convexity()
    never()
    example()


if __name__ == "__main__":
    prove()
    print("c7_seldom_sampled: proved")
