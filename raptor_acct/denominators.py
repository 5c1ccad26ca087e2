"""The public constants D_e that divide the experts' noisy sums: one table of rules, and what each does to the mean.

Expert e releases g_e = (sum of its clipped gradients + noise) / D_e. Its expectation is (Bπ_e/D_e) c̄_e instead of
c̄_e, the mean of its clipped gradients, so Bπ_e/D_e - 1 is the factor of c̄_e that is bias.
"""

import numpy as np

from raptor_acct._release import PerExpert, Release, per_expert
from raptor_acct._validate import choice, number, shown, whole
from raptor_acct.routing import FloatArray, RoutingStats, Vector, as_stats

RULES = {
    "expected_owner": "B/E",
    "batch": "B",
    "public_share": "B·π̂",
    "shrinkage": "B·π̂ + V/(B·π̂·‖c̄‖²)",
}
_FROM_PUBLIC = ("public_share", "shrinkage")  # the rules that take π̂
_LARGEST_FACTOR = 1e100  # its square times any clip norm squared is still a float


def public_denominators(
    denominator: str | Vector,
    *,
    num_experts: int,
    batch_size: float,
    public: RoutingStats | Vector | None = None,
    sampling_probability: float | None = None,
    clip_norm: PerExpert | None = None,
    noise_multiplier: PerExpert | None = None,
    num_parameters: PerExpert | None = None,
    mean_norm: PerExpert | None = None,
    second_moment: PerExpert | None = None,
) -> FloatArray:
    """Return the denominator D_e of every expert.

    ================  ==============================  ==========================================================
    denominator       D_e                             the release
    ================  ==============================  ==========================================================
    "expected_owner"  B/E                             biased by Eπ_e - 1, with noise that routing does not change
    "batch"           B                               shrunk by π_e, about 1/E
    "public_share"    Bπ̂_e                            biased by π_e/π̂_e - 1, with noise that grows as 1/π̂_e²
    "shrinkage"       Bπ̂_e + V_e/(Bπ̂_e ‖c̄_e‖²)        of the least mean squared error, if π̂ and the guesses are true
    a vector          as given                        of constants that must not depend on private records
    ================  ==============================  ==========================================================

    V_e = Bπ̂_e(1 - q)m_e + σ_e²C_e²d_e. Where nothing is expected, π̂_e = 0 or ‖c̄_e‖ = 0, the shrinkage denominator is
    infinite: that expert's release is 0, and it does not learn.

    Args:
        denominator: The rule by its name, or D_e > 0 of every expert, [experts], perhaps infinite.
        num_experts: E.
        batch_size: B = qN > 0, the expected batch size.
        public: π̂ as statistics, counts or probabilities of *public* records; only for "public_share" and "shrinkage".
        sampling_probability: q in (0, 1]; this and what follows only for "shrinkage".
        clip_norm: C_e > 0; one number or one for each expert, as everything below.
        noise_multiplier: σ_e > 0.
        num_parameters: d_e.
        mean_norm: A public guess of ‖c̄_e‖.
        second_moment: A public guess of m_e, in [‖c̄_e‖², C_e²].

    Returns:
        [experts], in records; public if ``public`` and the guesses are.

    Raises:
        ValueError: If an argument that the rule needs is missing or outside its range; for "realized", which is
            private; for "public_share" if π̂ has a zero.

    Source: theory.md B1-B6; the paper's ablation "w/ D_e = B" (Table 5).

    >>> public_denominators("public_share", num_experts=4, batch_size=1000, public=[6, 1, 2, 1])
    array([600., 100., 200., 100.])
    >>> noise = {"sampling_probability": 0.01, "clip_norm": 1.0, "noise_multiplier": 2.0, "num_parameters": 10_000}
    >>> guesses = {"mean_norm": 0.5, "second_moment": 1.0}
    >>> public_denominators(
    ...     "shrinkage", num_experts=4, batch_size=1000, public=[6, 1, 3, 0], **noise, **guesses
    ... ).round(2)
    array([ 870.63, 1703.96,  837.29,     inf])
    """
    experts = whole("num_experts", num_experts, low=2)
    batch = number("batch_size", batch_size, "(0, inf)")
    if not isinstance(denominator, str):
        return _given(denominator, experts)
    _refuse_realized(denominator)
    rule = choice("denominator", denominator, RULES)
    if rule not in _FROM_PUBLIC:
        return np.full(experts, batch if rule == "batch" else batch / experts)
    shares = _public_shares(rule, public, experts)
    if rule == "public_share":
        return batch * _without_zeros(shares)
    release = Release.of(
        experts,
        sampling_probability=sampling_probability,
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        num_parameters=num_parameters,
        mean_norm=mean_norm,
        second_moment=second_moment,
    )
    return _shrinkage(batch * shares, release)


