#!/usr/bin/env python3
"""What a bridge costs at rates at which messages come one by one: CPU of the broker that has the
bridge, for each message over it, and how long a message takes. Two brokers of a kind, the first
bridged to the second; brokers take turns in each round. Medians of the rounds, least and most.

    bridges.py --godwit PATH [--godwit NAME=PATH ...] [--mosquitto PATH] [--rates 2000,10000]
               [--rounds N] [--seconds N] [--store]

The load is sockets by hand: 20 clients take turns to publish QoS 1 with 128 bytes, one message at
a time, evenly; one QoS 0 subscriber at the second broker counts what comes and how late it is.
CPU is user and system time of the whole process (/proc/PID/stat).
"""

import argparse
import multiprocessing
import os
import select
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

CLIENTS, PAYLOAD_BYTES = 20, 128
TOPIC = b"bridge/t"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Mqtt:
    """3.1.1 by hand."""

    def __init__(self, port, name):
        until = time.monotonic() + 10
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name.encode()
        self.ask(bytes([0x10, len(body)]) + body, 4)

    def ask(self, packet, answer_len):
        self.socket.sendall(packet)
        while answer_len > 0:
            answer_len -= len(self.socket.recv(answer_len))

    def subscribe(self, topic):
        body = b"\x00\x01" + len(topic).to_bytes(2, "big") + topic + b"\x00"
        self.ask(bytes([0x82, len(body)]) + body, 5)


def publish_evenly(port, rate, seconds):
    """One message every 1/rate seconds, by clients that take turns."""
    clients = [Mqtt(port, f"pub{number}") for number in range(CLIENTS)]
    len_of_body = 2 + len(TOPIC) + 2 + PAYLOAD_BYTES
    head = bytes([0x32, 0x80 | len_of_body & 0x7f, len_of_body >> 7])
    head += len(TOPIC).to_bytes(2, "big") + TOPIC
    padding = b"x" * (PAYLOAD_BYTES - 8)
    begun = time.monotonic_ns()
    for number in range(int(rate * seconds)):
        due = begun + number * 1_000_000_000 // rate
        while True:
            left = due - time.monotonic_ns()
            if left <= 0:
                break
            time.sleep(left / 1e9)
        client = clients[number % CLIENTS].socket
        packet_id = (number // CLIENTS % 60_000 + 1).to_bytes(2, "big")
        now = time.monotonic_ns().to_bytes(8, "big")
        client.sendall(head + packet_id + now + padding)
        # Its answers to what it said before.
        if number // CLIENTS % 16 == 15 and select.select([client], [], [], 0)[0]:
            client.recv(4096)
    time.sleep(0.5)


def count_deliveries(port, total, told):
    subscriber = Mqtt(port, "sub")
    subscriber.subscribe(b"bridge/#")
    told.send("ready")
    len_of_one = 3 + 2 + len(TOPIC) + PAYLOAD_BYTES
    at = len_of_one - PAYLOAD_BYTES
    rest, took = b"", []
    subscriber.socket.settimeout(5)
    while len(took) < total:
        try:
            rest += subscriber.socket.recv(1 << 20)
        except TimeoutError:
            break
        now = time.monotonic_ns()
        whole = len(rest) // len_of_one
        for number in range(whole):
            begin = number * len_of_one + at
            took.append(now - int.from_bytes(rest[begin:begin + 8], "big"))
        rest = rest[whole * len_of_one:]
    took.sort()
    p50, p99 = (took[len(took) * part // 100] / 1000 if took else 0 for part in (50, 99))
    told.send((len(took), p50, p99))


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def godwit(path, folder, ports, store):
    storage = ["--data", os.path.join(folder, "data")] if store else ["--memory"]
    yield [path, "serve", "--memory", "--listen", f"tcp://127.0.0.1:{ports[1]}"]
    file = os.path.join(folder, "bridge.toml")
    with open(file, "w", encoding="utf-8") as out:
        out.write(f'[[bridge]]\nname = "b"\nservers = ["tcp://127.0.0.1:{ports[1]}"]\n'
                  '[[bridge.out]]\nfilter = "bridge/#"\nqos = 1\n')
    yield [path, "serve", *storage, "--listen", f"tcp://127.0.0.1:{ports[0]}", "--config", file]


def mosquitto(path, folder, ports, store):
    bridge = (f"connection b\naddress 127.0.0.1:{ports[1]}\ntopic bridge/# out 1\n"
              "bridge_protocol_version mqttv50\nmax_queued_messages 0\n")
    kept = f"persistence true\npersistence_location {folder}/\n" if store else ""
    for port, more in ((ports[1], ""), (ports[0], bridge + kept)):
        file = os.path.join(folder, f"{port}.conf")
        with open(file, "w", encoding="utf-8") as out:
            out.write(f"listener {port} 127.0.0.1\nallow_anonymous true\n{more}")
        yield [path, "-c", file]


def measure(kind, path, rate, seconds, store):
    """CPU us a message, latency, and how many of them came."""
    ports, total = (free_port(), free_port()), int(rate * seconds)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for command in kind(path, folder, ports, store)]
        try:
            time.sleep(1.5)
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            counter = context.Process(target=count_deliveries, args=(ports[1], total, theirs))
            counter.start()
            ours.recv()
            source = context.Process(target=publish_evenly, args=(ports[0], rate, seconds))
            before = cpu_of(started[1].pid)
            source.start()
            came, p50, p99 = ours.recv()
            spent = cpu_of(started[1].pid) - before
            source.join()
            counter.join()
        finally:
            for broker in started:
                broker.terminate()
                broker.wait()
    return spent * 1e6 / max(came, 1), p50, p99, total - came


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--godwit", action="append", required=True, help="PATH or NAME=PATH")
    parser.add_argument("--mosquitto", default=shutil.which("mosquitto", path="/usr/sbin:/usr/bin"))
    parser.add_argument("--rates", default="2000,10000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--store", action="store_true", help="the first broker keeps on disk")
    given = parser.parse_args()
    brokers = []
    for text in given.godwit:
        name, _, path = text.rpartition("=")
        brokers.append((name or "godwit", godwit, os.path.abspath(path)))
    if given.mosquitto:
        brokers.append(("mosquitto", mosquitto, given.mosquitto))
    rates = [int(rate) for rate in given.rates.split(",")]
    found = {}
    for number in range(given.rounds):
        # Whoever is first in one round is last in the next.
        for name, kind, path in brokers if number % 2 == 0 else reversed(brokers):
            for rate in rates:
                one = measure(kind, path, rate, given.seconds, given.store)
                found.setdefault((rate, name), []).append(one)
    print(f"{'broker':16} {'rate':>7} {'CPU us':>8} {'least to most':>16} "
          f"{'p50 us':>8} {'p99 us':>8} {'lost':>5}")
    for rate in rates:
        for name, _, _ in brokers:
            spent, p50, p99, lost = zip(*found[(rate, name)])
            print(f"{name:16} {rate:7} {statistics.median(spent):8.1f} "
                  f"{min(spent):7.1f} to {max(spent):5.1f} {statistics.median(p50):8.0f} "
                  f"{statistics.median(p99):8.0f} {sum(lost):5}")


if __name__ == "__main__":
    main()
