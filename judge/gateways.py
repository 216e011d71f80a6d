#!/usr/bin/env python3
"""What a gateway to ZeroMQ costs: messages a second and latency from ZeroMQ to MQTT and back,
beside two sockets of ZeroMQ without a broker, in one run. Medians of the rounds, the least and
the most of each, and each beside no broker.

    gateways.py --godwit PATH [--messages N] [--rounds N]

Needs pyzmq. The MQTT side is a bare socket that counts bytes, so that no client is measured.
"""

import argparse
import itertools
import multiprocessing
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import zmq

PAYLOAD = b"x" * 100
ROUND_TRIPS = 5000
RATES, MEDIANS, LATEST = "messages a second", "round trip, median, us", "99 of 100, us"
OPTIONS = """
[[gateway]]
name = "in"
pattern = "pull"
listen = ["tcp://127.0.0.1:{pull}"]
form = "raw"
[[gateway.in]]
topic = "in"
qos = {qos}

[[gateway]]
name = "out"
pattern = "push"
listen = ["tcp://127.0.0.1:{push}"]
form = "raw"
queue.messages_max = 10000000
queue.bytes_max = "4GiB"
[[gateway.out]]
filter = "out"
qos = {qos}

[[gateway]]
name = "echo"
pattern = "pair"
listen = ["tcp://127.0.0.1:{pair}"]
form = "raw"
[[gateway.out]]
filter = "ping"
qos = {qos}
[[gateway.in]]
topic = "pong"
qos = {qos}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def publish(topic, qos, packet_id=1):
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name
    body += packet_id.to_bytes(2, "big") if qos else b""
    body += PAYLOAD
    return bytes([0x30 | qos << 1, len(body)]) + body


class Mqtt:
    """3.1.1 by hand."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", 4)

    def ask(self, packet, answer_len):
        self.socket.sendall(packet)
        return self.exact(answer_len)

    def exact(self, count):
        got = b""
        while len(got) < count:
            got += self.socket.recv(count - len(got))
        return got

    def subscribe(self, topic):
        name = topic.encode()
        body = b"\x00\x01" + len(name).to_bytes(2, "big") + name + b"\x00"
        self.ask(bytes([0x82, len(body)]) + body, 5)

    def take(self, count, len_of_one):
        missing = count * len_of_one
        buffer = bytearray(1 << 20)
        while missing > 0:
            missing -= self.socket.recv_into(buffer, min(missing, len(buffer)))


def rate(count, work, source):
    """From the first message on: how long the source takes to begin is no matter."""
    source.start()
    work(1)
    begun = time.perf_counter()
    work(count - 1)
    seconds = time.perf_counter() - begun
    source.join()
    return count / seconds


def sender(port, count):
    """A process of its own, so that the two do not share an interpreter."""
    return multiprocessing.get_context("spawn").Process(target=send_all, args=(port, count))


def send_all(port, count):
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(f"tcp://127.0.0.1:{port}")
        for _ in range(count):
            push.send(PAYLOAD)


def latencies(ask, trips):
    took = []
    for _ in range(trips):
        begun = time.perf_counter()
        ask()
        took.append((time.perf_counter() - begun) * 1e6)
    took.sort()
    return statistics.median(took), took[len(took) * 99 // 100]


def bare(context, count, trips):
    """Names of what is measured, and values."""
    pull = context.socket(zmq.PULL)
    port = pull.bind_to_random_port("tcp://127.0.0.1")
    per_s = rate(count, lambda some: [pull.recv() for _ in range(some)], sender(port, count))
    yield RATES, "ZeroMQ to ZeroMQ, no broker", per_s
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    other.connect(f"tcp://127.0.0.1:{one.bind_to_random_port('tcp://127.0.0.1')}")
    threading.Thread(target=lambda: [other.send(other.recv()) for _ in range(trips)]).start()

    def ask():
        one.send(PAYLOAD)
        one.recv()
    median, p99 = latencies(ask, trips)
    yield MEDIANS, "PAIR to PAIR, no broker", median
    yield LATEST, "PAIR to PAIR, no broker", p99


def through(context, godwit, qos, count, trips):
    ports = {name: free_port() for name in ("pull", "push", "pair", "mqtt")}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(OPTIONS.format(qos=qos, **ports))
        file.flush()
        command = [godwit, "serve", "--memory", "--config", file.name, "--shards", "1",
                   "--listen", f"tcp://127.0.0.1:{ports['mqtt']}"]
        broker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            yield from measure(context, ports, qos, count, trips)
        finally:
            broker.terminate()
            broker.wait()


def measure(context, ports, qos, count, trips):
    kinds = {"push": zmq.PULL, "pair": zmq.PAIR}
    sockets = {name: context.socket(kind) for name, kind in kinds.items()}
    for name, own in sockets.items():
        own.connect(f"tcp://127.0.0.1:{ports[name]}")
    time.sleep(0.5)
    mqtt = Mqtt(ports["mqtt"])
    mqtt.subscribe("in")
    len_of_one = len(publish("in", 0))
    got = rate(count, lambda some: mqtt.take(some, len_of_one), sender(ports["pull"], count))
    yield RATES, f"ZeroMQ to MQTT, QoS {qos}", got
    source, packets = Mqtt(ports["mqtt"]), publish("out", qos) * 1000

    def send():
        for _ in range(count // 1000):
            source.socket.sendall(packets)
            if qos:
                source.exact(4 * 1000)
    got = rate(count, lambda some: [sockets["push"].recv() for _ in range(some)],
               threading.Thread(target=send))
    yield RATES, f"MQTT to ZeroMQ, QoS {qos}", got
    mqtt.subscribe("pong")
    pair = sockets["pair"]
    threading.Thread(target=lambda: [pair.send(pair.recv()) for _ in range(trips)]).start()
    ping, pong = publish("ping", 0), len(publish("pong", 0))

    def ask():
        source.socket.sendall(ping)
        mqtt.exact(pong)
    median, p99 = latencies(ask, trips)
    yield MEDIANS, f"MQTT, ZeroMQ and back, QoS {qos}", median
    yield LATEST, f"MQTT, ZeroMQ and back, QoS {qos}", p99


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--godwit", required=True, help="the broker's binary")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    godwit, count = os.path.abspath(given.godwit), given.messages
    found = {kind: {} for kind in (RATES, MEDIANS, LATEST)}
    with zmq.Context() as context:
        for _ in range(given.rounds):
            ways = [bare(context, count, ROUND_TRIPS)]
            ways += [through(context, godwit, qos, count, ROUND_TRIPS) for qos in (0, 1)]
            for kind, name, value in itertools.chain(*ways):
                found[kind].setdefault(name, []).append(value)
        context.destroy(0)
    for kind, rows in found.items():
        print(f"\n{kind:32}    median              least to most   beside no broker")
        beside = statistics.median(next(iter(rows.values())))
        for name, values in rows.items():
            median = statistics.median(values)
            print(f"{name:32} {median:9,.0f}    {min(values):9,.0f} to {max(values):9,.0f}"
                  f"   x{median / beside:.2f}")


if __name__ == "__main__":
    main()
