"""P1 on finite spaces: every neighbouring pair, every event, every owner rule, in exact arithmetic.

Claims. E experts, records with contributions -1, 0 or 1 that go to one owner's block, Poisson sampling with rational q,
finite integer noise. Let the owner and the contribution of a record be any functions of the record and of all earlier
releases. Over every pair of neighbouring data sets of the size stated, every such function and every event S,
    max P(S) - αQ(S) = that of one expert on T steps, exactly, for every α >= 0,
for one record more, one less, and one replaced, also by one of another owner. With noise that differs between experts
it is that of the expert with the least, where the other noises are sums of that noise and something independent.

How. `_finite.adversary` maximises over all functions of the earlier releases at once. Since records of the data set
range over all owners and contributions, all data sets are met. Two independent checks hold it up: all events are
enumerated one by one in a small case, and whole two-step histories are enumerated for each rule of a class.

Assumptions. What is finite: 1 to 2 other records, E = 2 or 3, T = 1 to 3, symmetric noise. That a Gaussian of more
deviation is a sum of that kind, and vectors in place of -1, 0, 1, are p1_parallel.py's.

Source. theory.md P1; the paper's claim that per-expert mechanisms compose in parallel.

Code. raptor_acct.composition.parallel_across_experts
"""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
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
    exceeds,
    gaps,
    hockey_stick,
    neighbours,
    noisy,
    one_expert,
    one_expert_replaced,
    pair,
    reverse,
    subsampled,
)

Behaviour = tuple[int, int]  # a record's owner and contribution, given what was released before

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def release(batch: tuple[Behaviour, ...], noises: Sequence[Noise]) -> Law:
    """Return the law of all experts' noisy sums: what P1 is about."""
    return noisy([sum(value for owner, value in batch if owner == e) for e in range(len(noises))], noises)


def behaviours(num_experts: int) -> list[Behaviour]:
    """Return all that a record can do in one step."""
    return list(itertools.product(range(num_experts), (-1, 0, 1)))


def pairs(noises: Sequence[Noise], q: Fraction, num_others: int, *, replaced: bool) -> set[Pair]:
    """Return the pairs of one step of a layer, over all owners and contributions of all records."""
    every, layer = behaviours(len(noises)), partial(release, noises=noises)
    return neighbours(every, q, num_others, layer, replaced=replaced)


def times(one: Pair, steps: int) -> Pair:
    """Return the pair of independent releases of the same kind."""
    result = one
    for _ in range(steps - 1):
        result = both(result, one)
    return result


def check_worst(step: str, noises: Sequence[Noise], q: Fraction, num_others: int, steps: int) -> None:
    """Check that the worst of all adaptive rules is one expert with the first noise, in all three directions."""
    changed = pairs(noises, q, num_others, replaced=False)
    one = one_expert(noises[0], q)
    cases = {
        "one more": (changed, one),
        "one less": ({reverse(atoms) for atoms in changed}, reverse(one)),
        "replaced": (pairs(noises, q, num_others, replaced=True), one_expert_replaced(noises[0], q)),
    }
    for name, (found, reference) in cases.items():
        if any(gaps(adversary([found] * steps), times(reference, steps))):
            raise Unproved(f"{step}, {name}: not the divergence of one expert")


def every_rule() -> None:
    """All adaptive rules, for one to three steps, two and three experts, several noises (exact)."""
    check_worst("two others", [BINOMIAL] * 2, HALF, 2, 2)
    check_worst("three experts", [BINOMIAL] * 3, THIRD, 1, 2)
    check_worst("three steps", [BINOMIAL] * 2, HALF, 1, 3)
    check_worst("always sampled", [BINOMIAL] * 2, Fraction(1), 1, 2)
    check_worst("geometric noise", [GEOMETRIC] * 2, HALF, 1, 2)


def different_noises() -> None:
    """With more noise for one expert, the bound is that of the expert with less, and is attained (exact)."""
    wide: dict[int, Fraction] = defaultdict(Fraction)
    for (a, p), (b, r) in itertools.product(BINOMIAL.items(), repeat=2):
        wide[a + b] += p * r
    check_worst("different noises", [BINOMIAL, wide], HALF, 1, 2)
    less, more = one_expert(wide, HALF), one_expert(BINOMIAL, HALF)
    if exceeds(less, more) or not exceeds(more, less):
        raise Unproved("different noises: more noise does not give less divergence")


def every_event() -> None:
    """All 2^n events of one release of two experts, one by one: the best has the probability H says (exact)."""
    layer, reference = partial(release, noises=[BINOMIAL] * 2), one_expert(BINOMIAL, HALF)
    without, law = subsampled([], HALF, layer), subsampled([(0, 1)], HALF, layer)
    outcomes = sorted(law.keys() | without.keys(), key=str)
    for alpha in (HALF, Fraction(1), Fraction(3, 2)):
        gains = [law.get(x, Fraction(0)) - alpha * without.get(x, Fraction(0)) for x in outcomes]
        best = max(sum(itertools.compress(gains, event)) for event in itertools.product((0, 1), repeat=len(gains)))
        if not best == hockey_stick(pair(law, without), alpha) == hockey_stick(reference, alpha):
            raise Unproved(f"every event: the best at {alpha} gives {best}")


def histories(rules: Sequence[tuple[Behaviour, Behaviour, Behaviour]], q: Fraction) -> Law:
    """Return the law of both releases of two steps; a rule is a record's behaviour at first, and then by a parity."""
    layer, law = partial(release, noises=[BINOMIAL] * 2), dict[Hashable, Fraction]()
    for first, chance in subsampled([rule[0] for rule in rules], q, layer).items():
        parity = sum(first) % 2  # type: ignore[call-overload]
        later = subsampled([rule[1 + parity] for rule in rules], q, layer)
        law |= {(first, second): chance * mass for second, mass in later.items()}
    return law


def whole_histories() -> None:
    """Owners that depend on the first release: 64 rules, each enumerated in full, against two steps of one (exact)."""

    def owners(value: int) -> Iterator[tuple[Behaviour, Behaviour, Behaviour]]:
        for first, even, odd in itertools.product(range(2), repeat=3):
            yield (first, value), (even, value), (odd, value)

    reference = times(one_expert(BINOMIAL, THIRD), 2)
    any_rule = adversary([pairs([BINOMIAL] * 2, THIRD, 1, replaced=False)] * 2)
    for other in owners(-1):
        without = histories([other], THIRD)
        for rule in owners(1):
            atoms = pair(histories([other, rule], THIRD), without)
            if exceeds(atoms, reference):
                raise Unproved(f"whole histories: {rule} beside {other} exceeds one expert")
            if any(any_rule(alpha) < hockey_stick(atoms, alpha) for alpha in (HALF, Fraction(1), Fraction(2))):
                raise Unproved(f"whole histories: {rule} beside {other} exceeds what maximises over all rules")


def prove() -> None:
    """Check every step."""
    every_rule()
    different_noises()
    every_event()
    whole_histories()


if __name__ == "__main__":
    prove()
    print("p1_finite: proved")
