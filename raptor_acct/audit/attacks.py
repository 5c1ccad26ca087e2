"""Scores that attacks are made of, from logits in float64: the log-likelihood, and the logit of the confidence."""

import numpy as np
import numpy.typing as npt

from raptor_acct.audit._inputs import FloatArray, real_array


def loss_attack(logits: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """Return log p_y, minus the cross-entropy loss, of each record: the score of the loss attack.

    Args:
        logits: [records, classes], of the attacked model in evaluation mode.
        labels: [records], integers in 0..classes-1.

    Returns:
        [records]; higher means "member". As private as the records.

    Raises:
        ValueError: On shapes or values that do not fit, or fewer than 2 classes.

    Source: Yeom et al. 2018.

    >>> loss_attack([[2.0, 0.0], [0.0, 800.0]], [0, 0]).round(4)
    array([-1.269e-01, -8.000e+02])
    """
    own, others = _own_and_others(logits, labels)
    return -np.logaddexp(0.0, others - own)


def confidence_logits(logits: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """Return φ = log p_y - log Σ_{j≠y} p_j, the logit of the confidence, of each record: what LiRA compares.

    It is z_y - logsumexp_{j≠y} z_j. Probabilities are never formed, so no confidence is too near to 1: from saturated
    ones, log(p/(1-p)) is wrong by tens.

    Args, Returns, Raises: As `loss_attack`.

    Source: Carlini et al. 2022, §IV.C.

    >>> confidence_logits([[2.0, 0.0, 0.0], [800.0, 0.0, 0.0]], [0, 0]).round(4)
    array([  1.3069, 799.3069])
    """
    own, others = _own_and_others(logits, labels)
    return own - others


def _own_and_others(logits: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the label's logit, and the logsumexp of the others, [records] each."""
    z = real_array("logits", logits, dimensions=(2,))
    records, classes = z.shape
    y = np.asarray(labels)
    if classes < 2:
        raise ValueError(f"expected logits of at least 2 classes, got shape {z.shape}")
    if y.shape != (records,) or y.dtype.kind not in "iu" or not ((y >= 0) & (y < classes)).all():
        got = f"shape {y.shape} of type {y.dtype}" + (f" in {y.min()}..{y.max()}" if y.size else "")
        raise ValueError(f"expected labels to be {records} integers in 0..{classes - 1}, got {got}")
    others = z.copy()
    others[np.arange(records), y] = -np.inf
    return z[np.arange(records), y], np.logaddexp.reduce(others, axis=1)
