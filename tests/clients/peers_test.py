"""Sockets at a gateway whose process is killed, with -9, in the middle of a stream.

What neither ZeroMQ nor NNG can promise: a message that the killed process's connection took, and
that lay in the kernel, or in a queue of its library, is lost. No test here expects it back.
"""

import itertools
import functools
import os
import re
import signal
import sys
import threading
import unittest

import sockets
from broker import Process
from sockets import IN, OUT, PATIENCE_S, Case, until

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
ROOM = 'queue.messages_max = 100000\nqueue.bytes_max = "128MiB"'
COUNT = 2000
# All of them do not fit into what kernels keep for a connection.
PADDING = "x" * 20_000
sp = functools.partial(sockets.gateway, protocol='protocol = "sp"')


def zmq_peer(pattern, listens, url, *more):
    way = "bind" if listens else "connect"
    return [sys.executable, PEER, pattern, way, url, *more]


def nng_peer(pattern, listens, url, *more):
    """What it prints is a line each, at once; `exec`, so that the signal is for it."""
    words = ["stdbuf", "-oL", "nngcat", f"--{pattern}", "--listen" if listens else "--dial", url]
    words += ["--quoted", *more]
    return ["sh", "-c", 'echo there >&2; exec "$@" >&2', "sh", *words]


def nng_speaker(pattern, listens, url, *more):
    """nngcat says the same again and again."""
    return [sys.executable, PEER, pattern, "listen" if listens else "dial", url, *more]


KINDS = [("zmq", sockets.gateway, zmq_peer), ("sp", sp, nng_peer)]
SPEAKERS = [("zmq", sockets.gateway, zmq_peer), ("sp", sp, nng_speaker)]


