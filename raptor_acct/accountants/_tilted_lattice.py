"""One step on a lattice of losses, from above and from below.

From above, a cell's mass is spread onto the two lattice points around it (connect the dots). From below, mass just
above and just below a lattice point is merged there. What R = P/Q exceeds the point by, above it, must make up for
what it falls short by, below it; what is in excess is lost, and where there is too little, mass falls to the point
below. So the lattice's place and the parts in which cells are split are chosen to balance, point by point. Any choice
is a lower bound; the balanced one loses no more than a second-order term in the lattice's step, as from above.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raptor_acct.accountants._one_step import Array
from raptor_acct.accountants._tilted_plan import Plan
from raptor_acct.accountants._tilted_step import ROUNDING, Step, trapezoid

_CHUNK = 1 << 14  # cells worked on at once
_AROUND = 64, 1024  # cells each side of the middle balanced exactly


class MassLost(ArithmeticError):
    """The masses of one step do not add up: with hardly any noise they lie too far apart."""


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Masses between lattice points, each cell in two halves, shape [half, cell].

    Attributes:
        mass: Q times e^((1+c) l) at the cell's lower point, up to one common factor.
        up: The part of it that goes to the upper point when P and Q are kept.
        gap: e^h - 1.
        rise: e^((1+c) h).
        whole: P of all the cells.
        slack: Losses this close are the same but for rounding.
        worst: The size of the largest logarithm met.
    """

    mass: Array
    up: Array
    gap: float
    rise: float
    whole: float
    slack: float
    worst: float

    @cached_property
    def excess(self) -> Array:
        """Return how far R exceeds the lower point, in total."""
        return self.up * self.gap

    @cached_property
    def deficit(self) -> Array:
        """Return how far R falls short of the upper point, in total, on that point's scale."""
        return (self.mass - self.up) * (self.rise * self.gap / (1 + self.gap))


def _edges(low: float, high: float, shift: float, marks: Array) -> Array:
    """Return ``marks`` within [low, high] and enough points between for four Gauss-Legendre nodes to be exact."""
    spacing = 0.06 / (1 + max(abs(low), abs(high)) + shift)
    edges = np.concatenate([np.linspace(low, high, 2 + int((high - low) / spacing)), np.clip(marks, low, high)])
    edges.sort(kind="stable")
    result: Array = edges[np.concatenate([[True], np.diff(edges) > 0])]
    return result


def _cells(step: Step, plan: Plan, cut: float, bottom: float, count: int, log_scale: float) -> _Cells:
    """Return the ``count`` cells above the loss ``bottom``."""
    h, c = plan.step, plan.order
    mass, up, gap, whole, worst = np.zeros((2, count)), np.zeros((2, count)), math.expm1(h), 0.0, 0.0
    joint = plan.end  # the coordinate at which the last chunk ended
    for first in range(0, count, _CHUNK):
        size, base = min(_CHUNK, count - first), bottom + h * first
        losses: Array = base + h / 2 * np.arange(2 * size, -1, -1, dtype=np.float64)
        marks = step.coordinate(losses)
        low = float(np.clip(marks[0], cut, joint))
        high = joint if first else float(np.clip(marks[-1], cut, joint))
        joint = low
        if low == high:
            continue
        log_p, loss = step.masses(_edges(low, high, step.shift, marks))
        half = np.clip(((loss - base) * (2 / h)).astype(np.int64), 0, 2 * size - 1)
        point = base + h * (half >> 1)
        weight = np.exp(log_p - loss + (1 + c) * point - log_scale)
        share = np.clip(np.expm1(loss - point) / gap, 0.0, 1.0)
        mass[:, first : first + size] = np.bincount(half, weight, 2 * size).reshape(size, 2).T
        up[:, first : first + size] = np.bincount(half, weight * share, 2 * size).reshape(size, 2).T
        whole += float(np.exp(log_p).sum())
        worst = max(worst, float((np.abs(log_p) + (1 + c) * np.abs(loss)).max()))
    slack = 16 * ROUNDING * max(abs(step.loss(cut)), abs(step.loss(plan.end)))
    return _Cells(mass=mass, up=up, gap=gap, rise=math.exp((1 + c) * h), whole=whole, slack=slack, worst=worst)


