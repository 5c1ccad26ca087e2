"""The command ``audit``: a measured attack beside its ceiling, and what it proves about the mechanism."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from raptor_acct._arguments import check_q, plan_of
from raptor_acct._validate import number, whole
from raptor_acct.adjacency import Adjacency
from raptor_acct.audit import Leakage, OperatingPoint, Roc, canary_lower_bound, roc, tpr_ceiling, trials_lower_bound
from raptor_acct.audit.scores_file import parse_scores
from raptor_acct.cli._input import adjacency_option, json_option, numbers, read_file
from raptor_acct.cli._output import echo_json, echo_table, one_line_errors, rounded_up
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import MOST_STEPS, NOISE_RANGE, SubsampledGaussian
from raptor_acct.plots import attack_roc

_GAMES = ("records", "one_run", "trials")


@dataclass(frozen=True, kw_only=True)
class _Result:
    """What was measured; ``found`` is None for records, of which no bound follows."""

    curve: Roc
    points: list[OperatingPoint]
    guarantee: Guarantee | None
    found: Leakage | None

    def to_dict(self) -> dict[str, Any]:
        guarantee = self.guarantee
        points = [point.to_dict() for point in self.points]
        if guarantee is not None:
            for told, point in zip(points, self.points, strict=True):
                told |= {"tpr_ceiling": tpr_ceiling(guarantee, point.fpr_target), "exceeds": point.exceeds(guarantee)}
        return {
            "num_members": self.curve.num_members,
            "num_nonmembers": self.curve.num_nonmembers,
            "auc": self.curve.auc,
            "auc_standard_error": self.curve.auc_standard_error,
            "points": points,
            "guarantee": None if guarantee is None else guarantee.to_dict(),
            "leakage": None if self.found is None else self.found.to_dict(),
        }


@click.command()
@click.argument("file")
@click.option(
    "--game",
    type=click.Choice(_GAMES),
    default="records",
    show_default=True,
    help="What a line is: a record of an attacked model; a canary of one run, included by a fair coin; a run.",
)
@click.option("--fpr", default="0.001,0.01,0.1", show_default=True, help="False positive rates of the table.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of each interval and bound.")
@click.option("--delta", type=float, help="Delta of the lower bound on epsilon; needed but for records.")
@click.option("--guesses", help="For one_run: how many canaries to guess, a fifth by default; several with commas.")
@click.option("--sigma-shared", type=float, help="For ceilings: noise multiplier of the shared stream.")
@click.option("--sigma-expert", type=float, help="For ceilings: noise multiplier of the experts.")
@click.option("--q", help="For ceilings: sampling probability; a pair 'shared,expert' if they differ.")
@click.option("--steps", help="For ceilings: releases of a stream; a pair 'shared,expert' if they differ.")
@click.option("--plot", "picture", metavar="FILE", help="Also draw the ROC curve, as .png, .pdf or .svg.")
@adjacency_option
@json_option
@one_line_errors
def audit(
    file: str,
    game: str,
    fpr: str,
    confidence: float,
    delta: float | None,
    guesses: str | None,
    sigma_shared: float | None,
    sigma_expert: float | None,
    q: str | None,
    steps: str | None,
    picture: str | None,
    adjacency: Adjacency,
    as_json: bool,
) -> None:
    """Print AUC and TPR of the attack in FILE, and lower bounds on epsilon and mu if the game allows them.

    FILE is CSV with the columns score (higher for members) and member (1 or 0); - for standard input.
    """
    data, name = read_file(file)
    scores, members = parse_scores(data, name=name)
    curve = roc(scores, members)
    wanted = numbers("fpr", fpr)
    points = curve.table(wanted if isinstance(wanted, tuple) else (wanted,), confidence)
    guarantee = _guarantee(sigma_shared, sigma_expert, q, steps, adjacency)
    found = None
    if game != "records":
        if delta is None:
            raise ValueError("expected --delta, at which epsilon is bounded")
        bounds = partial(canary_lower_bound, guesses=_tried(guesses)) if game == "one_run" else trials_lower_bound
        found = bounds(scores, members, delta=delta, confidence=confidence, adjacency=adjacency)
    result = _Result(curve=curve, points=points, guarantee=guarantee, found=found)
    if picture is not None:
        _draw(result, picture)
    if as_json:
        echo_json("audit", result.to_dict())
    else:
        _echo(result)


def _tried(guesses: str | None) -> Any:
    return None if guesses is None else numbers("guesses", guesses)


def _guarantee(
    sigma_shared: float | None, sigma_expert: float | None, q: str | None, steps: str | None, adjacency: Adjacency
) -> Guarantee | None:
    """Return what the mechanism guarantees, if it is given."""
    sigmas = [sigma for sigma in (sigma_shared, sigma_expert) if sigma is not None]
    if not sigmas and q is None and steps is None:
        return None
    if not sigmas or q is None or steps is None:
        raise ValueError("expected --q, --steps and at least one of --sigma-shared and --sigma-expert for ceilings")
    rate, count = numbers("q", q), numbers("steps", steps)
    if len(sigmas) == 2:
        return plan_of(sigmas[0], sigmas[1], rate, count, "independent").guarantee(adjacency)
    stream = SubsampledGaussian(
        num_steps=whole("steps", count, high=MOST_STEPS),
        sampling_probability=check_q("q", rate),
        noise_multiplier=number("sigma", sigmas[0], NOISE_RANGE),
    )
    return stream.guarantee(adjacency)


def _draw(result: _Result, picture: str) -> None:
    ceilings = {} if result.guarantee is None else {"ceiling of every attack": result.guarantee}
    confidence = result.points[0].confidence
    try:
        attack_roc({"attack": result.curve}, ceilings=ceilings, confidence=confidence).save(picture)
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None


def _echo(result: _Result) -> None:
    curve, guarantee = result.curve, result.guarantee
    error = "" if curve.auc_standard_error is None else f", standard error {curve.auc_standard_error:.4f}"
    click.echo(f"{curve.num_members} members, {curve.num_nonmembers} non-members; AUC {curve.auc:.4f}{error}")
    header = ["FPR at most", "FPR", "TPR", f"TPR, interval at {result.points[0].confidence:g}"]
    rows = [
        [f"{p.fpr_target:g}", f"{p.fpr:.4g}", f"{p.tpr:.4g}", f"{p.tpr_interval[0]:.4g}..{p.tpr_interval[1]:.4g}"]
        for p in result.points
    ]
    if guarantee is not None:
        header += [f"of any attack, at most ({guarantee.adjacency})", "exceeded"]
        for row, point in zip(rows, result.points, strict=True):
            row += [rounded_up(tpr_ceiling(guarantee, point.fpr_target)), _yes(point.exceeds(guarantee))]
    echo_table(header, rows)
    if result.found is not None:
        _echo_bounds(result.found, guarantee)


def _echo_bounds(found: Leakage, guarantee: Guarantee | None) -> None:
    click.echo(
        f"game {found.game}, {found.adjacency}: {found.num_canaries} counted, {found.num_guesses} guessed, "
        f"{found.num_correct} right, {found.num_abstentions} abstentions"
    )
    click.echo(
        f"at confidence {found.confidence:g}: epsilon at delta {found.delta:.4g} is at least "
        f"{_rounded_down(found.epsilon)}, mu at least {_rounded_down(found.mu)}"
    )
    if guarantee is not None:
        claimed = rounded_up(guarantee.epsilon(found.delta))
        click.echo(f"refutes the guarantee's epsilon of {claimed}: {_yes(found.exceeds(guarantee))}")


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _rounded_down(value: float) -> str:
    return f"{int(value * 1e4) / 1e4:.4f}"
