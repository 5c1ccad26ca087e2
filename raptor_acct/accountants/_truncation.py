"""Which nodes of the contour integral may be left out: certified bounds on |M(c + it) / M(c)| for all large t."""

import math
from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._fade import Array
from raptor_acct.accountants._lifted import Lifted
from raptor_acct.accountants._line import Line, Plan
from raptor_acct.accountants._log_mgf import Steps, TooFine
from raptor_acct.accountants._tilted_loss import ROUNDING

_TELLING = 0.3  # share of the variance
_MOST_NODES, _MOST_PART_NODES = 2000, 40000
_MOST_POINTS = 1 << 16  # at which the decay is looked at
_MOST_TERMS = 1 << 22  # of the sums over nodes at these points, by stream
_FARTHEST = 1e9  # where the search for the far point ends, in units of where it starts
_STRIDE, _HALVINGS = 4.0, 4  # of that search
_WASTED = 1.3  # more nodes than needed, for want of nearer points
_RATIO = 1.15  # of one near point to the one before, at most
_GIVEN_AWAY = 0.15  # share of the decay at two near points that may be lost between them


def truncate(plan: Plan, line: Line) -> tuple[float, float] | None:
    """Return from which t on nodes may be left out, and a bound on their sum relative to exp(K(c) - c eps), if any.

    Beyond a far point the decay is that of lifted paths; between near points it follows from the values there.
    """
    if plan.partial:
        return _truncate_part(plan, line)
    needed = -line.log_allowed
    decay = Decay(plan, line)
    if not decay.variance:
        return None
    start, limit = max(math.sqrt(needed / decay.variance), 2 * line.spacing), _MOST_NODES * line.spacing
    far = decay.far(start, needed + 3)
    if far is None:
        return None
    points = _geometric(start, min(far, limit))
    squares = decay.squares(points)
    at = decay.summed(points, squares)
    enough = np.flatnonzero(at + np.log(points) > needed + 1)
    first = float(points[enough[0]]) if len(enough) else far
    if first > limit:
        return None
    cut = _cut(decay, line, points, squares) if far <= limit else None
    if cut is None or cut[0] > _WASTED * first:
        points = _geometric(first / _RATIO, far)
        squares = decay.squares(points)
        points = decay.refined(points, squares, 0.5 * needed)
        finer = _cut(decay, line, points, decay.squares(points))
        cut = finer if cut is None or finer is not None else cut
    return cut if cut is not None and cut[0] <= limit else None


def _cut(decay: "Decay", line: Line, points: Array, squares: list[Array]) -> tuple[float, float] | None:
    """Return the first of the points, the last of them far, beyond which the nodes may be left out, and their bound."""
    logs = -np.append(decay.between(points, squares), decay.beyond(float(points[-1])))
    inverse = 1 / (points - line.spacing)
    pieces = np.exp(logs) * (inverse - np.append(1 / points[1:], 0.0)) / math.pi
    tails = pieces[::-1].cumsum()[::-1]
    small = np.flatnonzero(tails < math.exp(max(line.log_allowed, -700.0)))
    return (float(points[small[0]]), float(tails[small[0]])) if len(small) else None


