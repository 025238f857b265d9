"""The handlers, a module for each group of APIs. Importing this package enters them all."""

from seeklog.server.handlers import cluster, fetch, offsets, produce, topics, versions

__all__ = ["cluster", "fetch", "offsets", "produce", "topics", "versions"]
