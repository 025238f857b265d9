"""The handlers, a module for each group of APIs. Importing this package enters them all."""

from seeklog.server.handlers import cluster, fetch, groups, offsets, produce, topics, versions

__all__ = ["cluster", "fetch", "groups", "offsets", "produce", "topics", "versions"]