@dataclass(frozen=True, kw_only=True)
class Pmf:
    """One step's tilted weights, of sum 1, at the losses first + step · k."""

    first: float
    weights: Array
    log_norm: float
    count: int

    def norm(self, order: float, plan: Plan) -> float:
        """Return an upper bound on K of all the steps at ``order``."""
        k = np.flatnonzero(self.weights)
        exponents = (order - plan.order) * (self.first + plan.step * k)
        top = float(exponents.max())
        total = self.weights[k] @ np.exp(np.maximum(exponents - top, -700.0))  # what would underflow is slow
        return self.count * (self.log_norm + top + math.log(total))


@dataclass(frozen=True, kw_only=True)
class Discretised:
    """One step from above and from below, and the size of the largest logarithm met in making them."""

    upper: Pmf
    lower: Pmf
    worst: float


def discretised(step: Step, plan: Plan, cut: float) -> Discretised:
    """Return one step on a lattice, without the losses beyond the coordinate ``cut``."""
    h, c = plan.step, plan.order
    mass, loss = trapezoid(step, cut, plan.end)
    log_scale = float((mass + c * loss).max())
    anchor = _anchor(step, plan, cut, log_scale)
    # One empty cell at either end, for what a balance may need.
    below, above = math.floor((step.loss(plan.end) - anchor) / h) - 1, math.ceil((step.loss(cut) - anchor) / h) + 1
    bottom = anchor + h * below
    cells = _cells(step, plan, cut, bottom, above - below, log_scale)
    upper = np.full(above - below + 1, 1e-300)  # what underflows is rounded up
    upper[:-1] += (cells.mass - cells.up).sum(axis=0)
    upper[1:] += cells.rise * cells.up.sum(axis=0)
    upper[2] += math.exp(step.tail(plan.end, -1)[0] + c * (bottom + 2 * h) - log_scale)  # losses below the lattice
    whole = math.exp(step.tail(cut, -1)[0]) - math.exp(step.tail(plan.end, -1)[0])
    if not abs(cells.whole - whole) < 1e-9:
        raise MassLost
    lower = _coarsened(cells, -below)

    def pmf(weights: Array) -> Pmf:
        total = float(weights.sum())
        if total == 0:  # all lost: any weights will do
            return Pmf(first=bottom, weights=np.ones(1), log_norm=-math.inf, count=step.count)
        return Pmf(first=bottom, weights=weights / total, log_norm=log_scale + math.log(total), count=step.count)

    return Discretised(upper=pmf(upper), lower=pmf(lower), worst=cells.worst)


def _anchor(step: Step, plan: Plan, cut: float, log_scale: float) -> float:
    """Return a lattice point near loss(0), where losses may pile up, such that all can be merged at no loss."""
    from scipy.optimize import brentq

    around = _AROUND[0]

    def imbalance(point: float) -> float:
        cells = _cells(step, plan, cut, point - around * plan.step, 2 * around, log_scale)
        return _sweep(cells, np.zeros(2 * around), around, around)

    middle = step.loss(0.0)
    points = [middle - plan.step / 2, middle + plan.step / 2]
    found = [imbalance(point) for point in points]
    if found[0] * found[1] > 0:  # look closer
        points = list(middle + plan.step * np.linspace(-0.5, 0.5, 9))
        found = [imbalance(point) for point in points]
    for i in range(len(points) - 1):
        if found[i] * found[i + 1] < 0:
            return float(brentq(imbalance, points[i], points[i + 1], xtol=1e-14 * plan.step))
    return float(points[int(np.argmin(np.abs(found)))])


