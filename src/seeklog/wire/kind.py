"""The types of a message's fields.

`kind.pxd` holds the same numbers for the compiled codec; the tests compare the two.
"""

from __future__ import annotations

from typing import Final

BOOL: Final = 0
INT8: Final = 1
INT16: Final = 2
UINT16: Final = 3
INT32: Final = 4
INT64: Final = 5
FLOAT64: Final = 6
UUID: Final = 7
STRING: Final = 8
BYTES: Final = 9
RECORDS: Final = 10
STRUCT: Final = 11

UUID_SIZE: Final = 16
# The longest unsigned varint of 32 bits.
UVARINT_SIZE_MAX: Final = 5
