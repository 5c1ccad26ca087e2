"""The file of routing statistics: both formats, round trips, and every way a file can be bad."""

import gzip
import json
import re

import pytest

from raptor_acct.routing import RoutingStats
from raptor_acct.routing_file import RoutingFile, parse_routing, parse_where, read_routing, write_routing

JSON = b'{"layers": {"3": {"counts": [6, 2]}, "1": {"probabilities": [0.5, 0.5]}}, "source": "IMDb", "unit": "tokens"}'
CSV = b"layer,expert,count\n3,0,6\n3,1,2\n1,1,0\n1,0,9\n"
SPLIT = b"model,domain,layer,expert,count\nm,law,1,0,3\nm,law,1,1,1\nm,art,1,0,0\nm,art,1,1,5\n"


def test_json():
    content = parse_routing(JSON)
    assert (content.source, content.unit, list(content.layers)) == ("IMDb", "tokens", [1, 3])
    assert content.layers[3] == RoutingStats.from_counts([6, 2], layer=3)
    assert content.layers[1] == RoutingStats.from_probabilities([0.5, 0.5], layer=1)


def test_csv_in_any_order():
    content = parse_routing(CSV)
    assert {layer: stats.counts for layer, stats in content.layers.items()} == {1: (9, 0), 3: (6, 2)}
    assert (content.source, content.unit) == ("", "records")


