"""The command ``raptor-acct``."""

from collections.abc import Sequence

import click

from raptor_acct._version import __version__
from raptor_acct.cli._output import run
from raptor_acct.cli.audit import audit
from raptor_acct.cli.calibrate import calibrate
from raptor_acct.cli.epsilon import epsilon
from raptor_acct.cli.ledger import ledger
from raptor_acct.cli.mse import mse
from raptor_acct.cli.plot import plot
from raptor_acct.cli.routing import bias, routing, select


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="raptor-acct")
def cli() -> None:
    """Accounting and routing statistics of RAPTOR: differentially private fine-tuning of MoE models."""


for _command in (calibrate, epsilon, ledger, routing, select, bias, mse, audit, plot):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input gives one line on standard error and exit status 2."""
    run(cli, "raptor-acct", arguments)
