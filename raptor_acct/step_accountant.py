"""This library's accountant for code written for Opacus, which it neither needs nor imports."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Protocol

from raptor_acct._validate import choice, number, shown, whole
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import MOST_STEPS, NOISE_RANGE, SAMPLING_RANGE
from raptor_acct.segments import merged

Run = tuple[float, float, int]  # noise multiplier, sample rate, number of consecutive steps

# Whose histories mean the same as ours: Opacus' accountants count Poisson-subsampled Gaussians, each in its own way.
_MECHANISMS = ("raptor", "rdp", "prv", "gdp")


class _Optimizer(Protocol):
    """What the hook reads of an Opacus ``DPOptimizer``."""

    noise_multiplier: float

    @property
    def accumulated_iterations(self) -> int: ...


class StepAccountant:
    """An accountant in Opacus' sense: one call a step, epsilon at any time.

    Opacus takes it as ``PrivacyEngine(accountant="raptor")`` after
    ``opacus.accountants.register_accountant("raptor", StepAccountant)``.

    Args:
        adjacency: Which data sets count as neighbours; Opacus' own accountants mean "add_remove".

    Raises:
        ValueError: If ``adjacency`` is unknown.

    **Guarantee.** As :class:`raptor_acct.SubsampledGaussian`, of all steps that were reported. Opacus has no
    replace-one neighbours: its noise multiplier is in units of the clip norm, and so it is here for both adjacencies.

    >>> accountant = StepAccountant()
    >>> for _ in range(1000):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> accountant.history, len(accountant), round(accountant.get_epsilon(1e-5), 3)
    ([(1.0, 0.01, 1000)], 1000, 1.828)
    """

    def __init__(self, *, adjacency: Adjacency = "add_remove"):
        self.adjacency = check_adjacency(adjacency)
        self._history: list[Run] = []
        self._known: Guarantee | None = None  # of the whole history; None after a change

    def __len__(self) -> int:
        """Return the number of steps (Opacus' own accountants: of the entries of the history)."""
        return sum(steps for _, _, steps in self._history)

    @classmethod
    def mechanism(cls) -> str:
        """Return the name under which Opacus can register this accountant."""
        return "raptor"

    @property
    def history(self) -> list[Run]:
        """All steps so far: (noise multiplier, sample rate, number of consecutive steps), a copy. Can be set."""
        return list(self._history)

    @history.setter
    def history(self, runs: Iterable[Run]) -> None:
        self._history, self._known = _checked_history(runs), None

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step.

        Args:
            noise_multiplier: Standard deviation of the noise on the sum, in clip norms, in [0.01, 1e8]. Public.
            sample_rate: Probability that a record is in the step's batch, in [1e-9, 1]. Public.

        Raises:
            ValueError: If one is outside its range; nothing is counted then.
        """
        _append(self._history, _checked_run(noise_multiplier, sample_rate, 1))
        self._known = None

    def get_epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``; 0 before the first step.

        Raises:
            ValueError: If ``delta`` is outside (0, 1), or below what can be certified.
        """
        delta = number("delta", delta, "(0, 1)")
        if not self._history:
            return 0.0
        if self._known is None:
            self._known = Guarantee(streams=merged(self._history), adjacency=self.adjacency)
        return self._known.epsilon(delta)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[_Optimizer], None]:
        """Return the hook for ``DPOptimizer.attach_step_hook``, which counts every step of the optimizer.

        As in Opacus, k batches accumulated for one step count as one batch of k times the rate. That is exact if
        no record is in two of them.

        Args:
            sample_rate: Probability that a record is in one batch, in [1e-9, 1]. Public.

        Raises:
            ValueError: If ``sample_rate`` is outside its range; the hook raises where k times the rate is above 1.
        """
        rate = number("sample_rate", sample_rate, SAMPLING_RANGE)

        def hook(optimizer: _Optimizer) -> None:
            batches = optimizer.accumulated_iterations
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=rate * batches)

        return hook

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """Return what :meth:`load_state_dict` takes: Opacus' "history" and "mechanism", and "adjacency"; fit for JSON.

        Args:
            destination: A mapping to write into, instead of a new one.
        """
        state: MutableMapping[str, Any] = {} if destination is None else destination
        state.update(history=self.history, mechanism=self.mechanism(), adjacency=self.adjacency)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over the state of another accountant, of this class or one of Opacus'; lists may stand for tuples.

        Raises:
            ValueError: If the state is damaged, or of another adjacency; nothing is changed then.
        """
        if not isinstance(state_dict, Mapping) or not {"history", "mechanism"} <= state_dict.keys():
            raise ValueError(f"expected state_dict with 'history' and 'mechanism', got state_dict={shown(state_dict)}")
        choice("mechanism", state_dict["mechanism"], _MECHANISMS)
        choice("adjacency", state_dict.get("adjacency", self.adjacency), (self.adjacency,))
        self.history = state_dict["history"]


def _append(history: list[Run], run: Run) -> None:
    """Add ``run``, joined to the one before it if the setting is the same."""
    noise, rate, steps = run
    if history and history[-1][:2] == (noise, rate):
        steps += history.pop()[2]
    history.append((noise, rate, steps))


def _checked_run(noise_multiplier: object, sample_rate: object, num_steps: object) -> Run:
    noise = number("noise_multiplier", noise_multiplier, NOISE_RANGE)
    rate = number("sample_rate", sample_rate, SAMPLING_RANGE)
    return noise, rate, whole("num_steps", num_steps, high=MOST_STEPS)


def _checked_history(runs: object) -> list[Run]:
    """Return ``runs`` as the history of an accountant."""
    if not isinstance(runs, list | tuple) or not all(isinstance(run, list | tuple) and len(run) == 3 for run in runs):
        raise ValueError(
            f"expected history to be a list of (noise_multiplier, sample_rate, num_steps), got history={shown(runs)}"
        )
    history: list[Run] = []
    for run in runs:
        _append(history, _checked_run(*run))
    return history
