"""A run's public values for tensorboard, wandb and the like, through transformers' own reporting callbacks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.utils import flatten_dict

NOT_PRIVATE = "NOT_PRIVATE_"  # begins the name of every value that no guarantee covers


def reporting_callbacks(names: Sequence[str]) -> list[TrainerCallback]:
    """Make the callbacks of services by the names that transformers gives them; nothing is sent yet.

    Raises:
        ValueError: If there is no such service, or its package is not installed.
    """
    made: list[TrainerCallback] = []
    # Or wandb would send the terminal too, where scores on private text are shown.
    os.environ.setdefault("WANDB_CONSOLE", "off")
    for name in dict.fromkeys(names):
        try:
            (kind,) = get_reporting_integration_callbacks([name])  # type: ignore[no-untyped-call]
            made.append(kind())
        except ValueError as error:
            raise ValueError(f"expected report_to to name services that transformers knows, got {error}") from None
        except (RuntimeError, ImportError) as error:
            raise ValueError(f"expected the services in report_to to be installed, got {name!r}: {error}") from None
    return made


class Reports:
    """Sends values to callbacks; the model, the data and the trainer's own objects never reach them.

    A callback's wish to stop the training is ignored: the plan alone decides when it ends.

    Args:
        callbacks: Who gets the values; one that fails while training runs gets no more.
        folder: Where callbacks may write; the run's folder.
        settings: The configuration of the run, sent when it begins. Public.
        num_cycles: How many there will be.
        private: Whether the run has a guarantee. Without one, what depends on the weights is marked as not private.
    """

    def __init__(
        self,
        callbacks: Sequence[TrainerCallback],
        *,
        folder: Path,
        settings: Mapping[str, Any],
        num_cycles: int,
        private: bool,
    ):
        self._callbacks = list(callbacks)
        self._marked = "" if private else NOT_PRIVATE
        self._arguments = _Arguments(
            output_dir=str(folder), run_name=folder.name, settings=flatten_dict(dict(settings))
        )
        self._state, self._control = TrainerState(max_steps=num_cycles), TrainerControl()

    @property
    def wanted(self) -> bool:
        """Whether there is anybody to report to."""
        return bool(self._callbacks)

    def begin(self, cycle: int) -> None:
        """Open the services, before anything is spent; what they raise is not caught."""
        self._state.global_step = cycle
        for callback in self._callbacks:
            self._tell(callback, "on_init_end")
            self._tell(callback, "on_train_begin")

    def send(
        self,
        cycle: int,
        *,
        public: Mapping[str, float],
        of_weights: Mapping[str, float],
        not_private: Mapping[str, float],
    ) -> None:
        """Send the values of one cycle.

        Args:
            cycle: Number of cycles that are complete.
            public: Values that the configuration and the number of cycles decide.
            of_weights: Values of the weights and of public data: as private as the run.
            not_private: Values that the guarantee does not cover; their names will say so.
        """
        self._state.global_step = cycle
        logs = {
            **public,
            **{self._marked + name: value for name, value in of_weights.items()},
            **{NOT_PRIVATE + name: value for name, value in not_private.items()},
        }
        self._tell_all("on_log", logs)
        self._tell_all("on_step_end")

    def end(self) -> None:
        """Close the services."""
        self._tell_all("on_train_end")

    def _tell_all(self, event: str, logs: Mapping[str, float] | None = None) -> None:
        for callback in list(self._callbacks):
            try:
                self._tell(callback, event, **({} if logs is None else {"logs": dict(logs)}))
            except Exception as error:  # what is spent must not be lost with a service that went away
                self._callbacks.remove(callback)
                warnings.warn(f"{type(callback).__name__} failed and gets no more values: {error}", stacklevel=2)

    def _tell(self, callback: TrainerCallback, event: str, **values: object) -> None:
        getattr(callback, event)(self._arguments, self._state, self._control, model=None, **values)


@dataclass
class _Arguments(TrainingArguments):
    """What callbacks read of a training's arguments: its folder, its name, and the settings of this run."""

    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set up no devices, which is all that the library's would add: this trainer has its own."""

    def to_dict(self) -> dict[str, Any]:
        """The run's settings, in the place of transformers' own, which would be wrong."""
        return dict(self.settings)

    def to_sanitized_dict(self) -> dict[str, Any]:
        """The same, as text where a value is no plain one."""
        plain = (bool, int, float, str)
        return {name: value if type(value) in plain else str(value) for name, value in self.settings.items()}
