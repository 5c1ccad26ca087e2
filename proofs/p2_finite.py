"""P2 on finite spaces: two alternating streams with samples of their own, every event, every adaptive rule, exactly.

Claims. A shared stream (one block, noise and q of its own) and an expert stream (two experts) alternate, each step on a
fresh Poisson sample. Contributions of both and owners may be any functions of all earlier releases of both streams.
Over all pairs of neighbouring data sets of the size stated, every such function and every event S, max P(S) - αQ(S) is
that of the product of the one-dimensional pairs of all steps, exactly, at every α >= 0: for a record more, less, or
replaced.
    basic      H(αβ) of the product <= H_s(α) + H_e(β) - H_s(α) H_e(β), at every α and β that are likelihood ratios
    one batch  if both streams release from the same sample, the product's bound is broken, at α = 9/8 in the example.
               The pair in which the record moves both blocks at once is the worst then, exactly. At α = 1 it is the
               smaller of the two: neither dominates the other.

How. As in p1_finite.py, by `_finite.adversary`.

Assumptions. What is finite: no to one other record, 2 experts, one and two cycles, symmetric noise.

Source. theory.md P2, P4.

Code. raptor_acct.composition.sequential_across_streams, raptor_acct.mechanisms.RolePlan
"""

import itertools
from fractions import Fraction
from functools import partial

from proofs._check import Unproved
from proofs._finite import (
    BINOMIAL,
    GEOMETRIC,
    Law,
    Noise,
    Pair,
    adversary,
    both,
    breakpoints,
    gaps,
    hockey_stick,
    neighbours,
    one_expert,
    one_expert_replaced,
    pair,
    reverse,
    subsampled,
)
from proofs.p1_finite import HALF, THIRD, Behaviour, behaviours, pairs, release, times

Batch = tuple[tuple[Behaviour, Behaviour], ...]  # what each record adds to the shared block, and to its owner's

SHARED, EXPERTS = (GEOMETRIC, HALF), (BINOMIAL, THIRD)  # noise and sampling probability


def check_worst(step: str, num_others: int, cycles: int) -> None:
    """Check that the worst of all adaptive rules is the product of the one-dimensional pairs, in all directions."""
    (shared_noise, shared_q), (expert_noise, expert_q) = SHARED, EXPERTS
    product = both(one_expert(*SHARED), one_expert(*EXPERTS))
    replaced = both(one_expert_replaced(*SHARED), one_expert_replaced(*EXPERTS))
    for name, reference in (("one more", product), ("one less", reverse(product)), ("replaced", replaced)):
        shared = pairs([shared_noise], shared_q, num_others, replaced=name == "replaced")
        expert = pairs([expert_noise] * 2, expert_q, num_others, replaced=name == "replaced")
        if name == "one less":
            shared, expert = {reverse(atoms) for atoms in shared}, {reverse(atoms) for atoms in expert}
        if any(gaps(adversary([shared, expert] * cycles), times(reference, cycles))):
            raise Unproved(f"{step}, {name}: not the divergence of the product")


def every_rule() -> None:
    """All adaptive rules, over one and two cycles (exact)."""
    check_worst("one cycle, one other", 1, 1)
    check_worst("two cycles", 0, 2)


def basic() -> None:
    """Joint against basic composition, at all likelihood ratios of both streams (exact)."""
    first, second = one_expert(*SHARED), one_expert(*EXPERTS)
    for one, two in ((first, second), (reverse(first), reverse(second))):
        for alpha, beta in itertools.product(breakpoints(one), breakpoints(two)):
            a, b = hockey_stick(one, alpha), hockey_stick(two, beta)
            if hockey_stick(both(one, two), alpha * beta) > a + b - a * b:
                raise Unproved(f"basic: the joint divergence is larger at {alpha} times {beta}")


def from_one_batch(batch: Batch, noise: Noise) -> Law:
    """Return the law of the shared block and of two experts' blocks, all released from the same batch."""
    return release(tuple(itertools.chain.from_iterable(batch)), [noise] * 3)


def one_batch(noise: Noise, q: Fraction) -> Pair:
    """Return the pair in which one record moves the shared block and its owner's at once."""
    released = partial(from_one_batch, noise=noise)
    return pair(subsampled([((0, 1), (1, 1))], q, released), subsampled([], q, released))


def one_batch_is_one_mechanism() -> None:
    """Both streams on one sample: over all records and owners the worst is that one pair (exact)."""
    noise, q = EXPERTS
    every = [((0, value), (1 + owner, other)) for value in (-1, 0, 1) for owner, other in behaviours(2)]
    found = neighbours(every, q, 1, partial(from_one_batch, noise=noise))
    if any(gaps(adversary([found]), one_batch(noise, q))):
        raise Unproved("one batch: both blocks moved at once is not the worst")


def one_batch_is_not_two() -> None:
    """It is neither as private as two independent streams nor less private throughout (exact)."""
    true, independent = one_batch(*SHARED), both(one_expert(*SHARED), one_expert(*SHARED))
    for alpha, larger, smaller in ((Fraction(9, 8), true, independent), (Fraction(1), independent, true)):
        if not hockey_stick(larger, alpha) > hockey_stick(smaller, alpha):
            raise Unproved(f"one batch: not as claimed at {alpha}")


def prove() -> None:
    """Check every step."""
    every_rule()
    basic()
    one_batch_is_one_mechanism()
    one_batch_is_not_two()


if __name__ == "__main__":
    prove()
    print("p2_finite: proved")
