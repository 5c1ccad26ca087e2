"""The max-confidence attack on published predictions, with and without a defence that claims no privacy guarantee.

    python benchmarks/attack_scores.py location30_predictions.npz

The file holds the predictions of Song and Mittal's Location-30 target model, [records, classes] for 1,000 members and
as many non-members: `target_tc_output` undefended, `target_defense_output` behind a defence, `target_member`. The
labels are not in it, so the score is the largest probability. Drawn beside: the most that any attack gets against one
Gaussian mechanism of ε = 1 and 8, which neither model has.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from raptor_acct import SubsampledGaussian, calibrate_sigma, default_delta
from raptor_acct.audit import roc
from raptor_acct.plots import attack_roc

RESULTS = Path(__file__).parent / "results"
EPSILONS = (1.0, 8.0)


def main() -> None:
    """Score, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path)
    file = parser.parse_args().predictions
    with np.load(file, allow_pickle=False) as data:
        members = data["target_member"]
        outputs = {"undefended": data["target_tc_output"], "defended": data["target_defense_output"]}
    curves = {name: roc(output.max(axis=1), members) for name, output in outputs.items()}
    delta = default_delta(len(members) // 2)
    ceilings = {}
    for eps in EPSILONS:
        noise = calibrate_sigma(eps, delta, 1.0, 1)
        stream = SubsampledGaussian(num_steps=1, sampling_probability=1.0, noise_multiplier=noise)
        ceilings[f"ceiling at ε = {eps:g}"] = stream.guarantee()
    attack_roc(curves, ceilings=ceilings).save(RESULTS / "attack_scores.png")
    result = {
        "command": f"python benchmarks/attack_scores.py {file.name}",
        "score": "max confidence",
        "delta": delta,
        "attacks": {
            name: {
                "auc": curve.auc,
                "auc_standard_error": curve.auc_standard_error,
                "points": [point.to_dict() for point in curve.table()],
            }
            for name, curve in curves.items()
        },
    }
    (RESULTS / "attack_scores.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
