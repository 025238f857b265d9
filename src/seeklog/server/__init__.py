"""A Kafka broker over a store: connections, one handler module for each group of APIs, coordinators."""

from seeklog.server.server import Server

__all__ = ["Server"]
