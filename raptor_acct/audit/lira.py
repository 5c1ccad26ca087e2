"""LiRA, the likelihood ratio attack: each record's score against those of shadow models with and without it."""

import math
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import choice
from raptor_acct.audit._inputs import BoolArray, FloatArray, memberships, real_array

Mode = Literal["online", "offline"]
Variance = Literal["per_example", "global"]

_LEAST_STD = 1e-30  # the reference adds it, so that shadow models which agree exactly divide by no zero


def lira(
    scores: npt.ArrayLike,
    shadow_scores: npt.ArrayLike,
    shadow_members: npt.ArrayLike,
    *,
    mode: Mode = "online",
    variance: Variance = "per_example",
) -> FloatArray:
    """Return the attack's score of each record.

    The shadow models' scores of a record are taken for Gaussian, separately where it was in the training data and
    where it was not. Online: the log-likelihood ratio. Offline: how many standard deviations the score lies above
    those without the record, which orders records as the paper's one-sided 1 - P[Z > φ] does, and never saturates.

    Choices of the authors' program that this follows: the centre is the median over shadow models; the standard
    deviation is about the mean, with divisor n; with queries, the scores of one record are averaged at the end.
    ``"per_example"`` has one deviation for each record, query and side, over the shadow models. ``"global"``, for few
    shadow models (fewer than 64, says the paper), has a single one, over all models, records and queries together;
    online it is that of the members, on both sides. Where it differs: unequal numbers of models in and out are all
    used, not cut to the smallest; offline, the program takes the density, by which a score far *below* speaks for
    membership too; the paper's test is one-sided, and so is this.

    Args:
        scores: [records] or [records, queries], of the attacked model; `confidence_logits`, for example.
        shadow_scores: [models, records] or [models, records, queries], of shadow models, not the attacked one.
        shadow_members: [models, records], 1 where the record was in that model's training data.
        mode: ``"offline"`` uses the models without the record alone.
        variance: See above.

    Returns:
        [records]; higher means "member". As private as the records.

    Raises:
        ValueError: On shapes or values that do not fit, or if a record has too few models: 2 on each side that is used
            with ``"per_example"``, 1 with ``"global"``.

    Source: Carlini et al. 2022, algorithm 1 and §VI; its program, tensorflow/privacy, mi_lira_2021/plot.py.

    >>> members = [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> shadow = [[5.0, 1.0], [7.0, 2.0], [1.0, 6.0], [3.0, 8.0]]
    >>> lira([6.0, 1.0], shadow, members), lira([6.0, 1.0], shadow, members, mode="offline")
    (array([  8.        , -18.19314718]), array([ 4., -1.]))
    """
    choice("mode", mode, get_args(Mode))
    choice("variance", variance, get_args(Variance))
    shadow = real_array("shadow_scores", shadow_scores, dimensions=(2, 3))
    target = real_array("scores", scores, dimensions=(1, 2))
    if target.shape != shadow.shape[1:]:
        raise ValueError(f"expected scores of shape {shadow.shape[1:]}, as shadow_scores[0], got {target.shape}")
    inside = memberships("shadow_members", shadow_members, shadow.shape[:2])
    queries = (*shadow.shape, 1)[:3]
    shadow, target = shadow.reshape(queries), target.reshape(queries[1:])
    centre, deviation = _fit("without", shadow, ~inside, variance)
    if mode == "offline":
        return _mean_of_queries((target - centre) / deviation)
    member_centre, member_deviation = _fit("with", shadow, inside, variance)
    if variance == "global":
        deviation = member_deviation
    ratio = _log_density(target, member_centre, member_deviation) - _log_density(target, centre, deviation)
    return _mean_of_queries(ratio)


def _fit(side: str, shadow: FloatArray, chosen: BoolArray, variance: Variance) -> tuple[FloatArray, FloatArray]:
    """Return centre and deviation, [records, queries] each or broadcasting to it, of the chosen scores."""
    least = 2 if variance == "per_example" else 1
    counts = chosen.sum(axis=0)
    if counts.min() < least:
        i = int(counts.argmin())
        hint = "; or variance='global'" if least == 2 else ""
        got = f"{counts[i]} for record {i}"
        raise ValueError(f"expected at least {least} shadow models {side} each record, got {got}; train more{hint}")
    kept = np.where(chosen[:, :, None], shadow, math.nan)
    deviation = np.nanstd(kept, axis=0) if variance == "per_example" else np.asarray(np.nanstd(kept))
    return np.nanmedian(kept, axis=0), deviation + _LEAST_STD


def _mean_of_queries(values: FloatArray) -> FloatArray:
    """Return [records] from [records, queries]."""
    result: FloatArray = values.mean(axis=1)
    return result


def _log_density(x: FloatArray, centre: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the log of the normal density, but for the constant."""
    result: FloatArray = -(((x - centre) / deviation) ** 2) / 2 - np.log(deviation)
    return result
