"""Real routing for the theory's plots: what counts and records of several models say about their experts."""

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np

from raptor_acct import RoutingStats
from raptor_acct.plots import RoutingPoint, points_of


def token_counts(folder: Path) -> dict[str, list[RoutingPoint]]:
    """Return the layers of base models whose tokens were counted, by model and number of experts a token.

    Args:
        folder: Holds routing/olmoe_mixtral_expert_counts.csv.gz with the columns model, domain, selection, layer,
            expert and count.
    """
    counts: dict[tuple[str, str, str, int], dict[int, int]] = defaultdict(dict)
    with gzip.open(folder / "routing" / "olmoe_mixtral_expert_counts.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            key = (row["model"].split("/")[-1], row["selection"], row["domain"], int(row["layer"]))
            counts[key][int(row["expert"])] = int(row["count"])
    groups: dict[str, list[RoutingPoint]] = defaultdict(list)
    for (model, selection, _, layer), by_expert in counts.items():
        if "SFT" not in model and "Instruct" not in model:
            stats = RoutingStats.from_counts([by_expert[e] for e in range(len(by_expert))], layer=layer)
            groups[f"{model}, tokens, {selection}"] += points_of({layer: stats}, named=False)
    return dict(groups)


def deepseek_records(folder: Path) -> RoutingStats:
    """Return the owners of the records of one DeepSeek-V2-Lite layer: the expert with the largest summed gate weight.

    Args:
        folder: Holds routing/esft_intent_layer13_records.txt.gz: a line a record, the activated experts of its tokens,
            two tabs, and their gate weights.
    """
    owners = []
    with gzip.open(folder / "routing" / "esft_intent_layer13_records.txt.gz", "rt") as lines:
        for line in lines:
            experts, gates = (part.split("\t") for part in line.rstrip("\n").split("\t\t"))
            summed = np.bincount(np.array(experts, dtype=int), weights=np.array(gates, dtype=float), minlength=64)
            owners.append(int(summed.argmax()))
    return RoutingStats.from_owners(owners, 64, layer=13)


def demo_records() -> dict[int, RoutingStats]:
    """Return the owners of public review snippets in every sparse layer of the demo's Switch Transformer."""
    from raptor_train.demo.texts import load_texts
    from raptor_train.modeling import load_demo_model
    from raptor_train.public import measure_routing

    return measure_routing(load_demo_model(), load_texts(max_length=48).public)