def _coarsened(cells: _Cells, middle: int) -> Array:
    """Return lower weights at the lattice points: of three ways to merge, the one that keeps most."""
    move = np.zeros(cells.mass.shape[1])
    for _ in range(8):
        move = _relaxed(cells, move)
    best = _merged(cells, move)
    for around in _AROUND:
        swept = move.copy()
        _sweep(cells, swept, middle, around)
        best = max(best, _merged(cells, swept), key=lambda weights: float(weights.sum()))
    return best


def _balance(cells: _Cells, move: Array) -> tuple[Array, Array]:
    """Return the excess from above and the deficit from below at every lattice point.

    By default a cell's lower half goes to its lower point and its upper half to its upper point. ``move`` > 0 is the
    part of the upper half that goes down, ``move`` < 0 minus the part of the lower half that goes up, at random.
    """
    down, up = np.maximum(move, 0), np.maximum(-move, 0)
    excess, deficit = cells.excess, cells.deficit
    return (
        np.append(excess[0] * (1 - up) + excess[1] * down, 0.0),
        np.append(0.0, deficit[1] * (1 - down) + deficit[0] * up),
    )


def _relaxed(cells: _Cells, move: Array) -> Array:
    """Return ``move`` after one step of simultaneous algebraic reconstruction towards excess = deficit."""
    excess, deficit = _balance(cells, move)
    x, d = np.maximum(*cells.excess), np.maximum(*cells.deficit)
    residual = (deficit - excess) / np.maximum(np.append(x, 0) + np.append(0, d), 1e-300)
    result: Array = np.clip(move + (x * residual[:-1] + d * residual[1:]) / np.maximum(x + d, 1e-300), -1, 1)
    return result


def _sweep(cells: _Cells, move: Array, middle: int, around: int) -> float:
    """Balance, from both ends, every point around ``middle`` but that one; return its excess less its deficit."""
    first, last = max(0, middle - around), min(len(move), middle + around)
    excess, deficit = cells.excess[:, first:last].T.tolist(), cells.deficit[:, first:last].T.tolist()
    moves = move[first:last].tolist()
    middle -= first
    moves[0] = moves[-1] = wanted = above = 0.0
    for i in range(len(moves) - 1, middle - 1, -1):
        if i < len(moves) - 1:
            moves[i] = _solved(above, *deficit[i][::-1])
        above = excess[i][0] * (1 - max(-moves[i], 0.0)) + excess[i][1] * max(moves[i], 0.0)
    for i in range(middle):
        if i > 0:
            moves[i] = -_solved(wanted, *excess[i])
        wanted = deficit[i][1] * (1 - max(moves[i], 0.0)) + deficit[i][0] * max(-moves[i], 0.0)
    move[first:last] = moves
    return above - wanted


def _solved(wanted: float, near: float, far: float) -> float:
    """Return the m in [-1, 1] at which near · min(1, 1 - m) + far · max(0, -m) comes closest to ``wanted``."""
    if wanted <= near:
        return 1 - wanted / near if near > 0 else 1.0
    return -min(1.0, (wanted - near) / far) if far > 0 else -1.0


def _merged(cells: _Cells, move: Array) -> Array:
    """Return the weights merged as ``move`` says; where R falls short of a point, part goes to the point below."""
    down, up = np.maximum(move, 0), np.maximum(-move, 0)
    excess, deficit = _balance(cells, move)
    above = np.append(cells.mass[0] * (1 - up) + cells.mass[1] * down, 0.0)
    below = np.append(0.0, cells.rise * (cells.mass[1] * (1 - down) + cells.mass[0] * up))
    short = deficit - excess > cells.slack * below
    fall = np.where(short, 1 - excess / np.maximum(deficit, 1e-300), 0.0)
    result: Array = above + (1 - fall) * below + np.append((fall * below)[1:] / cells.rise, 0.0)
    return result
