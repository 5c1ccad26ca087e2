"""What a configuration comes to: the layer, the budget, clip norms, scales and denominators; all of it public."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from raptor_acct import RoutingStats, default_delta, select_layer
from raptor_train.adapters import sparse_layers_of
from raptor_train.clip_choice import Choice, ClipChoice, choose
from raptor_train.config import RunConfig
from raptor_train.inputs import Inputs, PublicRecords, fresh_model
from raptor_train.methods import adapted_for, num_steps
from raptor_train.public import Moments, measure_routing

Echo = Callable[[str], None]


def silent(text: str) -> None:
    """Where words go that nobody wants."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A configuration without anything left to choose.

    Attributes:
        num_records: N, taken as public.
        label_names: The classes in the order of their numbers.
        sampling_probability: q = B/N of every stream.
        steps: Releases of every stream.
        delta: Total δ.
        layers: Sparse layers whose experts are trained.
        layer_source: Why these.
        shares: Public shares of the experts at the selected layer, smoothed by one record each; None if not measured.
        scales: LoRA scale of each role.
        clips: Clip norm of what is clipped together, and its source.
        moments: What the shrinkage denominator needs; None for others.
    """

    num_records: int
    label_names: tuple[str, ...]
    sampling_probability: float
    steps: int
    delta: float
    layers: tuple[int, ...]
    layer_source: str
    shares: tuple[float, ...] | None
    scales: Mapping[str, float]
    clips: tuple[ClipChoice, ...]
    moments: Moments | None

    @property
    def batch_size(self) -> float:
        """Expected batch B = qN."""
        return self.sampling_probability * self.num_records

    @property
    def clip_norms(self) -> dict[str, float]:
        """Clip norms by role."""
        return {clip.role: clip.clip_norm for clip in self.clips}

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Resolved:
        """The inverse of :meth:`to_dict`."""
        changed = dict(content)
        for name in ("label_names", "layers", "shares"):
            changed[name] = None if changed[name] is None else tuple(changed[name])
        changed["clips"] = tuple(ClipChoice(**clip) for clip in changed["clips"])
        changed["moments"] = None if changed["moments"] is None else Moments(**changed["moments"])
        return cls(**changed)


def resolve(config: RunConfig, inputs: Inputs, *, echo: Echo = silent) -> Resolved:
    """Choose all that a configuration leaves open, from public data and the number of records.

    Raises:
        ValueError: If something cannot be chosen, or the batch is larger than the data set.
    """
    num_records, batch = len(inputs.private), config.training.batch_size
    if batch > num_records:
        raise ValueError(f"expected batch_size <= the {num_records} private records, got batch_size={batch}")
    choices = choose_in_public(config, inputs.public, inputs.label_names, echo=echo)
    return Resolved(
        num_records=num_records,
        label_names=inputs.label_names,
        sampling_probability=batch / num_records,
        steps=num_steps(config.training, num_records),
        delta=config.privacy.delta if config.privacy.delta is not None else default_delta(num_records),
        layers=choices.layers,
        layer_source=choices.layer_source,
        shares=choices.shares,
        scales=choices.choice.scales,
        clips=choices.choice.clips,
        moments=choices.choice.moments,
    )


@dataclass(frozen=True, kw_only=True)
class PublicChoices:
    """What is chosen without any private record: attributes as in :class:`Resolved`."""

    layers: tuple[int, ...]
    layer_source: str
    shares: tuple[float, ...] | None
    choice: Choice


def choose_in_public(
    config: RunConfig, public: PublicRecords | None, label_names: Sequence[str], *, echo: Echo = silent
) -> PublicChoices:
    """Choose layer, clip norms, scales and public shares.

    Raises:
        ValueError: If something is to be measured and there are no public records for it.
    """
    model = fresh_model(config, label_names)
    layers, source, shares = _layers(config, model, public, echo)
    choice = choose(
        config,
        lambda scales: adapted_for(config, fresh_model(config, label_names), layers=layers, scales=scales),
        public.records if public is not None and public.labelled else None,
    )
    return PublicChoices(layers=layers, layer_source=source, shares=shares, choice=choice)


def _layers(
    config: RunConfig, model: nn.Module, public: PublicRecords | None, echo: Echo
) -> tuple[tuple[int, ...], str, tuple[float, ...] | None]:
    sparse = sparse_layers_of(model)
    if config.method.startswith("monolithic") or config.method == "non_private_full":
        return sparse, "every sparse layer", None
    needs_shares = config.denominator in ("public_share", "shrinkage")
    statistics = _routing(config, model, public, echo) if config.layer == "entropy" or needs_shares else {}
    if config.layer == "entropy":
        layer, source = select_layer(statistics).layer, f"largest entropy of public owners, {public and public.source}"
    elif isinstance(config.layer, int):
        layer, source = config.layer, "configuration"
    else:
        layer, source = sparse[0 if config.layer == "first" else -1], f"{config.layer} sparse layer"
    if layer not in sparse:
        raise ValueError(f"expected layer to be one of the sparse layers {list(sparse)}, got layer={layer}")
    return (layer,), source, _smoothed(statistics[layer]) if needs_shares else None


def _routing(config: RunConfig, model: nn.Module, public: PublicRecords | None, echo: Echo) -> dict[int, RoutingStats]:
    if public is None:
        raise ValueError(
            "expected public text to measure routing on: give --public FILE"
            + (", or --layer first, last or a number" if config.layer == "entropy" else "")
        )
    statistics = measure_routing(model, public.records, micro_batch_size=config.training.micro_batch_size)
    for layer, stats in statistics.items():
        echo(f"public routing, layer {layer}: H/log E = {stats.normalized_entropy:.3f}, CV = {stats.cv:.3f}")
    return statistics


def _smoothed(stats: RoutingStats) -> tuple[float, ...]:
    """Shares with one more record for every expert: a share of 0 would give a denominator of 0 or infinity."""
    counts: Sequence[int] = stats.counts or ()
    total = sum(counts) + len(counts)
    return tuple((count + 1) / total for count in counts)
