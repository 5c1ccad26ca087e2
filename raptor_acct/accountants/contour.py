"""Delta as a contour integral: exact up to certified errors, for many steps of sampled streams.

With K(s) = Σ count · log M(s), the sum over the streams of their log-MGFs, and any c > 0,

    delta(eps) = 1/(2πi) ∫ exp(K(s) - s eps) / (s (s + 1)) ds    on Re s = c.

The integral is a trapezoid sum on c + ikh. By Poisson's summation it equals, for the period Λ = 2π/h, the sum over all
integers m of exp(m c Λ) delta(eps + mΛ): it errs upwards only, and what it errs is at most

    1 / (exp(cΛ) - 1)  +  exp(B(s)) / (exp((s - c)Λ) - 1)    for any s > c,
    B(s) = K(s) - s eps + s log s - (1 + s) log(1 + s),

since delta <= 1 to the left and delta(x) <= exp(B(s) - s (x - eps)) to the right. The nodes left out, the quadrature
of M and rounding are bounded too; proofs/ derives each. Method: Lugannani and Rice's inversion made two-sided.
"""

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._fade import Array
from raptor_acct.accountants._line import NO_TABLE, Line, Plan, Table, lines, table_about
from raptor_acct.accountants._log_mgf import TooFine
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._tilted_loss import ROUNDING, Complex, TiltedLoss
from raptor_acct.accountants._truncation import truncate

_MOST_TERMS = 1 << 26  # of the sums over nodes of both kinds, by stream
_MOST_PART_TERMS = 1 << 29  # over all streams, where that is more and only a part is asked for
_UNKNOWN = 1e6  # of an error that has no bound
_HOPELESS = 60.0  # log of the scale beyond which the terms cancel to nothing


@dataclass(frozen=True, kw_only=True)
class Chernoff:
    """What tilts alone say, where delta is far below anything that is asked for.

    Attributes:
        table: The tilts.
        outside: Mass that counts as delta.
    """

    table: Table
    outside: float

    def delta(self, eps: float) -> tuple[float, float]:
        """Return 0 and an upper bound on delta at ``eps`` >= 0."""
        best = float(np.min(self.table.chernoff(eps), initial=0.0))
        return 0.0, min(1.0, math.exp(min(0.0, best)) + self.outside)


@dataclass(frozen=True, kw_only=True)
class Contour:
    """The integrand on one line, made for an epsilon but valid at any.

    Attributes:
        c: Where the line crosses the real axis.
        log_mgf: K(c).
        spacing: h.
        exponents: K(c + ikh) - K(c), shape [nodes].
        kernel: 1 / (s (s + 1)) at the nodes, times h/π, the first one halved.
        part: The share of exp(K) that is asked for, shape [nodes]; 1 where it is the whole.
        part_unsure: Bound on its error, in the same form.
        largest: Log of a bound on the modulus of M(c + ikh) / M(c) with all errors of M, shape [nodes].
        rounding: The same for K(c).
        left_out: Bound on the nodes left out, relative to exp(K(c) - c eps).
        table: Tilts about c.
        outside: Mass that counts as delta.
        mass: Bound on the mass of what is asked for.
    """

    c: float
    log_mgf: float
    spacing: float
    exponents: Complex
    kernel: Complex
    part: Complex
    part_unsure: Array
    largest: Array
    rounding: float
    left_out: float
    table: Table
    outside: float
    mass: float

    def delta(self, eps: float) -> tuple[float, float]:
        """Return a lower and an upper bound on delta at ``eps`` >= 0."""
        bounds = self.table.chernoff(eps)
        upper = min(1.0, math.exp(min(0.0, float(bounds.min()))) + self.outside)
        exponent = self.log_mgf - self.c * eps
        if exponent > _HOPELESS:
            return 0.0, upper
        t = self.spacing * np.arange(len(self.kernel))
        weights = self.kernel * self.part
        total = float(((np.exp(self.exponents - 1j * t * eps) * weights).real).sum())
        largest = self.largest + ROUNDING * (1 + t * eps + np.abs(self.exponents))
        modulus = np.exp(np.minimum(largest, 700.0))
        unsure = float((np.abs(weights) * modulus * -np.expm1(self.exponents.real - largest)).sum())
        unsure += float((np.abs(self.kernel) * np.minimum(modulus, 1e30) * self.part_unsure).sum())
        unsure += abs(total) * math.expm1(self.rounding + ROUNDING * (1 + self.c * eps)) + self.left_out
        scale, period = math.exp(exponent), 2 * math.pi / self.spacing
        aliases = self.mass / math.expm1(min(self.c * period, 700.0))
        right = self.table.tilts > self.c
        excess = (self.table.tilts[right] - self.c) * period
        aliases += float((np.exp(np.minimum(bounds[right] - excess, 700.0)) / -np.expm1(-excess)).min())
        if not math.isfinite(total + unsure + aliases):
            return 0.0, upper
        lower = max(0.0, scale * (total - unsure) - aliases)
        return min(lower, upper), min(upper, max(lower, scale * (total + unsure) + self.outside))


