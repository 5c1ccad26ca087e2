"""Schedules of several segments: both file formats, and every way a file can be bad."""

import json
import time

import pytest

from raptor_acct import SubsampledGaussian
from raptor_acct.segments import merged, parse_segments

ROWS = [(1.0, 0.01, 900), (2.0, 1.0, 3), (1.0, 0.01, 100)]
NAMES = ("noise_multiplier", "sampling_probability", "num_steps")
OBJECTS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
CSV = "\n".join([",".join(NAMES), *(",".join(map(str, row)) for row in ROWS)])
EXPECTED = tuple(SubsampledGaussian(num_steps=t, sampling_probability=q, noise_multiplier=s) for s, q, t in ROWS)


@pytest.mark.parametrize(
    "text",
    [json.dumps(OBJECTS), json.dumps({"segments": OBJECTS}), CSV, "\ufeff" + CSV.replace("\n", "\r\n") + "\r\n\r\n"],
    ids=["list", "object", "csv", "csv of a spreadsheet"],
)
def test_formats(text: str) -> None:
    assert parse_segments(text.encode()) == EXPECTED


def test_columns_in_any_order() -> None:
    assert parse_segments(b"num_steps, noise_multiplier,sampling_probability\n3,2,1\n") == EXPECTED[1:2]


def test_equal_settings_are_merged() -> None:
    assert [stream.num_steps for stream in merged(ROWS)] == [1000, 3]


BAD = {
    "empty": (b"", "got []"),
    "bytes": (b"\xff", "expected JSON or CSV in UTF-8"),
    "no segment": (b"[]", "at least one segment"),
    "header alone": (",".join(NAMES).encode(), "at least one segment"),
    "JSON": (b"[1,", "expected JSON"),
    "other object": (b'{"segment": []}', "a list of segments"),
    "number": (b"[3]", "segment 1: expected noise_multiplier"),
    "missing": (json.dumps([OBJECTS[0], {"num_steps": 3}]).encode(), "segment 2: expected noise_multiplier"),
    "twice": (b'[{"num_steps": 1, "num_steps": 2}]', "every key once"),
    "extra": (json.dumps([{**OBJECTS[0], "q": 1}]).encode(), "segment 1: expected noise_multiplier"),
    "range": (json.dumps([{**OBJECTS[0], "sampling_probability": 1.3}]).encode(), "got sampling_probability=1.3"),
    "nan": (json.dumps([{**OBJECTS[0], "noise_multiplier": float("nan")}]).encode(), "noise_multiplier=nan"),
    "text": ((",".join(NAMES) + "\n1,a,3").encode(), "segment 1: expected sampling_probability"),
    "steps": ((",".join(NAMES) + "\n1,0.1,3\n1,0.1,2.5").encode(), "segment 2: expected num_steps"),
    "short": ((",".join(NAMES) + "\n1,0.1").encode(), "segment 1: expected 3 values"),
    "quote": ((",".join(NAMES) + '\n1,0.1,"3').encode(), "expected JSON or CSV"),
    "columns": (b"a,b\n1,2", "with the columns"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_files(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^plan: ") as error:
        parse_segments(data, name="plan")
    assert message in str(error.value)


def test_ten_thousand_segments_take_no_time() -> None:
    data = json.dumps([{**OBJECTS[0], "noise_multiplier": 1 + i / 1e4} for i in range(10_000)]).encode()
    started = time.process_time()
    streams = merged((s.noise_multiplier, s.sampling_probability, s.num_steps) for s in parse_segments(data))
    assert time.process_time() - started < 1.0
    assert len(streams) == 10_000
