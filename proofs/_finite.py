"""Exact privacy on finite probability spaces, in rational arithmetic: laws, pairs, and the worst adaptive choice.

A pair (P, Q) of laws has the hockey-stick divergence H(α) = max over events S of P(S) - αQ(S) = Σ (P - αQ)_+: an event
gains by each outcome with P > αQ and loses by every other, so the best event is the set of the former. As a function
of α >= 0 it is convex and falls, with H(0) = 1; it is linear between neighbouring likelihood ratios P/Q of the pair,
and constant beyond the largest finite one. A convex falling function that is at most a pair's H at 0 and at that pair's
finite ratios is therefore at most H everywhere. So finitely many exact comparisons decide every event at every α.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import TypeVar

Law = Mapping[Hashable, Fraction]
Pair = tuple[tuple[Fraction, Fraction], ...]  # (P, Q) of the outcomes of each likelihood ratio
Divergence = Callable[[Fraction], Fraction]
Noise = Mapping[int, Fraction]
Record = TypeVar("Record")

BINOMIAL: Noise = {-1: Fraction(1, 4), 0: Fraction(1, 2), 1: Fraction(1, 4)}
GEOMETRIC: Noise = {k: Fraction(2 ** (2 - abs(k)), 10) for k in range(-2, 3)}


def pair(upper: Law, lower: Law) -> Pair:
    """Return a pair of laws with the outcomes of equal likelihood ratio merged, which no divergence tells apart."""
    atoms: dict[Fraction | None, tuple[Fraction, Fraction]] = {}
    for outcome in upper.keys() | lower.keys():
        p, q = upper.get(outcome, Fraction(0)), lower.get(outcome, Fraction(0))
        ratio = p / q if q else None
        before = atoms.get(ratio, (Fraction(0), Fraction(0)))
        atoms[ratio] = (before[0] + p, before[1] + q)
    return tuple(sorted(atoms.values()))


def both(first: Pair, second: Pair) -> Pair:
    """Return the pair of two independent releases."""
    atoms = [(p * x, q * y) for (p, q), (x, y) in itertools.product(first, second)]
    return pair({i: p for i, (p, _) in enumerate(atoms)}, {i: q for i, (_, q) in enumerate(atoms)})


def reverse(atoms: Pair) -> Pair:
    """Return the pair with its two laws exchanged."""
    return tuple(sorted((q, p) for p, q in atoms))


def hockey_stick(atoms: Pair, alpha: Fraction) -> Fraction:
    """Return H(α) of a pair."""
    return sum((max(p - alpha * q, Fraction(0)) for p, q in atoms), Fraction(0))


def breakpoints(atoms: Pair) -> list[Fraction]:
    """Return 0 and the finite likelihood ratios, between which H is linear."""
    return sorted({Fraction(0)} | {p / q for p, q in atoms if q})


def gaps(divergence: Divergence, reference: Pair) -> list[Fraction]:
    """Return by how much ``reference`` exceeds a divergence, at the points that decide whether it does everywhere."""
    return [hockey_stick(reference, alpha) - divergence(alpha) for alpha in breakpoints(reference)]


def exceeds(atoms: Pair, reference: Pair) -> bool:
    """Return whether some event breaks the reference's bound at some α."""
    return min(gaps(partial(hockey_stick, atoms), reference)) < 0


def adversary(steps: Sequence[Iterable[Pair]]) -> Divergence:
    """Return α -> the largest H(α) of all adaptive compositions: at each step any pair of that step's set.

    The choice may be any function of all earlier outcomes. As (cx)_+ = c x_+ for c >= 0, after outcomes of
    probabilities P and Q the rest adds P times the divergence of what follows, at αQ/P; so the best choices are found
    step by step, for all functions at once.
    """

    @cache
    def worst(alpha: Fraction, step: int) -> Fraction:
        if step == len(steps):
            return max(1 - alpha, Fraction(0))
        return max(
            sum((p * worst(alpha * q / p, step + 1) for p, q in atoms if p), Fraction(0)) for atoms in steps[step]
        )

    return lambda alpha: worst(alpha, 0)


def subsampled(records: Sequence[Record], q: Fraction, release: Callable[[tuple[Record, ...]], Law]) -> Law:
    """Return the law of a release from a Poisson sample of ``records``: a mixture over all batches.

    ``release`` maps the records of a batch to the law of what is released.
    """
    law: dict[Hashable, Fraction] = defaultdict(Fraction)
    for taken in itertools.product((False, True), repeat=len(records)):
        chance = q ** sum(taken) * (1 - q) ** (len(records) - sum(taken))
        for outcome, mass in release(tuple(itertools.compress(records, taken))).items():
            law[outcome] += chance * mass
    return law


def neighbours(
    every: Sequence[Record],
    q: Fraction,
    num_others: int,
    release: Callable[[tuple[Record, ...]], Law],
    *,
    replaced: bool = False,
) -> set[Pair]:
    """Return the pairs of one step for all data sets of so many others and one record more, or one replaced."""
    found = set()
    for others in itertools.combinations_with_replacement(every, num_others):
        laws = [subsampled([*others, one], q, release) for one in every]
        against = laws if replaced else [subsampled(others, q, release)]
        found |= {pair(law, other) for law in laws for other in against}
    return found


def noisy(sums: Sequence[int], noises: Sequence[Noise]) -> Law:
    """Return the law of sums to each of which noise of its own is added."""
    law: dict[Hashable, Fraction] = defaultdict(Fraction)
    for errors in itertools.product(*(noise.items() for noise in noises)):
        mass = Fraction(1)
        for _, weight in errors:
            mass *= weight
        law[tuple(value + error for value, (error, _) in zip(sums, errors, strict=True))] += mass
    return law


def one_expert(noise: Noise, q: Fraction) -> Pair:
    """Return the pair of one record more (of contribution 1) against none, for a single expert."""
    return pair(*(subsampled(records, q, lambda batch: noisy([sum(batch)], [noise])) for records in ([1], [])))


def one_expert_replaced(noise: Noise, q: Fraction) -> Pair:
    """Return the pair of a record of contribution 1 against one of contribution -1, for a single expert."""
    return pair(*(subsampled(records, q, lambda batch: noisy([sum(batch)], [noise])) for records in ([1], [-1])))
