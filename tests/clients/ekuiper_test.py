"""A plugin of eKuiper, run by eKuiper's own SDK, at gateways that stand where eKuiper would: it is
controlled, read and written to by a client of MQTT. Starts a broker from CLIENTS_GODWIT."""

import base64
import contextlib
import json
import os
import sys
import time

import sockets
from broker import Process
from sockets import PATIENCE_S, SHARDS, Case, until

HERE = os.path.dirname(os.path.abspath(__file__))
# The SDK has these names of its own, below /tmp.
NAME = f"godwit{os.getpid()}s{SHARDS}"
COUNT = 100


def gateway(name, pattern, where, rules):
    text = sockets.gateway(pattern, f'{where[0]} = ["ipc:///tmp/{where[1]}.ipc"]', rules,
                           'form = "raw"', 'protocol = "sp"')
    return text.replace(f'name = "{pattern}"', f'name = "{name}"')


def comes(topic):
    return f'[[gateway.in]]\ntopic = "{topic}"\n'


def place(symbol, more=""):
    return f"{NAME}_{symbol}_0{more}"


class Ekuiper(Case):
    def setUp(self):
        super().setUp()
        self.kept = {}
        self.broker = self.listening("".join([
            gateway("control", "rep", ("listen", f"plugin_{NAME}"), comes("plugin")),
            gateway("source", "pull", ("listen", place("rows")), comes("rows")),
            gateway("sink", "push", ("dial", place("printer")),
                    '[[gateway.out]]\nfilter = "print"\n'),
            gateway("acks", "pull", ("listen", place("printer", "_ack")), comes("acks")),
        ]))
        for name in (f"plugin_{NAME}", place("rows"), place("printer"), place("printer", "_ack")):
            self.addCleanup(remove, f"/tmp/{name}.ipc")
        self.client = self.mqtt(self.broker, "plugin", "rows", "acks")
        self.plugin = Process([sys.executable, f"{HERE}/ekuiper_plugin.py", NAME])
        self.addCleanup(self.plugin.stop)
        self.asked = self.next("plugin")
        self.assertEqual(self.asked.payload, b"handshake")

    def next(self, topic):
        """The next message there, whatever comes between."""
        end = time.monotonic() + PATIENCE_S
        while not self.kept.get(topic):
            # A plugin that is told nothing shakes hands again and again.
            assert time.monotonic() < end, f"nothing came to {topic}"
            message = self.client.got.get(timeout=PATIENCE_S)
            self.kept.setdefault(message.topic, []).append(message)
        return self.kept[topic].pop(0)

    def tell(self, command, kind, symbol, **more):
        """What eKuiper tells a plugin, and the plugin's word for it."""
        meta = {"ruleId": NAME, "opId": symbol, "instanceId": 0}
        told = {"symbolName": symbol, "pluginType": kind, "meta": meta, **more}
        back = self.asked.properties
        self.client.publish(back.ResponseTopic,
                            json.dumps({"cmd": command, "arg": json.dumps(told)}),
                            CorrelationData=back.CorrelationData)
        self.asked = self.next("plugin")
        self.assertEqual(self.asked.payload, b"ok")

    def test_what_its_source_emits_is_published(self):
        self.tell("start", "source", "rows", datasource="hall", config={"count": COUNT})
        for number in range(COUNT):
            row = json.loads(self.next("rows").payload)
            length = 50_000 if number % 50 == 49 else number
            self.assertEqual(row, {"message": {"n": number, "text": "ä" * length},
                                   "meta": {"from": "hall"}})
        self.tell("stop", "source", "rows")

    def test_what_is_published_reaches_its_sink_which_acknowledges_it(self):
        self.tell("start", "sink", "printer", config={})
        said = [bytes([number]) * (number * 1000) for number in range(1, COUNT)]
        for payload in said:
            self.client.publish("print", payload)
        for _ in said:
            self.assertEqual(self.next("acks").payload, b"{}")
        def got():
            return [base64.b64decode(line[4:]) for line in self.plugin.lines
                    if line.startswith("got ")]

        until(lambda: len(got()) == len(said), "it did not say all that it got")
        self.assertEqual(got(), said)
        self.tell("stop", "sink", "printer")


def remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
