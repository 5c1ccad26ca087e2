"""Every method and ablation by configuration: what trains, what is clipped together, and how it is accounted for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from raptor_acct import Calibration, SubsampledGaussian, calibrate_sigma, ledger, privacy_spent
from raptor_train.adapters.base import AdaptedModel
from raptor_train.baselines import everything
from raptor_train.compare import ABLATIONS, variant
from raptor_train.config import METHODS, RunConfig
from raptor_train.methods import adapted_for, calibrate, clipped_together, optimizer_for, streams_for
from raptor_train.noise import Randomness
from raptor_train.public import Moments
from raptor_train.step import OneBatch, Stream, sum_clipped
from raptor_train.trainer import private_trainer

from .conftest import EXPERTS, random_records, randomise, tiny_classifier
from .family_models import tiny_decoder
from .test_trainer import RecordedNoise

Q, STEPS, DELTA, BATCH = 1.0, 3, 1e-3, 8.0
SCALES = {"shared": 1.0, "expert": 1.0}
CLIPS = {"shared": 0.5, "expert": 0.25, "all": 0.75, "head": 0.3}
PRIVATE = [name for name in [*METHODS, *ABLATIONS] if not name.startswith("non_private")]


def config_of(name: str) -> RunConfig:
    return variant(RunConfig.from_dict({"shared": {"rank": 2}, "expert": {"rank": 2}}), name)


def adapted_by(config: RunConfig) -> AdaptedModel:
    layers = (1, 3) if config.method.startswith("monolithic") else (1,)
    return adapted_for(config, tiny_classifier(), layers=layers, scales=SCALES)


def streams_of(config: RunConfig, adapted: AdaptedModel) -> list[Stream | OneBatch]:
    noise = calibrate(config, q=Q, steps=STEPS, delta=DELTA)
    assert noise is not None
    return streams_for(
        config,
        adapted,
        noise,
        clip_norms=CLIPS,
        batch_size=BATCH,
        shares=(0.4, 0.3, 0.2, 0.1),
        moments=Moments(mean_norm=0.1, second_moment=0.05),
    )


@pytest.mark.parametrize("name", PRIVATE)
def test_the_ledger_of_a_whole_run_adds_up_to_the_budget(name: str, tmp_path: Path) -> None:
    """Whatever a method releases, and however often, its ledger says at most eps, and nearly eps if it can be met."""
    config = config_of(name)
    adapted = adapted_by(config)
    trainer = private_trainer(
        adapted,
        optimizer_for(config, adapted),
        random_records(8),
        streams_of(config, adapted),
        ledger_path=tmp_path / "ledger.jsonl",
        probe=random_records(3, seed=5),
        owners="fixed",
        micro_batch_size=3,
        randomness=Randomness.of(8, seed=0),
    )
    before = {id(p): p.detach().clone() for p in adapted.model.parameters()}
    trainer.run()
    trained = {id(p) for stream in trainer.streams for p in stream.parameters}
    for parameter in adapted.model.parameters():
        assert torch.equal(before[id(parameter)], parameter) == (id(parameter) not in trained)
    spent = ledger.replay(tmp_path / "ledger.jsonl").epsilon(DELTA)
    assert spent.upper <= 8.0
    assert spent.upper > (7.99 if name != "basic_budget" else 5.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raptor", {"shared": ({8.0}, 0.5), "expert": ({8.0 / EXPERTS}, 0.25)}),
        ("denominator_batch", {"shared": ({8.0}, 0.5), "expert": ({8.0}, 0.25)}),
        ("public_share", {"shared": ({8.0}, 0.5), "expert": ({3.2, 2.4, 1.6, 0.8}, 0.25)}),
        ("full_model_clip", {"all": ({8.0, 8.0 / EXPERTS}, 0.75)}),
        ("without_alternating", {"shared+expert": ({8.0, 8.0 / EXPERTS}, math.hypot(0.5, 0.25))}),
        ("global_clip", {"all": ({8.0}, 0.75)}),
        ("shared_only", {"shared": ({8.0}, 0.5)}),
        ("expert_only", {"expert": ({8.0 / EXPERTS}, 0.25)}),
        ("head_only", {"head": ({8.0}, 0.3)}),
        ("monolithic", {"all": ({8.0}, 0.75)}),
        ("monolithic_full", {"all": ({8.0}, 0.75)}),
    ],
)
def test_streams_denominators_and_clip_norms(name: str, expected: dict[str, tuple[set[float], float]]) -> None:
    config = config_of(name)
    streams = streams_of(config, adapted_by(config))
    assert {s.role.name: ({round(d, 9) for d in s.denominators}, s.clip_norm) for s in streams} == expected


def test_shrinkage_denominators_are_those_of_the_theory() -> None:
    config = config_of("shrinkage")
    adapted = adapted_by(config)
    _, expert = streams_of(config, adapted)
    size, noise = adapted.expert.num_parameters / EXPERTS, (expert.noise_multiplier * 0.25) ** 2
    wanted = {share * BATCH + noise * size / (share * BATCH * 0.1**2) for share in (0.4, 0.3, 0.2, 0.1)}  # q = 1
    assert sorted(set(expert.denominators)) == pytest.approx(sorted(wanted), rel=1e-9)


def test_each_expert_has_its_own_denominator() -> None:
    config = config_of("public_share")
    adapted = adapted_by(config)
    _, expert = streams_of(config, adapted)
    by_tensor = dict(zip(map(id, expert.parameters), expert.denominators, strict=True))
    for layer in adapted.expert.layers:
        assert by_tensor[id(layer.weight)] == pytest.approx(BATCH * (0.4, 0.3, 0.2, 0.1)[layer.expert or 0])


def test_one_batch_is_one_mechanism_with_the_noise_of_p4() -> None:
    config = config_of("without_alternating")
    config = replace(config, privacy=replace(config.privacy, eps=2.0))
    (stream,) = streams_of(config, adapted_by(config))
    shared, expert = (part.noise_multiplier for part in stream.parts)
    assert stream.noise_multiplier == pytest.approx((shared**-2 + expert**-2) ** -0.5, rel=1e-12)
    one = calibrate(replace(config, batches="two"), q=0.1, steps=10, delta=1e-4)
    same = calibrate(config, q=0.1, steps=10, delta=1e-4)
    assert isinstance(one, Calibration)
    assert isinstance(same, Calibration)
    assert same.sigma_expert > one.sigma_expert  # the same batch costs more noise than two
    as_if_two = privacy_spent(*same, q=0.1, steps=10, delta=1e-4).epsilon
    assert as_if_two.upper < 1.9  # what accounting for it as two streams would wrongly claim


def test_one_batch_draws_one_sample_and_noises_each_role_by_its_own_norm(tmp_path: Path) -> None:
    config, noise = config_of("without_alternating"), RecordedNoise()
    adapted = adapted_by(config)
    (stream,) = streams_of(config, adapted)
    trainer = private_trainer(
        adapted,
        optimizer_for(config, adapted),
        random_records(8),
        [stream],
        ledger_path=tmp_path / "ledger.jsonl",
        probe=random_records(3, seed=5),
        owners="fixed",
        micro_batch_size=64,
        randomness=Randomness.of(8, seed=0, noise=noise),
    )
    trainer.step()
    shared, expert = stream.parts
    assert noise.stds == [shared.noise_std] * len(shared.parameters) + [expert.noise_std] * len(expert.parameters)
    assert ledger.Ledger.verify(tmp_path / "ledger.jsonl").num_releases == 1


@pytest.mark.parametrize("name", ["full_model_clip", "global_clip", "monolithic", "monolithic_full"])
def test_one_norm_clips_all_that_a_record_trains(name: str) -> None:
    config = config_of(name)
    adapted = adapted_by(config)
    randomise(adapted)  # type: ignore[arg-type]
    (stream,) = streams_of(config, adapted)
    for i in range(4):
        sums = sum_clipped(stream.parts[0], adapted, random_records(8).take(torch.tensor([i])))
        norm = float(torch.cat([total.reshape(-1) for total in sums]).norm())
        assert norm == pytest.approx(0.75, rel=1e-4)  # every gradient here is longer


def test_with_owners_only_the_owner_trains_and_without_every_activated_expert() -> None:
    record = random_records(8).take(torch.tensor([0]))

    def experts(name: str) -> set[int]:
        config = config_of(name)
        adapted = adapted_by(config)
        randomise(adapted)  # type: ignore[arg-type]
        (stream,) = streams_of(config, adapted)
        sums = sum_clipped(stream.parts[0], adapted, record)
        expert_of = {id(layer.weight): layer.expert for layer in adapted.expert.layers}
        used = [expert_of.get(id(p)) for p, total in zip(stream.parameters, sums, strict=True) if bool(total.any())]
        return {e for e in used if e is not None}

    assert len(experts("full_model_clip")) == 1
    assert len(experts("global_clip")) > 1


def test_full_weights_have_the_gradient_of_autograd() -> None:
    config = config_of("monolithic_full")
    adapted = adapted_by(config).double()
    randomise(adapted)  # type: ignore[arg-type]
    records = random_records(6)
    role = everything(adapted)
    stream = Stream(
        role=role, sampling_probability=1, noise_multiplier=0, num_steps=1, clip_norm=math.inf, denominator=1.0
    )
    wanted = torch.autograd.grad(adapted.losses(records).sum(), role.parameters, allow_unused=True)
    for found, want in zip(sum_clipped(stream, adapted, records, micro_batch_size=4), wanted, strict=True):
        assert torch.allclose(found, torch.zeros_like(found) if want is None else want, rtol=1e-11, atol=1e-13)
    linear = {
        f"{name}.weight"
        for name, module in adapted.model.named_modules()
        if isinstance(module, torch.nn.Linear) and "router" not in name
    }
    assert linear | {"head.bias"} == {name for name, p in adapted.model.named_parameters() if p.requires_grad}


def test_a_head_alone_and_full_weights_are_refused_where_they_cannot_be_had() -> None:
    full, head = config_of("monolithic_full"), config_of("head_only")
    with pytest.raises(ValueError, match="gate_up_proj"):
        adapted_for(full, tiny_decoder("mixtral"), layers=(1,), scales=SCALES)
    language = replace(head, model=replace(head.model, objective="language_model"))
    with pytest.raises(ValueError, match="head"):
        adapted_for(language, tiny_decoder("mixtral", "language model"), layers=(1,), scales=SCALES)


def test_methods_of_one_stream_get_the_whole_budget() -> None:
    noise = calibrate(config_of("monolithic"), q=Q, steps=STEPS, delta=DELTA)
    assert isinstance(noise, SubsampledGaussian)
    assert noise.noise_multiplier == calibrate_sigma(8.0, DELTA, Q, STEPS)
    assert calibrate(config_of("non_private_lora"), q=Q, steps=STEPS, delta=DELTA) is None


def test_learning_rates_by_role() -> None:
    config = RunConfig.from_dict(
        {"expert": {"learning_rate": 0.3}, "training": {"learning_rate": 0.1, "head_learning_rate": 0.2}}
    )
    adapted = adapted_by(config)
    rates = {id(p): group["lr"] for group in optimizer_for(config, adapted).param_groups for p in group["params"]}
    head = adapted.shared.layers[-1]
    assert rates[id(head.weight)] == rates[id(head.bias)] == 0.2
    assert rates[id(adapted.shared.layers[0].weight)] == 0.1
    assert rates[id(adapted.expert.layers[0].weight)] == 0.3


def test_streams_refuse_denominators_that_do_not_fit() -> None:
    config = config_of("raptor")
    adapted = adapted_by(config)
    (role, _) = clipped_together(config, adapted)
    with pytest.raises(ValueError, match="one denominator or"):
        Stream(role=role, sampling_probability=1, noise_multiplier=1, num_steps=1, clip_norm=1, denominator=(1.0, 2.0))
