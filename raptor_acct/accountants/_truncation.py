"""Which nodes of the contour integral may be left out: certified bounds on |M(c + it) / M(c)| for all large t."""

import math
from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._line import Line, Plan
from raptor_acct.accountants._log_mgf import ROUNDING, Array, Steps

_TELLING = 0.3  # share of the variance
_MOST_NODES = 2000
_FARTHEST: Array = 0.3 * 1.3 ** np.arange(45, dtype=np.float64)  # in units of one over the largest deviation of a step


def truncate(plan: Plan, line: Line) -> tuple[float, float] | None:
    """Return from which t on nodes may be left out, and a bound on their sum relative to exp(K(c) - c eps), if any.

    Between two points the square of |M(c + it)|, a characteristic function, exceeds the larger end by at most
    (distance / 2)² times the variance of a part of the losses plus four times the share of the rest; beyond the points
    it is bounded by its decay.
    """
    blocks = _telling(plan, line)
    largest = math.sqrt(max(float(block.variance.max()) for block in blocks))
    total = plan.gaussian + sum(float((block.number * block.variance).sum()) for block in blocks)
    far: Array = _FARTHEST / largest
    beyond = -0.5 * plan.gaussian * far**2
    for block in blocks:
        beyond = beyond + (block.number * _log_decay(block.steps, line.c, block.log_mgf, far)).sum(axis=0)
    enough = np.append(np.flatnonzero(beyond - np.log(far) < line.log_allowed - 3), len(far) - 1)[0]
    first = min(int(enough), int(np.searchsorted(far, 250 / largest)))
    first = max(first, min(int(np.searchsorted(far, 4 * line.spacing)), len(far) - 1))
    near = _near_points(max(2.5 / math.sqrt(total), 2 * line.spacing), total, largest, float(far[first]))
    far, beyond = far[first:], beyond[first:]
    between = -0.5 * plan.gaussian * near[:-1] ** 2
    digits = math.log(plan.steps) + 2.5
    for block in blocks:
        loss = block.steps.tilted(line.c, block.log_mgf, float(near[-1]), digits, 3.0)
        square = np.abs(1 + loss.ratio(near)) ** 2 + 5 * loss.error + ROUNDING
        square = np.maximum(square[:, 1:], square[:, :-1]) + np.diff(near) ** 2 / 4 * block.variance + 4 * block.rest
        between += (block.number * 0.5 * np.log(np.minimum(1.0, square))).sum(axis=0)
    points = np.append(near[:-1], far)
    inverse = 1 / (points - line.spacing)
    pieces = np.exp(np.append(between, beyond)) * (inverse - np.append(1 / points[1:], 0.0)) / math.pi
    tails = pieces[::-1].cumsum()[::-1]
    small = np.flatnonzero(tails < math.exp(max(line.log_allowed, -700.0)))
    if points[0] <= line.spacing or len(small) == 0 or points[small[0]] > _MOST_NODES * line.spacing:
        return None
    return float(points[small[0]]), float(tails[small[0]])


@dataclass(frozen=True, kw_only=True)
class Block:
    """Streams that tell where nodes may be left out.

    Attributes:
        steps: Their steps.
        number: How many of each, shape [streams, 1].
        log_mgf: log M(c), shape [streams, 1].
        variance: Upper bounds on the tilted variances of the losses, but for a share of them, shape [streams, 1].
        rest: Upper bounds on that share, shape [streams, 1].
    """

    steps: Steps
    number: Array
    log_mgf: Array
    variance: Array
    rest: Array


def _telling(plan: Plan, line: Line) -> list[Block]:
    """Return the blocks that hold most of the variance; of the others |M(c + it) / M(c)| <= 1 is known."""
    shares = np.array([float((n * v).sum()) for (_, n), v in zip(plan.blocks, line.variances, strict=True)])
    order = np.argsort(shares)[::-1]
    enough = int(np.searchsorted(shares[order].cumsum(), _TELLING * shares.sum())) + 1
    blocks = []
    for i in order[:enough]:
        (steps, number), log_m = plan.blocks[i], line.log_mgfs[i]
        variance, rest = steps.variance_bound(line.c, log_m, line.means[i], 0.3 / plan.steps)
        blocks.append(Block(steps=steps, number=number, log_mgf=log_m, variance=variance, rest=rest))
    return blocks


def _near_points(start: float, total: float, largest: float, end: float) -> Array:
    """Return points close enough together for the variance to bound what lies between."""
    points = [min(start, end / 2)]
    while points[-1] < end:
        t = points[-1]
        points.append(t + min(0.15 * t if t < 14 / math.sqrt(total) else 0.3 * t, 1 / largest))
    return np.append(points[:-1], end)


def _log_decay(steps: Steps, c: float, log_mgf: Array, t: Array) -> Array:
    """Return an upper bound on log |M(c + it) / M(c)| at and beyond each t, shape [streams, len(t)]."""
    share, variation = steps.decay(c, log_mgf)
    part = np.minimum(share[:, :, None], variation[:, :, None] / t)
    result: Array = np.log(np.maximum((1 - share[:, :, None] + part).min(axis=1), 1e-300))
    return result