def _truncate_part(plan: Plan, line: Line) -> tuple[float, float] | None:
    """Do the same where only what has a large loss in it is asked for.

    With U the share of M without large losses, |M^n - U^n| <= n |M - U| M(c)^(n-1), and so for products.
    """
    parts = [
        (number[:, 0], steps.lifted_part(line.c, log_m))
        for (steps, number), log_m in zip(plan.blocks, line.log_mgfs, strict=True)
    ]

    def beyond(t: float) -> float:
        """Return a bound on the log of the sum of all nodes from ``t`` on."""
        left = sum(float((number * part.left(t)).sum()) for number, part in parts)
        return math.log(left + 1e-300) - line.log_part - 0.5 * plan.gaussian * t**2 - math.log(3 * (t - line.spacing))

    low, high = math.log(2 * line.spacing), math.log(_MOST_PART_NODES * line.spacing)
    if not beyond(math.exp(high)) <= line.log_allowed:
        return None
    for _ in range(2 * _HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(math.exp(middle)) <= line.log_allowed else (middle, high)
    return math.exp(high), math.exp(beyond(math.exp(high)))


def _geometric(start: float, end: float) -> Array:
    """Return points from ``start`` to ``end``, each at most 1.15 times the one before."""
    if end <= start:
        return np.array([end])
    count = 2 + int(math.log(end / start) / math.log(_RATIO))
    points: Array = start * (end / start) ** np.linspace(0.0, 1.0, count)
    return points


@dataclass(frozen=True, kw_only=True)
class Block:
    """Streams that tell where nodes may be left out.

    Attributes:
        steps: Their steps.
        number: How many of each, shape [streams, 1].
        log_mgf: log M(c), shape [streams, 1].
        variance: Upper bounds on the tilted variances of the losses, but for a share of them, shape [streams, 1].
        rest: Upper bounds on that share, shape [streams, 1].
        lifted: What is lost on lifted paths.
    """

    steps: Steps
    number: Array
    log_mgf: Array
    variance: Array
    rest: Array
    lifted: Lifted


class Decay:
    """Lower bounds on -log |M(c + it) / M(c)|, summed over all steps.

    Attributes:
        variance: About that of the tilted sum.
    """

    def __init__(self, plan: Plan, line: Line) -> None:
        self._c, self._gaussian = line.c, plan.gaussian
        self._digits = math.log(plan.steps) + 2.5
        self._blocks = _telling(plan, line)
        self.variance = plan.gaussian + sum(float((block.number * block.variance).sum()) for block in self._blocks)

    def beyond(self, t: float) -> float:
        """Return a bound for all frequencies from ``t`` on."""
        decay = 0.5 * self._gaussian * t**2
        for block in self._blocks:
            lost = np.minimum(block.lifted.lost(t), 1 - ROUNDING)
            decay -= float((block.number[:, 0] * np.log1p(-lost)).sum())
        return decay

    def far(self, start: float, needed: float) -> float | None:
        """Return about the least t from ``start`` on beyond which the nodes add up to exp(-needed) at most, if any."""

        def enough(t: float) -> bool:
            return self.beyond(t) + math.log(t) > needed

        low, high = start, _STRIDE * start
        while not enough(high):
            low, high = high, _STRIDE * high
            if high > _FARTHEST * start:
                return None
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def squares(self, t: Array) -> list[Array]:
        """Return upper bounds on |M(c + it) / M(c)|² of one step at ascending points, by block, [streams, points]."""
        most = _MOST_TERMS // len(t)
        squares = []
        for block in self._blocks:
            loss = block.steps.tilted(self._c, block.log_mgf, float(t[-1]), self._digits, margin=3.0, most=most)
            squares.append(np.abs(1 + loss.ratio(t)) ** 2 + 5 * loss.error + ROUNDING)
        return squares

    def between(self, t: Array, squares: list[Array]) -> Array:
        """Return bounds between ascending points, shape [points - 1], from :meth:`squares`.

        There the square of |M(c + it)|, a characteristic function, exceeds the larger end by at most (distance / 2)²
        times the variance of a part of the losses plus four times the share of the rest.
        """
        gaps = np.diff(t) ** 2 / 4
        between = [
            np.maximum(square[:, 1:], square[:, :-1]) + gaps * block.variance + 4 * block.rest
            for block, square in zip(self._blocks, squares, strict=True)
        ]
        return self.summed(t[:-1], between)

    def refined(self, t: Array, squares: list[Array], least: float) -> Array:
        """Return the points and more between them, as the decay there, or ``least`` if that is more, asks for."""
        decay = self.summed(t, squares)
        decay, gaps = np.maximum(np.minimum(decay[1:], decay[:-1]), least), np.diff(t)
        counts = np.ceil(gaps * np.sqrt(self.variance / (8 * _GIVEN_AWAY * decay)))
        if not counts.sum() < _MOST_POINTS:
            raise TooFine
        parts = [x + gap * np.arange(n) / n for x, gap, n in zip(t[:-1], gaps, counts, strict=True)]
        return np.concatenate([*parts, t[-1:]])

    def summed(self, t: Array, squares: list[Array]) -> Array:
        """Return the bounds that :meth:`squares` amount to, shape [points]."""
        decay: Array = 0.5 * self._gaussian * t**2
        for block, square in zip(self._blocks, squares, strict=True):
            decay = decay - 0.5 * (block.number * np.log(np.minimum(1.0, square))).sum(axis=0)
        return decay


def _telling(plan: Plan, line: Line) -> list[Block]:
    """Return the blocks that hold most of the variance; of the others |M(c + it) / M(c)| <= 1 is known."""
    shares = np.array([float((n * v).sum()) for (_, n), v in zip(plan.blocks, line.variances, strict=True)])
    order = np.argsort(shares)[::-1]
    enough = int(np.searchsorted(shares[order].cumsum(), _TELLING * shares.sum())) + 1
    blocks = []
    for i in order[:enough]:
        (steps, number), log_m = plan.blocks[i], line.log_mgfs[i]
        variance, rest = steps.cells.variance_bound(line.c, log_m, line.means[i], 0.3 / plan.steps)
        block = Block(
            steps=steps,
            number=number,
            log_mgf=log_m,
            variance=variance,
            rest=rest,
            lifted=steps.lifted(line.c, log_m),
        )
        blocks.append(block)
    return blocks
