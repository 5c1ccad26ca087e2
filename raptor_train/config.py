"""The configuration of one run: one tree of frozen dataclasses, from YAML, from flags, or from Python.

Everything in it is public: it may depend on public data, never on private records (theory.md §7, condition 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from raptor_acct import public_denominators
from raptor_acct._validate import choice, number, shown, whole
from raptor_acct.adjacency import ADJACENCIES, Adjacency
from raptor_acct.calibration import COMPOSITIONS, KEEPS, Composition, Keep
from raptor_acct.denominators import RULES
from raptor_train.settings import from_nested, with_changes

METHODS = {
    "raptor": "RAPTOR: two streams in turn, clipped by role, experts of the selected layer",
    "global_clip": "paper's A: both roles of the selected layer in one stream with one clip norm",
    "shared_only": "paper's B: the shared role alone",
    "expert_only": "paper's C: the experts of the selected layer alone",
    "head_only": "a linear head on the frozen model",
    "monolithic": "DP-Adam LoRA: shared role and the experts of all sparse layers in one stream",
    "monolithic_full": "every linear layer itself, without LoRA, in one stream (Switch only)",
    "non_private_lora": "RAPTOR's parameters without clipping and noise: no guarantee",
    "non_private_full": "the parameters of monolithic_full without clipping and noise: no guarantee",
}
FROM_PUBLIC: Literal["public"] = "public"

Layer = int | Literal["entropy", "first", "last"]
Measured = float | Literal["public"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is fine-tuned."""

    name: Annotated[str, "'demo', a folder, or a name that transformers finds in its cache."] = "demo"
    objective: Annotated[Literal["classification", "language_model"], "Head and loss."] = "classification"
    random_weights: Annotated[bool, "Random weights of the model's configuration, for tests and timing."] = False
    num_labels: Annotated[int | None, "Classes; the number of different labels by default, which is then public."] = (
        None
    )

    def __post_init__(self) -> None:
        if self.num_labels is not None:
            whole("num_labels", self.num_labels, low=2)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where records come from; nothing is downloaded.

    A task names its columns; see :mod:`raptor_train.tasks`.
    """

    task: Annotated[
        str | None, "A known task (sst2, qnli, qqp, mnli, movie_reviews, ...): names files and columns."
    ] = None
    folder: Annotated[str | None, "Folder with the task's files."] = None
    train: Annotated[str | None, "Private records: TSV, CSV or JSON lines, maybe gzipped."] = None
    test: Annotated[str | None, "Held-out records."] = None
    public: Annotated[str | None, "Public text for the layer, clip norms and LoRA scales."] = None
    text_column: Annotated[str | None, "Column of the text; 'a,b' for a pair."] = None
    label_column: Annotated[str | None, "Column of the label."] = None
    public_text_column: Annotated[str | None, "As --text-column, for the public file."] = None
    public_label_column: Annotated[str | None, "As --label-column, for the public file."] = None
    max_length: Annotated[int, "Tokens kept of each record."] = 64
    max_records: Annotated[int | None, "Use only so many of the private records."] = None
    max_public: Annotated[int, "Public records that are measured, at most."] = 2000
    overlap: Annotated[Literal["refuse", "drop", "ignore"], "Private records that are also public text."] = "refuse"
    count_duplicates: Annotated[
        bool, "Show how many private records repeat a text or are held out too; the counts are NOT private."
    ] = False

    def __post_init__(self) -> None:
        whole("max_length", self.max_length)
        whole("max_public", self.max_public, low=4)
        if self.max_records is not None:
            whole("max_records", self.max_records, low=2)


@dataclass(frozen=True, kw_only=True)
class RoleConfig:
    """Adapters and clipping of one role."""

    rank: Annotated[int, "LoRA rank."] = 8
    scale: Annotated[Measured, "LoRA scale; the experts' may be 'public': gradients as long as the shared role's."] = (
        1.0
    )
    clip_norm: Annotated[Measured, "Clip norm; 'public' measures it on public records."] = FROM_PUBLIC
    learning_rate: Annotated[float | None, "Learning rate, if not that of all."] = None

    def __post_init__(self) -> None:
        whole("rank", self.rank)
        for name, interval in (("scale", "(0, inf)"), ("clip_norm", "[1e-9, 1e9]")):
            if getattr(self, name) != FROM_PUBLIC:
                number(name, getattr(self, name), interval)
        _maybe("learning_rate", self.learning_rate, "(0, inf)")


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """The budget and how the two streams share it."""

    eps: Annotated[float, "Total privacy budget ε."] = 8.0
    delta: Annotated[float | None, "Total δ; N^-1.1 by default."] = None
    rho: Annotated[float, "Share of ε for the shared stream in the basic split."] = 0.9
    composition: Annotated[Composition, "'basic' adds the streams' ε, 'joint' hands the slack back."] = "joint"
    keep: Annotated[Keep, "Which noise the joint composition keeps."] = "shared"
    delta_share: Annotated[float, "Share of δ for the shared stream in the basic split."] = 0.5
    adjacency: Annotated[Adjacency, "Which data sets are neighbours."] = "add_remove"

    def __post_init__(self) -> None:
        number("eps", self.eps, "(0, inf)")
        _maybe("delta", self.delta, "(0, 1)")
        number("rho", self.rho, "(0, 1)", hint="rho is the share of eps given to the shared stream")
        number("delta_share", self.delta_share, "(0, 1)")
        choice("composition", self.composition, COMPOSITIONS)
        choice("keep", self.keep, KEEPS)
        choice("adjacency", self.adjacency, ADJACENCIES)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Schedule and optimizer."""

    batch_size: Annotated[int, "Expected Poisson batch B of every stream."] = 256
    epochs: Annotated[float | None, "Expected passes over the private records, of every stream  [default: 3]."] = None
    steps: Annotated[int | None, "Releases of every stream, instead of --epochs."] = None
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], "torch's optimizer."] = "adam"
    learning_rate: Annotated[float, "Learning rate."] = 0.001
    head_learning_rate: Annotated[float | None, "Learning rate of the classification head, if another one."] = None
    micro_batch_size: Annotated[int, "Records that go through the model at once; no influence on privacy."] = 64
    save_every: Annotated[int, "Cycles from one checkpoint to the next."] = 1
    rehearsal_steps: Annotated[int, "Steps on public records before public gradient norms are measured."] = 12
    clip_quantile: Annotated[float, "Share of public records that a measured clip norm leaves unclipped."] = 0.8
    largest_scale: Annotated[float, "Bound on a LoRA scale that is measured."] = 4.0
    seed: Annotated[int, "Seed of the adapters' initial weights and the public measurements; public."] = 0
    replay_seed: Annotated[int | None, "Seed of coins and noise, which can then be replayed; for tests only."] = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "micro_batch_size", "save_every", "rehearsal_steps"):
            whole(name, getattr(self, name))
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"expected epochs or steps, got both: epochs={self.epochs}, steps={self.steps}")
        _maybe("epochs", self.epochs, "(0, 1e9]")
        if self.steps is not None:
            whole("steps", self.steps)
        number("learning_rate", self.learning_rate, "(0, inf)")
        _maybe("head_learning_rate", self.head_learning_rate, "(0, inf)")
        number("clip_quantile", self.clip_quantile, "(0, 1)")
        number("largest_scale", self.largest_scale, "[1, 1000]")
        whole("seed", self.seed, low=0, high=2**63 - 1)
        if self.replay_seed is not None:
            whole("replay_seed", self.replay_seed, low=0)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that shapes a run.

    In YAML, with the defaults for whatever is left out::

        method: raptor
        model: {name: demo}
        data: {task: movie_reviews, max_length: 48}
        privacy: {eps: 1, composition: joint, keep: shared}
        training: {batch_size: 256, steps: 40, head_learning_rate: 0.01}
        report_to: [tensorboard]
        shared: {rank: 4, clip_norm: 3.5}
        expert: {rank: 4, scale: public, clip_norm: public}

    >>> RunConfig.from_dict({"privacy": {"eps": 1}, "training": {"batchsize": 512}})
    Traceback (most recent call last):
    ValueError: expected known settings, got training.batchsize; did you mean training.batch_size?
    """

    method: Annotated[str, "What is trained and how; the methods are listed below."] = "raptor"
    layer: Annotated[Layer, "The sparse layer: 'entropy' (public), 'first', 'last' or its number."] = "entropy"
    owners: Annotated[Literal["fixed", "recomputed"], "Owner experts: once from the starting model, or anew."] = "fixed"
    denominator: Annotated[str, "D_e: expected_owner (B/E), batch, public_share or shrinkage."] = "expected_owner"
    clip_scope: Annotated[
        Literal["role", "full_model"], "Ablation: 'full_model' clips both roles by one norm, on one batch."
    ] = "role"
    batches: Annotated[Literal["two", "one"], "Ablation: 'one' releases both roles from the same batch."] = "two"
    clip_norm: Annotated[Measured, "Clip norm of a method with a single one."] = FROM_PUBLIC
    report_to: Annotated[
        tuple[str, ...], "Services that get the public values: tensorboard, wandb, ..., as transformers names them."
    ] = ()
    report_not_private_loss: Annotated[bool, "Report a loss of private records too, as NOT_PRIVATE_loss."] = False
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    shared: RoleConfig = field(default_factory=RoleConfig)
    expert: RoleConfig = field(default_factory=lambda: RoleConfig(scale=FROM_PUBLIC))
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        choice("method", self.method, METHODS)
        if isinstance(self.layer, int):
            whole("layer", self.layer, low=0)
        if self.denominator not in RULES:  # says why "realized" is none of them
            public_denominators(self.denominator, num_experts=2, batch_size=1.0)
        if self.clip_norm != FROM_PUBLIC:
            number("clip_norm", self.clip_norm, "[1e-9, 1e9]")
        if self.report_not_private_loss and not self.report_to:
            raise ValueError("expected report_to to name a service with report_not_private_loss, got none")
        if self.shared.scale == FROM_PUBLIC:
            raise ValueError("expected shared.scale to be a number: the experts' scale is measured against it")
        self._check_ablations()
        self._check_clip_norms()

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> RunConfig:
        """Make a configuration of nested settings, with defaults for what is missing.

        Raises:
            ValueError: On an unknown setting, with the nearest known one, and on every value outside its range.
        """
        return from_nested(cls, settings)

    @classmethod
    def from_yaml(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """Read a YAML file; ``changes`` (by dotted name, such as "privacy.eps") win over it.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is no YAML mapping, or as :meth:`from_dict`.
        """
        import yaml  # comes with transformers; defaults and flags work without it

        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}  # type: ignore[no-untyped-call]
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: expected YAML, got something else ({error})") from None
        if not isinstance(content, dict):
            raise ValueError(f"{path}: expected settings by name, got {shown(content)}")
        return cls.from_dict(with_changes(content, changes or {}))

    def located(self) -> RunConfig:
        """The same with absolute paths, so that the run can be found again from anywhere."""
        names = ("folder", "train", "test", "public")
        paths: dict[str, Any] = {
            name: str(Path(path).resolve()) for name in names if (path := getattr(self.data, name)) is not None
        }
        model = str(Path(self.model.name).resolve()) if Path(self.model.name).is_dir() else self.model.name
        return replace(self, data=replace(self.data, **paths), model=replace(self.model, name=model))

    def to_dict(self) -> dict[str, Any]:
        """Nested settings, ready for JSON and YAML."""
        return asdict(self)

    @property
    def private(self) -> bool:
        """Whether the method has a guarantee."""
        return not self.method.startswith("non_private")

    @property
    def one_clip_norm(self) -> bool:
        """Whether one norm clips all that is trained."""
        return self.private and (self.clip_scope == "full_model" or self.method not in _BY_ROLE)

    @property
    def clipped_roles(self) -> tuple[str, ...]:
        """Which roles have a clip norm of their own."""
        if not self.private or self.one_clip_norm:
            return ()
        return _BY_ROLE[self.method]

    def _check_ablations(self) -> None:
        changed = {
            "clip_scope": self.clip_scope != "role",
            "batches": self.batches != "two",
            "denominator": self.denominator != "expected_owner",
        }
        allowed = {"raptor": set(changed), "expert_only": {"denominator"}}.get(self.method, set())
        wrong = [name for name, is_changed in changed.items() if is_changed and name not in allowed]
        if wrong:
            raise ValueError(
                f"expected {wrong[0]} only with method='raptor', whose ablation it is, got {self.method!r}"
            )
        if self.clip_scope == "full_model" and self.batches == "one":
            raise ValueError("expected clip_scope='full_model' or batches='one': the first uses one batch already")
        if self.batches == "one" and self.privacy.composition == "basic":
            raise ValueError(
                "expected composition='joint' with batches='one': two releases from one batch are one mechanism (P4)"
            )

    def _check_clip_norms(self) -> None:
        given = {
            "clip_norm": (self.clip_norm, self.one_clip_norm),
            "shared.clip_norm": (self.shared.clip_norm, "shared" in self.clipped_roles),
            "expert.clip_norm": (self.expert.clip_norm, "expert" in self.clipped_roles),
        }
        used = ", ".join(name for name, (_, uses) in given.items() if uses) or "none"
        for name, (value, uses) in given.items():
            if value != FROM_PUBLIC and not uses:
                raise ValueError(f"expected clip norms that method={self.method!r} uses ({used}), got {name}={value}")


_BY_ROLE = {"raptor": ("shared", "expert"), "shared_only": ("shared",), "expert_only": ("expert",)}


def _maybe(name: str, value: float | None, interval: str) -> None:
    if value is not None:
        number(name, value, interval)
