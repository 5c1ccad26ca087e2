"""One adapter for each model family: roles, per-record losses, and gates recomputed from the router's logits."""
