"""The face of a directory of topics: what `seeklog.open` returns, and queries over it."""

from seeklog.store.store import Store, open_store
from seeklog.store.topic import Range, Topic

__all__ = ["Range", "Store", "Topic", "open_store"]
