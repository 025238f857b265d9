"""DuckDB over the topics of a store: its restrictions, and query results as rows."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from seeklog.errors import SeeklogError, TopicNotFound, UsageError, import_failed
from seeklog.store.sql_text import JSON_ARROW, TEXT_ARROW, with_duckdb_arrows, with_our_arrows

if TYPE_CHECKING:
    import pyarrow

    from seeklog.store.dataset import TopicDataset
    from seeklog.store.store import Store

BATCH_ROWS: Final = 10_000
# A query opens no files but the store's and cannot change that. Names refer to tables, never to Python variables.
_CONFIG: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
# DuckDB's functions of JSON, and how many arguments they take. For the bytes of JSON they would find nothing.
_JSON_FUNCTIONS: Final = {
    "json_extract": (2,),
    "json_extract_string": (2,),
    "json_value": (2,),
    "json_exists": (2,),
    "json_contains": (2,),
    "json_type": (1, 2),
    "json_keys": (1, 2),
    "json_array_length": (1, 2),
    "json_structure": (1,),
    "json_transform": (2,),
}


def _json_macro(name: str, function: str, arities: Iterable[int]) -> str:
    """Return a macro for a function of JSON that also takes the bytes of JSON. Other bytes give null."""
    forms = []
    # A macro hides the function of the same name, so it calls that one by its full name.
    for more in ("" if arity == 1 else ", more" for arity in arities):
        forms.append(f"(data blob{more}) as try(system.main.{function}(decode(data){more}))")
        forms.append(f"(data{more}) as system.main.{function}(data{more})")
    return f'create macro "{name}"{", ".join(forms)}'


_MACROS: Final = (
    "create macro text(data) as try(decode(data))",
    "create macro field(data, path) as try(json_extract_string(decode(data), path))",
    _json_macro(JSON_ARROW, "json_extract", (2,)),
    _json_macro(TEXT_ARROW, "json_extract_string", (2,)),
    *(_json_macro(name, name, arities) for name, arities in _JSON_FUNCTIONS.items()),
    """create macro json_valid
        (data blob) as if(data is null, null, coalesce(try(system.main.json_valid(decode(data))), false)),
        (data) as system.main.json_valid(data)""",
)
# What DuckDB says of an arrow before a computed path, because of the macros.
_COMPUTED_PATH: Final = ("json_extract is not a scalar function", "Cannot copy bound expression")
_BARE_OFFSET: Final = re.compile(r'(?<!")\boffset\b(?!")', re.IGNORECASE)
_MISSING_TABLE: Final = re.compile(r"Table with name (.+?) does not exist")

Rows = Iterator[dict[str, Any]]
Parameters = Sequence[Any] | Mapping[str, Any]


class ResultColumn(NamedTuple):
    """One column of a query's result."""

    name: str
    is_number: bool


class Statement(NamedTuple):
    """One statement, as DuckDB runs it."""

    text: str
    returns_rows: bool
    """False for a statement that never has a result."""
    is_change: bool
    """Whether it may change rows."""

    def has_result(self, columns: list[str]) -> bool:
        """Return whether these columns are a result. DuckDB 2 also reports the success of statements without one."""
        return self.returns_rows and not (self.is_change and columns == ["Count"])


class QueryFailed(SeeklogError):
    """DuckDB failed in the middle of a query."""


def import_duckdb() -> Any:
    """Return the duckdb module, or raise `MissingExtra`."""
    package = "duckdb"
    try:
        import duckdb

        package = "pyarrow"
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise import_failed(error, package, missing=f'sql needs {package}: pip install "seeklog[sql]"') from error
    return duckdb


