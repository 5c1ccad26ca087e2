"""What accounting.py asks of the tools: settings with answers known from elsewhere, drawn ones, ever longer ones.

Sampling is Poisson, and neighbours differ by one record added or removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from _accounting_tools import Stream

SEED = 20250701


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is asked of every tool.

    Attributes:
        name: Its name.
        delta: The target's delta.
        streams: Noise, sampling probability and steps of each stream; a noise of 1 where none is known beforehand.
        eps: The target's epsilon; None where only epsilon(delta) is asked for.
        sigma: The least noise for the target, from elsewhere: of the first stream, the others in proportion.
        epsilon: Epsilon of `streams`, from elsewhere.
        accuracy: Relative accuracy of those two.
        rho: Share of eps of the first of two streams in the basic split.
    """

    name: str
    delta: float
    streams: tuple[Stream, ...]
    eps: float | None = None
    sigma: float | None = None
    epsilon: float | None = None
    accuracy: float = 0.0
    rho: float | None = None

    def at(self, sigma: float) -> tuple[Stream, ...]:
        """The streams with all noise scaled so that the first has noise `sigma`."""
        return tuple((s * sigma / self.streams[0][0], q, t) for s, q, t in self.streams)


# Exact values of Poisson-subsampled Gaussian streams, add/remove adjacency, to the digits given: inversion of the
# characteristic function along a contour, checked at 30 digits and against certified brackets of other tools.
# name, q, steps, delta, eps, sigma_shared, sigma_expert, joint epsilon, joint factor on both noises, accuracy
TWO_STREAMS = [
    ("S1e1", 1000 / 67349, 1347, 4.8846756719704545e-06, 1.0, 2.57316138477651, 18.707194486585536, 0.8702200172105693,
     0.8915389792845897, 1e-12),
    ("S1e4", 1000 / 67349, 1347, 4.8846756719704545e-06, 4.0, 0.9935909575513991, 5.239955456840617, 3.489748203855667,
     0.9363443769910095, 1e-12),
    ("S1e8", 1000 / 67349, 1347, 4.8846756719704545e-06, 8.0, 0.7411256468407997, 2.842543426703, 6.971837117046966,
     0.9506829840297247, 1e-12),
    ("S3", 1e-4, 1_000_000, 1e-09, 1.0, 0.887860507, 5.1946046954, 0.8871041803, None, 1e-8),
    ("S4", 0.02, 1500, 1e-06, 0.05, 62.01708874991347, 474.53630207405837, 0.04321447812153143, None, 1e-12),
]  # fmt: skip
RHO = 0.9
# q, sigma, steps, delta, epsilon
ONE_STREAM = [
    (0.00033, 4.0, 10_000, 1.1e-18, 0.0672136141),  # given elsewhere as 0.0672138503; this by ball arithmetic
    (0.9, 0.3, 100, 1e-05, 634.655842),
    (0.01, 2.0, 10_000, 1e-13, 3.9393071),
    (0.01, 10_000.0, 1000, 1e-06, 4.6373473e-05),
    (1.0, 10.0, 100, 1e-06, 4.8865541175),
    (0.0001, 2.0, 10_000_000, 1e-09, 0.9232614),
]


def listed_settings() -> Iterator[Setting]:
    """The settings whose exact values are known from elsewhere."""
    for name, q, steps, delta, eps, shared, expert, joint, factor, accuracy in TWO_STREAMS:
        for role, sigma, share in (("shared", shared, RHO), ("expert", expert, 1 - RHO)):
            known = {"eps": share * eps, "sigma": sigma, "epsilon": share * eps, "accuracy": accuracy}
            yield Setting(name=f"{name}-{role}", delta=delta / 2, streams=((sigma, q, steps),), **known)
        if factor is not None:
            streams = ((shared, q, steps), (expert, q, steps))
            known = {"eps": eps, "sigma": factor * shared, "epsilon": joint, "accuracy": accuracy, "rho": RHO}
            yield Setting(name=f"{name}-joint", delta=delta, streams=streams, **known)
    for i, (q, sigma, steps, delta, eps) in enumerate(ONE_STREAM, start=1):
        known = {"eps": eps, "sigma": sigma, "epsilon": eps, "accuracy": 1e-7}
        yield Setting(name=f"one-{i}", delta=delta, streams=((sigma, q, steps),), **known)


def drawn_settings(count: int = 20) -> Iterator[Setting]:
    """Runs like those people do, from small fine-tuning to pre-training."""
    rng = np.random.default_rng(SEED)

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for i in range(1, count + 1):
        records = round(log_uniform(1e3, 1e7))
        q = round(log_uniform(32, min(1e5, records / 2))) / records
        steps = max(1, round(log_uniform(1, 100) / q))
        eps = round(log_uniform(0.1, 10), 3)
        yield Setting(name=f"drawn-{i:02}", delta=records**-1.1, streams=((1.0, q, steps),), eps=eps)


def scaling_settings() -> Iterator[Setting]:
    """More and more steps at the same q sqrt(steps); and a ledger with 10,000 entries, no two alike."""
    for power in (2, 4, 6, 8):
        yield Setting(name=f"steps-1e{power}", delta=1e-6, streams=((1.0, 10 ** (-power / 2), 10**power),), eps=1.0)
    rng = np.random.default_rng(SEED)
    noise, q, steps = rng.uniform(0.8, 4, 10_000), 10 ** rng.uniform(-4, -2, 10_000), rng.integers(1, 200, 10_000)
    streams = tuple((float(s), float(p), int(t)) for s, p, t in zip(noise, q, steps, strict=True))
    yield Setting(name="ledger-10000", delta=1e-6, streams=streams)


def all_settings() -> list[Setting]:
    """Every setting."""
    return [*listed_settings(), *drawn_settings(), *scaling_settings()]
