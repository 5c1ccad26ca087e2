"""Nested frozen dataclasses from nested settings: unknown names, wrong types and text from flags in one place."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from raptor_acct._validate import shown

Config = TypeVar("Config")


def from_nested(cls: type[Config], settings: Mapping[str, Any]) -> Config:
    """Make a ``cls`` of nested settings, with defaults for what is missing.

    Raises:
        ValueError: On an unknown setting, with the nearest known one, and on a value of the wrong type.
    """
    known = [path for path, _ in leaves(cls)]
    unknown = sorted(set(_names(cls, settings)) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.5)
        raise ValueError(
            f"expected known settings, got {', '.join(unknown)}" + (f"; did you mean {near[0]}?" if near else "")
        )
    made: Config = _build(cls, settings)
    return made


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, help) of every setting; its help stands in its annotation."""
    hints = get_type_hints(cls, include_extras=True)
    for entry in fields(cls):
        if is_dataclass(hints[entry.name]):
            yield from leaves(hints[entry.name], f"{prefix}{entry.name}.")
        else:
            yield prefix + entry.name, str(hints[entry.name].__metadata__[0])


def with_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested ``settings`` with the settings named in ``changes`` (dotted) replaced."""
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in settings.items()}
    for name, value in changes.items():
        section, _, key = name.rpartition(".")
        if not section:
            result[key] = value
        elif isinstance(place := result.setdefault(section, {}), dict):
            place[key] = value
        else:
            raise ValueError(f"expected {section} to be settings by name, got {section}={shown(place)}")
    return result


def _names(cls: type, settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    hints = get_type_hints(cls)
    for key, value in settings.items():
        if not is_dataclass(hints.get(key)):
            yield f"{prefix}{key}"
        elif isinstance(value, Mapping):
            yield from _names(hints[key], value, f"{prefix}{key}.")
        else:
            raise ValueError(f"expected {key} to be settings by name, got {key}={shown(value)}")


def _build(cls: type[Any], settings: Mapping[str, Any], prefix: str = "", start: Any = None) -> Any:
    """Make an instance of ``cls``; sections that are given in part keep the other values of their default."""
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for entry in fields(cls):
        if is_dataclass(hints[entry.name]):
            default = entry.default_factory() if callable(entry.default_factory) else None
            section = settings.get(entry.name, {})
            values[entry.name] = _build(hints[entry.name], section, f"{entry.name}.", default)
        elif entry.name in settings:
            values[entry.name] = _converted(prefix + entry.name, settings[entry.name], hints[entry.name])
        elif start is not None:
            values[entry.name] = getattr(start, entry.name)
    return cls(**values)


def _converted(name: str, value: Any, kind: Any) -> Any:
    """``value`` as one of the types in ``kind``; text (of a flag, or YAML's 1e-5) becomes a number where one may be."""
    if get_origin(kind) is tuple:
        return _names_in(name, value)
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    words = [word for k in kinds if get_origin(k) is Literal for word in get_args(k)]
    plain = [k for k in kinds if isinstance(k, type)]
    if (value is None and type(None) in plain) or value in words:
        return value
    for wanted in (bool, int, float, str):
        if wanted in plain and (found := _as(wanted, value)) is not None:
            return found
    allowed = " or ".join([*map(repr, words), *(_WORDS[k] for k in plain if k in _WORDS)])
    raise ValueError(f"expected {name} to be {allowed}, got {name}={shown(value)}")


def _names_in(name: str, value: Any) -> tuple[str, ...]:
    """Names from a list, or from a text with commas between them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError(f"expected {name} to be names with commas between, got {name}={shown(value)}")
    return tuple(part.strip() for part in parts)


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _as(kind: type, value: Any) -> Any:
    if kind is bool:
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value)
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if kind is str:
        return value if isinstance(value, str) else None
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            return None
    if isinstance(value, int) or (kind is float and isinstance(value, float)):
        return kind(value)
    return None
