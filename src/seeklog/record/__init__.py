"""Bytes to records and back. Pure: no files, no clock, no threads.

The kernel is compiled on install. With SEEKLOG_PURE=1 in the environment the same source runs interpreted
(this needs Cython installed): an oracle for the tests, never faster.
"""

import importlib.util
import sys
from os import environ
from os.path import dirname, join

if environ.get("SEEKLOG_PURE") == "1":
    _spec = importlib.util.spec_from_file_location("seeklog.record.kernel", join(dirname(__file__), "kernel.py"))
    assert _spec is not None
    assert _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["seeklog.record.kernel"] = _module
    _spec.loader.exec_module(_module)
