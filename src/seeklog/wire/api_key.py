"""The APIs of Kafka's protocol, and the versions of their messages in `tables.txt`."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple

from seeklog.wire.codec import Schema, Struct
from seeklog.wire.table import definition_of, message_named, schema_in


class ApiKey(IntEnum):
    """The number that a request begins with. Its name is that of its messages."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def stem(self) -> str:
        """The name of its messages without `Request` and `Response`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Api(NamedTuple):
    """The messages of one API, and their versions."""

    key: ApiKey
    request: type[Struct]
    response: type[Struct]
    versions: range
    flexible_versions: range

    def is_flexible(self, version: int) -> bool:
        return version in self.flexible_versions

    def request_schema(self, version: int) -> Schema:
        return schema_in(self.request, version)

    def response_schema(self, version: int) -> Schema:
        return schema_in(self.response, version)


@cache
def api_of(key: ApiKey) -> Api:
    """Return the messages of an API, which are built on the first call."""
    request = message_named(f"{key.stem}Request")
    response = message_named(f"{key.stem}Response")
    definition = definition_of(request)
    return Api(key, request, response, definition.versions, definition.flexible_versions)