def bias_factors(stats: RoutingStats, denominators: FloatArray, batch_size: float) -> FloatArray:
    """Return Bπ_e/D_e - 1 of every expert, [experts]; -1 where D_e is infinite, exact where D_e = B/E.

    Raises:
        ValueError: If one is too large for a float to hold its square.

    >>> bias_factors(RoutingStats.from_counts([6, 1, 1, 0]), np.array([250.0, 250.0, 1000.0, np.inf]), 1000.0)
    array([ 2.   , -0.5  , -0.875, -1.   ])
    """
    with np.errstate(all="ignore"):  # what divides by next to nothing is refused just below
        factors = batch_size * stats.probabilities / denominators - 1
        refused = ~(factors <= _LARGEST_FACTOR)
    if refused.any():
        i = int(refused.argmax())
        got = f"D[{i}]={denominators[i]:g} and B·π[{i}]={batch_size * stats.probabilities[i]:g}"
        raise ValueError(f"expected denominators D of at least B·π/{_LARGEST_FACTOR:g}, got {got}")
    return np.where(denominators == batch_size / stats.num_experts, stats.deviations, factors)


def needs_batch_size(denominator: object) -> bool:
    """Return whether Bπ_e/D_e depends on B; for most rules it cancels."""
    return not isinstance(denominator, str) or denominator == "shrinkage"


def _given(denominator: Vector, num_experts: int) -> FloatArray:
    entries = np.asarray(denominator, dtype=object)
    if entries.shape != (num_experts,):
        rules = ", ".join(map(repr, RULES))
        rule = f"one of {rules}, or a vector of {num_experts} public constants"
        raise ValueError(f"expected denominator to be {rule}, got denominator={shown(denominator)}")
    return per_expert("denominator", denominator, "(0, inf]", num_experts)


def _public_shares(rule: str, public: RoutingStats | Vector | None, num_experts: int) -> FloatArray:
    if public is None:
        rules = ", ".join(repr(name) for name in RULES if name not in _FROM_PUBLIC)
        fix = "for this one give public=, the routing of public records"
        raise ValueError(f"expected denominator to be one of {rules}, got denominator={rule!r}; {fix}")
    stats = as_stats("public", public)
    if stats.num_experts != num_experts:
        raise ValueError(f"expected public to be of {num_experts} experts, got public of {stats.num_experts}")
    return stats.probabilities


def _without_zeros(shares: FloatArray) -> FloatArray:
    if not shares.all():
        fix = "smooth the public counts, for instance by adding 1 to each, or use denominator='shrinkage'"
        raise ValueError(f"expected public shares > 0, got 0 for expert {int(shares.argmin())}; {fix}")
    return shares


def _shrinkage(expected: FloatArray, release: Release) -> FloatArray:
    """B5 for the expected numbers of sampled records, Bπ̂_e; infinite too where the exact value is beyond floats."""
    with np.errstate(all="ignore"):
        squared = release.mean_norm**2
        finite = expected + release.record_variance / squared + release.noise_variance / squared / expected
    return np.where((expected > 0) & (squared > 0), finite, np.inf)


def _refuse_realized(denominator: str) -> None:
    if denominator in ("realized", "realised"):
        raise ValueError(
            "expected denominator to be a public constant, got denominator='realized': the number of an expert's "
            "records in the batch is private, and noise that is divided by it shows it, whatever the noise multiplier "
            "(B6); use 'expected_owner' (B/E)"
        )
