"""The command ``raptor-train``."""

from collections.abc import Sequence

import click

from raptor_acct._version import __version__
from raptor_acct.cli._output import run
from raptor_train.cli.attack import attack
from raptor_train.cli.compare import compare
from raptor_train.cli.demo import demo
from raptor_train.cli.evaluate import evaluate
from raptor_train.cli.fit import fit
from raptor_train.cli.public import norms, routing
from raptor_train.cli.report import report


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Fine-tune sparse Mixture-of-Experts models under differential privacy."""


for _command in (demo, routing, norms, fit, evaluate, compare, attack, report):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: every error of the user is one line on standard error and exit status 2."""
    run(cli, "raptor-train", arguments)
