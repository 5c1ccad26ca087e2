"""Bugs of what one record can do to a release: clipping, owners, denominators, roles."""

from __future__ import annotations

from raptor_train import clipping, owner, step, trainer
from raptor_train.adapters import switch
from raptor_train.tape import Tape

from . import checks_release
from .mutant import Mutant
from .setting import PUBLIC_RECORDS

_BY_LAYER = "zip(sums, stream.noise_stds, [*stream.role.layers, None][: len(sums)], strict=True)"
_DIVIDED = "total / denominator for total, denominator in zip(sums, stream.denominators, strict=True)"
_SUMS = "return [sums.get(id(p), torch.zeros_like(p)) for p in parameters]"

RELEASE = (
    Mutant(
        name="realised batch as denominator",
        function=step.release,
        edits={
            "total / denominator for": (
                f"total / denominator * stream.sampling_probability * {PUBLIC_RECORDS} / max(1, len(batch)) for"
            )
        },
        caught_by=checks_release.denominators_are_public,
    ),
    Mutant(
        name="realised count of an expert as denominator",
        function=step.release,
        edits={
            f"return [{_DIVIDED}]": (
                "found = torch.empty(0) if not len(batch) else"
                " current_owners(model, batch) if owners is None else batch_owners"
                "\n    return [total / (max(1, (found == layer.expert).sum()) if stream.role.owned else denominator)"
                f" for total, denominator, layer in {_BY_LAYER.replace('noise_stds', 'denominators')}]"
            )
        },
        caught_by=checks_release.silent_records_change_no_byte,
    ),
    Mutant(
        name="exact number of records as N",
        function=trainer.make_private,
        edits={'len(records) if num_records is None else whole("num_records", num_records)': "len(records)"},
        caught_by=checks_release.denominators_are_public,
    ),
    Mutant(
        name="clip after the mean",
        function=clipping.clipped_sums,
        edits={
            "clip_weights(record_norms(reduced, num_records), clip_norm, parameters[0].dtype)": (
                "torch.ones(num_records, dtype=torch.float64)"
            ),
            _SUMS: _SUMS.replace("return", "totals =")
            + "\n    length = torch.cat([t.reshape(-1) for t in totals]).norm()"
            + "\n    return [t * (clip_norm * num_records / length).clamp(max=1) for t in totals]",
        },
        caught_by=checks_release.sensitivity_is_the_clip_norm,
    ),
    Mutant(
        name="clip per tensor",
        function=clipping.clipped_sums,
        edits={
            "weights[gradient.record]": (
                "clip_weights(record_norms([gradient], num_records), clip_norm, parameters[0].dtype)[gradient.record]"
            )
        },
        caught_by=checks_release.sensitivity_is_the_clip_norm,
    ),
    Mutant(
        name="clip per token",
        function=step.sum_clipped,
        edits={
            "reduced_gradients(stream.role, model, part, others=others, owner=owner)": (
                "[RecordGradients(rows._replace(left=rows.left * (stream.clip_norm / (rows.left.norm(dim=2) *"
                " rows.right.norm(dim=2)).clamp(min=1e-30)).clamp(max=1)[..., None])) for rows in"
                " record_gradients(stream.role, model, part, others=others, owner=owner).rows]"
            ),
            "clipped_sums(gradients, len(part), stream.clip_norm,": "clipped_sums(gradients, len(part), math.inf,",
        },
        caught_by=checks_release.sensitivity_is_the_clip_norm,
    ),
    Mutant(
        name="clip only beyond twice the clip norm",
        function=clipping.clip_weights,
        edits={"/ norms).clamp(max=1)": "/ norms).clamp(max=1).where(norms > 2 * clip_norm, 1)"},
        caught_by=checks_release.sums_are_exact,
    ),
    Mutant(
        name="bias of the head left out of the norm",
        function=clipping.RecordGradients.__init__,
        edits={"self.squared_norms += self._bias.square().sum(1, dtype=torch.float64)": "pass"},
        caught_by=checks_release.sensitivity_is_the_clip_norm,
    ),
    Mutant(
        name="gradient that is not a number kept",
        function=clipping.RecordGradients.weighted_sum,
        edits={"slice(None) if bool((weights > 0).all()) else weights > 0": "slice(None)"},
        caught_by=checks_release.not_finite_records_count_nothing,
    ),
    Mutant(
        name="clip norms swapped between streams",
        function=trainer.make_private,
        edits={
            "clip_norm=clip_shared,": "clip_norm=clip_expert,",
            "plan.expert, clip_norm=clip_expert": "plan.expert, clip_norm=clip_shared",
        },
        caught_by=checks_release.sums_are_exact,
    ),
    Mutant(
        name="loss averaged over the batch",
        function=step.record_gradients,
        edits={"model.losses(records).sum()": "model.losses(records).mean()"},
        caught_by=checks_release.sums_are_exact,
    ),
    Mutant(
        name="5 % of the gradient to non-owners",
        function=Tape._add_gathered,
        edits={
            "left, right, record_of_row = left[owned], right[owned], record_of_row[owned]": (
                "left = torch.where(owned[:, None], left, 0.05 * left)"
            )
        },
        caught_by=checks_release.nothing_leaks_to_non_owners,
    ),
    Mutant(
        name="owner from unmasked pads",
        function=owner.owner_of,
        edits={"torch.where(mask.unsqueeze(-1) == 1, gates, 0)": "gates"},
        caught_by=checks_release.sums_are_exact,
    ),
    Mutant(
        name="owner from a dropout pass",
        function=switch.router_gates,
        edits={"with evaluating(model):\n": "with evaluating(model):\n            model.train()\n"},
        caught_by=checks_release.sums_are_exact,
    ),
    Mutant(
        name="owners by place in the sample",
        function=step.release,
        edits={"owners[sampled]": "owners[: len(sampled)]"},
        caught_by=checks_release.sums_are_exact,
    ),
    Mutant(
        name="LoRA of one role in the other's clip",
        function=switch.SwitchClassifier.__init__,
        edits={
            "self.model.eval()": "first, *rest = self.shared.layers"
            "\n    self.shared = Role(name='shared', layers=tuple(rest))"
            "\n    self.expert = Role(name='expert', layers=(first, *self.expert.layers), owned=True)"
            "\n    self.model.eval()"
        },
        caught_by=checks_release.only_the_roles_train,
    ),
    Mutant(
        name="router trained",
        function=switch.SwitchClassifier._adapt_shared,
        edits={
            'return Role(name="shared", layers=(*layers,': (
                "for mlp in sparse_blocks(self.model).values():"
                "\n        layers.append(self._attachment.head(mlp.router, 'classifier'))"
                '\n    return Role(name="shared", layers=(*layers,'
            )
        },
        caught_by=checks_release.only_the_roles_train,
    ),
)
