"""Where to cut, tilt and put the window: a search on a sketch of the streams. No bound rests on what it finds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._one_step import Array
from raptor_acct.accountants._tilted_step import Step, log_peak, log_total, trapezoid

_DEEPEST = 80.0  # the tilt never aims below delta = e^-80 = 2e-35
_REACH = 17.0  # standard deviations, the farthest cut; beyond lies a mass of 4e-65
_NATS = 28.0, 21.0, 14.0  # -log of the part of delta that a plan may neglect


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where to cut, tilt and put the window. Any choice is safe; a good one is tight."""

    cuts: tuple[float, ...]  # coordinates, one a stream
    end: float  # the largest coordinate
    order: float  # c
    step: float  # h
    low: float  # where the window begins
    beyond: float  # orders t of the bounds: beyond the window,
    wraps: tuple[float, float]  # wrapped from above and from below,
    back: float  # and in the other direction
    score: float  # roughly, the width of the bracket


def _end(steps: Sequence[Step], nats: float, slope: float) -> float:
    """Return a coordinate beyond which all losses together matter e^-nats, if delta falls as e^(-slope · eps)."""
    most = -nats - math.log(sum(step.count for step in steps))
    low, high = 0.0, 20.0
    for _ in range(12):
        middle = (low + high) / 2
        matters = max(step.tail(middle, -1)[0] + slope * min(0.0, step.loss(middle)) for step in steps)
        low, high = (low, middle) if matters < most else (middle, high)
    return high


