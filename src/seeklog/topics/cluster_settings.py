"""The settings that a cluster has for the topics in a broker's directory.

They are used for a topic that is found in the directory or was recreated there, and for all topics after a broker has
used the directory and stopped. What is not known, or cannot be read, is left as it is: a topic that is found then keeps
all of its records.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from seeklog import names
from seeklog.config import LogConfig
from seeklog.errors import SeeklogError
from seeklog.files import Files, Kind
from seeklog.topics.catalog import Catalog, Topic, are_different

if TYPE_CHECKING:
    from seeklog.topics.kraft.cluster import Cluster

logger = logging.getLogger("seeklog")


class ClusterSettings:
    """Applies a cluster's settings to topics. Reads the metadata once for each topic. The caller serializes calls."""

    def __init__(self, files: Files, root: str, *, defaults: LogConfig) -> None:
        self._files = files
        self._root = root
        self._defaults = defaults
        self._found: dict[tuple[str, str], Mapping[str, str]] = {}
        """The settings of topics by name and id, in the broker's words."""

    def apply(self, topics: Catalog, *, before: Catalog, kinds: Mapping[str, Kind]) -> Catalog:
        """Return the topics of a broker's directory with their settings. `before` is the catalog of the store."""
        if names.META_PROPERTIES not in kinds:
            return topics
        found = {
            name
            for name, topic in topics.items()
            if name not in before or are_different(topic.topic_id, before[name].topic_id)
        }
        # A broker writes this file when it stops, and a store that is opened for writing removes it.
        was_used = names.CLEAN_SHUTDOWN in kinds
        chosen = [
            topic
            for name, topic in topics.items()
            if (was_used or name in found) and topic.change is None and name not in names.INTERNAL_TOPICS
        ]
        self._read(chosen)
        return topics | {topic.name: self._applied(topic, is_found=topic.name in found) for topic in chosen}

    def _read(self, topics: Collection[Topic]) -> None:
        """Read the settings of topics, unless they were read before."""
        if all((topic.name, topic.topic_id) in self._found for topic in topics):
            return
        cluster, node_id = self._read_cluster()
        for topic in topics:
            theirs = None if cluster is None else cluster.topics.get(topic.name)
            if cluster is None or theirs is None or are_different(theirs.topic_id, topic.topic_id):
                self._found[topic.name, topic.topic_id] = {}
            else:
                self._found[topic.name, topic.topic_id] = cluster.config_of(topic.name, node_id=node_id)

    def _read_cluster(self) -> tuple[Cluster | None, str]:
        # Imported on use: only a broker's directory needs it.
        from seeklog.topics.kraft.cluster import has_metadata, read_cluster, read_meta_properties

        try:
            if not has_metadata(self._files, self._root):
                return None, ""
            node_id = read_meta_properties(self._files, self._root).get("node.id", "")
            return read_cluster(self._files, self._root), node_id
        except (OSError, SeeklogError) as error:
            logger.warning(
                "%s: the settings of the cluster's topics cannot be read; topics that are new here keep all records, "
                "others their settings: %s",
                self._root,
                error,
            )
            return None, ""

    def _applied(self, topic: Topic, *, is_found: bool) -> Topic:
        from seeklog.topics.kraft.settings import changed_by_broker, from_kafka

        theirs = self._found[topic.name, topic.topic_id]
        if not is_found:
            theirs = changed_by_broker(self._defaults.with_settings(topic.config), theirs)
        config, left = from_kafka(theirs)
        for setting, reason in left.items():
            logger.debug("%s: %s of topic %s is left out: %s", self._root, setting, topic.name, reason)
        return replace(topic, config={**topic.config, **config})
