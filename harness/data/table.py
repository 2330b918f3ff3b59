"""Your own table, .csv or .parquet: a row per sample, a column of classes, all other columns numbers or categories."""

import codecs
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from harness.data.columns import Column
from harness.data.folders import own_path
from harness.data.memory import check_fits
from harness.data.splits import Array, LabelledSet, Pool, stratified_rows
from harness.data.subsets import check_class_sizes, stratified_subset
from harness.errors import UserError, brief, nearest
from harness.schema.settings import TableData
from harness.seeds import numpy_generator
from harness.text.shown import counted

SUFFIXES: Final = (".csv", ".parquet")
MISSING: Final = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")  # in a .csv
MOST_CATEGORIES: Final = 1_000  # of a column: each is a feature
SEPARATORS: Final = (",", ";", "|", "\t")
_CHUNK_BYTES: Final = 2**24
_A_QUANTITY: Final = 20  # more numbers than that, some of them too rare to be split, are no classes
_BYTES_PER_CELL: Final = 45  # at the peak; 33 to 43 were measured on 200,000 rows of 21 columns, numbers or words
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_NO_REGRESSION: Final = "this harness compares classifiers"


def load_pool(settings: TableData, data_dir: Path | None) -> Pool:
    return _load(settings, data_dir)[0]


def load_test(settings: TableData, data_dir: Path | None) -> LabelledSet:
    """Its `x` holds numbers and positions of categories, as the pool's does."""
    return _load(settings, data_dir)[1]


def _load(settings: TableData, data_dir: Path | None) -> tuple[Pool, LabelledSet]:
    """Pool and test set come from one function, so both are checked and separated before any training."""
    path = own_path(settings.path, data_dir)
    table = read_table(path, settings.target, settings.separator)
    _check_names(table.column_names, settings, path)
    y, class_names = class_numbers(table.column(settings.target), f"{path}: target {settings.target!r}")
    names = [name for name in table.column_names if name not in {settings.target, *settings.drop}]
    if not names:
        raise UserError(f"{path} must have columns beside its target, {settings.target!r}; none is left")
    kept, aside = stratified_rows(y, settings.test_fraction, numpy_generator(0, "test"))
    kept = kept[stratified_subset(y[kept], settings.n_train, "n_train")]
    aside = aside[stratified_subset(y[aside], settings.n_test, "n_test")]
    if settings.missing == "refuse":
        _refuse_missing({name: count for name in names if (count := missing_in(table.column(name)))}, path)
    found = [_column(table.column(name), name, kept, settings, path) for name in names]
    columns = tuple(column for column, _ in found)
    x = np.stack([values for _, values in found], axis=1)
    pool = Pool(x[kept], y[kept], len(class_names), class_names=class_names, columns=columns)
    return pool, LabelledSet(x[aside], y[aside])


# --- the file -----------------------------------------------------------------------------------------------------


def read_table(path: Path, target: str, separator: str = ",") -> Any:
    """The whole file as an Arrow table, with names that are all different; classes of a .csv stay as written."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"data.path must name a table, {' or '.join(SUFFIXES)}; got {path}")
    if not path.is_file():
        raise UserError(f"data.path must name a table; there is no file {path}")
    table = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, target, separator)
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise UserError(f"the columns of {path} must have different names; more than one is called {_listed(twice)}")
    if not table.num_rows:
        raise UserError(f"{path} must hold rows below its names; it holds none")
    return table


def _read_csv(path: Path, target: str, separator: str) -> Any:
    import pyarrow
    import pyarrow.csv

    _check_size(_lines(path), _columns(path, separator), path)
    # One block, so that a column's type is found from all of its values; one thread, so that a bad row has its number.
    block = min(path.stat().st_size + 1, 2**31 - 1)
    try:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                null_values=MISSING, strings_can_be_null=True, column_types={target: pyarrow.string()}
            ),
        )
    except (pyarrow.ArrowInvalid, OSError) as error:
        said = " ".join(str(error).split())
        if ragged := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", said):
            row, expected, found = ragged.groups()
            raise UserError(
                f"every line of {path} must have as many values as there are names, {expected}; row {row} has {found}"
            ) from None
        raise UserError(f"{path} must be a .csv with a line of names; reading it failed: {brief(said, 200)}") from None


def _check_size(rows: int, columns: int, path: Path) -> None:
    check_fits(_BYTES_PER_CELL * rows * columns, str(path), "give fewer rows or columns")


def _columns(path: Path, separator: str) -> int:
    with path.open("rb") as file:
        return file.readline(_CHUNK_BYTES).count(separator.encode()) + 1


def _lines(path: Path) -> int:
    """How many there are; all of them must be UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with path.open("rb") as file:
        while part := file.read(_CHUNK_BYTES):
            try:
                decoder.decode(part)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                raise UserError(
                    f"{path} must be written in UTF-8; the byte 0x{error.object[error.start]:02x} in line {line:,} is "
                    "not (`iconv -f LATIN1 -t UTF-8` converts a Western European file)"
                ) from None
            line += part.count(b"\n")
    return line


