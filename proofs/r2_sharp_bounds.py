"""The sharp bounds on the coefficient of variation at a given entropy, and the distributions that attain them.

Claims. Among the distributions over E >= 2 experts with entropy h, 0 <= h <= log E, Σπ² = (1 + CV²)/E is
(a) largest at (a, b, ..., b) with a >= b, and only there but for the order of the experts;
(b) smallest at (a, ..., a, b, 0, ..., 0) with 0 <= b <= a, and only there; the least whole k >= exp(h) have a share.
(c) Both ends fall strictly in h, continuously, and every CV between them is attained.

Proof. Take three shares, scale their sum to 1, keep that and their entropy, sort them, and call the smallest s. The
others are then functions of s on an interval, and Σπ² rises strictly with s from (a, a, s) or (a, b, 0) to (a, s, s)
(`ends`, `slide`). A distribution with the largest Σπ² exists by compactness, and none of its triples can be slid up:
each is (a, s, s), a >= s. So its largest share stands alone or all are equal, and one is 0 only if all but one are.
Where Σπ² is smallest no triple can be slid down: each is (a, a, s) or (a, b, 0), so at most one positive share differs
from the largest. Each of the two families runs through every entropy once (`families`). Two experts have no triple: h
alone determines their shares, which are of both forms. For (c) see `between`.

Assumptions. None on π: shares may be 0.

Source. theory.md R2; Harremoës and Topsøe 2001, here with a proof of its own. Table 9 of the paper.

Code. raptor_acct.entropy.cv_bounds, and read the other way by (c) raptor_acct.entropy.deficit_bounds
"""

import mpmath as mp
import sympy as sp

from proofs._check import at_most, close, equal, instances, positive
from raptor_acct.entropy import cv_bounds, deficit_bounds

TABLE_9 = [(0.344, 0.972), (2.185, 0.304), (1.123, 0.682), (2.224, 0.307), (0.627, 0.902), (1.121, 0.761)]


def scaling() -> None:
    """Shares tr of sum t have the entropy t·H(r) - t log t (symbolic; one share's part)."""
    t, r = sp.symbols("t r", positive=True)
    equal("one share", sp.expand_log(-t * r * sp.log(t * r)), sp.expand(t * (-r * sp.log(r)) - r * t * sp.log(t)))


def ends() -> None:
    """The s that go with an entropy h form an interval, and at most one triple goes with each (symbolic).

    At a given s the entropy rises with the middle share, from that of (1 - 2s, s, s) to that of ((1-s)/2, (1-s)/2, s).
    Both rise in s, so h lies between them from the s where the latter is h (or from 0) to the s where the former is h.
    These differ unless all three shares are equal, or only one is not 0.
    """
    s, mid, more = sp.symbols("s mid more", positive=True)
    equal("in the middle share", sp.diff(_entropy(1 - mid - s, mid, s), mid), sp.log(1 - mid - s) - sp.log(mid))
    low, high = sp.diff(_entropy(1 - 2 * s, s, s), s), sp.diff(_entropy((1 - s) / 2, (1 - s) / 2, s), s)
    equal("the lower end", sp.expand_log(low.subs(s, 1 / (3 + more)).factor(deep=True)), 2 * sp.log(1 + more))
    equal("the upper end", sp.expand_log(high.subs(s, 1 / (3 + more)).factor(deep=True)), sp.log(2 + more) - sp.log(2))
    positive("rises", sp.log(1 + more))  # and 2 + more > 2


def slide() -> None:
    """Σπ² of a sorted triple rises strictly in its smallest share, at fixed sum and entropy (symbolic).

    With shares top > mid > s, x = top/mid > 1 > y = s/mid, the slope times log(x)/(2 mid) is (1-y) τ(x) + (x-1) τ(y),
    where τ(z) = z - 1 - log z > 0 for z ≠ 1 (R1).
    """
    mid, s, x, y = sp.symbols("mid s x y", positive=True)
    top = 1 - mid - s
    by_mid, by_s = (sp.diff(_entropy(top, mid, s), share) for share in (mid, s))
    squares = top**2 + mid**2 + s**2
    slope = sp.diff(squares, s) - sp.diff(squares, mid) * by_s / by_mid  # mid moves by -by_s/by_mid
    scaled = (slope * by_mid / (2 * mid)).subs({mid: 1 / (1 + x + y), s: y / (1 + x + y)}, simultaneous=True)
    claimed = (1 - y) * (x - 1 - sp.log(x)) + (x - 1) * (y - 1 - sp.log(y))
    equal("slope", sp.expand_log(sp.factor(scaled, deep=True)), claimed)


def families() -> None:
    """(a, b), (c) k shares, one (1 + t)/k, others (1 - t/(k-1))/k: KL and CV² rise with |t| (symbolic in k, E).

    (a) is k = E, 0 <= t <= E - 1. (b) is -1 <= t <= 0, and its end at k is its beginning at k - 1.
    """
    t, others, more, experts = sp.symbols("t others more E", positive=True)  # others = k - 1
    k = others + 1

    def divergence(t: sp.Expr) -> sp.Expr:
        one, rest = (1 + t) / k, (1 - t / others) / k
        return one * sp.log(experts * one) + others * rest * sp.log(experts * rest)

    def chi2(t: sp.Expr) -> sp.Expr:
        return experts * (((1 + t) / k) ** 2 + others * ((1 - t / others) / k) ** 2) - 1

    equal("CV²", chi2(t), (experts - k) / k + experts / k * t**2 / others)
    up = sp.expand_log(sp.diff(divergence(t), t).subs(t, others / (1 + more)).factor(deep=True))  # t < k - 1
    equal("t > 0", up, (sp.log(1 + more + others) - sp.log(more)) / k)
    down = sp.expand_log(sp.diff(divergence(-t), t).subs(t, 1 / (1 + more)).factor(deep=True))  # t < 1
    equal("t < 0", down, (sp.log(1 + others * (1 + more)) - sp.log(others) - sp.log(more)) / k)
    positive("both", sp.expand(1 + others * (1 + more) - others * more))  # and 1 + more + others > more
    equal("joined: CV²", chi2(-1), chi2(0).subs(others, others - 1))
    equal("joined: KL", sp.limit(divergence(t - 1), t, 0), sp.log(experts / others))


