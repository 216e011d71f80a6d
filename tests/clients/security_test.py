"""paho-mqtt against a broker of its own with users and rules, in 3.1.1 and 5.0: who comes in, what
is granted, what is refused and how it is said. Starts brokers from CLIENTS_GODWIT."""

import os
import queue
import shutil
import subprocess
import tempfile
import unittest

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from broker import Godwit

GODWIT = os.environ["CLIENTS_GODWIT"]
SHARDS = os.environ["CLIENTS_SHARDS"]
PATIENCE_S = 10
V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5

RULES = """
[[rule]]
allow = "all"
topic = "home/${username}/#"

[[rule]]
allow = "publish"
topic = "news"
qos = 0
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        users, rules = os.path.join(cls.folder, "users"), os.path.join(cls.folder, "acl.toml")
        for name in ("ann", "bob"):
            subprocess.run([GODWIT, "passwd", "-b", users, name, f"{name}'s"], check=True)
        with open(rules, "w") as file:
            file.write(RULES)
        options = [f"auth.users={users}", f"acl.file={rules}"]
        cls.broker = Godwit(shards=SHARDS, options=options)

    @classmethod
    def tearDownClass(cls):
        cls.broker.stop()
        shutil.rmtree(cls.folder)

    def connect(self, version, name=None, password=None):
        """The client, and what CONNACK says."""
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)
        said = queue.Queue()
        client.on_connect = lambda client, data, flags, code, properties: said.put(code)
        client.on_subscribe = lambda client, data, id, codes, properties: said.put(codes)
        client.on_publish = lambda client, data, id, code, properties: said.put(code)
        client.on_message = lambda client, data, message: said.put(message.topic)
        client.said = said
        if name is not None:
            client.username_pw_set(name, password)
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        self.addCleanup(client.loop_stop)
        self.addCleanup(client.disconnect)
        return client, said.get(timeout=PATIENCE_S)

    def test_only_who_proves_it_comes_in(self):
        for version in (V311, V5):
            self.assertEqual(self.connect(version, "ann", "ann's")[1].value, 0)
            wrong = 0x86
            for name, password in (("ann", "bob's"), ("eve", "ann's"), ("ann", "")):
                self.assertEqual(self.connect(version, name, password)[1].value, wrong)
            self.assertEqual(self.connect(version)[1].value, 0x87)

    def test_rules_are_said_in_every_acknowledgement(self):
        ann, _ = self.connect(V5, "ann", "ann's")
        ann.subscribe([("home/ann/#", 1), ("home/bob/#", 1), ("home/#", 0), ("news", 0)])
        codes = [code.value for code in ann.said.get(timeout=PATIENCE_S)]
        self.assertEqual(codes, [1, 0x87, 0x87, 0x87])
        ann.publish("home/bob/x", "x", qos=1)
        self.assertEqual(ann.said.get(timeout=PATIENCE_S).value, 0x87)
        ann.publish("news", "x", qos=1)
        self.assertEqual(ann.said.get(timeout=PATIENCE_S).value, 0x87)
        ann.publish("home/ann/x", "x", qos=1)
        got = [ann.said.get(timeout=PATIENCE_S) for _ in range(2)]
        self.assertIn("home/ann/x", got)

    def test_a_3_1_1_client_is_told_as_far_as_it_can_be(self):
        bob, _ = self.connect(V311, "bob", "bob's")
        bob.subscribe([("home/bob/#", 1), ("home/ann/#", 1)])
        codes = [code.value for code in bob.said.get(timeout=PATIENCE_S)]
        self.assertEqual(codes, [1, 0x80])
        # Acknowledged, and dropped: the connection goes on.
        bob.publish("home/ann/x", "x", qos=1)
        bob.said.get(timeout=PATIENCE_S)
        bob.publish("home/bob/x", "x", qos=0)
        got = [bob.said.get(timeout=PATIENCE_S) for _ in range(2)]
        self.assertIn("home/bob/x", got)


if __name__ == "__main__":
    unittest.main()
