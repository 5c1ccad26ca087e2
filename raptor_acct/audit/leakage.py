"""What an audit found: lower bounds on the privacy loss, with everything that a report of them must state."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from raptor_acct.adjacency import Adjacency
from raptor_acct.guarantee import Guarantee

Game = Literal["one_run", "trials"]


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """Lower bounds on epsilon and mu: whatever a mechanism claims below them is refuted at this confidence.

    Attributes:
        game: ``"one_run"``: many canaries in one run, each included by a fair coin of its own. ``"trials"``: one
            canary, and a run for each trial.
        adjacency: What including a canary, or not, changes: ``"add_remove"`` if it is left out otherwise,
            ``"replace_one"`` if another record takes its place. The bounds are about both directions together.
        confidence: The chance that a bound holds is at least this, for each of the two; of one run, for both together.
        delta: The delta of ``epsilon``.
        epsilon: The mechanism is (ε, delta)-DP for no ε below this.
        mu: The mechanism is μ-GDP for no μ below this. It need not be μ-GDP for any; then this says nothing else.
        num_canaries: Canaries of the one run, or trials that the bounds rest on.
        num_guesses: Of these, those guessed.
        num_correct: Of the guesses, the right ones.
        true_positives: Of the guesses "included", the right ones.
        false_positives: Of the guesses "included", the wrong ones.
        method: Where the bounds come from.
    """

    game: Game
    adjacency: Adjacency
    confidence: float
    delta: float
    epsilon: float
    mu: float
    num_canaries: int
    num_guesses: int
    num_correct: int
    true_positives: int
    false_positives: int
    method: str

    @property
    def num_abstentions(self) -> int:
        """Canaries about which nothing was guessed."""
        return self.num_canaries - self.num_guesses

    def exceeds(self, guarantee: Guarantee) -> bool:
        """Return whether the audit refutes a guarantee: then the mechanism is not the one accounted for.

        Raises:
            ValueError: If the guarantee is about another adjacency.
        """
        if guarantee.adjacency != self.adjacency:
            got = f"{guarantee.adjacency!r} and {self.adjacency!r}"
            raise ValueError(f"expected guarantee of the audit's adjacency, got {got}")
        return self.epsilon > guarantee.epsilon(self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the abstentions, ready for JSON."""
        return {**asdict(self), "num_abstentions": self.num_abstentions}