def contour(
    streams: Sequence[tuple[float, float, int]],
    direction: Direction,
    near: float,
    expected: float,
) -> Contour | Chernoff:
    """Return the integrand on a line made for epsilons about ``near``.

    Args:
        streams: (noise multiplier, sampling probability, number of steps) of each; the probability may be 1.
        direction: Which record is added, removed or replaced.
        near: The epsilon.
        expected: About what delta will be; events of a mass far below it are left out.

    Returns:
        The integrand; or, where it falls off too slowly for the bounds to bite, Chernoff's bound alone.
    """
    return inverted(Plan(streams, direction, expected), near, expected)


def inverted(plan: Plan, near: float, expected: float) -> Contour | Chernoff:
    """Return the integrand of a plan; see :func:`contour`."""
    try:
        table = table_about(plan, near)
    except TooFine:
        return Chernoff(table=NO_TABLE, outside=0.0)
    for line in itertools.chain(lines(plan, table, near, expected), lines(plan, table, near, 1.0)):
        with suppress(TooFine):
            cut = truncate(plan, line)
            if cut is not None:
                return _integrand(plan, line, *cut)
    return Chernoff(table=table, outside=plan.outside)


def _integrand(plan: Plan, line: Line, last: float, left_out: float) -> Contour:
    """Return the integrand at the nodes of a line up to t = ``last``."""
    count = math.ceil(last / line.spacing)
    t: Array = line.spacing * np.arange(count + 1, dtype=np.float64)
    exponents = -0.5 * plan.gaussian * t**2 + 1j * t * plan.gaussian * (line.c + 0.5)
    log_mgf = 0.5 * plan.gaussian * line.c * (line.c + 1)
    largest, rounding = exponents.real.copy(), ROUNDING * abs(log_mgf)
    digits = math.log(plan.steps) - line.log_allowed - line.log_part
    most = max(_MOST_TERMS, _MOST_PART_TERMS // plan.streams if plan.partial else 0) // len(t)
    without, without_unsure = np.zeros_like(exponents), np.zeros_like(t)  # without large losses, if asked for
    for (steps, number), log_m in zip(plan.blocks, line.log_mgfs, strict=True):
        loss = steps.tilted(line.c, log_m, t[-1], digits, most=most)
        shares = (loss.share, loss.large) if plan.partial else (loss.share,)
        ratio, *of_large = loss.on_grid(line.spacing, len(t), *shares)
        log_ratio = _log1p(ratio)
        exponents += (number * log_ratio).sum(axis=0) + 1j * t * (number * loss.mean).sum()
        unsure = 2 * (loss.error + loss.loss_rounding * t) / np.maximum(np.abs(1 + ratio), 1e-300)
        for turned in of_large:
            log, log_unsure = _without_large(loss, turned, ratio, unsure, t)
            without += (number * log).sum(axis=0)
            without_unsure += (number * log_unsure).sum(axis=0)
        largest += (number * (log_ratio.real + np.log1p(unsure))).sum(axis=0)
        log_mgf += float((number * loss.log_mgf).sum())
        rounding += float((number * (2 * loss.error + loss.mgf_rounding)).sum())
    s = line.c + 1j * t
    kernel: Complex = (line.spacing / math.pi / (s * (1 + s))).astype(np.complex128)
    kernel[0] /= 2
    return Contour(
        c=line.c,
        log_mgf=log_mgf,
        spacing=line.spacing,
        exponents=exponents,
        kernel=kernel,
        part=-_expm1(without) if plan.partial else np.ones_like(kernel),
        part_unsure=np.exp(np.minimum(without.real, 300.0)) * np.expm1(np.minimum(without_unsure, 300.0)),
        largest=largest,
        rounding=rounding,
        left_out=left_out * math.exp(line.log_part),
        table=line.table,
        outside=plan.outside,
        mass=plan.mass,
    )


def _without_large(loss: TiltedLoss, turned: Complex, ratio: Complex, unsure: Array, t: Array) -> tuple[Complex, Array]:
    """Return log(1 - V / M) for what large losses contribute, V, and a bound on its error, shape [streams, nodes]."""
    share = (turned + loss.large.sum(axis=1, keepdims=True)) / (1 + ratio)
    log, (rounding, growing) = _log1p(-share), loss.large_rounding
    off = 2 * (loss.error + rounding + growing * t) / np.maximum(np.abs(1 + ratio), 1e-300) + np.abs(share) * unsure
    off = off / np.maximum(np.abs(1 - share), 1e-300)
    return log, np.where(off < 0.5, 2 * off, _UNKNOWN) + ROUNDING * np.abs(log)


def _log1p(x: Complex) -> Complex:
    """Return log(1 + x), exact also where x is tiny (numpy's is not in its real part); finite at -1."""
    square = np.maximum(x.real * (2 + x.real) + x.imag**2, -1 + 2.0**-53)
    result: Complex = 0.5 * np.log1p(square) + 1j * np.arctan2(x.imag, 1 + x.real)
    return result


def _expm1(z: Complex) -> Complex:
    """Return exp(z) - 1, exact relative to its size, which numpy does not promise."""
    real = np.expm1(z.real) * np.cos(z.imag) - 2 * np.sin(z.imag / 2) ** 2
    result: Complex = real + 1j * np.exp(z.real) * np.sin(z.imag)
    return result