def _read_parquet(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        _check_size(file.metadata.num_rows, file.metadata.num_columns, path)
        return file.read()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OSError) as error:
        said = brief(" ".join(str(error).split()), 200)
        raise UserError(f"{path} must be a complete Parquet file; reading it failed: {said}") from None


def _check_names(names: Sequence[str], settings: TableData, path: Path) -> None:
    for key, wanted in (
        ("data.target", (settings.target,)),
        ("data.drop", settings.drop),
        ("data.categorical", settings.categorical),
    ):
        for name in wanted:
            if name not in names:
                raise UserError(f"{key} must name a column of {path}; it has no {name!r} ({_hint(name, names)})")
    both = sorted({settings.target, *settings.categorical} & set(settings.drop))
    if both or settings.target in settings.categorical:
        twice = _listed(both or [settings.target])
        raise UserError(f"a column is the target, dropped or categorical, one of these; {twice} is given twice")
    if "" in names and "" not in settings.drop:
        raise UserError(
            f"every column of {path} must have a name; one has none: row numbers, perhaps (pandas writes them without "
            "index=False); data.drop: [''] leaves it out"
        )


def _hint(name: str, names: Sequence[str]) -> str:
    if len(names) == 1 and any(each in names[0] for each in SEPARATORS):
        return f"its only column is {brief(names[0], 60)!r}: data.separator says what stands between values"
    return nearest(name, names) if len(names) <= 50 else f"it has {len(names)} columns"


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(brief(name, 60)) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


# --- the target ---------------------------------------------------------------------------------------------------


def class_numbers(target: Any, where: str) -> tuple[Array, tuple[str, ...]]:
    """Each row's position among the sorted classes, and their names: words, or whole numbers in their order."""
    import pyarrow.types as types

    if target.null_count:
        raise UserError(f"{where} must have a class in every row; it is missing in {target.null_count:,} of them")
    plain = target.cast(target.type.value_type) if types.is_dictionary(target.type) else target
    if not _is_words(plain.type) and not _is_numbers(plain.type):
        raise UserError(f"{where} must hold words or whole numbers; got {plain.type}")
    found = plain.unique().to_pylist()
    numbers = [float(value) for value in found] if all(_looks_like_a_number(value) for value in found) else None
    if numbers is None:
        names = sorted(map(str, found))
        y = _positions(plain, names)
    elif any(not number.is_integer() for number in numbers):
        example = next(number for number in numbers if not number.is_integer())
        raise UserError(f"{where} holds real numbers, such as {example:g}, and {_NO_REGRESSION}")
    else:
        whole = sorted({int(number) for number in numbers})
        names = [str(number) for number in whole]
        place = {number: position for position, number in enumerate(whole)}
        y = np.array([place[int(float(value))] for value in plain.to_pylist()])
        if len(whole) > _A_QUANTITY and np.bincount(y).min() < 3:
            raise UserError(f"{where} holds {len(whole):,} numbers, some only once or twice, and {_NO_REGRESSION}")
    y = y.astype(np.int64)
    check_class_sizes(y, 3, where, names)
    return y, tuple(names)


def _looks_like_a_number(value: Any) -> bool:
    return not isinstance(value, str) or _NUMBER.fullmatch(value) is not None


