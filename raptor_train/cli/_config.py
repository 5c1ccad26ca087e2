"""Flags for every setting of a run, made from the configuration's own fields, over those of a YAML file."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import click

from raptor_acct._validate import shown
from raptor_acct.cli._output import one_line_errors

Command = Callable[..., None]
_RENAMED = {"model.name": "model", "data.folder": "data"}
_SWITCHES = ("model.random_weights", "report_not_private_loss", "data.count_duplicates")
_WITH_SECTION = ("shared", "expert")  # the same settings for both roles


def config_options(command: Command) -> Command:
    """Give a command ``--config FILE`` and a flag for every setting; it gets the ``config`` made of both.

    Errors become one line with exit status 2.
    """
    from raptor_train.config import RunConfig
    from raptor_train.settings import leaves

    names = {_flag(name): (name, words) for name, words in leaves(RunConfig)}

    @wraps(command)
    def wrapped(config: str | None, **given: Any) -> None:
        flags = {flag.replace("-", "_"): name for flag, (name, _) in names.items()}
        changes = {flags[key]: given.pop(key) for key in list(given) if key in flags}
        changes = {name: value for name, value in changes.items() if value is not None}
        needs("torch", "transformers", "tokenizers", "safetensors", "tqdm")
        if config is None:
            from raptor_train.settings import with_changes

            made = RunConfig.from_dict(with_changes({}, changes))
        else:
            made = RunConfig.from_yaml(config, changes)
        command(config=made, **given)

    result: Command = one_line_errors(wrapped)
    for flag, (name, words) in reversed(names.items()):
        is_switch = name in _SWITCHES
        result = click.option(f"--{flag}", flag.replace("-", "_"), help=words, default=None, is_flag=is_switch)(result)
    return click.option("--config", "config", metavar="FILE", help="YAML settings; flags win over them.")(result)


def listed(title: str, *lines: str) -> str:
    """Lines below a command's help that are not wrapped."""
    return "\b\n" + "\n".join([f"{title}:", *(f"  {line}" for line in lines)])


def needs(*modules: str) -> None:
    """Check that optional packages are installed.

    Raises:
        ValueError: Naming those that are not and what to install.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise ValueError(f"this needs {', '.join(missing)}: pip install 'raptor-moe-dp[train,plots]'")


def whole_numbers(name: str, text: str) -> list[int]:
    """The whole numbers in ``text``, with commas between.

    Raises:
        ValueError: If a part is none.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected {name} as whole numbers with commas between, got {shown(text)}") from None


def _flag(name: str) -> str:
    section, _, key = name.rpartition(".")
    flag = _RENAMED.get(name) or (f"{section}-{key}" if section in _WITH_SECTION else key)
    return flag.replace("_", "-")
