"""Run every proof: ``python -m proofs``."""

import importlib
import pkgutil
import time

import proofs


def names() -> list[str]:
    """Return the proofs' module names, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(proofs.__path__) if not module.name.startswith("_"))


def main() -> None:
    """Run them, with the time each takes; the first that fails raises."""
    for name in names():
        start = time.perf_counter()
        importlib.import_module(f"proofs.{name}").prove()
        print(f"{name:22} proved in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
