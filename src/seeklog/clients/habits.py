"""Arguments that users of Kafka's clients pass by habit, and what stands for them here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from seeklog.errors import UsageError

_NEEDLESS: Final = "leave it out: a store is a directory in this process, without connections, requests or retries"
_SAME_EVERYWHERE: Final = {
    "bootstrap_servers": "leave it out: the path passed to seeklog.open stands for it",
    "request_timeout_ms": _NEEDLESS,
    "retry_backoff_ms": _NEEDLESS,
    "metadata_max_age_ms": _NEEDLESS,
    "security_protocol": _NEEDLESS,
    "api_version": _NEEDLESS,
}
_HABITS: Final = {
    "producer": _SAME_EVERYWHERE
    | {
        "acks": 'set it on the topic: config={"flush": "batch"} is acks="all", and {"flush": "interval"} is acks=1',
        "value_serializer": "pass value=, for example value=json",
        "key_serializer": "pass key=, for example key=str",
        "batch_size": "pass batch_bytes=",
        "buffer_memory": "pass buffer_bytes=",
        "enable_idempotence": "pass idempotence=",
        "transactional_id": "pass name=, which fences older producers of that name",
        "client_id": "pass name=, which fences older producers of that name, or leave it out",
        "compression_type": 'set it on the topic: config={"compression.type": …}',
        "max_request_size": 'set it on the topic: config={"max.message.bytes": …}',
        "retries": _NEEDLESS,
        "max_in_flight_requests_per_connection": _NEEDLESS,
        "delivery_timeout_ms": _NEEDLESS,
    },
    "consumer": _SAME_EVERYWHERE
    | {
        "group_id": "pass group=",
        "value_deserializer": "pass value=, for example value=json or value=json.loads",
        "key_deserializer": "pass key=, for example key=str",
        "session_timeout_ms": "leave it out: a member that dies is noticed by its file lock",
        "isolation_level": "leave it out: reads return the records of all transactions",
        "partition_assignment_strategy": "leave it out: members keep their partitions when others join or leave",
        "fetch_min_bytes": _NEEDLESS,
        "fetch_max_bytes": _NEEDLESS,
        "fetch_max_wait_ms": _NEEDLESS,
        "max_partition_fetch_bytes": _NEEDLESS,
    },
}


def refuse_arguments(method: Callable[..., Any], given: Iterable[str]) -> NoReturn:
    """Raise `UsageError` for unknown arguments of `Store.producer` or `Store.consumer`."""
    name = next(iter(given))
    call = method.__name__
    known = [each.name for each in inspect.signature(method).parameters.values() if each.kind is not each.VAR_KEYWORD]
    advice = _HABITS[call].get(name) or _nearest(name, [each for each in known if each != "self"])
    raise UsageError(f"{call} has no argument {name!r}; {advice}")


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # only for an error message: it would add 5 ms to every import

    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]}=?" if nearest else f"it takes {', '.join(known)}"
