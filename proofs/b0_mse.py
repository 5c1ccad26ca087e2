"""What a release divided by a public denominator errs by: bias², sampling variance and noise variance, exactly.

Claim. Expert e owns n records with clipped gradients x_1, …, x_n, mean c̄ and mean squared norm m. Each is in the
batch with probability q, independently; g = (Σ of the sampled x_i + Z)/D, where Z has mean 0 and variance σ²C² in
each of d coordinates and does not depend on the batch. With B = qN and n = Nπ,
    E‖g - c̄‖² = (Bπ/D - 1)²‖c̄‖² + (Bπ/D²)(1 - q) m + (σC/D)² d,
and the three terms are ‖E g - c̄‖², the variance that the coins alone cause, and the noise's.

Proof. M_n(t) = E‖Σ b_i x_i - t‖² = ‖qΣx_i - t‖² + q(1 - q)Σ‖x_i‖² for every vector t, by induction over n: the last
coin gives M_{n+1}(t) = (1 - q) M_n(t) + q M_n(t - x). Then add Z, divide by D, and put t = D c̄.

Assumptions. D, q, C, σ do not depend on the batch. Owners may depend on earlier outputs: the statement is then one
about the next release, given them. Only the first two moments of Z are used. The target c̄ is the mean of the
*clipped* gradients: what clipping itself costs is not in here.

Found. An expert without records (π = 0) has no c̄, so theory.md defines no error for it. Its release is noise alone,
of mean square (σC/D)² d; that is its error if its target is taken to be 0. The claim is for 0 < D.

Source. theory.md §3.

Code. raptor_acct.mse.mse
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp

from proofs._check import equal, not_negative

Vector = tuple[Fraction, ...]


def terms(batch: Any, q: Any, share: Any, denominator: Any, mean2: Any, second: Any, noise2: Any) -> tuple[Any, ...]:
    """Return bias², sampling variance and noise variance: mean2 = ‖c̄‖², second = m, noise2 = σ²C²d."""
    owned = batch * share
    sampling = owned * (1 - q) * second / denominator**2
    return (owned / denominator - 1) ** 2 * mean2, sampling, noise2 / denominator**2


def over_experts(polynomial: sp.Expr, share: sp.Symbol, moments: Sequence[Any]) -> sp.Expr:
    """Sum a polynomial in π_e over the experts, for any number of them: linearly, from moments[k] = Σ_e π_e^k."""
    powers = sp.Poly(polynomial, share).terms()
    return sum((coefficient * moments[k] for (k,), coefficient in powers), sp.Integer(0))


def one_coin_more() -> None:
    """The induction's step, with u = qΣx_i - t and the new x, in any dimension: only their inner products matter."""
    q = sp.symbols("q", positive=True)
    uu, ux, xx, squares = sp.symbols("uu ux xx Q", real=True)  # squares = Σ‖x_i‖² so far

    def square(weight: Any) -> Any:
        """‖u + weight·x‖²."""
        return uu + 2 * weight * ux + weight**2 * xx

    out, taken = square(0) + q * (1 - q) * squares, square(1) + q * (1 - q) * squares
    equal("M_{n+1}(t)", (1 - q) * out + q * taken, square(q) + q * (1 - q) * (squares + xx))


def noise() -> None:
    """Noise of mean 0 adds its variance, coordinate by coordinate; the Gaussian has that variance."""
    z, rest = sp.symbols("z r", real=True)
    s = sp.symbols("s", positive=True)
    density = sp.exp(-(z**2) / (2 * s**2)) / (s * sp.sqrt(2 * sp.pi))
    equal("E(r + Z)²", sp.integrate(sp.expand((rest + z) ** 2) * density, (z, -sp.oo, sp.oo)), rest**2 + s**2)


def divided() -> None:
    """With t = D c̄, Σx_i = n c̄, Σ‖x_i‖² = n m, n = Nπ and q = B/N, the sum's error over D² is the claim."""
    records, batch, share, denominator = sp.symbols("N B pi D", positive=True)
    mean2, second, noise2 = sp.symbols("c m v", nonnegative=True)
    q, owned = batch / records, records * share
    of_sum = (q * owned - denominator) ** 2 * mean2 + q * (1 - q) * owned * second + noise2
    three = terms(batch, q, share, denominator, mean2, second, noise2)
    equal("E‖g - c̄‖²", of_sum / denominator**2, sum(three))
    of_mean = (q * owned / denominator - 1) ** 2 * mean2  # E g = (qn/D) c̄
    equal("bias² is ‖E g - c̄‖²", of_mean, three[0])
    rest = sp.symbols("rest", nonnegative=True)  # 1 - q
    not_negative("the other two", sum(terms(batch, 1 - rest, share, denominator, mean2, second, noise2)[1:]))


def batches(records: Sequence[Vector], q: Fraction) -> Iterator[tuple[Fraction, Vector]]:
    """Yield the probability and the sum of every batch, all 2^n."""
    for coins in itertools.product((0, 1), repeat=len(records)):
        weight = q ** sum(coins) * (1 - q) ** (len(coins) - sum(coins))
        yield weight, tuple(sum(b * x for b, x in zip(coins, axis, strict=True)) for axis in zip(*records, strict=True))


def every_batch() -> None:
    """Every batch and every noise of small instances, in rational arithmetic; the noise is ±s in each coordinate."""
    draw = random.Random(0)
    for owned, dimension, others in itertools.product((1, 2, 4), (1, 2, 3), (0, 3)):
        records = [tuple(Fraction(draw.randint(-5, 5), 7) for _ in range(dimension)) for _ in range(owned)]
        for q in (Fraction(1, 3), Fraction(9, 10), Fraction(1)):
            s, denominator = Fraction(draw.randint(1, 9), 4), Fraction(draw.randint(1, 9), 2)
            mean = tuple(sum(axis) / owned for axis in zip(*records, strict=True))
            signs = list(itertools.product((-s, s), repeat=dimension))
            errors = [
                weight * sum(((a + z) / denominator - c) ** 2 for a, z, c in zip(total, noise, mean, strict=True))
                for weight, total in batches(records, q)
                for noise in signs
            ]
            second = sum(x * x for record in records for x in record) / owned
            batch, share = q * (owned + others), Fraction(owned, owned + others)
            mean2, noise2 = sum(c * c for c in mean), s * s * dimension
            claimed = sum(terms(batch, q, share, denominator, mean2, second, noise2))
            equal("enumerated", sum(errors) / len(signs), claimed)


def prove() -> None:
    """Check every step."""
    one_coin_more()
    noise()
    divided()
    every_batch()


if __name__ == "__main__":
    prove()
    print("b0_mse: proved")
