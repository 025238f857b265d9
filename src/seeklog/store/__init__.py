"""The face of a directory of topics: what `seeklog.open` returns, and queries over it."""

from seeklog.store.store import Store, open_store

__all__ = ["Store", "open_store"]
