"""The command ``demo``."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import click

from raptor_acct.cli._output import echo_json, one_line_errors


@click.command()
@click.option("--eps", type=float, default=8.0, show_default=True, help="Total privacy budget ε.")
@click.option("--rho", type=float, default=0.9, show_default=True, help="Share of ε for the shared stream.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of batches, noise and adapters.")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder  [default: runs/demo-DATE-TIME]")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON instead of words.")
@one_line_errors
def demo(
    eps: float,
    rho: float,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Public routing, calibration and private training of a small Switch model on real text, offline.

    Learns the sentiment of Rotten Tomatoes sentences (private) with a model pretrained on IMDb reviews (public), with
    RAPTOR, with monolithic DP at the same ε, and without privacy. Takes about two minutes on two cores.
    """
    from raptor_train.demo.settings import Settings

    settings = Settings(eps=eps, rho=rho, seed=seed)
    missing = [name for name in ("torch", "transformers", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ValueError(f"the demo needs {', '.join(missing)}: pip install 'raptor-moe-dp[demo]'")
    folder = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    if folder.exists():
        raise ValueError(f"expected a run folder that does not exist, got {folder}")
    words = (lambda text: None) if as_json else click.echo
    words("Loading torch and the model ...\n")
    from raptor_train.demo.run import run_demo
    from raptor_train.report import write_report

    results = run_demo(settings, folder, words, progress=not as_json)
    write_report(results, folder)
    if as_json:
        echo_json("demo", results)
    else:
        click.echo(f"\nReport, plots, ledgers and all numbers: {folder}/report.html (or .md, results.json)")
        click.echo(f"Whole demo: {results['seconds']:.0f} s")
