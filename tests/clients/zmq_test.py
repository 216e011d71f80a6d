"""Gateways to sockets of ZeroMQ, by pyzmq and so by libzmq. Starts brokers from CLIENTS_GODWIT."""

import contextlib
import json
import socket
import time
import unittest

import zmq
from zmq.auth.thread import ThreadAuthenticator

from sockets import (IN, OUT, PATIENCE_MS, PATIENCE_S, Case, PacketTypes, Properties, gateway,
                     rss_kib, stalled_peer, zmtp)

KINDS = {name: getattr(zmq, name.upper())
         for name in ("pub", "sub", "xpub", "xsub", "push", "pull", "pair", "req", "rep", "dealer",
                      "router")}


class Zmq(Case):
    gateway = staticmethod(gateway)

    def setUp(self):
        super().setUp()
        self.context = zmq.Context()
        self.addCleanup(lambda: self.context.destroy(0))

    def socket(self, kind, url, listens, prefix=b"", before=lambda socket: None):
        socket = self.context.socket(KINDS[kind])
        self.addCleanup(socket.close)
        socket.linger = 0
        socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
        socket.reconnect_ivl = 20
        before(socket)
        if kind == "sub":
            socket.subscribe(prefix)
        (socket.bind if listens else socket.connect)(url)
        if kind == "xsub":
            socket.send(b"\x01" + prefix)
        return socket

    def test_what_is_published_reaches_whoever_wants_it(self):
        for ours in ("pub", "xpub"):
            for theirs in ("sub", "xsub"):
                for transport, we_listen in self.every_way():
                    broker, sub = self.pair_up(ours, theirs, transport, we_listen, OUT,
                                               prefix=b"out/a")
                    mqtt = self.mqtt(broker)
                    self.subscribed(sub, mqtt, "out/a")
                    mqtt.publish("out/b", "not wanted")
                    mqtt.publish("out/a", "hello")
                    mqtt.publish("out/a/b", b"\x00" * 70_000, qos=0)
                    self.assertEqual(sub.recv_multipart(), [b"out/a", b"hello"])
                    self.assertEqual(sub.recv_multipart(), [b"out/a/b", b"\x00" * 70_000])
                    sub.close()

    def test_names_go_out_as_the_template_says(self):
        rules = '[[gateway.out]]\nfilter = "plant/+/temp"\ntopic = "weather/${1}/of/${topic}"\n'
        more = 'separator = "."'
        broker, sub = self.pair_up("pub", "sub", "tcp", True, rules, more,
                                   prefix=b"weather.hall.of.")
        mqtt = self.mqtt(broker)
        self.subscribed(sub, mqtt, "plant/hall/temp")
        mqtt.publish("plant/yard/temp", "not wanted")
        mqtt.publish("plant/hall/temp", "21")
        self.assertEqual(sub.recv_multipart(), [b"weather.hall.of.plant.hall.temp", b"21"])

    def test_what_is_not_wanted_any_more_does_not_come(self):
        broker, sub = self.pair_up("pub", "sub", "tcp", True, OUT, prefix=b"out/a")
        mqtt = self.mqtt(broker)
        sub.subscribe(b"out/b")
        self.subscribed(sub, mqtt, "out/b")
        sub.unsubscribe(b"out/a")
        # What is asked on one connection is done in its order.
        sub.subscribe(b"out/c")
        self.subscribed(sub, mqtt, "out/c")
        mqtt.publish("out/a", "4")
        mqtt.publish("out/b", "5")
        self.assertEqual(sub.recv_multipart(), [b"out/b", b"5"])

    def test_what_sockets_publish_comes_in(self):
        for ours, theirs in (("sub", "pub"), ("sub", "xpub"), ("xsub", "pub"), ("xsub", "xpub")):
            for transport, we_listen in self.every_way():
                broker, pub = self.pair_up(ours, theirs, transport, we_listen, IN)
                mqtt = self.mqtt(broker, "from/#")
                if theirs == "xpub":
                    self.assertEqual(pub.recv(), b"\x01in/")
                else:
                    self.heard(pub, b"in/begin", mqtt)
                for frames in ([b"in/a", b"hello"], [b"other", b"x"], [b"in/b"],
                               [b"in/c", b"1", b"", b"2"]):
                    pub.send_multipart(frames)
                self.assertEqual(mqtt.next(), ("from/a", b"hello"))
                self.assertEqual(mqtt.next(), ("from/b", b""))
                self.assertEqual(mqtt.next(), ("from/c", b"12"))
                pub.close()

    def subscribed(self, sub, mqtt, topic):
        """Until our subscription, which is on its way when it is connected, is there."""
        sent = 0
        while not sub.poll(20):
            mqtt.publish(topic, f"{sent}")
            sent += 1
        while sub.recv_multipart()[1] != b"%d" % (sent - 1):
            pass

    def heard(self, pub, topic, mqtt):
        """The same the other way."""
        sent = 0
        while mqtt.got.empty():
            pub.send_multipart([topic, b"%d" % sent])
            sent += 1
            time.sleep(0.02)
        while mqtt.next()[1] != b"%d" % (sent - 1):
            pass

    def test_subscribers_may_talk_back_where_both_are_extended(self):
        broker, xsub = self.pair_up("xpub", "xsub", "tcp", True, OUT + IN)
        mqtt = self.mqtt(broker, "from/#")
        xsub.send_multipart([b"in/x", b"up"])
        self.assertEqual(mqtt.next(), ("from/x", b"up"))
        broker, xpub = self.pair_up("xsub", "xpub", "tcp", False, OUT + IN)
        self.assertEqual(xpub.recv(), b"\x01in/")
        self.mqtt(broker).publish("out/x", "up")
        self.assertEqual(xpub.recv_multipart(), [b"out/x", b"up"])

    def test_push_and_pull_lose_nothing_while_both_are_there(self):
        for transport, we_listen in self.every_way():
            broker, pull = self.pair_up("push", "pull", transport, we_listen, OUT)
            mqtt = self.mqtt(broker)
            for number in range(500):
                mqtt.client.publish("out/a", f"{number}", qos=1)
            got = [pull.recv_multipart() for _ in range(500)]
            self.assertEqual(got, [[b"out/a", b"%d" % number] for number in range(500)])
            self.value(broker, "gateway/push/queue/in_flight", lambda value: value == "0")
            broker, push = self.pair_up("pull", "push", transport, we_listen, IN)
            mqtt = self.mqtt(broker, "from/#")
            for number in range(500):
                push.send_multipart([b"in/a", b"%d" % number])
            got = [mqtt.next()[1] for _ in range(500)]
            self.assertEqual(got, [b"%d" % number for number in range(500)])

    def test_what_is_retained_reaches_a_new_gateway_however_late_its_socket_comes(self):
        url, data = self.url(), f"{self.folder}/data"
        before = self.start("", "--data", data)
        mqtt = self.mqtt(before)
        for qos in (0, 1, 2):
            mqtt.client.publish(f"out/{qos}", "x", qos=qos, retain=True).wait_for_publish(10)
        before.stop()
        text = gateway("push", f'listen = ["{url}"]', OUT)
        broker = self.listening(text, "--data", data)
        broker.child.kill()
        broker.wait()
        pull = self.socket("pull", url, False)
        broker = self.listening(text, "--data", data)
        got = sorted(pull.recv_multipart()[0] for _ in range(3))
        self.assertEqual(got, [b"out/0", b"out/1", b"out/2"])
        # Once.
        broker.stop()
        broker = self.listening(text, "--data", data)
        self.joined(broker, "push")
        self.mqtt(broker).publish("out/last", "x")
        self.assertEqual(pull.recv_multipart()[0], b"out/last")

    def test_work_is_shared_among_those_who_pull(self):
        url = self.url()
        broker = self.listening(gateway("push", f'listen = ["{url}"]', OUT))
        pulls = [self.socket("pull", url, False) for _ in range(4)]
        self.joined(broker, "push", 4)
        mqtt = self.mqtt(broker)
        for number in range(400):
            mqtt.client.publish("out/a", f"{number}", qos=1)
        got = [[pull.recv_multipart()[1] for _ in range(100)] for pull in pulls]
        self.assertEqual(sorted(int(one) for all in got for one in all), list(range(400)))

    def test_pairs_talk_both_ways(self):
        for transport, we_listen in self.every_way():
            broker, pair = self.pair_up("pair", "pair", transport, we_listen, OUT + IN)
            mqtt = self.mqtt(broker, "from/#")
            mqtt.publish("out/x", "there")
            self.assertEqual(pair.recv_multipart(), [b"out/x", b"there"])
            pair.send_multipart([b"in/x", b"back"])
            self.assertEqual(mqtt.next(), ("from/x", b"back"))

    def test_what_one_of_a_pair_says_before_it_leaves_is_heard(self):
        url = self.url("tcp")
        broker = self.listening(self.gateway("pair", f'listen = ["{url}"]', OUT + IN))
        mqtt = self.mqtt(broker, "from/#")
        for turn in range(3):
            # No library, so that it leaves with its last word.
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as pair:
                pair.settimeout(PATIENCE_S)
                pair.sendall(zmtp("PAIR"))
                answer = b""
                while b"Socket-Type" not in answer or not answer.endswith(b"PAIR"):
                    more = pair.recv(1000)
                    self.assertTrue(more, answer)
                    answer += more
                said = (b"%d.%d" % (turn, number) for number in range(5))
                pair.sendall(b"".join(b"\x01\x04in/x\0\x03" + one for one in said))
            got = [mqtt.next()[1] for _ in range(5)]
            self.assertEqual(got, [b"%d.%d" % (turn, number) for number in range(5)])

    def test_clients_of_mqtt_ask_and_sockets_answer(self):
        for theirs in ("rep", "router"):
            for transport, we_listen in self.every_way():
                more = "answer_timeout_ms = 500"
                broker, rep = self.pair_up("req", theirs, transport, we_listen, OUT, more)
                mqtt = self.mqtt(broker, "answers")
                for correlation in (b"one", b"two"):
                    mqtt.publish("out/x", correlation, ResponseTopic="answers",
                                 CorrelationData=correlation)
                for _ in range(2):
                    asked = rep.recv_multipart()
                    rep.send_multipart(asked[:-1] + [b"yes ", asked[-1]])
                for correlation in (b"one", b"two"):
                    message = mqtt.got.get(timeout=PATIENCE_S)
                    self.assertEqual((message.payload, message.properties.CorrelationData),
                                     (b"yes " + correlation, correlation))
                mqtt.publish("out/x", "never answered", ResponseTopic="answers")
                self.value(broker, "gateway/req/dropped/no_answer", lambda value: value == "1")

    def test_what_answers_a_gateway_before_reaches_nobody_who_asks_this_one(self):
        url = self.url("tcp")
        texts = [gateway("req", f'listen = ["{url}"]', OUT, f"answer_timeout_ms = {wait}")
                 for wait in (20000, 20001)]
        broker = self.listening(texts[0])
        rep = self.socket("rep", url, False)
        self.joined(broker, "req")
        mqtt = self.mqtt(broker, "answers/#")

        def asks(who, qos):
            own = Properties(PacketTypes.PUBLISH)
            own.ResponseTopic = f"answers/{who}"
            mqtt.client.publish("out/a", f"what has {who}?", qos=qos, properties=own)

        # It is asked once, and no session has it any more.
        asks("Alice", 0)
        self.assertEqual(rep.recv(), b"what has Alice?")
        with open(self.config, "w") as file:
            file.write(texts[1])
        broker.signal(1)
        broker.line("options read again.*changed=gateway")
        self.lines(broker, "listens", 2)
        asks("Bob", 1)
        # The socket is back and has the second question before it answers the first.
        mqtt.nothing(1)
        rep.send(b"hers")
        mqtt.nothing(1)
        self.assertEqual(rep.recv(), b"what has Bob?")
        rep.send(b"his")
        self.assertEqual(mqtt.next(), ("answers/Bob", b"his"))

    def test_sockets_ask_and_clients_of_mqtt_answer(self):
        rules = '[[gateway.in]]\ntopic = "questions"\n'
        for theirs in ("req", "dealer"):
            for transport, we_listen in self.every_way():
                broker, req = self.pair_up("rep", theirs, transport, we_listen, rules)
                mqtt = self.mqtt(broker, "questions")
                envelope = [b"mine", b""] if theirs == "dealer" else []
                req.send_multipart(envelope + [b"1+1"])
                asked = mqtt.got.get(timeout=PATIENCE_S)
                self.assertEqual(asked.payload, b"1+1")
                mqtt.publish(asked.properties.ResponseTopic, "2",
                             CorrelationData=asked.properties.CorrelationData)
                self.assertEqual(req.recv_multipart(), envelope + [b"2"])

    def test_several_frames_become_what_the_option_says(self):
        frames = [b"in/a", b"x", "\u00fc".encode(), b"\xff"]
        for multipart, payload in (("join", b"x\xc3\xbc\xff"), ("refuse", None),
                                   ("json", '["x","\u00fc","data:;base64,/w=="]'.encode())):
            with self.subTest(multipart=multipart):
                broker, push = self.pair_up("pull", "push", "tcp", True, IN,
                                            f'multipart = "{multipart}"')
                mqtt = self.mqtt(broker, "from/#")
                push.send_multipart(frames)
                push.send_multipart([b"in/a", b"one"])
                if payload is not None:
                    self.assertEqual(mqtt.next(), ("from/a", payload))
                else:
                    self.value(broker, "gateway/pull/dropped/unreadable", lambda n: n == "1")
                self.assertEqual(mqtt.next(), ("from/a", b"one"))

    def test_json_carries_everything_that_mqtt_says(self):
        more = 'form = "json"'
        broker, sub = self.pair_up("pub", "sub", "tcp", True, OUT, more)
        mqtt = self.mqtt(broker)
        mqtt.publish("out/begin", "", ResponseTopic="x")
        while not sub.poll(20):
            mqtt.publish("out/begin", "")
        while sub.poll(200):
            sub.recv()
        mqtt.publish("out/a", b"\xff", ContentType="x", CorrelationData=b"c",
                                  UserProperty=[("k", "v")])
        self.assertEqual(json.loads(sub.recv()), {
            "topic": "out/a", "payload": "data:;base64,/w==", "qos": 1, "retain": False,
            "properties": {"content_type": "x", "correlation_data": "c", "user": {"k": "v"}}})
        broker, push = self.pair_up("pull", "push", "tcp", True, IN, more)
        mqtt = self.mqtt(broker, "from/#")
        push.send(b"no JSON")
        push.send(b'{"payload": "no topic"}')
        written = b'{"t": 1.10, "n": 12345678901234567890123}'
        push.send(b'{"topic": "in/a", "payload": ' + written + b"}")
        push.send_json({"topic": "in/a", "payload": "data:;base64,/w==",
                        "properties": {"content_type": "x", "user": {"k": "v", "bad": 7}}})
        self.assertEqual(mqtt.next()[1], written)
        message = mqtt.got.get(timeout=PATIENCE_S)
        self.assertEqual((message.payload, message.properties.ContentType,
                          message.properties.UserProperty), (b"\xff", "x", [("k", "v")]))
        self.value(broker, "gateway/pull/dropped/unreadable", lambda n: n == "2")

    def test_json_brings_back_what_it_was_given(self):
        """Out by one gateway and in by another: text that looks like a data URL, and names twice."""
        urls = [self.url(), self.url()]
        more = 'form = "json"'
        text = (gateway("push", f'listen = ["{urls[0]}"]', OUT, more)
                + gateway("pull", f'listen = ["{urls[1]}"]', IN.replace("in/+", "out/+"), more))
        broker = self.listening(text)
        pull, push = self.socket("pull", urls[0], False), self.socket("push", urls[1], False)
        mqtt = self.mqtt(broker, "from/#")
        twice = [("k", "1"), ("k", "2"), ("k", "data:;base64,/w=="), ("l", "3")]
        for payload in (b"data:;base64,/w==", b"data:;base64,no", b"\xff", b"data:", b"data:x"):
            mqtt.publish("out/a", payload, UserProperty=twice, CorrelationData=payload)
            said = pull.recv()
            self.assertEqual(json.loads(said)["properties"]["user"],
                             {"k": ["1", "2", "data:;base64,/w=="], "l": "3"})
            push.send(said)
            message = mqtt.got.get(timeout=PATIENCE_S)
            self.assertEqual((message.payload, message.properties.CorrelationData,
                              message.properties.UserProperty), (payload, payload, twice))

    def test_json_of_sockets_does_not_say_where_answers_go(self):
        more = 'form = "json"'
        theirs = {"response_topic": "elsewhere", "correlation_data": "mine", "content_type": "x"}
        broker, req = self.pair_up("rep", "req", "tcp", True, IN, more)
        mqtt = self.mqtt(broker, "from/#")
        for payload in ("one", "two"):
            req.send_json({"topic": "in/a", "payload": payload, "properties": theirs})
            asked = mqtt.got.get(timeout=PATIENCE_S)
            said = asked.properties
            self.assertEqual((asked.payload, said.ContentType), (payload.encode(), "x"))
            mqtt.publish(said.ResponseTopic, "yes", CorrelationData=said.CorrelationData)
            self.assertEqual(json.loads(req.recv())["payload"], "yes")
        broker, rep = self.pair_up("req", "rep", "tcp", True, OUT, more)
        mqtt = self.mqtt(broker, "answers")
        for payload in (b"one", b"two"):
            mqtt.publish("out/x", payload, ResponseTopic="answers", CorrelationData=payload)
            rep.recv()
            rep.send_json({"payload": "yes", "properties": theirs})
            message = mqtt.got.get(timeout=PATIENCE_S)
            self.assertEqual((message.payload, message.properties.CorrelationData),
                             (b"yes", payload))

    def test_one_frame_and_signs_of_their_own(self):
        """As ZeroMQ's guide has its weather: one frame, words apart."""
        more = 'form = "delimited"\ndelimiter = " "\nseparator = "."'
        broker, sub = self.pair_up("pub", "sub", "tcp", True, OUT, more, prefix=b"out.a ")
        mqtt = self.mqtt(broker)
        mqtt.publish("out/a", "20 60")
        while not sub.poll(20):
            mqtt.publish("out/a", "20 60")
        self.assertEqual(sub.recv(), b"out.a 20 60")
        rules = IN.replace("in/+", "in/#")
        broker, push = self.pair_up("pull", "push", "tcp", True, rules, more)
        mqtt = self.mqtt(broker, "from/#")
        push.send(b"in.a.b 20 60")
        self.assertEqual(mqtt.next(), ("from/a/b", b"20 60"))

    def test_passwords_let_in_and_keep_out(self):
        secret = 'user_name = "ann"\npassword = "s3cret"'

        def plain(password):
            def set_up(socket):
                socket.plain_username, socket.plain_password = b"ann", password
            return set_up

        broker, push = self.pair_up("pull", "push", "tcp", True, IN, secret,
                                    before=plain(b"s3cret"))
        url, mqtt = push.last_endpoint.decode(), self.mqtt(broker, "from/#")
        wrong, anyone = (self.socket("push", url, False, before=before)
                         for before in (plain(b"wrong"), lambda socket: None))
        for socket in (wrong, anyone):
            # Whoever was refused by now has nowhere to send to.
            with contextlib.suppress(zmq.Again):
                socket.send_multipart([b"in/a", b"let me in"], zmq.NOBLOCK)
        push.send_multipart([b"in/a", b"hello"])
        self.assertEqual(mqtt.next(), ("from/a", b"hello"))
        mqtt.nothing()
        self.joined(broker, "pull")
        self.assertNotIn("s3cret", broker.text())

        keeper = ThreadAuthenticator(self.context)
        keeper.start()
        self.addCleanup(keeper.stop)
        keeper.configure_plain("here", {"ann": "s3cret"})

        def server(socket):
            socket.plain_server, socket.zap_domain = True, b"here"
        broker, pull = self.pair_up("push", "pull", "tcp", False, OUT, secret, before=server)
        self.mqtt(broker).publish("out/a", "hello")
        self.assertEqual(pull.recv_multipart(), [b"out/a", b"hello"])
        text = gateway("push", f'dial = ["{pull.last_endpoint.decode()}"]', OUT,
                       secret.replace("s3cret", "wrong"))
        self.start(text).line("not connected: it refuses us: .400.")

    def test_a_broker_that_is_killed_finds_its_queue_and_its_sockets_again(self):
        url, data = self.url(), f"{self.folder}/data"
        text = gateway("push", f'dial = ["{url}"]', OUT)
        broker = self.start(text, "--data", data)
        mqtt = self.mqtt(broker)
        for number in range(50):
            mqtt.publish("out/a", f"{number}")
        broker.child.kill()
        broker.wait()
        pull = self.socket("pull", url, True)
        broker = self.start(text, "--data", data)
        got = [pull.recv_multipart()[1] for _ in range(50)]
        self.assertEqual(got, [b"%d" % number for number in range(50)])
        broker.child.kill()
        broker.wait()
        broker = self.start(text, "--data", data)
        self.mqtt(broker).publish("out/a", "back")
        # What the disk did not yet know to be taken comes again.
        while (payload := pull.recv_multipart()[1]) != b"back":
            self.assertIn(payload, got)

    def test_a_subscriber_that_does_not_read_costs_no_more_than_its_queue(self):
        more = 'peer.queue_bytes_max = "1MiB"'
        url = self.url()
        broker = self.listening(gateway("pub", f'listen = ["{url}"]', OUT, more))
        stalled = stalled_peer(url, zmtp("SUB") + b"\x00\x01\x01")
        self.addCleanup(stalled.close)
        sub = self.socket("sub", url, False)
        self.joined(broker, "pub", 2)
        mqtt, before = self.mqtt(broker), rss_kib(broker.child.pid)
        for _ in range(10_000):
            mqtt.client.publish("out/a", b"x" * 10_000, qos=0)
        mqtt.publish("out/a", "last")
        self.value(broker, "gateway/pub/dropped/peer_slow", lambda value: int(value) > 5000)
        grown = rss_kib(broker.child.pid) - before
        self.assertLess(grown, 48 * 1024, "100 MB were published")
        self.assertEqual(len(sub.recv_multipart()[1]), 10_000, "who reads is not kept waiting")

    def test_a_flood_of_what_sockets_push_is_held_at_its_source(self):
        data = f"{self.folder}/data"
        url = self.url()
        broker = self.listening(gateway("pull", f'listen = ["{url}"]', IN), "--data", data)
        push = self.socket("push", url, False)
        mqtt, before = self.mqtt(broker, "from/#"), rss_kib(broker.child.pid)
        for number in range(3000):
            push.send_multipart([b"in/a", b"%05d" % number + b"x" * 10_000])
        got = [mqtt.next()[1] for _ in range(3000)]
        self.assertEqual([int(one[:5]) for one in got], list(range(3000)))
        self.assertLess(rss_kib(broker.child.pid) - before, 64 * 1024)


if __name__ == "__main__":
    unittest.main()
