"""Tables: which features a row becomes, from which rows that is decided, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import load_pool, load_test, load_training_data, memory, table
from harness.data.columns import Column, features_of, fitted
from harness.errors import UserError
from harness.models import OneShotNet
from harness.schema.settings import TableData
from harness.training.final import evaluate_on_test
from harness.training.model_file import save_model
from harness.training.networks import chosen_network
from harness.training.predict import Predictor
from harness.training.train import run_trial
from tests.tiny import config

N = 60
LABELS = ["b", "a", "c"]


def lines(**columns: Any) -> str:
    """A .csv of these columns and of the target y, which goes round three classes."""
    columns = {**columns, "y": columns.get("y", [LABELS[row % 3] for row in range(N)])}
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join([",".join(columns), *rows]) + "\n"


def settings(path: Path, **values: Any) -> TableData:
    return TableData.model_validate({"kind": "table", "path": str(path), "target": "y", **values})


def written(folder: Path, text: str | bytes, **values: Any) -> TableData:
    path = folder / "own.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return settings(path, **values)


def refused(given: TableData, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        load_training_data(given, 0, load_pool(given))
    assert "\n" not in str(caught.value)


NUMBERS = list(range(N))


# --- features -------------------------------------------------------------------------------------------------------


def test_numbers_words_and_classes(tmp_path: Path) -> None:
    colours = [("red", "blue")[row % 2] for row in range(N)]
    given = written(tmp_path, lines(size=NUMBERS, colour=colours, note=NUMBERS), drop=("note",))
    pool = load_pool(given)
    assert pool is not None and pool.class_names == ("a", "b", "c")
    data = load_training_data(given, 0, pool)
    test = load_test(given, 0, data)
    assert [name for column in data.columns for name in column.feature_names] == ["size", "colour=blue", "colour=red"]
    assert (data.x.dtype, data.sample_shape, len(test.y)) == (np.float32, (3,), 12)
    for part in (data, test):
        for (size, blue, red), label in zip(part.x.tolist(), part.y.tolist(), strict=True):
            assert "abc"[label] == LABELS[int(size) % 3] and (blue, red) == (size % 2, 1 - size % 2)
    seen = sorted([*data.x[:, 0], *test.x[:, 0]])
    assert seen == NUMBERS, "every row once: none is in both"


def test_numbers_are_scaled_by_the_training_rows_and_categories_stay_0_and_1(tmp_path: Path) -> None:
    given = written(
        tmp_path, lines(size=[row**2 for row in range(N)], colour=[("r", "b")[row % 2] for row in range(N)])
    )
    data = load_training_data(given, 3)
    train = data.x[data.train_rows].astype(np.float64)
    assert data.mean.tolist() == pytest.approx([train[:, 0].mean(), 0, 0], rel=1e-6)
    assert data.std.tolist() == pytest.approx([train[:, 0].std(), 1, 1], rel=1e-6)


def test_a_category_outside_the_training_rows_is_0_in_all_features(tmp_path: Path) -> None:
    """Each row has a category of its own, so that every validation and test row has one that training never saw."""
    given = written(tmp_path, lines(size=NUMBERS, who=[f"w{row}" for row in range(N)]))
    data = load_training_data(given, 0)
    test = load_test(given, 0, data)
    assert data.x.shape[1] == 1 + data.n_train
    assert (data.x[data.train_rows, 1:].sum(axis=1) == 1).all()
    assert not data.x[data.val_rows, 1:].any() and not test.x[:, 1:].any()


def test_missing_values_get_the_median_of_the_training_rows(tmp_path: Path) -> None:
    sizes = ["" if row % 7 == 0 else row**2 for row in range(N)]
    colours = ["NA" if row % 5 == 0 else "red" for row in range(N)]
    given = written(tmp_path, lines(row=NUMBERS, size=sizes, colour=colours), missing="median")
    data = load_training_data(given, 1)
    rows = data.x[data.train_rows, 0].astype(int)
    median = np.median([row**2 for row in rows if row % 7])
    test = load_test(given, 1, data)
    for part in (data.x, test.x):
        for row, size, red in part.tolist():
            assert size == pytest.approx(median if row % 7 == 0 else row**2)
            assert red == (row % 5 != 0)
    refused(
        given.model_copy(update={"missing": "refuse"}), r"rows without one: 'size' \(9\), 'colour' \(12\); data.miss"
    )


def test_every_seed_decides_from_its_own_training_rows(tmp_path: Path) -> None:
    sizes = ["" if row % 7 == 0 else row**2 for row in range(N)]
    given = written(tmp_path, lines(size=sizes), missing="median")
    pool = load_pool(given)
    medians = {load_training_data(given, seed, pool).columns[0].median for seed in range(6)}
    assert len(medians) > 1
    assert load_training_data(given, 0, pool).split_hash == load_training_data(given, 0).split_hash


def test_seeds_that_fill_gaps_differently_are_known_to_have_the_same_test_rows(tmp_path: Path) -> None:
    sizes = ["" if row % 3 == 0 else row**2 for row in range(N)]
    given = written(tmp_path, lines(size=sizes, colour=[f"c{row % 25}" for row in range(N)]), missing="median")
    tests = [load_test(given, seed, load_training_data(given, seed)) for seed in range(4)]
    assert len({test.x.tobytes() for test in tests}) > 1 and len({test.identity for test in tests}) == 1
    whole = written(tmp_path, lines(size=NUMBERS), missing="median")
    test = load_test(whole, 0, load_training_data(whole, 0))
    assert test.identity == (test.x.tobytes(), test.y.tobytes()), "as results of before have it"


def test_parquet_and_csv_of_the_same_table_are_the_same_rows(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "size": np.arange(N) / 3,
            "ok": np.arange(N) % 2 == 0,
            "colour": pd.Categorical([("red", "blue")[row % 2] for row in range(N)]),
            "y": [LABELS[row % 3] for row in range(N)],
        }
    )
    frame.to_csv(tmp_path / "own.csv", index=False)
    frame.to_parquet(tmp_path / "own.parquet")
    csv, parquet = (load_training_data(settings(tmp_path / f"own.{kind}"), 0) for kind in ("csv", "parquet"))
    np.testing.assert_allclose(csv.x, parquet.x, rtol=1e-6)
    assert csv.columns == parquet.columns and csv.class_names == parquet.class_names


def test_columns_of_numbers_may_be_categories(tmp_path: Path) -> None:
    data = load_training_data(written(tmp_path, lines(zip=[10 + row % 3 for row in range(N)]), categorical=("zip",)), 0)
    assert data.columns[0].feature_names == ["zip=10", "zip=11", "zip=12"]


def test_whole_numbers_are_classes_in_their_order(tmp_path: Path) -> None:
    given = written(tmp_path, lines(size=NUMBERS, y=[(2, 10, 1)[row % 3] for row in range(N)]))
    pool = load_pool(given)
    assert pool is not None and pool.class_names == ("1", "2", "10")
    floats = written(tmp_path, lines(size=NUMBERS, y=[(2.0, 10.0, 1.0)[row % 3] for row in range(N)]))
    assert table.load_pool(floats, None).class_names == ("1", "2", "10")


def test_other_separators_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = lines(size=NUMBERS, other=NUMBERS).replace(",", ";")
    data = load_training_data(written(tmp_path, b"\xef\xbb\xbf" + text.encode(), separator=";"), 0)
    assert [column.name for column in data.columns] == ["size", "other"]
    refused(written(tmp_path, text), "no 'y' .its only column is 'size;other;y': data.separator says what stands betw")


def test_a_subset_keeps_the_test_rows(tmp_path: Path) -> None:
    whole, part = (written(tmp_path, lines(size=NUMBERS), n_train=n) for n in (None, 30))
    data = load_training_data(part, 0)
    assert len(data.y) == 30
    assert np.array_equal(load_test(whole, 0, load_training_data(whole, 0)).x, load_test(part, 0, data).x)


@given(st.data())
def test_features_of_any_columns(data: st.DataObject) -> None:
    """A number stays, a known category is 1 in its own place, anything else is 0: computed cell by cell."""
    n = data.draw(st.integers(1, 8))
    kinds = data.draw(st.lists(st.booleans(), min_size=1, max_size=5))
    columns = [
        Column(name=str(i), categories=tuple("abcd") if words else None, may_be_missing=True)
        for i, words in enumerate(kinds)
    ]
    cell = {True: st.sampled_from([0.0, 1.0, 2.0, 3.0, np.nan]), False: st.sampled_from([-2.5, 0.0, 7.0, np.nan])}
    rows = [[data.draw(cell[words]) for words in kinds] for _ in range(n)]
    raw = np.array(rows, dtype=np.float32)
    raw[0] = [0.0 if np.isnan(value) else value for value in raw[0]]  # every column has a value
    train = raw[: data.draw(st.integers(1, n))]
    done = fitted(columns, train)
    names = [name for column in done for name in column.feature_names]
    features = features_of(done, raw)
    assert features.shape == (n, len(names)) and np.isfinite(features).all()
    for row, found in zip(raw, features, strict=True):
        expected = []
        for value, words, seen in zip(row, kinds, train.T, strict=True):
            if words:
                expected += [float(value == code) for code in sorted(set(seen[~np.isnan(seen)]))]
            else:
                expected.append(float(np.median(seen[~np.isnan(seen)])) if np.isnan(value) else float(value))
        assert found.tolist() == pytest.approx(expected)


# --- to the end -----------------------------------------------------------------------------------------------------


def test_a_network_of_a_table_predicts_rows_of_a_frame_by_the_names_of_their_classes(tmp_path: Path) -> None:
    """Trained, tested, written and read again: class names and features go along."""
    import pandas as pd

    colours = ["" if row % 11 == 0 else ("red", "blue")[row % 2] for row in range(N)]
    given = written(
        tmp_path, lines(size=NUMBERS, third=[row % 3 for row in range(N)], colour=colours), missing="median"
    )
    trial = config("ldn", 1, data=given.model_dump(), max_epochs=30)
    data = load_training_data(given, 0)
    trained = run_trial(trial, data)
    assert isinstance(trained.network, OneShotNet)
    chosen = chosen_network(trained.network, 1)
    final = evaluate_on_test(trained.network, 1, trial, data)
    assert [each.name for each in final.per_class] == ["a", "b", "c"]
    assert [each.rows for each in final.per_class] == [20, 20, 20]
    save_model(tmp_path / "model.pt", chosen, 1, trial, data)
    model = Predictor.load(tmp_path / "model.pt")
    frame = pd.read_csv(tmp_path / "own.csv")
    names = model.predict_names(frame)
    assert model.class_names == ("a", "b", "c") and set(names) <= {"a", "b", "c"}
    assert np.mean(names == frame["y"]) == 1.0, "the third column gives the class away"
    raw = table.rows_of(frame, data.columns)
    np.testing.assert_array_equal(model.predict_proba(features_of(data.columns, raw)), model.predict_proba(frame))
    unknown = frame.assign(colour="green")
    assert np.array_equal(features_of(data.columns, table.rows_of(unknown, data.columns))[:, 2:], np.zeros((N, 2)))
    with pytest.raises(UserError, match="they lack 'third'"):
        model.predict(frame.drop(columns=["third"]))
    with pytest.raises(UserError, match="column 'third' must hold numbers, as in the table"):
        model.predict(frame.assign(third="x"))


# --- what is refused ------------------------------------------------------------------------------------------------

WORDS = [f"w{row % 4}" for row in range(N)]


@pytest.mark.parametrize(
    ("text", "values", "sentence"),
    [
        (
            lines(size=NUMBERS),
            {"target": "Y"},
            r"data.target must name a column of .*own.csv; it has no 'Y' \(valid: size, y",
        ),
        (lines(size=NUMBERS), {"drop": ("nope",)}, "data.drop must name a column of .*; it has no 'nope'"),
        (lines(size=NUMBERS), {"categorical": ("sise",)}, "data.categorical must name .*did you mean 'size'"),
        (lines(size=NUMBERS), {"drop": ("y",)}, "one of these; 'y' is given twice"),
        (
            lines(a=NUMBERS, b=NUMBERS).replace("b", "a", 1),
            {},
            "must have different names; more than one is called 'a'",
        ),
        (lines(size=NUMBERS) + "1,a,3\n", {}, "as many values as there are names, 2; row 62 has 3"),
        (lines(size=NUMBERS) + "1\n", {}, "as many values as there are names, 2; row 62 has 1"),
        (lines(size=NUMBERS, y=["one"] * N), {}, "target 'y' must hold at least two classes; it holds one, with 60"),
        (
            lines(size=NUMBERS, y=[*WORDS[:-1], "rare"]),
            {},
            r"at least 3 samples of every class.*too few have: \w+ \(1\).*merge it with another class",
        ),
        (lines(size=NUMBERS, y=["", *WORDS[1:]]), {}, "must have a class in every row; it is missing in 1 of them"),
        (
            lines(size=NUMBERS, y=[row / 7 for row in range(N)]),
            {},
            "real numbers, such as 0.1428.* compares classifiers",
        ),
        (
            lines(size=NUMBERS, y=NUMBERS),
            {},
            "holds 60 numbers, some only once or twice, and this harness compares cla",
        ),
        (
            lines(size=["oops", *NUMBERS[1:]]),
            {},
            "column 'size' must hold numbers or words, not both; 'oops' is no num",
        ),
        (lines(size=["inf", *NUMBERS[1:]]), {}, "column 'size' must hold finite numbers; got infinite ones in 1 row$"),
        (lines(size=["1e300", *NUMBERS[1:]]), {}, r"must fit into 32-bit floats; got values up to 1e\+300"),
        (lines(day=[f"2026-01-{1 + row % 9:02d}" for row in range(N)]), {}, "must hold numbers or words; got date32"),
        (lines(size=["?"] * N), {"missing": "median"}, "'size' has no value in the training rows, so it has no median"),
        (lines(), {}, "own.csv must have columns beside its target, 'y'; none is left"),
        (lines(**{"": NUMBERS}), {}, r"every column of .* must have a name; one has none: row numbers, perhaps"),
        ("size,y\n", {}, "must hold rows below its names; it holds none"),
        ("", {}, "must be a .csv with a line of names; reading it failed"),
        (
            lines(size=NUMBERS, w=WORDS).replace("w0", "caf\xe9").encode("latin-1"),
            {},
            "must be written in UTF-8; the byte 0xe9 in line 2",
        ),
        (lines(size=NUMBERS).encode("utf-16"), {}, "must be written in UTF-8; the byte 0xff in line 1 is not"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str | bytes, values: dict[str, Any], sentence: str) -> None:
    refused(written(tmp_path, text, **values), sentence)


def test_a_hundred_thousand_categories(tmp_path: Path) -> None:
    rows = 100_000
    given = written(tmp_path, lines(who=[f"w{row}" for row in range(rows)], y=[LABELS[row % 3] for row in range(rows)]))
    refused(
        given, "column 'who' must have at most 1,000 categories, each of them a feature; it has 100,000; name it in"
    )


def test_bad_parquet_files(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    path.write_bytes(lines(size=NUMBERS).encode())
    refused(settings(path), "own.parquet must be a complete Parquet file; reading it failed: ")
    pyarrow.parquet.write_table(pyarrow.table({"size": [[1], [2]], "y": ["a", "b"]}), path)
    path.write_bytes(path.read_bytes()[:-9])
    refused(settings(path), "own.parquet must be a complete Parquet file; reading it failed: ")
    pyarrow.parquet.write_table(pyarrow.table({"size": [[row] for row in range(N)], "y": WORDS}), path)
    refused(settings(path), "column 'size' must hold numbers or words; got list<.*>; name it in data.drop")
    refused(settings(tmp_path / "own.txt"), "data.path must name a table, .csv or .parquet; got .*own.txt")
    refused(settings(tmp_path / "none.csv"), "there is no file .*none.csv")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_larger_than_memory_says_what_it_needs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand rows of two columns, in a file that is much smaller than what it stands for."""
    import pandas as pd

    frame = pd.DataFrame({"size": np.zeros(1000), "y": ["a", "b"] * 500})
    frame.to_csv(tmp_path / "own.csv", index=False)
    frame.to_parquet(tmp_path / "own.parquet")
    monkeypatch.setattr(memory, "available_bytes", lambda: 80_000)
    refused(
        settings(tmp_path / f"own.{kind}"), r"own\.\w+ would need about 0\.1 MiB of memory, but only 0\.1 MiB is avail"
    )
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    assert len(table.load_pool(settings(tmp_path / f"own.{kind}"), None).y) == 800
