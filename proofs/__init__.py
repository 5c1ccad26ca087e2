"""Executable proofs of what the accounting rests on; the map and the mathematics are in README.md."""