class Session:
    """One connection to DuckDB. Tables, views and macros that its statements create last until it is closed."""

    def __init__(self, duckdb: Any, *, utc: bool) -> None:
        self._duckdb = duckdb
        self._utc = utc
        self.tables: dict[str, TopicDataset] = {}
        """The topics by their names."""
        self._connection = connection = duckdb.connect(config=_CONFIG)
        for macro in _MACROS:
            connection.execute(macro)
        if utc:
            connection.execute("set TimeZone = 'UTC'")
        connection.execute("set lock_configuration = true")
        self._work = _Interruptible(connection)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._work.end()
        for name in self.tables:
            self._connection.unregister(name)
        self._connection.close()

    def offer(self, tables: Mapping[str, TopicDataset]) -> None:
        """Make these topics the tables. A topic that is a table already stays as it is."""
        for name in self.tables.keys() - tables.keys():
            self._connection.unregister(name)
            del self.tables[name]
        for name, table in tables.items():
            if name not in self.tables:
                self._connection.register(name, table)
                self.tables[name] = table

    def statements(self, text: str) -> list[Statement]:
        """Return the statements in a text. Raises `UsageError` if one of them has a syntax error."""
        with _translate_errors(self._duckdb, self.tables):
            found = self._connection.extract_statements(with_our_arrows(text))
        kinds = self._duckdb.ExpectedResultType
        return [
            Statement(
                each.query,
                returns_rows=kinds.QUERY_RESULT in each.expected_result_type,
                is_change=kinds.CHANGED_ROWS in each.expected_result_type,
            )
            for each in found
        ]

    def open_select(self, store: Store, query: str, parameters: Parameters | None) -> Any:
        """Return a stream of the result of one query over the topics that it names."""
        statements = self.statements(query)
        if len(statements) != 1 or not statements[0].returns_rows or statements[0].is_change:
            raise UsageError(
                "sql takes one query, such as a select; pass several one by one. A topic is written by a producer"
            )
        text = statements[0].text
        existing = store.topics(internal=True)
        try:
            named = self._connection.get_table_names(text)
        except self._duckdb.Error:
            named = set(existing)  # the error is reported when the query runs
        folded = {name.casefold() for name in named}
        self.offer({name: store.topic(name).dataset() for name in existing if name.casefold() in folded})
        with _translate_errors(self._duckdb, self.tables, existing):
            relation = self._work.do(partial(self._connection.sql, text, params=parameters))
            return self._work.do(partial(_stream, relation))

    def batches(self, reader: Any, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches of a stream, with the names of a schema. The session is closed at the end."""
        following = partial(self._work.do, partial(next, iter(reader), None))
        try:
            with _translate_errors(self._duckdb, self.tables):
                while (batch := following()) is not None:
                    yield batch.rename_columns(schema.names)
        finally:
            self._connection.interrupt()
            reader.close()
            self.close()

    @contextlib.contextmanager
    def query(self, statement: Statement) -> Iterator[tuple[list[ResultColumn], Rows]]:
        """Yield the columns and rows of a statement's result. Rows are produced as they are consumed.

        A statement without a result, such as `create table`, has no columns. Ctrl-C interrupts the statement, and the
        session can go on. `reads` of the tables list what it has read.
        """
        for table in self.tables.values():
            table.begin()
        with _translate_errors(self._duckdb, self.tables):
            reader = self._work.do(partial(_reader, self._connection, statement))
            if reader is None:
                yield [], iter(())
                return
            names = _unique_names(_shown_names(reader))
            columns = [
                ResultColumn(name, _is_number(kind)) for name, kind in zip(names, reader.schema.types, strict=True)
            ]
            try:
                yield columns, _rows(partial(self._work.do, partial(next, iter(reader), None)), names, self._utc)
            except BaseException:
                self._connection.interrupt()  # whatever stopped the consumer, its query must not go on
                raise
            finally:
                # Without an open result the session can run the next query, and forget its tables.
                reader.close()


def select(store: Store, query: str, parameters: Parameters | None) -> pyarrow.RecordBatchReader:
    """Return the result of a query over the topics of a store, as `Store.sql` describes it."""
    duckdb = import_duckdb()
    import pyarrow as pa

    session = Session(duckdb, utc=True)
    try:
        reader = session.open_select(store, query, parameters)
    except BaseException:
        session.close()
        raise
    # As in a data frame, columns may share a name.
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, _shown_names(reader), strict=True)])
    return pa.RecordBatchReader.from_batches(schema, session.batches(reader, schema))


class _Interruptible:
    """Runs DuckDB in another thread, so that this one receives Ctrl-C."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._worker = ThreadPoolExecutor(1)

    def do(self, work: Callable[[], Any]) -> Any:
        done = self._worker.submit(work)
        try:
            return done.result()
        except KeyboardInterrupt:
            self._connection.interrupt()
            done.exception()
            raise

    def end(self) -> None:
        self._worker.shutdown()


def _reader(connection: Any, statement: Statement) -> Any:
    """Return a stream of the result, or None for a statement without one."""
    relation = connection.sql(statement.text)
    if relation is None:
        return None
    reader = _stream(relation)
    if statement.has_result(relation.columns):
        return reader
    reader.close()
    return None


def _stream(relation: Any) -> Any:
    return (getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader)(BATCH_ROWS)


def _shown_names(reader: Any) -> list[str]:
    return [with_duckdb_arrows(name) for name in reader.schema.names]


@contextlib.contextmanager
def _translate_errors(
    duckdb: Any, tables: Mapping[str, TopicDataset], known: Iterable[str] | None = None
) -> Iterator[None]:
    """Translate DuckDB's errors into one line. An error of a topic's scan is raised unchanged.

    `known` are the names of all topics, if not all of them are tables.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except Exception as error:
        failure = next((table.failure for table in tables.values() if table.failure is not None), None)
        if failure is not None:
            raise failure from None
        if isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from None
        if not isinstance(error, duckdb.Error) and type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise _translated(duckdb, error, tables if known is None else known) from None


def _translated(duckdb: Any, error: Exception, tables: Iterable[str]) -> SeeklogError:
    text = with_duckdb_arrows(str(error).partition("\n\nLINE ")[0])
    line = " ".join(text.split())
    if isinstance(error, duckdb.ParserException) and _BARE_OFFSET.search(str(error)):
        line += '; offset is a SQL keyword: write the column in double quotes, as "offset"'
    if any(words in line for words in _COMPUTED_PATH):
        line = "an arrow takes only a constant path; write json_extract(value, path) for a computed one"
        return UsageError(line)
    missing = _MISSING_TABLE.search(line)
    if missing is not None:
        import difflib

        nearest = difflib.get_close_matches(missing[1], tables, n=1)
        hint = f'did you mean "{nearest[0]}"?' if nearest else f"there are {', '.join(list(tables)[:12]) or 'none'}"
        return TopicNotFound(f"there is no topic {missing[1]}; {hint}")
    is_usage = isinstance(error, duckdb.ProgrammingError | duckdb.NotSupportedError)
    return UsageError(line) if is_usage else QueryFailed(line)


def _unique_names(names: list[str]) -> list[str]:
    """Make column names unique by adding numbers: a JSON object has each name once."""
    found: list[str] = []
    for name in names:
        wanted, number = name, 1
        while wanted in found:
            number += 1
            wanted = f"{name}_{number}"
        found.append(wanted)
    return found


def shown(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _rows(next_batch: Callable[[], Any], names: list[str], utc: bool) -> Rows:
    while (batch := next_batch()) is not None:
        try:
            columns = [[_plain(value, utc) for value in column.to_pylist()] for column in batch.columns]
        except (OverflowError, ValueError) as error:
            raise UsageError(
                f"a time in the result is outside the years 1 to 9999: {error}. Cast the column, for example "
                "timestamp::varchar"
            ) from error
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _plain(value: Any, utc: bool) -> Any:
    """Return a value that JSON can represent. Bytes that are not UTF-8 become an object with their base64."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        moment = value.astimezone(None if not utc else value.tzinfo)
        precision = "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
        return moment.isoformat(timespec=precision).replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(name): _plain(item, utc) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, utc) for item in value]
    if isinstance(value, date | time | timedelta | UUID):
        return value.isoformat() if isinstance(value, date | time) else str(value)
    return str(value)
