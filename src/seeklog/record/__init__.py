"""Encoding and decoding of records. Pure: no files, no clock, no threads.

The hot loops are compiled at install. With SEEKLOG_PURE=1 in the environment the same sources run interpreted.
"""

from os import environ

if environ.get("SEEKLOG_PURE") == "1":
    from seeklog.record.interpreted import InterpretedFinder, install

    install(InterpretedFinder())