def between() -> None:
    """(c) a path of entropy h from (b) to (a), so that every CV in between occurs (symbolic in E).

    Give both the largest share p at the same expert. On the segment between them the entropy is at least h, as it is
    concave. From each of its points go towards p = 1: the entropy is strictly concave on the way, starts with the slope
    -log p - H <= 0 (as -log p is the least of the -log π that H averages), so it falls strictly, to 0, and meets h
    once, at a place that moves continuously. The ends of the segment already have entropy h.
    """
    p, r, left, more = sp.symbols("p r left more", positive=True)  # left = 1 - r
    rest = sp.symbols("rest", real=True)  # Σ π log π over the other experts, whose shares become π(1 - r)
    one = p + r * (1 - p)
    falls = -one * sp.log(one) - (1 - r) * (rest + (1 - p) * sp.log(1 - r))
    equal("H", falls.subs(r, 0), -p * sp.log(p) - rest)
    equal("slope", sp.diff(falls, r).subs(r, 0), -sp.log(p) - falls.subs(r, 0))
    second = sp.diff(falls, r, 2)
    equal("curvature", second, -((1 - p) ** 2) / one - (1 - p) / (1 - r))
    positive("concave", -sp.factor(second.subs(r, 1 - left).subs(p, 1 / (1 + more))).subs(left, 1 / (1 + more * r)))


def example() -> None:
    """Random distributions, some with empty experts; Table 9 whatever its further digits; the code's ends (numeric)."""
    instances("inside", lambda *weights: _inside([max(w, 0) for w in weights]), *5 * [(-0.3, 1)], count=25)
    with mp.workdps(40):
        for printed, normalized in TABLE_9:
            at_most("lower", _ends((normalized + 5e-4) * mp.log(8), 8)[0], printed + 5e-4)
            at_most("upper", printed - 5e-4, _ends((normalized - 5e-4) * mp.log(8), 8)[1])
        for experts, deficit in ((2, 0.1), (3, 0.5), (8, 1e-3), (8, 1.4), (64, 0.9), (512, 2.5)):
            exact = _ends(mp.log(experts) - mp.mpf(deficit), experts)
            for end, computed, outward in zip(exact, cv_bounds(deficit, experts), (1, -1), strict=True):
                at_most("the code rounds outwards", outward * computed, outward * end)
                close("and no further", mp.mpf(computed), end, 11)
            for known, end, inward in zip(
                exact, (1, 0), (1, -1), strict=True
            ):  # the largest deficit at the smallest CV
                computed = deficit_bounds(float(known), experts)[end]
                close("and back", mp.mpf(computed), mp.mpf(deficit), 11)
                at_most("outwards as well", inward * mp.mpf(deficit), inward * mp.mpf(computed) + mp.mpf(10) ** -14)


def _inside(weights: list[mp.mpf]) -> bool:
    shares = [w / mp.fsum(weights) for w in weights] if any(weights) else [1, *[0] * (len(weights) - 1)]
    low, high = _ends(entropy(shares), len(shares))
    return low - mp.mpf(10) ** -30 <= cv(shares) <= high + mp.mpf(10) ** -30


def _ends(h: mp.mpf, experts: int) -> list[mp.mpf]:
    return [cv(shares) for shares in extremes(h, experts)]


def extremes(h: mp.mpf, experts: int) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """Return (b) and (a): the distributions with the smallest and the largest CV at the entropy ``h``."""
    support = max(int(mp.ceil(mp.exp(h) - mp.mpf(10) ** -30)), 1)
    return [*_one_apart(h, support, 0), *[mp.mpf(0)] * (experts - support)], _one_apart(h, experts, 1)


def _one_apart(h: mp.mpf, number: int, end: int) -> list[mp.mpf]:
    """Return so many shares of entropy ``h``, the first between 1/number and ``end``, the others equal."""
    even, uneven = mp.mpf(1) / number, mp.mpf(end)
    for _ in range(4 * mp.mp.dps if number > 1 else 0):
        share = (even + uneven) / 2
        rest = (1 - share) / (number - 1)
        above = entropy([share]) + (number - 1) * entropy([rest]) > h
        even, uneven = (share, uneven) if above else (even, share)
    return [even, *[(1 - even) / (number - 1)] * (number - 1)] if number > 1 else [even]


def entropy(shares: list[mp.mpf]) -> mp.mpf:
    """H in nats."""
    return -mp.fsum(p * mp.log(p) for p in shares if p > 0)


def cv(shares: list[mp.mpf]) -> mp.mpf:
    """√(EΣπ² - 1)."""
    return mp.sqrt(max(len(shares) * mp.fsum(p * p for p in shares) - 1, 0))


def _entropy(*shares: sp.Expr) -> sp.Expr:
    return -sum(share * sp.log(share) for share in shares)


def prove() -> None:
    """Check every step."""
    scaling()
    ends()
    slide()
    families()
    between()
    example()


if __name__ == "__main__":
    prove()
    print("r2_sharp_bounds: proved")
