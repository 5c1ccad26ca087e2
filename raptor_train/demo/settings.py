"""Everything that shapes a demo run; all of it public."""

from __future__ import annotations

from dataclasses import dataclass

from raptor_acct._validate import number, whole


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to run.

    The training settings were chosen on public text: IMDb snippets with IMDb labels stood in for the private task
    (``benchmarks/demo_study.py``), with five recorded trials for RAPTOR and five for the monolithic run. Earlier,
    unrecorded exploration was mostly of RAPTOR; it is described there.

    Attributes:
        eps: Total ε.
        rho: Share of ε for the shared stream in the basic split.
        batch_size: Expected Poisson batch B.
        cycles: RAPTOR's cycles T; each is one shared and one expert release.
        rank: LoRA rank of both roles.
        largest_scale: The experts' LoRA scale is raised above 1 until their public gradients are as long as those of
            the shared role, but not above this.
        rehearsal_cycles: Non-private steps on public records before public gradient norms are measured.
        clip_quantile: Share of public records that the clip norms leave unclipped.
        learning_rate_head: Adam's, for the head, in every run.
        learning_rate_shared: Adam's, for the adapters of the shared role.
        learning_rate_expert: Adam's, for the adapters of the expert role.
        one_stream_steps: Steps of the monolithic run and of the head alone (one batch a step, RAPTOR two a cycle).
        learning_rate_monolithic: Adam's, for all adapters of the monolithic run.
        max_length: Tokens kept of each record.
        num_public: Public snippets for routing.
        num_rehearsal: Public snippets for gradient norms: half to rehearse on, half to measure.
        num_private: Private records to use; None for all.
        num_test: Held-out records to use; None for all.
        seed: Of coins, noise and adapters. A demonstration's seed is known, so its run can be replayed; set None
            in :func:`raptor_train.trainer.make_private` for a private run.
    """

    eps: float = 8.0
    rho: float = 0.9
    batch_size: int = 256
    cycles: int = 40
    rank: int = 4
    largest_scale: float = 4.0
    rehearsal_cycles: int = 12
    clip_quantile: float = 0.8
    learning_rate_head: float = 0.01
    learning_rate_shared: float = 0.001
    learning_rate_expert: float = 0.001
    one_stream_steps: int = 40
    learning_rate_monolithic: float = 0.001
    max_length: int = 48
    num_public: int = 2000
    num_rehearsal: int = 1000
    num_private: int | None = None
    num_test: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        number("eps", self.eps, "(0, inf)")
        number("rho", self.rho, "(0, 1)")
        for name in (
            "batch_size",
            "cycles",
            "rank",
            "one_stream_steps",
            "max_length",
            "num_public",
            "num_rehearsal",
            "rehearsal_cycles",
        ):
            whole(name, getattr(self, name))
        whole("seed", self.seed, low=0, high=2**63 - 1)
        for name in ("head", "shared", "expert", "monolithic"):
            number(f"learning_rate_{name}", getattr(self, f"learning_rate_{name}"), "(0, 10]")
        number("clip_quantile", self.clip_quantile, "(0, 1)")
        number("largest_scale", self.largest_scale, "[1, 1000]")
        for name in ("num_private", "num_test"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))

    def sampling_probability(self, num_records: int) -> float:
        """Sampling probability B/N, at most 1."""
        return min(1.0, self.batch_size / num_records)
