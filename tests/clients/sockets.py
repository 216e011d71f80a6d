"""What the tests of gateways have in common: a broker with gateways, and a client of MQTT."""

import contextlib
import os
import queue
import re
import shutil
import socket
import tempfile
import time
import unittest

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from broker import Godwit, free_port

GODWIT = os.environ["CLIENTS_GODWIT"]
SHARDS = os.environ["CLIENTS_SHARDS"]
PATIENCE_S = 10
PATIENCE_MS = PATIENCE_S * 1000


def gateway(pattern, where, rules, more="", protocol=""):
    """Without a line that says otherwise it speaks to ZeroMQ."""
    return f"""
[[gateway]]
name = "{pattern}"
{protocol}
pattern = "{pattern}"
retry_min_ms = 20
retry_max_s = 1
{where}
{more}
{rules}
"""


OUT = '[[gateway.out]]\nfilter = "out/#"\n'
IN = '[[gateway.in]]\nfilter = "in/+"\ntopic = "from/${1}"\n'


class Mqtt:
    """A client of 5.0 that keeps what it gets. One with a name has a session that stays."""

    def __init__(self, port, *filters, client_id=""):
        self.got = queue.Queue()
        granted = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id,
                                  protocol=MQTTProtocolVersion.MQTTv5)
        self.client.on_message = lambda client, data, message: self.got.put(message)
        self.client.on_connect = lambda client, data, flags, code, properties: granted.put(code)
        self.client.on_subscribe = lambda client, data, id, codes, properties: granted.put(codes)
        own = Properties(PacketTypes.CONNECT)
        own.SessionExpiryInterval = 3600 if client_id else 0
        self.client.connect("127.0.0.1", port, clean_start=not client_id, properties=own)
        self.client.loop_start()
        granted.get(timeout=PATIENCE_S)
        for one in filters:
            self.client.subscribe(one, qos=1)
            granted.get(timeout=PATIENCE_S)

    def publish(self, topic, payload, qos=1, **properties):
        own = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(own, name, value)
        told = self.client.publish(topic, payload, qos=qos, properties=own)
        told.wait_for_publish(PATIENCE_S)
        return told

    def next(self, seconds=PATIENCE_S):
        message = self.got.get(timeout=seconds)
        return message.topic, message.payload

    def nothing(self, seconds=0.3):
        try:
            message = self.got.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"{message.topic} {message.payload} came")

    def stop(self):
        self.client.disconnect()
        self.client.loop_stop()


class Case(unittest.TestCase):
    """Whoever extends it says what `socket` and `gateway` are."""

    TRANSPORTS = ("tcp", "ipc")

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def url(self, transport="tcp"):
        if transport == "ipc":
            return f"ipc://{self.folder}/{free_port()}.ipc"
        return f"{transport}://127.0.0.1:{free_port()}"

    def start(self, text, *flags, options=("sys.interval_s=1", "log.modules.gateway=debug")):
        self.config = os.path.join(self.folder, "godwit.toml")
        with open(self.config, "w") as file:
            file.write(text)
        broker = Godwit("--config", self.config, *flags, shards=SHARDS, options=options)
        self.addCleanup(broker.stop)
        return broker

    def listening(self, text, *flags, **more):
        """The same, once all gateways in it listen."""
        broker = self.start(text, *flags, **more)
        for at in range(text.count("listen = ")):
            self.lines(broker, "listens", at + 1)
        return broker

    def lines(self, broker, text, count):
        """Waits until so many lines have the text in them."""
        until = time.monotonic() + PATIENCE_S
        while sum(text in line for line in broker.lines) < count:
            assert time.monotonic() < until, f"no {text!r} in\n{broker.text()}"
            time.sleep(0.005)

    def joined(self, broker, pattern, count=1):
        """Waits until the gateway has so many sockets."""
        def peers():
            said = [re.search(f"a socket (?:came|went) gateway={pattern} peers=(\\d+)", line)
                    for line in broker.lines]
            return next((int(found[1]) for found in reversed(said) if found), 0)

        until(lambda: peers() == count, f"not {count} sockets in\n{broker.text()}")

    def pair_up(self, ours, theirs, transport, we_listen, rules, more="", **options):
        """A gateway and a socket that are connected, whoever of the two listens."""
        url = self.url(transport)
        text = self.gateway(ours, f'{"listen" if we_listen else "dial"} = ["{url}"]', rules, more)
        if we_listen:
            broker = self.listening(text)
            socket = self.socket(theirs, url, False, **options)
        else:
            socket = self.socket(theirs, url, True, **options)
            broker = self.start(text)
        self.joined(broker, ours)
        return broker, socket

    def every_way(self):
        for transport in self.TRANSPORTS:
            for we_listen in (True, False):
                with self.subTest(transport=transport, we_listen=we_listen):
                    yield transport, we_listen

    def mqtt(self, broker, *filters):
        client = Mqtt(broker.port, *filters)
        self.addCleanup(client.stop)
        return client

    def value(self, broker, topic, is_right, seconds=PATIENCE_S):
        """What a topic below $SYS/broker comes to."""
        client = Mqtt(broker.port, f"$SYS/broker/{topic}")
        until, payload = time.monotonic() + seconds, None
        try:
            while True:
                left = until - time.monotonic()
                assert left > 0, f"{topic} is {payload}"
                with contextlib.suppress(queue.Empty):
                    _, payload = client.next(left)
                    if is_right(payload.decode()):
                        return payload.decode()
        finally:
            client.stop()


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def zmtp(kind):
    """How a socket of ZeroMQ greets and says what it is, without a library."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\0NULL" + bytes(16 + 1 + 31)
    ready = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind.encode()
    return greeting + bytes([4, len(ready)]) + ready


def stalled_peer(url, greeting, room=4096):
    """A socket that says who it is and never reads."""
    transport, place = url.split("://")
    if transport == "ipc":
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(place)
    else:
        host, port = place.split(":")
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        peer.connect((host, int(port)))
    peer.sendall(greeting)
    return peer


class Reader:
    """The same, which reads when it is told to. Messages are a number, and `x` up to a length."""

    def __init__(self, url, greeting, length):
        self.peer, self.length, self.data = stalled_peer(url, greeting, 1 << 17), length, b""
        self.peer.settimeout(PATIENCE_S)

    def close(self):
        self.peer.close()

    def read(self):
        """Says whether there may be more."""
        try:
            data = self.peer.recv(1 << 20)
        except OSError:
            return False
        self.data += data
        return bool(data)

    def numbers(self):
        """Of those that came as a whole."""
        parts = re.findall(rb"#(\d{8})x{%d}" % (self.length - 9), self.data)
        return [int(number) for number in parts]


def until(is_so, what):
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)
