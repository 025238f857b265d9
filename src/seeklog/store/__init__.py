"""The public face of a directory of topics: the store that `seeklog.open` returns, and SQL over its topics."""

from seeklog.store.access import archive_source, files_of, origin_of, transactions_of
from seeklog.store.opening import open_store
from seeklog.store.parallel import usable_cores
from seeklog.store.store import Store
from seeklog.store.topic import Range, Topic

__all__ = [
    "Range",
    "Store",
    "Topic",
    "archive_source",
    "files_of",
    "open_store",
    "origin_of",
    "transactions_of",
    "usable_cores",
]