def _positions(words: Any, names: Sequence[str]) -> Array:
    """Where each word stands in `names`; NaN where it does not."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.types as types

    plain = words.cast(words.type.value_type) if types.is_dictionary(words.type) else words
    found = compute.index_in(plain.cast(pyarrow.string()), value_set=pyarrow.array(names, pyarrow.string()))
    return np.asarray(found.cast(pyarrow.float32()).to_numpy(), dtype=np.float32)


def _is_words(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_numbers(kind: Any) -> bool:
    import pyarrow.types as types

    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


# --- columns ------------------------------------------------------------------------------------------------------


def missing_in(values: Any) -> int:
    """In how many rows the column has no value."""
    import pyarrow.compute as compute
    import pyarrow.types as types

    unknown = compute.sum(compute.is_nan(values)).as_py() if types.is_floating(values.type) else 0
    return int(values.null_count + (unknown or 0))


def _refuse_missing(missing: Mapping[str, int], path: Path) -> None:
    if missing:
        counts = [f"{brief(name, 60)!r} ({count:,})" for name, count in missing.items()]
        more = f" and {len(counts) - 5} more columns" if len(counts) > 5 else ""
        raise UserError(
            f"{path} must have a value in every column and row; rows without one: {', '.join(counts[:5])}{more}; "
            "data.missing: median puts the training rows' median in their place, data.drop leaves columns out"
        )


def is_mixed(categories: Sequence[str]) -> bool:
    """Whether some of these are numbers and some are not: a slip of the pen, or categories after all."""
    return 0 < sum(map(_looks_like_a_number, categories)) < len(categories)


def categories_of(values: Any) -> list[str] | None:
    """The different words of a column, or its numbers as words; None where it holds neither, but dates, say."""
    import pyarrow
    import pyarrow.types as types

    kind = values.type.value_type if types.is_dictionary(values.type) else values.type
    if not _is_words(kind) and not _is_numbers(kind):
        return None
    found = values.cast(kind).cast(pyarrow.string()).unique().to_pylist()
    return sorted(word for word in found if word is not None)


def holds_numbers(values: Any) -> bool:
    return _is_numbers(values.type)


def _column(values: Any, name: str, rows: Array, settings: TableData, path: Path) -> tuple[Column, Array]:
    """The column and its values as float32: numbers, or positions of categories among those of the given rows.

    NaN where a value is missing, or a category that those rows do not have.
    """
    import pyarrow

    where, may_be_missing = f"{path}: column {name!r}", settings.missing != "refuse"
    if holds_numbers(values) and name not in settings.categorical:
        return Column(name=name, may_be_missing=may_be_missing), _numbers(values, where)
    categories = categories_of(values)
    if categories is None:
        raise UserError(f"{where} must hold numbers or words; got {values.type}; name it in data.drop")
    if name not in settings.categorical and is_mixed(categories):
        word = next(word for word in categories if not _looks_like_a_number(word))
        raise UserError(
            f"{where} must hold numbers or words, not both; {brief(word, 40)!r} is no number; mend it, or name the "
            "column in data.categorical (every value is a category) or in data.drop"
        )
    if len(categories) > MOST_CATEGORIES:
        raise UserError(
            f"{where} must have at most {MOST_CATEGORIES:,} categories, each of them a feature; it has "
            f"{len(categories):,}; name it in data.drop"
        )
    known = categories_of(values.take(pyarrow.array(rows))) or []
    return Column(name=name, categories=tuple(known), may_be_missing=may_be_missing), _positions(values, known)


def _numbers(values: Any, where: str) -> Array:
    import pyarrow

    exact = np.asarray(values.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)
    if infinite := int(np.count_nonzero(np.isinf(exact))):
        raise UserError(f"{where} must hold finite numbers; got infinite ones in {counted(infinite, 'row')}")
    if len(exact) and np.nanmax(np.abs(exact), initial=0.0) > np.finfo(np.float32).max:
        raise UserError(f"{where} must fit into 32-bit floats; got values up to {np.nanmax(np.abs(exact)):.3g}")
    return exact.astype(np.float32)


# --- rows to predict ------------------------------------------------------------------------------------------------


def rows_of(frame: Any, columns: Sequence[Column]) -> Array:
    """The rows of a pandas DataFrame as a pool holds them; columns that the network does not know are left out."""
    import pyarrow

    absent = [column.name for column in columns if column.name not in frame.columns]
    if absent:
        raise UserError(f"the rows must have the columns of the table that was trained on; they lack {_listed(absent)}")
    given = pyarrow.Table.from_pandas(frame[[column.name for column in columns]], preserve_index=False)
    return np.stack([_values_of(given.column(column.name), column) for column in columns], axis=1)


def _values_of(values: Any, column: Column) -> Array:
    where = f"column {column.name!r}"
    if column.categories is not None:
        return _positions(values, column.categories)
    if not holds_numbers(values):
        raise UserError(f"{where} must hold numbers, as in the table that was trained on; got {values.type}")
    if not column.may_be_missing and (count := missing_in(values)):
        raise UserError(
            f"{where} must have a value in every row, as in the table that was trained on; it is missing in "
            f"{counted(count, 'row')}"
        )
    return _numbers(values, where)
