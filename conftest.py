"""Run the README: its Python blocks, and its ``raptor-acct`` commands against the output it shows."""

import os
import shlex

# The tests run in one process a core, on small arrays: more threads would only wait for each other. The libraries
# read this when they are loaded, the processes that tests start as well.
os.environ["OMP_NUM_THREADS"] = "1"

from click.testing import CliRunner
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from raptor_acct.cli import cli


def run_console(example: Example) -> str | None:
    """Compare what a command of ours prints with what the page shows; other commands are not run."""
    command, _, expected = example.parsed.partition("\n")
    words = shlex.split(command.removeprefix("$ "))
    if words[0] != "raptor-acct":
        return None
    shown = CliRunner().invoke(cli, words[1:]).output
    return None if shown.strip() == expected.strip() else f"{command}\nshows\n{expected}\nbut printed\n{shown}"


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), CodeBlockParser("console", run_console)], patterns=["README.md"]
).pytest()
