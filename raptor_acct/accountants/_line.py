"""Where the line of the contour integral runs: near the saddle point, by the Chernoff bounds of several tilts."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raptor_acct.accountants._fade import Array
from raptor_acct.accountants._log_mgf import Steps
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._step_loss import StepLoss

TOLERANCE = 1e-11  # of delta, for each of: aliases, nodes left out, quadrature
_OUTSIDE = 1e-12  # of delta
_NEGLIGIBLE = -130.0  # log of delta
_DIGITS = 28.0  # of tables, as logarithms
_SEARCHES, _TRIES = 40, 2
_FARTHEST_BELOW = 16.0  # in logs, that the errors allowed follow delta below Chernoff's bound
_SMALLEST_TILT = 1e-12  # reached where delta is nearly 1
_BLOCK = 256  # streams worked out together
_COARSE = 2.0 ** (np.arange(-4, 3) / 2)
_FARTHER = np.array([1.0, 2.0, 4.0, 8.0])
_FLAT = -0.2  # log of Chernoff's bound over all mass above which it hardly tells where the saddle point is
_CANCELLED = 2.0  # log of by how much the terms may cancel
_FINE = np.linspace(0.55, 1.45, 19)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Several tilts.

    Attributes:
        tilts: The tilts, shape [tilts].
        log_mgfs: log M of each stream there, by block, shape [streams, tilts].
        total: K, or its like for what the plan asks for, shape [tilts].
        log_part: The log of the share that this is in exp(K), 0 where it is the whole, shape [tilts].
        ends: Bound on the error of K from cutting the coordinate, shape [tilts].
    """

    tilts: Array
    log_mgfs: list[Array]
    total: Array
    log_part: Array
    ends: Array

    def chernoff(self, eps: float) -> Array:
        """Return the logarithm of the bound on delta at ``eps`` that each tilt gives, shape [tilts]."""
        s = self.tilts
        result: Array = self.total + self.ends - s * eps + s * np.log(s) - (1 + s) * np.log1p(s) + 0.01
        return result


NO_TABLE = Table(tilts=np.empty(0), log_mgfs=[], total=np.empty(0), log_part=np.empty(0), ends=np.empty(0))


def _spread(stream: tuple[float, float, int]) -> float:
    """Return the variance of one step's loss, about, where it is small."""
    sigma, q, _ = stream
    return q**2 * math.expm1(min(sigma**-2, 50.0))


def _whole(step: StepLoss) -> Steps:
    return Steps(step)


