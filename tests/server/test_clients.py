"""Kafka's own clients for Python against the server: produce, consume, share a group, administer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import seeklog
from server.serving import Served, serving

COUNT = 300
PATIENCE_S = 30.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "store", rebalance_delay_s=0.5, partitions=3) as running:
        yield running


def values(topic: str) -> list[bytes]:
    return [b"%s-%d" % (topic.encode(), number) for number in range(COUNT)]


def produce_with_librdkafka(servers: str, topic: str, *, idempotent: bool) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": idempotent, "linger.ms": 5})
    for number, value in enumerate(values(topic)):
        producer.produce(
            topic,
            value,
            key=b"%d" % number,
            headers={"n": b"%d" % number},
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def produce_with_kafka_python(servers: str, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    sent = [producer.send(topic, value, key=b"%d" % number) for number, value in enumerate(values(topic))]
    assert {one.get(PATIENCE_S).topic for one in sent} == {topic}
    producer.close()


def produce_with_aiokafka(servers: str, topic: str) -> None:
    async def work() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            sent = [await producer.send(topic, value, key=b"%d" % number) for number, value in enumerate(values(topic))]
            await asyncio.gather(*sent)

    asyncio.run(work())


def consume_with_librdkafka(servers: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"ck-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    give_up = time.monotonic() + PATIENCE_S
    while len(found) < COUNT and time.monotonic() < give_up:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def consume_with_kafka_python(servers: str, topic: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"kp-{topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * PATIENCE_S,
    )
    found = [record.value for _, record in zip(range(COUNT), consumer, strict=False)]
    consumer.close()
    return found


def consume_with_aiokafka(servers: str, topic: str) -> list[bytes]:
    async def work() -> list[bytes]:
        group = f"aio-{topic}"
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(COUNT)]

    return asyncio.run(work())


PRODUCERS: dict[str, Callable[[str, str], None]] = {
    "confluent": lambda servers, topic: produce_with_librdkafka(servers, topic, idempotent=False),
    "confluent-idempotent": lambda servers, topic: produce_with_librdkafka(servers, topic, idempotent=True),
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
}
CONSUMERS: dict[str, Callable[[str, str], list[bytes]]] = {
    "confluent": consume_with_librdkafka,
    "kafka-python": consume_with_kafka_python,
    "aiokafka": consume_with_aiokafka,
}


@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_client_reads_what_a_client_produced(served: Served, tmp_path: Path, producer: str) -> None:
    PRODUCERS[producer](served.bootstrap_servers, "orders")

    for name, consume in CONSUMERS.items():
        assert sorted(consume(served.bootstrap_servers, "orders")) == sorted(values("orders")), name
    with seeklog.open(tmp_path / "store", read_only=True) as beside:
        stored = [record.value for number in range(3) for record in beside.log("orders", number).scan()]
    assert sorted(value for value in stored if value is not None) == sorted(values("orders"))


def test_members_of_a_group_share_the_partitions_and_continue_at_their_commits(served: Served) -> None:
    servers = served.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(PATIENCE_S)
    produce_with_librdkafka(servers, "orders", idempotent=True)
    found: dict[str, list[bytes]] = {"a": [], "b": []}
    is_done = threading.Event()

    def consume(name: str) -> None:
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "shared", "auto.offset.reset": "earliest", "client.id": name}
        )
        consumer.subscribe(["orders"])
        while not is_done.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found[name].append(message.value())
        consumer.close()

    members = [threading.Thread(target=consume, args=(name,)) for name in found]
    for member in members:
        member.start()
    give_up = time.monotonic() + PATIENCE_S
    described = admin.describe_consumer_groups(["shared"])["shared"].result(PATIENCE_S)
    while (
        sum(map(len, found.values())) < COUNT
        or described.state != ConsumerGroupState.STABLE
        or len(described.members) < 2
    ) and time.monotonic() < give_up:
        time.sleep(0.05)
        described = admin.describe_consumer_groups(["shared"])["shared"].result(PATIENCE_S)
    is_done.set()
    for member in members:
        member.join(PATIENCE_S)

    shares = [{one.partition for one in member.assignment.topic_partitions} for member in described.members]
    assert sorted(map(len, shares)) == [2, 2]
    assert set.union(*shares) == {0, 1, 2, 3}
    assert set(found["a"] + found["b"]) == set(values("orders"))
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shared")])["shared"]
    assert sum(one.offset for one in committed.result(PATIENCE_S).topic_partitions) == COUNT
    assert admin.delete_consumer_groups(["shared"])["shared"].result(PATIENCE_S) is None
    left = admin.list_consumer_groups().result(PATIENCE_S).valid
    assert [group.group_id for group in left] == []


def test_groups_and_offsets_outlive_the_server(tmp_path: Path) -> None:
    for round_ in range(2):
        with serving(tmp_path / "store") as running:
            consumer = Consumer(
                {
                    "bootstrap.servers": running.bootstrap_servers,
                    "group.id": "lasting",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            if round_ == 0:
                produce_with_librdkafka(running.bootstrap_servers, "orders", idempotent=False)
                consumer.commit(offsets=[TopicPartition("orders", 0, 7, metadata="here")], asynchronous=False)
            (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=PATIENCE_S)
            assert (found.offset, found.metadata) == (7, "here")
            consumer.close()


def test_group_of_the_server_is_a_group_of_the_store(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as running:
        produce_with_librdkafka(running.bootstrap_servers, "orders", idempotent=False)
        consume_with_librdkafka(running.bootstrap_servers, "orders")
    with seeklog.open(tmp_path / "store") as store:
        assert store.groups() == ["ck-orders"]
        assert {one.lag for one in store.lag("ck-orders")} == {0}
