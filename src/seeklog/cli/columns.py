"""The columns of tabular input: those that `export` writes, or others that the user names for key, value and time."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seeklog.errors import InvalidRecord

_HEADER: Final = "header."
_MAX_NAMES: Final = 12


@dataclass(frozen=True, slots=True)
class Columns:
    """The values of --key-column, --value-column and --time-column."""

    key: str | None = None
    value: str | None = None
    time: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that the user named, by field of the record."""
        fields = {"key": self.key, "value": self.value, "timestamp": self.time}
        return {field: column for field, column in fields.items() if column is not None}

    def find(self, there: Sequence[str], *, known: Collection[str]) -> dict[str, str]:
        """Return the column of each field; raise `InvalidRecord` if the columns are not those of records.

        Unknown columns are refused, unless the user named a column: then they are ignored.
        """
        for name in there:
            if there.count(name) > 1:
                raise InvalidRecord(f"the column {name[:40]!r} occurs twice")
        named = self.named
        for option, column in zip(("--key-column", "--value-column", "--time-column"), self._all, strict=True):
            if column is not None and column not in there:
                raise InvalidRecord(f"{option}: there is no column {column[:40]!r}; {_hint(column, there)}")
        own = {
            name: name
            for name in there
            if (name in known or header_name(name)) and name not in named and name not in named.values()
        }
        if not named:
            for name in there:
                if name not in own:
                    raise InvalidRecord(
                        f"unknown column {name[:40]!r}; {_hint(name, [*known, 'header.NAME'], 'known')}. "
                        "For other columns pass --value-column, --key-column and --time-column"
                    )
        found = own | named
        if "value" not in found:
            raise InvalidRecord(f"no column is called value; name it with --value-column. {_hint('', there)}")
        return found

    def pick(self, fields: Mapping[str, Any], *, known: Collection[str]) -> dict[str, Any]:
        """Return the fields of a JSON object under the names of a record's fields."""
        named = self.named
        replaced = {*named.values(), *named, *(f"{field}_base64" for field in named)}
        picked = {name: value for name, value in fields.items() if name in known and name not in replaced}
        for field, column in named.items():
            if column not in fields:
                raise InvalidRecord(f"there is no field {column[:40]!r}; {_hint(column, list(fields), 'fields')}")
            picked[field] = fields[column]
        return picked

    @property
    def _all(self) -> tuple[str | None, ...]:
        return self.key, self.value, self.time


def header_name(column: str) -> str | None:
    """Return the name of the header that a column such as `header.source` holds."""
    return column.removeprefix(_HEADER) or None if column.startswith(_HEADER) else None


def _hint(name: str, there: Sequence[str], kind: str = "columns") -> str:
    nearest = difflib.get_close_matches(name, there, n=1) if name else []
    if nearest:
        return f"did you mean {nearest[0]}?"
    names = ", ".join(known[:40] for known in there[:_MAX_NAMES]) + (", …" if len(there) > _MAX_NAMES else "")
    return f"{kind}: {names or 'none'}"