class Plan:
    """The streams, those without sampling taken together, the others in blocks of similar spread.

    Args:
        streams: (noise multiplier, sampling probability, number of steps) of each.
        direction: Which record is added, removed or replaced.
        expected: About what delta will be; events of a mass far below it are left out.
        steps_of: Makes the steps of a block. Where they take out large losses, the plan is what has one of them in it.
    """

    def __init__(
        self,
        streams: Sequence[tuple[float, float, int]],
        direction: Direction,
        expected: float,
        steps_of: Callable[[StepLoss], Steps] = _whole,
    ) -> None:
        distance = 2 if direction == "replace" else 1
        self.gaussian = sum(n * (distance / sigma) ** 2 for sigma, q, n in streams if q == 1)
        sampled = np.array(sorted((stream for stream in streams if stream[1] < 1), key=_spread)).reshape(-1, 3)
        self.streams = len(sampled)
        self.steps = float(sampled[:, 2].sum())
        parts = [sampled[i : i + _BLOCK] for i in range(0, len(sampled), _BLOCK)]
        rare = _OUTSIDE * expected / max(1.0, self.steps)
        self.outside = 1.5 * rare * self.steps
        made = [(StepLoss(part[:, 0], part[:, 1], direction, rare), part[:, 2:]) for part in parts]
        self.blocks = [(steps_of(step), number) for step, number in made]
        self.spread = self.gaussian + sum(n * _spread((sigma, q, n)) for sigma, q, n in streams if q < 1)
        self.partial = any(steps.large is not None for steps, _ in self.blocks)
        self._digits = _DIGITS + (math.log(self.steps / expected) if self.partial else 0.0)

    @cached_property
    def mass(self) -> float:
        """A bound on the upper mass of what the plan asks for."""
        masses = [float((number[:, 0] * steps.large_mass()).sum()) for steps, number in self.blocks if steps.large]
        return min(1.0, sum(masses)) if self.partial else 1.0

    @cached_property
    def log_mass(self) -> float:
        """About the log of that mass."""
        return float(self.table(np.array([_SMALLEST_TILT, 2 * _SMALLEST_TILT])).total[0]) if self.partial else 0.0

    @property
    def steepest(self) -> float:
        """About the tilt beyond which a stream is dominated by where its density fades out."""
        return min((float(steps.step.steepest.min()) for steps, _ in self.blocks), default=math.inf)

    def table(self, s: Array) -> Table:
        """Return what is known of several tilts."""
        tables = [steps.table(s, self._digits) for steps, _ in self.blocks]
        total, ends, without = 0.5 * self.gaussian * s * (s + 1), np.zeros_like(s), np.zeros_like(s)
        for (steps, number), (log_m, log_large) in zip(self.blocks, tables, strict=True):
            total = total + (number * log_m).sum(axis=0)
            ends += (number * np.logaddexp(0.0, steps.log_ends(s) - log_m)).sum(axis=0)
            without += (number * np.log1p(-np.exp(np.minimum(log_large, -1e-9)))).sum(axis=0)
        log_part = np.log(np.maximum(-np.expm1(without), 1e-300)) if self.partial else np.zeros_like(s)
        log_mgfs = [log_m for log_m, _ in tables]
        return Table(tilts=s, log_mgfs=log_mgfs, total=total + log_part, log_part=log_part, ends=ends)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Where the line runs, how fine its nodes are, and how small an error has to be.

    Attributes:
        c: Where it crosses the real axis.
        spacing: h.
        table: Tilts about c.
        log_mgfs: log M(c), by block, shape [streams, 1].
        means: About the tilted means of the losses, in the same form.
        variances: About the tilted variances, in the same form.
        log_part: The log of the share of exp(K(c)) that is asked for.
        log_allowed: Logarithm of the error allowed, relative to that share of exp(K(c) - c eps).
    """

    c: float
    spacing: float
    table: Table
    log_mgfs: list[Array]
    means: list[Array]
    variances: list[Array]
    log_part: float
    log_allowed: float


def table_about(plan: Plan, eps: float) -> Table:
    """Return tilts about the saddle point."""
    # The central limit theorem's saddle point is the root of spread (s + 1/2) - eps - 1/s.
    middle = (eps / plan.spread - 0.5) / 2
    root = math.hypot(middle, 1 / math.sqrt(plan.spread))
    saddle = middle + root if middle > 0 else 1 / plan.spread / (root - middle)
    saddle = max(min(saddle, plan.steepest), _SMALLEST_TILT)
    for _ in range(_SEARCHES):
        table = plan.table(saddle * _FINE)
        bound = table.chernoff(eps)
        best = int(np.argmin(bound))
        if 0 < best < len(bound) - 1 or bound[best] < _NEGLIGIBLE:
            break
        saddle = _coarse_saddle(plan, eps, float(table.tilts[best]))
    return table if bound[best] < _FLAT + plan.log_mass else _table_beyond(plan, eps, float(table.tilts[best]))


def _table_beyond(plan: Plan, eps: float, saddle: float) -> Table:
    """Return tilts as far above the saddle point as the terms do not yet cancel much: the aliases are smaller there."""
    least = math.inf
    for _ in range(_SEARCHES):
        bound = plan.table(saddle * _FARTHER).chernoff(eps)
        least = min(least, float(bound[0]))
        farthest = int(np.flatnonzero(bound < least + 1)[-1])
        saddle *= float(_FARTHER[farthest])
        if farthest < len(_FARTHER) - 1 or saddle > plan.steepest:
            break
    return plan.table(min(saddle, plan.steepest) * _FINE)


def _coarse_saddle(plan: Plan, eps: float, guess: float) -> float:
    """Return about the s with the least Chernoff bound."""
    for _ in range(_SEARCHES):
        table = plan.table(guess * _COARSE)
        bound = table.chernoff(eps)
        best = int(np.argmin(bound))
        guess = max(float(table.tilts[best]), _SMALLEST_TILT)
        if guess == _SMALLEST_TILT or 0 < best < len(bound) - 1 or bound[best] < _NEGLIGIBLE:
            break
    return guess


def lines(plan: Plan, table: Table, eps: float, expected: float) -> Iterator[Line]:
    """Yield lines about the saddle point, the one on which the least nodes are needed first.

    Where delta is ``expected`` to be far below Chernoff's bound, all errors are made smaller: the terms then cancel.
    """
    tilts, bound = table.tilts, table.chernoff(eps)
    best = int(np.argmin(bound))
    likely = float(bound[best]) - 3
    log_error = math.log(TOLERANCE) + min(likely, max(math.log(expected), likely - _FARTHEST_BELOW))
    log_scale = table.total - tilts * eps
    usable = (np.log(table.ends + 1e-300) + bound < log_error) & (np.arange(len(tilts)) < len(tilts) - 1)
    usable &= bound < bound[best] + _CANCELLED
    if bound[best] < _NEGLIGIBLE:
        return
    periods = [
        max(
            (math.log(plan.mass) - log_error) / tilts[i],
            float(((bound[i + 1 :] - log_error) / (tilts[i + 1 :] - tilts[i])).min()),
        )
        if usable[i]
        else math.inf
        for i in range(len(tilts) - 1)
    ]
    for i in np.argsort(periods)[:_TRIES]:
        if periods[i] < math.inf:
            pairs = [_slopes(log_m, tilts, max(1, int(i))) for log_m in table.log_mgfs]
            yield Line(
                c=float(tilts[i]),
                spacing=2 * math.pi / periods[i],
                table=table,
                log_mgfs=[log_m[:, i : i + 1] for log_m in table.log_mgfs],
                means=[mean for mean, _ in pairs],
                variances=[variance for _, variance in pairs],
                log_part=float(table.log_part[i]),
                log_allowed=log_error - float(log_scale[i]),
            )


def _slopes(log_mgf: Array, tilts: Array, i: int) -> tuple[Array, Array]:
    """Return about the first and the second derivative of log M at tilt ``i``, shape [streams, 1] each."""
    before, here, after = (log_mgf[:, j : j + 1] for j in (i - 1, i, i + 1))
    step = tilts[1] - tilts[0]
    return (after - before) / (2 * step), (after - 2 * here + before) / step**2
