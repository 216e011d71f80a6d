"""Sockets of every pattern that meet a broker again which was killed with -9: they stay, and their
library connects anew. Starts brokers from CLIENTS_GODWIT."""

import queue
import signal
import time

import nng_test
import pynng
import zmq
import zmq_test
from sockets import IN, OUT, PATIENCE_MS, PATIENCE_S, Case

ASKED = '[[gateway.in]]\ntopic = "questions"\n'


class Zmq:
    """How sockets of ZeroMQ are made, and speak."""

    gateway = staticmethod(zmq_test.gateway)
    kinds = [("pair", "pair", IN + OUT, "talk"), ("req", "rep", OUT, "answer"),
             ("rep", "req", ASKED, "ask"), ("pub", "sub", OUT, "want"),
             ("xpub", "xsub", IN + OUT, "want"), ("sub", "pub", IN, "tell"),
             ("xsub", "xpub", IN + OUT, "tell")]
    socket = zmq_test.Zmq.socket

    def say(self, socket, topic, word):
        socket.send_multipart([topic, word])

    def hear(self, socket):
        """Topic and payload, or None where nothing is there."""
        try:
            topic, word = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return topic, word


class Nng:
    """The same of NNG."""

    gateway = staticmethod(nng_test.gateway)
    kinds = [("pair", "pair", IN + OUT, "talk"), ("pair1", "pair1", IN + OUT, "talk"),
             ("bus", "bus", IN + OUT, "talk"), ("req", "rep", OUT, "answer"),
             ("surveyor", "respondent", OUT, "answer"), ("rep", "req", ASKED, "ask"),
             ("respondent", "surveyor", ASKED, "ask"), ("pub", "sub", OUT, "want"),
             ("sub", "pub", IN, "tell")]

    def socket(self, kind, url, listens):
        more = {"topics": b""} if kind == "sub" else {}
        if kind == "surveyor":
            more = {"survey_time": PATIENCE_MS}
        return nng_test.Nng.socket(self, kind, url, listens, **more)

    def say(self, socket, topic, word):
        socket.send(topic + b"/" + word)

    def hear(self, socket):
        try:
            return tuple(socket.recv(block=False).rsplit(b"/", 1))
        except pynng.TryAgain:
            return None


class Restarts(Case):
    """Whoever extends it is a family of sockets too."""

    def test_each_finds_a_broker_that_was_killed(self):
        for ours, theirs, rules, exchange in self.kinds:
            with self.subTest(ours=ours, theirs=theirs):
                url = self.url()
                text = self.gateway(ours, f'listen = ["{url}"]', rules)
                broker = self.listening(text)
                socket = self.socket(theirs, url, False)
                for word in (b"before", b"after", b"again"):
                    self.joined(broker, ours)
                    mqtt = self.mqtt(broker, "from/#", "questions", "answers")
                    getattr(self, exchange)(mqtt, socket, word)
                    mqtt.stop()
                    broker.signal(signal.SIGKILL)
                    self.assertEqual(broker.wait(), -signal.SIGKILL)
                    broker = self.listening(text)
                broker.stop()
                socket.close()

    def talk(self, mqtt, socket, word):
        mqtt.publish("out/x", word)
        self.until_heard(socket, word, lambda: None)
        self.say(socket, b"in/x", word)
        self.assertEqual(mqtt.next(), ("from/x", word))

    def answer(self, mqtt, socket, word):
        mqtt.publish("out/x", word, ResponseTopic="answers", CorrelationData=word)
        self.assertEqual(socket.recv(), word)
        socket.send(b"yes " + word)
        self.assertEqual(mqtt.next(), ("answers", b"yes " + word))

    def ask(self, mqtt, socket, word):
        socket.send(word)
        asked = mqtt.got.get(timeout=PATIENCE_S)
        self.assertEqual(asked.payload, word)
        mqtt.publish(asked.properties.ResponseTopic, b"yes " + word,
                     CorrelationData=asked.properties.CorrelationData)
        self.assertEqual(socket.recv(), b"yes " + word)

    def want(self, mqtt, socket, word):
        """What is published before its subscription is known it does not get."""
        self.until_heard(socket, word, lambda: mqtt.publish("out/x", word))

    def tell(self, mqtt, socket, word):
        """Nor is what it says before ours is."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            self.say(socket, b"in/x", word)
            try:
                return self.assertEqual(mqtt.next(0.02), ("from/x", word))
            except queue.Empty:
                pass
        self.fail(f"{word} did not come")

    def until_heard(self, socket, word, publish):
        until = time.monotonic() + PATIENCE_S
        while (heard := self.hear(socket)) != (b"out/x", word):
            # What was published once more comes once more.
            self.assertIn(heard and heard[1], (None, b"before", b"after"))
            self.assertLess(time.monotonic(), until, f"{word} did not come")
            publish()
            time.sleep(0.02)


class ZmqRestarts(Zmq, Restarts):
    def setUp(self):
        super().setUp()
        self.context = zmq.Context()
        self.addCleanup(lambda: self.context.destroy(0))


class NngRestarts(Nng, Restarts):
    pass


# Only who is a family has tests.
del Restarts
