"""Caches read by paho-mqtt 5.0, as an application would: subscribe to the Response Topic, ask, and
take the answers by their Correlation Data. Starts its own broker from CLIENTS_GODWIT.
"""

import json
import os
import shutil
import tempfile
import unittest

from broker import Godwit
from paho_test import V5, V311, Client, properties, unique
from paho.mqtt.packettypes import PacketTypes

SHARDS = os.environ["CLIENTS_SHARDS"]
OPTIONS = """
[[cache]]
name = "last"
filters = ["rooms/#"]

[[cache]]
name = "ring"
filters = ["rooms/+/climate"]
messages_max = 10
"""


class Caches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        config = os.path.join(folder, "godwit.toml")
        with open(config, "w") as file:
            file.write(OPTIONS)
        self.broker = Godwit("--config", config, shards=SHARDS)
        self.addCleanup(self.broker.stop)

    def client(self, version=V5):
        client = Client(version, port=self.broker.port)
        self.addCleanup(client.close)
        return client

    def ask(self, asker, topic, request=None, qos=1):
        """The reason code, and the answers: payload and what their User Properties say."""
        to, which = unique("answers"), os.urandom(8)
        self.assertEqual(asker.subscribe(to, qos=qos), [qos])
        given = properties(PacketTypes.PUBLISH, ResponseTopic=to, CorrelationData=which)
        payload = json.dumps(request) if request else ""
        reason = asker.publish(topic, payload, qos, properties=given)
        answers = []
        while not answers or len(answers) < int(answers[0][1].get("cache_count", 0)):
            message = asker.next()
            self.assertEqual((message.topic, message.properties.CorrelationData), (to, which))
            answers.append((message.payload.decode(), dict(message.properties.UserProperty)))
        asker.unsubscribe(to)
        asker.quiet(0.05)
        return reason, answers

    def test_the_last_value_of_each_topic_is_read_by_one_request(self):
        for room in ("kitchen", "hall", "attic"):
            speaker = self.client(V311)
            for payload in ("old", room):
                speaker.publish(f"rooms/{room}/climate", payload, 1)
        asker = self.client()
        for qos in (0, 1, 2):
            reason, answers = self.ask(asker, "$cache/last", {"topic": "rooms/+/climate"}, qos)
            self.assertEqual(reason, 0)
            self.assertEqual([one[0] for one in answers], ["attic", "hall", "kitchen"])
            topics = [one[1]["cache_topic"] for one in answers]
            self.assertEqual(topics, [f"rooms/{room}/climate" for room in ("attic", "hall", "kitchen")])
        reason, answers = self.ask(asker, "$cache/last/rooms/cellar/climate")
        self.assertEqual((reason, answers), (0, [("", {"cache_count": "0"})]))

    def test_a_ring_is_read_by_time_and_number_with_its_properties(self):
        speaker, asker = self.client(), self.client()
        for number in range(12):
            given = properties(PacketTypes.PUBLISH, ContentType="text/plain",
                               UserProperty=[("number", f"{number}")])
            speaker.publish("rooms/hall/climate", f"{number}", 1, properties=given)
        _, answers = self.ask(asker, "$cache/ring/rooms/hall/climate")
        self.assertEqual([one[0] for one in answers], [f"{number}" for number in range(2, 12)])
        self.assertTrue(all(said["number"] == payload for payload, said in answers))
        times = [int(said["cache_at_ms"]) for _, said in answers]
        self.assertEqual(times, sorted(times))
        _, newest = self.ask(asker, "$cache/ring", {"topic": "#", "messages_max": 3})
        self.assertEqual([one[0] for one in newest], ["9", "10", "11"])
        _, later = self.ask(asker, "$cache/ring", {"topic": "#", "after_ms": times[-1]})
        self.assertEqual(later, [("", {"cache_count": "0"})])

    def test_what_is_wrong_is_said_twice(self):
        asker = self.client()
        for topic, request, code, why in (
                ("$cache/nobody", {"topic": "#"}, 0x90, "no such cache"),
                ("$cache/last", {"topic": "a/#/b"}, 0x99, "topic filter"),
                ("$cache/last", {"topics": "a"}, 0x99, "topics is unknown"),
        ):
            reason, answers = self.ask(asker, topic, request)
            self.assertEqual((reason, len(answers)), (code, 1))
            self.assertIn(why, answers[0][1]["cache_error"])
        self.assertEqual(asker.publish("$cache/last/rooms/hall", "", 1), 0x83)


if __name__ == "__main__":
    unittest.main()