class Sketch:
    """The streams on a few hundred panels, for one choice of cuts."""

    def __init__(self, steps: Sequence[Step], share: float, nats: float, slope: float = 0.0) -> None:
        self.steps, self.nats = steps, nats
        self.end = end = _end(steps, nats, slope)
        self.cuts = [-share * (_REACH + (0 if step.direction == "add" else step.shift)) for step in steps]
        self.losses = [(step.loss(cut), step.loss(end)) for step, cut in zip(steps, self.cuts, strict=True)]
        self.longest = max(max(top - bottom, 0.01 * abs(top), 1e-100) for top, bottom in self.losses)
        self.panels = [trapezoid(step, cut, end) for step, cut in zip(steps, self.cuts, strict=True)]
        largest = self._largest_order()
        mean = sum(
            step.count * abs(float(np.exp(mass) @ loss)) for step, (mass, loss) in zip(steps, self.panels, strict=True)
        )
        self.orders = np.geomspace(min(1e-4 * largest, 0.3 / max(mean, 1e-100)), largest, 48)
        self.norms = self._norms(self.orders, self.panels)
        tops = [step.tail(cut, 1) for step, cut in zip(steps, self.cuts, strict=True)]
        self.log_p, self.log_q = log_total(steps, tops)
        whole = [
            (np.append(mass, p), np.append(loss, p - q)) for (mass, loss), (p, q) in zip(self.panels, tops, strict=True)
        ]
        self.q_bottom = math.exp(log_total(steps, [step.tail(end, -1) for step in steps])[1])
        self.back = self.orders[-1] * np.geomspace(1e-2, 1e2, 24)
        self.back_norms = self._norms(-1 - self.back, whole)

    def _norms(self, orders: Array, panels: Sequence[tuple[Array, Array]]) -> Array:
        """Return K at ``orders``."""
        total = np.zeros(len(orders))
        for step, (mass, loss) in zip(self.steps, panels, strict=True):
            exponents = mass + np.multiply.outer(orders, loss)
            top = exponents.max(axis=1)
            total += step.count * (top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))
        return total

    def _largest_order(self) -> float:
        """Return the order whose tilt costs 120 nats, far beyond any useful one."""
        high = math.log(3000 / self.longest)
        low = high - 40
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if self._divergence(math.exp(middle)) < 120 else (low, middle)
        return math.exp(high)

    def _divergence(self, order: float) -> float:
        """Return the divergence of the tilted sum from the sum."""
        total = 0.0
        for step, (mass, loss) in zip(self.steps, self.panels, strict=True):
            log_tilted = mass + order * loss
            log_tilted -= np.logaddexp.reduce(log_tilted)
            total += step.count * float(np.exp(log_tilted) @ (log_tilted - mass) + np.logaddexp.reduce(mass))
        return total

    def bounds(self, eps: float) -> Array:
        """Return Chernoff's bounds on log delta, without E, at :attr:`orders`."""
        result: Array = self.norms - self.orders * eps + np.array([log_peak(order) for order in self.orders])
        return result

    def guess(self, eps: float) -> tuple[float, float]:
        """Return an upper bound on log delta, and about how fast delta falls."""
        bounds = self.bounds(eps)
        return float(np.logaddexp(self.log_p, bounds.min())), float(self.orders[bounds.argmin()])

    def plan(self, eps: float, log_delta: float, slope: float, size: int) -> Plan:
        """Return the best plan that neglects e^-nats of delta."""
        neglected = log_delta - self.nats
        needs = np.maximum(0.0, self.norms - self.orders * eps - neglected)
        gaps = self.orders - self.orders[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            from_above = np.where(gaps > 0, needs / gaps, np.inf)
            from_below = np.where(gaps < 0, needs / -gaps, np.inf)
        highs = (self.norms - neglected) / self.orders
        high = max(highs.min(), eps)
        width = np.maximum.reduce([from_above.min(axis=1), from_below.min(axis=1)])
        width = np.maximum(width, max(1.05 * (high - eps), self.longest / 1.5))
        reverse = self.back_norms - self.back * (min(top for top, _ in self.losses) - eps)
        possible = np.isfinite(width)  # not the two outermost orders
        width[~possible] = 1.0
        grid = slope * (1 + slope) * self._spread(width / size) + 30 * math.exp(-self.nats)
        total = sum(step.count for step in self.steps)
        error = 2e-14 * (size if total == 1 else 6 * total)  # of a lattice point, times the number of points
        floor = error * np.exp(np.minimum(self.norms - self.orders * eps - log_delta, 300))
        floor /= width * self.orders * (1 + self.orders)
        others = min(0.0, math.log(math.exp(min(0.0, reverse.min())) + self.q_bottom))
        top = math.exp(min(300.0, min(self.log_p, self.log_q + eps + others) - log_delta))
        score = np.where(possible, grid + floor + top, np.inf)
        best = int(score.argmin())
        step = float(min(width[best] / size, 100 / (1 + self.orders[best])))
        return Plan(
            cuts=tuple(self.cuts),
            end=self.end,
            order=float(self.orders[best]),
            step=step,
            low=float(high - step * (size - 2)),
            beyond=float(self.orders[highs.argmin()]),
            wraps=(float(self.orders[from_above[best].argmin()]), float(self.orders[from_below[best].argmin()])),
            back=float(self.back[reverse.argmin()]),
            score=float(score[best]),
        )

    def _spread(self, h: Array) -> Array:
        """Return about how much variance the lattices of steps ``h`` add."""
        total = np.zeros(len(h))
        for step, (mass, loss) in zip(self.steps, self.panels, strict=True):
            away = np.abs(loss - step.loss(0.0))
            total += step.count * np.minimum(h[:, None] ** 2 / 6, np.multiply.outer(h, away)) @ np.exp(mass)
        return total


class Planner:
    """Chooses plans for one eps; better ones once :attr:`log_delta` is known better than by Chernoff's bound."""

    def __init__(self, steps: Sequence[Step], near: float) -> None:
        self._steps, self._shares = steps, np.arange(1, 13) / 12
        self._sketches = [Sketch(steps, share, _NATS[1]) for share in self._shares]
        whole = self._sketches[-1]
        self._eps = min(near, float(((whole.norms + _DEEPEST) / whole.orders).min()))
        log_delta, self._slope = min(sketch.guess(self._eps) for sketch in self._sketches)
        self.log_delta = min(0.0, log_delta)

    def rough(self, size: int) -> Plan:
        """Return the best of twelve plans."""
        return min(self._plans(self._sketches, size), key=_score)

    def fine(self, size: int) -> Plan:
        """Return the best plan, after a second search around the best of twelve."""
        plans = self._plans(self._sketches, size)
        best = min(range(len(plans)), key=lambda i: plans[i].score)
        shares = [share for share in self._shares[best] + np.arange(-2, 3) / 36 if share <= 1]
        sketches = [
            Sketch(self._steps, share, nats, self._slope / 2) for share in shares for nats in (_NATS[0], _NATS[2])
        ]
        return min(plans + self._plans(sketches, size), key=_score)

    def _plans(self, sketches: Sequence[Sketch], size: int) -> list[Plan]:
        return [sketch.plan(self._eps, self.log_delta, self._slope, size) for sketch in sketches]


def _score(plan: Plan) -> float:
    return plan.score