class Peers(Case):
    def peer(self, command):
        peer = Process(command)
        self.addCleanup(peer.stop)
        peer.line("^there$")
        return peer

    def kill(self, peer):
        peer.signal(signal.SIGKILL)
        self.assertEqual(peer.wait(), -signal.SIGKILL)

    def fill(self, broker, peer, ours="push"):
        """Has it read nothing more, until messages wait in all places where they can."""
        peer.signal(signal.SIGSTOP)
        self.value(broker, f"gateway/{ours}/queue/messages", lambda value: int(value) > 200)

    def numbers(self, peer):
        """What it got, without what it was writing when it was killed."""
        said = (re.fullmatch(r'"(?:out/a/)?(\d+)x*"', line) for line in list(peer.lines))
        return [int(found[1]) for found in said if found]

    def stream(self, broker, topic="out/a", padding=PADDING):
        """Publishes numbers until the test ends, or there are enough of them."""
        mqtt, ended = self.mqtt(broker), threading.Event()

        def publish():
            for number in range(COUNT):
                if ended.wait(0.0005):
                    return
                mqtt.client.publish(topic, f"{number}{padding}", qos=1)

        thread = threading.Thread(target=publish)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(ended.set)

    def broker_of(self, make, pattern, we_listen, transport, rules, more=ROOM):
        url = self.url(transport)
        where = f'{"listen" if we_listen else "dial"} = ["{url}"]'
        text = make(pattern, where, rules, more)
        return url, self.listening(text) if we_listen else self.start(text)

    def every_kind(self, *transports):
        for (family, make, command), transport, we_listen in itertools.product(
                KINDS, transports or ("tcp", "ipc"), (True, False)):
            with self.subTest(family=family, transport=transport, we_listen=we_listen):
                yield make, command, transport, we_listen

    def test_a_puller_that_is_killed_loses_what_it_was_given_and_nothing_else(self):
        self.killed_alone("push", "pull")

    def test_one_of_a_pair_that_is_killed_loses_what_it_was_given_and_nothing_else(self):
        self.killed_alone("pair", "pair", "tcp")

    def killed_alone(self, ours, theirs, *transports):
        for make, command, transport, we_listen in self.every_kind(*transports):
            url, broker = self.broker_of(make, ours, we_listen, transport, OUT)
            is_pair_of_nng = theirs == "pair" and command is nng_peer
            pull = command("pair0" if is_pair_of_nng else theirs, not we_listen, url)
            first = self.peer(pull)
            self.joined(broker, ours)
            self.stream(broker)
            until(lambda: len(self.numbers(first)) > 100, "no stream")
            self.fill(broker, first, ours)
            self.kill(first)
            # By itself: nobody has told it anything.
            self.joined(broker, ours, 0)
            second = self.peer(pull)
            until(lambda: self.numbers(second)[-1:] == [COUNT - 1], "the last one did not come")
            before, after = self.numbers(first), self.numbers(second)
            self.assertEqual(before, list(range(len(before))))
            self.assertEqual(after, list(range(after[0], COUNT)))
            # Each was given away as a whole once, so the first one had all before `after[0]`.
            self.value(broker, f"gateway/{ours}/out/messages", lambda value: value == str(COUNT))
            self.assertLess(len(before), COUNT - 500, "it was not in the middle")
            broker.stop()

    def test_what_a_killed_one_of_several_had_waiting_goes_to_the_others(self):
        url, broker = self.broker_of(sockets.gateway, "push", True, "tcp", OUT)
        pulls = [self.peer(zmq_peer("pull", False, url)) for _ in range(3)]
        self.joined(broker, "push", 3)
        self.stream(broker)
        until(lambda: len(self.numbers(pulls[0])) > 100, "no stream")
        pulls[0].signal(signal.SIGSTOP)
        # The others have the rest, but for what waits for the one that does not read.
        self.value(broker, "gateway/push/queue/messages", lambda value: value == "0")
        until(lambda: max(self.numbers(pulls[1]) + self.numbers(pulls[2])) == COUNT - 1,
              "the last one did not come")
        self.value(broker, "gateway/push/queue/in_flight", lambda value: int(value) > 50)
        before = sum(len(self.numbers(pull)) for pull in pulls[1:])
        self.kill(pulls[0])
        self.joined(broker, "push", 2)
        self.value(broker, "gateway/push/out/messages", lambda value: value == str(COUNT))
        self.value(broker, "gateway/push/queue/in_flight", lambda value: value == "0")
        until(lambda: sum(len(self.numbers(pull)) for pull in pulls[1:]) > before + 50,
              "it did not go to the others")

    def test_a_subscriber_that_is_killed_hears_again_and_costs_others_nothing(self):
        for make, command, transport, we_listen in self.every_kind("tcp"):
            url, broker = self.broker_of(make, "pub", we_listen, transport, OUT)
            sub = command("sub", not we_listen, url)
            first = self.peer(sub)
            others = [self.peer(sub)] if we_listen else []
            self.joined(broker, "pub", 1 + len(others))
            # A subscription of ZeroMQ is on its way when its socket is there.
            mqtt = self.mqtt(broker)
            for one in [first, *others]:
                self.hears(one, mqtt)
            self.stream(broker, padding="")
            until(lambda: len(self.numbers(first)) > 100, "no stream")
            self.kill(first)
            self.joined(broker, "pub", len(others))
            second = self.peer(sub)
            self.joined(broker, "pub", 1 + len(others))
            self.hears(second, mqtt)
            for one in others:
                until(lambda one=one: self.numbers(one)[-1:] == [COUNT - 1], "no last one")
                self.assertEqual(self.numbers(one), list(range(COUNT)))
            broker.stop()

    def test_one_on_a_bus_that_is_killed_costs_the_others_nothing(self):
        for we_listen in (True, False):
            with self.subTest(we_listen=we_listen):
                urls = [self.url()] if we_listen else [self.url() for _ in range(2)]
                where = f'{"listen" if we_listen else "dial"} = {urls}'
                broker = (self.listening if we_listen else self.start)(sp("bus", where, OUT, ROOM))
                first, other = (self.peer(nng_peer("bus", not we_listen, url))
                                for url in urls * (2 // len(urls)))
                self.joined(broker, "bus", 2)
                self.stream(broker, padding="")
                until(lambda: len(self.numbers(first)) > 100, "no stream")
                self.kill(first)
                self.joined(broker, "bus", 1)
                back = self.peer(nng_peer("bus", not we_listen, urls[0]))
                for one in (other, back):
                    until(lambda one=one: self.numbers(one)[-1:] == [COUNT - 1], "no last one")
                self.assertEqual(self.numbers(other), list(range(COUNT)))
                heard = self.numbers(back)
                self.assertEqual(heard, list(range(heard[0], COUNT)))
                broker.stop()

    def test_a_survey_is_answered_by_who_is_left_and_by_who_is_back(self):
        url, broker = self.broker_of(sp, "surveyor", True, "tcp", OUT, "answer_timeout_ms = 700")
        first, _other = (self.peer(nng_peer("respondent", False, url, "--data", word))
                        for word in ("first", "other"))
        self.joined(broker, "surveyor", 2)
        mqtt = self.mqtt(broker, "answers")

        def answers(count):
            mqtt.client.publish("out/a", "who?", qos=1, properties=question(1))
            got = sorted(mqtt.next()[1] for _ in range(count))
            mqtt.nothing(1)
            return got

        self.assertEqual(answers(2), [b"first", b"other"])
        self.kill(first)
        self.joined(broker, "surveyor", 1)
        self.assertEqual(answers(1), [b"other"])
        self.peer(nng_peer("respondent", False, url, "--data", "back"))
        self.joined(broker, "surveyor", 2)
        self.assertEqual(answers(2), [b"back", b"other"])

    def test_who_asks_and_is_killed_is_not_waited_for(self):
        rules = '[[gateway.in]]\ntopic = "questions"\n'
        for (family, make, command), (ours, theirs) in itertools.product(
                KINDS, (("rep", "req"), ("respondent", "surveyor"))):
            if family == "zmq" and ours == "respondent":
                continue
            with self.subTest(family=family, ours=ours):
                url, broker = self.broker_of(make, ours, True, "tcp", rules, "")
                mqtt, answers = self.mqtt(broker, "questions"), self.mqtt(broker)

                def asked(url=url, command=command, theirs=theirs, mqtt=mqtt):
                    more = ("--data", "7") if command is nng_peer else ("7",)
                    peer = self.peer(command(theirs, False, url, *more))
                    message = mqtt.got.get(timeout=PATIENCE_S)
                    self.assertEqual(message.payload, b"7")
                    return peer, message.properties

                def answer(own, said, answers=answers):
                    answers.publish(own.ResponseTopic, said, CorrelationData=own.CorrelationData)

                first, its = asked()
                self.kill(first)
                self.joined(broker, ours, 0)
                second, own = asked()
                answer(its, "too late")
                answer(own, "12")
                second.line('^"12"$')
                self.assertNotIn('"too late"', second.lines)
                broker.stop()

    def hears(self, sub, mqtt, topic="out/b", word="begin"):
        def is_heard():
            mqtt.publish(topic, word)
            return any(word in line for line in list(sub.lines))
        until(is_heard, "it hears nothing")

    def test_questions_to_one_who_is_killed_are_asked_again_when_it_is_back(self):
        more = "answer_timeout_ms = 60000"
        for make, command, transport, we_listen in self.every_kind("tcp"):
            url, broker = self.broker_of(make, "req", we_listen, transport, OUT, more)
            answers = ("--data", "yes") if command is nng_peer else ()
            rep = command("rep", not we_listen, url, *answers)
            first = self.peer(rep)
            self.joined(broker, "req")
            mqtt, asker = self.mqtt(broker, "answers"), self.mqtt(broker)
            count = 600
            for number in range(count):
                asker.client.publish("out/a", f"{number}", qos=1, properties=question(number))
            until(lambda: mqtt.got.qsize() > 50, "no answers")
            self.kill(first)
            self.joined(broker, "req", 0)
            self.assertLess(mqtt.got.qsize(), count, "it was not in the middle")
            self.peer(rep)
            told = set()
            while len(told) < count:
                message = mqtt.got.get(timeout=PATIENCE_S)
                told.add(int(message.properties.CorrelationData))
                if command is zmq_peer:
                    answer = b"yes " + message.properties.CorrelationData
                    self.assertEqual(message.payload, answer, "of another question")
            broker.stop()

    def every_speaker(self):
        """Sockets that say numbers to gateways of both families."""
        for (family, make, command), (ours, theirs) in itertools.product(
                SPEAKERS, (("pull", "push"), ("sub", "pub"))):
            with self.subTest(family=family, ours=ours):
                yield make, command, ours, theirs

    def in_order(self, said, theirs):
        """Each once; nothing is missing of what is pushed, and PUB drops what there is no room for."""
        self.assertEqual(said, sorted(set(said)))
        if theirs == "push" and said:
            self.assertEqual(said, list(range(said[0], said[0] + len(said))))

    def test_who_says_numbers_and_is_killed_is_missed_and_met_again(self):
        for make, command, ours, theirs in self.every_speaker():
            for transport, we_listen in (("tcp", True), ("ipc", False)):
                url, broker = self.broker_of(make, ours, we_listen, transport, IN)
                mqtt = self.mqtt(broker, "from/#")
                first = self.peer(command(theirs, not we_listen, url))
                got = [int(mqtt.next()[1]) for _ in range(100)]
                self.kill(first)
                self.joined(broker, ours, 0)
                self.peer(command(theirs, not we_listen, url, "1000000"))
                while got[-1] < 1_000_000:
                    got.append(int(mqtt.next()[1]))
                self.in_order(got[:-1], theirs)
                if theirs == "push":
                    self.assertEqual((got[0], got[-1]), (0, 1_000_000))
                mqtt.stop()
                self.kill(broker)

    def test_who_says_numbers_finds_a_broker_that_was_killed_again(self):
        """By itself: its library dials again. What it says from then on comes, each once."""
        for make, command, ours, theirs in self.every_speaker():
            url, data = self.url(), f"{self.folder}/{len(os.listdir(self.folder))}"
            text = make(ours, f'listen = ["{url}"]', IN, "")
            broker = self.listening(text, "--data", data)
            mqtt = sockets.Mqtt(broker.port, "from/#", client_id="c")
            peer = self.peer(command(theirs, False, url))
            before = [int(mqtt.next()[1]) for _ in range(300)]
            self.kill(broker)
            mqtt.client.loop_stop()
            while not mqtt.got.empty():
                before.append(int(mqtt.next()[1]))
            broker = self.listening(text, "--data", data)
            self.joined(broker, ours)
            # Its session has what came since, and what it had not acknowledged.
            mqtt = sockets.Mqtt(broker.port, client_id="c")
            self.addCleanup(mqtt.stop)
            after, gap = [], 0
            # What it said into the old connection is lost, and nothing behind that.
            while len(after) < 500 or (gap and len(after) - gap < 200):
                number = int(mqtt.next()[1])
                if number <= before[-1]:
                    continue
                if after and not gap and number != after[-1] + 1:
                    gap = len(after)
                after.append(number)
            for some in (before, after[:gap], after[gap:]):
                self.in_order(some, theirs)
            self.assertGreater(len(after[gap:]), 100, "it is not back for long")
            self.assertIsNone(peer.child.poll())
            mqtt.stop()
            self.kill(peer)
            self.kill(broker)

    def test_a_gateway_that_is_new_in_the_file_and_one_that_is_changed(self):
        for (family, make, command), (_, _, speaker) in zip(KINDS, SPEAKERS):
            with self.subTest(family=family):
                urls = [self.url(), self.url()]
                here = make("pub", f'listen = ["{urls[0]}"]', OUT)
                broker = self.listening(here)
                sub = self.peer(command("sub", False, urls[0]))
                self.joined(broker, "pub")
                mqtt = self.mqtt(broker, "from/#")
                self.hears(sub, mqtt)
                here_and_new = here + make("pull", f'listen = ["{urls[1]}"]', IN)
                self.reload(broker, here_and_new, 2)
                self.peer(speaker("push", False, urls[1]))
                got = [mqtt.next()[1] for _ in range(20)]
                self.assertEqual(got, [b"%d" % number for number in range(20)])
                # The one that was there did not notice.
                self.assertEqual(broker.text().count("a socket went"), 0)
                self.reload(broker, here_and_new.replace("out/#", "new/#"), 3)
                self.joined(broker, "pub")
                self.hears(sub, mqtt, "new/b", "changed")
                mqtt.publish("out/b", "no longer")
                self.hears(sub, mqtt, "new/b", "last")
                self.assertNotIn("no longer", "".join(sub.lines))
                self.assertNotIn("gateway=pull peers=0", broker.text())
                mqtt.stop()
                self.kill(broker)

    def reload(self, broker, text, listens):
        with open(self.config, "w") as file:
            file.write(text)
        broker.signal(signal.SIGHUP)
        self.lines(broker, "listens", listens)


def question(number):
    own = sockets.Properties(sockets.PacketTypes.PUBLISH)
    own.ResponseTopic, own.CorrelationData = "answers", b"%d" % number
    return own


if __name__ == "__main__":
    unittest.main()