@pytest.mark.parametrize("data", [JSON, CSV], ids=["json", "csv"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data + b"\n\n",
        lambda data: gzip.compress(data),
        lambda data: gzip.compress(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")),
    ],
    ids=["bom", "crlf", "blank lines", "gzip", "all"],
)
def test_harmless_differences(data, change):
    assert parse_routing(change(data)) == parse_routing(data)


def test_quoted_cells_and_whole_floats():
    assert parse_routing(b'"layer","expert","count"\n"1","0","3.0"\n1, 1,5.\n').layers[1].counts == (3, 5)


@pytest.mark.parametrize("suffix", [".json", ".csv", ".json.gz", ".csv.gz"])
def test_write_and_read(tmp_path, suffix):
    stats = {
        layer: RoutingStats.from_counts(counts, layer=layer) for layer, counts in {1: [9, 0], 5: [2**70, 1]}.items()
    }
    content = RoutingFile(layers=stats, source="" if "csv" in suffix else "IMDb", unit="tokens")
    path = tmp_path / f"routing{suffix}"
    write_routing(content, path)
    assert read_routing(path) == content
    assert path.read_bytes().startswith(b"\x1f\x8b") == suffix.endswith(".gz")


def test_csv_of_records_has_the_three_columns(tmp_path):
    path = tmp_path / "routing.csv"
    write_routing(parse_routing(CSV), path)
    assert path.read_text() == "layer,expert,count\n1,0,9\n1,1,0\n3,0,6\n3,1,2\n"


def test_json_keeps_probabilities_and_csv_cannot(tmp_path):
    content = parse_routing(JSON)
    write_routing(content, tmp_path / "routing.json")
    assert read_routing(tmp_path / "routing.json") == content
    with pytest.raises(ValueError, match=r"got only probabilities in layer 1; use \.json"):
        write_routing(content, tmp_path / "routing.csv")
    assert not (tmp_path / "routing.csv").exists()


def test_parts_are_never_pooled():
    message = "got several values of domain; choose one part, for example --where 'domain=law'; parts are never pooled"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_routing(SPLIT)
    content = parse_routing(SPLIT, where={"domain": "art"})
    assert (content.layers[1].counts, content.source) == ((0, 5), "model=m, domain=art")


def test_where_may_pick_a_layer():
    assert list(parse_routing(CSV, where={"layer": "3"}).layers) == [3]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"task": "law"}, "expected --where with one of the columns model, domain, layer, expert, count, got 'task'"),
        ({"domain": "tax"}, "expected --where domain to be one of law, art, got domain='tax'"),
        ({"domain": "law", "layer": "0"}, "expected --where layer to be one of 1, got layer='0'"),
    ],
)
def test_bad_where(where, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_routing(SPLIT, where=where)


def test_where_needs_columns():
    with pytest.raises(ValueError, match="expected a CSV file with --where, got JSON"):
        parse_routing(JSON, where={"domain": "law"})


def test_parse_where():
    assert parse_where([]) == {}
    assert parse_where(["model=org/a=b,domain=law, tax and war", "selection=top1"]) == {
        "model": "org/a=b",
        "domain": "law, tax and war",
        "selection": "top1",
    }


@pytest.mark.parametrize("option", [["domain"], ["=law"], ["a=1,a=2"], ["a=1", "a=1"], [""]])
def test_bad_where_option(option):
    with pytest.raises(ValueError, match="expected every --where as column=value, each column once"):
        parse_where(option)


BAD_CSV = {
    "no header": (b"1,0,3\n1,1,4\n", "columns layer,expert,count each once, got ['1', '0', '3']"),
    "missing column": (b"layer,count\n1,3\n", "got ['layer', 'count']"),
    "column twice": (b"layer,expert,count,count\n1,0,3,3\n", "each once"),
    "semicolons": (b"layer;expert;count\n1;0;3\n", "got ['layer;expert;count']"),
    "no rows": (b"layer,expert,count\n", "expected rows below the header, got none"),
    "ragged, short": (b"layer,expert,count\n1,0,3\n1,1\n", "line 3: expected 3 values, got 2"),
    "ragged, long": (b"layer,expert,count\n1,0,3,9\n", "line 2: expected 3 values, got 4"),
    "row twice": (
        b"layer,expert,count\n1,0,3\n1,1,4\n1,0,3\n",
        "line 4: expected every expert once, got layer 1, expert 0",
    ),
    "row twice, other spelling": (b"layer,expert,count\n1,0,3\n01,00,4\n", "line 3: expected every expert once"),
    "expert missing": (b"layer,expert,count\n1,0,3\n1,2,4\n", "expected experts 0..2 in layer 1, got no expert 1"),
    "experts from one": (b"layer,expert,count\n1,1,3\n1,2,4\n", "got no expert 0"),
    "last expert missing": (b"layer,expert,count\n1,0,3\n1,1,4\n1,2,0\n3,0,3\n3,1,4\n", "in layer 3, got no expert 2"),
    "one expert": (b"layer,expert,count\n1,0,3\n", "at least 2 experts"),
    "all zero": (b"layer,expert,count\n1,0,0\n1,1,0\n", "expected counts of at least one record"),
    "text count": (
        b"layer,expert,count\n1,0,three\n",
        "line 2: expected count to be a whole number >= 0, got count='three'",
    ),
    "negative count": (b"layer,expert,count\n1,0,-3\n", "got count='-3'"),
    "fraction": (b"layer,expert,count\n1,0,2.5\n", "got count='2.5'"),
    "nan": (b"layer,expert,count\n1,0,nan\n", "got count='nan'"),
    "infinite": (b"layer,expert,count\n1,0,inf\n", "got count='inf'"),
    "exponent": (b"layer,expert,count\n1,0,1e3\n", "got count='1e3'"),
    "empty count": (b"layer,expert,count\n1,0,\n", "got count=''"),
    "other digits": ("layer,expert,count\n1,0,٣\n".encode(), "got count='٣'"),
    "text layer": (b"layer,expert,count\nblock1,0,3\n", "got layer='block1'"),
    "open quote": (b'layer,expert,count\n1,0,"3\n', "expected CSV, got something else"),
}
BAD_JSON = {
    "cut off": (b'{"layers": {"1"', "expected JSON, got something else"),
    "too deep": (b'{"layers":' + b"[" * 200_000, "expected JSON, got something else"),
    "layer twice": (b'{"layers": {"1": {"counts": [1, 2]}, "1": {"counts": [1, 2]}}}', "got '1' twice in one object"),
    "layer twice, spelt": (b'{"layers": {"1": {"counts": [1, 2]}, "01": {"counts": [1, 2]}}}', "got layer '01' twice"),
    "key twice": (b'{"layers": {}, "layers": {}}', "got 'layers' twice"),
    "no layers": (b'{"source": "x"}', "expected an object with 'layers' and maybe 'source' and 'unit', got ['source']"),
    "empty layers": (b'{"layers": {}}', "expected layers to have at least one layer"),
    "list of layers": (b'{"layers": [{"counts": [1, 2]}]}', "expected 'layers' to be an object, got list"),
    "unknown key": (b'{"layers": {"1": {"counts": [1, 2]}}, "units": "tokens"}', "got ['layers', 'units']"),
    "unit no text": (b'{"layers": {"1": {"counts": [1, 2]}}, "unit": 3}', "expected 'source' and 'unit' to be text"),
    "bare list": (
        b'{"layers": {"1": [1, 2]}}',
        "expected layer 1 to be an object with 'counts' or 'probabilities', got list",
    ),
    "dense layer": (b'{"layers": {"0": null}}', "got NoneType"),
    "both": (b'{"layers": {"1": {"counts": [1, 1], "probabilities": [0.5, 0.5]}}}', "got ['counts', 'probabilities']"),
    "null": (b'{"layers": {"1": {"counts": null}}}', "layer 1: expected 'counts' or 'probabilities'"),
    "nan": (b'{"layers": {"1": {"counts": [NaN, 1]}}}', "layer 1: expected counts[0] to be a whole number >= 0, got"),
    "text": (b'{"layers": {"1": {"counts": ["3", 1]}}}', "got counts[0]='3'"),
    "2-D": (b'{"layers": {"1": {"counts": [[1, 2], [3, 4]]}}}', "got counts of shape (2, 2)"),
    "sum": (b'{"layers": {"1": {"probabilities": [0.5, 0.4]}}}', "that sum to 1 within 1e-06, got sum 0.9"),
    "layer name": (b'{"layers": {"block.1": {"counts": [1, 2]}}}', "expected layer to be a whole number >= 0"),
}
BAD_BYTES = {
    "empty": (b"", "expected routing statistics as JSON or CSV, got an empty file"),
    "blank": (b" \n\r\n", "got an empty file"),
    "only a BOM": (b"\xef\xbb\xbf", "got an empty file"),
    "prose": (b"Dear all,\nplease find attached\n", "expected JSON, or CSV with the columns layer,expert,count"),
    "top-level list": (b"[1, 2]", "expected JSON, or CSV with the columns"),
    "UTF-16": ("layer,expert,count".encode("utf-16"), "in UTF-8, got other bytes at position 0"),
    "binary": (bytes(range(128, 256)), "in UTF-8"),
    "cut gzip": (gzip.compress(CSV)[:-9], "expected a whole gzip file, got a damaged one"),
    "corrupt gzip": (gzip.compress(CSV)[:-8] + b"12345678", "expected a whole gzip file"),
    "bad deflate": (gzip.compress(CSV)[:10] + b"\xff" * 30, "expected a whole gzip file"),
    "empty gzip": (gzip.compress(b""), "got an empty file"),
}
BAD = [pytest.param(*case, id=name) for name, case in (BAD_CSV | BAD_BYTES).items()]
BAD += [pytest.param(*case, id=f"json {name}") for name, case in BAD_JSON.items()]


@pytest.mark.parametrize(("data", "message"), BAD)
def test_bad_content(data, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_routing(data, name="routing.dat")
    assert str(caught.value).startswith("routing.dat: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_the_suffix_decides_the_format_where_it_says_one(name):
    with pytest.raises(ValueError, match="expected JSON, got something else"):
        parse_routing(CSV, name=name)
    with pytest.raises(ValueError, match="expected an object with 'layers'"):
        parse_routing(b"[1, 2]", name=name)
    with pytest.raises(ValueError, match="CSV with the columns"):
        parse_routing(JSON, name=name.replace("json", "csv"))


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_routing(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError):
        read_routing(tmp_path)


def test_layers_of_different_sizes_are_fine_in_json():
    content = parse_routing(json.dumps({"layers": {"1": {"counts": [1, 2]}, "3": {"counts": [1, 2, 3]}}}).encode())
    assert [stats.num_experts for stats in content.layers.values()] == [2, 3]
