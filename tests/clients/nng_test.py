"""Gateways to sockets of NNG, by pynng and nngcat. Starts brokers from CLIENTS_GODWIT."""

import functools
import shutil
import socket
import ssl
import subprocess
import time
import unittest

import pynng

import certs
import sockets
from sockets import IN, OUT, PATIENCE_MS, PATIENCE_S, Case, rss_kib, stalled_peer, until

KINDS = {
    "pub": pynng.Pub0, "sub": pynng.Sub0, "push": pynng.Push0, "pull": pynng.Pull0,
    "pair": pynng.Pair0, "pair1": pynng.Pair1, "req": pynng.Req0, "rep": pynng.Rep0,
    "bus": pynng.Bus0, "surveyor": pynng.Surveyor0, "respondent": pynng.Respondent0,
}
gateway = functools.partial(sockets.gateway, protocol='protocol = "sp"')


class Nng(Case):
    gateway = staticmethod(gateway)
    TRANSPORTS = ("tcp", "ipc", "ws")

    def socket(self, kind, url, listens, **options):
        way = {"listen": url} if listens else {"dial": url, "block_on_dial": False}
        socket = KINDS[kind](**way, recv_timeout=PATIENCE_MS, send_timeout=PATIENCE_MS,
                             reconnect_time_min=20, reconnect_time_max=100, **options)
        self.addCleanup(socket.close)
        return socket

    def three_up(self, ours, theirs, transport, we_listen, rules):
        """The same as `pair_up` with three sockets; where they listen each has its own place."""
        urls = [self.url(transport) for _ in range(1 if we_listen else 3)]
        text = gateway(ours, f'{"listen" if we_listen else "dial"} = {urls}', rules)
        broker = (self.listening if we_listen else self.start)(text)
        sockets = [self.socket(theirs, urls[at % len(urls)], not we_listen) for at in range(3)]
        self.joined(broker, ours, 3)
        return broker, sockets

    def test_what_is_published_reaches_whoever_wants_it(self):
        for transport, we_listen in self.every_way():
            broker, sub = self.pair_up("pub", "sub", transport, we_listen, OUT, topics=b"out/a")
            mqtt = self.mqtt(broker)
            mqtt.publish("out/b", "not wanted")
            mqtt.publish("out/a", "hello")
            mqtt.publish("out/a/b", b"\x00" * 70_000, qos=0)
            self.assertEqual(sub.recv(), b"out/a/hello")
            self.assertEqual(sub.recv(), b"out/a/b/" + b"\x00" * 70_000)

    def test_what_sockets_publish_comes_in(self):
        for transport, we_listen in self.every_way():
            broker, pub = self.pair_up("sub", "pub", transport, we_listen, IN)
            mqtt = self.mqtt(broker, "from/#")
            for message in (b"in/a/hello/x", b"other/a", b"nothing", b"in/b/", b"\xff/\xff/x"):
                pub.send(message)
            self.assertEqual(mqtt.next(), ("from/a", b"hello/x"))
            self.assertEqual(mqtt.next(), ("from/b", b""))
            self.value(broker, "gateway/sub/dropped/no_rule", lambda value: value == "1")
            self.value(broker, "gateway/sub/dropped/unreadable", lambda value: value == "2")

    def test_a_message_that_is_too_long_for_sockets_keeps_no_other_waiting(self):
        long, url = b"x" * 1_000_000, self.url()
        broker = self.listening(gateway("push", f'listen = ["{url}"]', OUT, 'form = "raw"'))
        pull = self.socket("pull", url, False, recv_max_size=100_000)
        self.joined(broker, "push")
        mqtt = self.mqtt(broker)
        mqtt.publish("out/a", long)
        for number in range(50):
            mqtt.publish("out/a", b"%d" % number)
        self.assertEqual({int(pull.recv()) for _ in range(50)}, set(range(50)))
        self.lines(broker, 'a message of 1000000 bytes to "out/a" half-way', 1)
        # Nothing is lost: who takes it has it.
        pull.close()
        self.assertEqual(self.socket("pull", url, False, recv_max_size=0).recv(), long)

    def test_push_and_pull_lose_nothing_while_both_are_there(self):
        for transport, we_listen in self.every_way():
            broker, pull = self.pair_up("push", "pull", transport, we_listen, OUT)
            mqtt = self.mqtt(broker)
            for number in range(500):
                mqtt.client.publish("out/a", f"{number}", qos=1)
            got = [pull.recv() for _ in range(500)]
            self.assertEqual(got, [b"out/a/%d" % number for number in range(500)])
            self.value(broker, "gateway/push/queue/in_flight", lambda value: value == "0")
        for transport, we_listen in self.every_way():
            broker, push = self.pair_up("pull", "push", transport, we_listen, IN)
            mqtt = self.mqtt(broker, "from/#")
            for number in range(500):
                push.send(b"in/a/%d" % number)
            got = [mqtt.next()[1] for _ in range(500)]
            self.assertEqual(got, [b"%d" % number for number in range(500)])

    def test_pairs_talk_both_ways(self):
        for kind in ("pair", "pair1"):
            for transport, we_listen in self.every_way():
                broker, pair = self.pair_up(kind, kind, transport, we_listen, OUT + IN)
                mqtt = self.mqtt(broker, "from/#")
                mqtt.publish("out/x", "there")
                self.assertEqual(pair.recv(), b"out/x/there")
                pair.send(b"in/x/back")
                self.assertEqual(mqtt.next(), ("from/x", b"back"))

    def test_a_bus_carries_both_ways_to_all(self):
        for transport, we_listen in self.every_way():
            broker, sockets = self.three_up("bus", "bus", transport, we_listen, OUT + IN)
            mqtt = self.mqtt(broker, "from/#")
            mqtt.publish("out/x", "all")
            for number, socket in enumerate(sockets):
                self.assertEqual(socket.recv(), b"out/x/all")
                socket.send(b"in/%d/me" % number)
            self.assertEqual(sorted(mqtt.next()[0] for _ in sockets),
                             ["from/0", "from/1", "from/2"])

    def test_clients_of_mqtt_ask_and_sockets_answer(self):
        for transport, we_listen in self.every_way():
            more = "answer_timeout_ms = 500"
            broker, rep = self.pair_up("req", "rep", transport, we_listen, OUT, more)
            mqtt = self.mqtt(broker, "answers")
            mqtt.publish("out/x", "1+1", ResponseTopic="answers", CorrelationData=b"seven")
            self.assertEqual(rep.recv(), b"1+1")
            rep.send(b"2")
            message = mqtt.got.get(timeout=PATIENCE_S)
            self.assertEqual((message.payload, message.properties.CorrelationData),
                             (b"2", b"seven"))
            mqtt.publish("out/x", "never answered", ResponseTopic="answers")
            self.assertEqual(rep.recv(), b"never answered")
            self.value(broker, "gateway/req/dropped/no_answer", lambda value: value == "1")
            mqtt.nothing(0.1)

    def test_sockets_ask_and_clients_of_mqtt_answer(self):
        rules = '[[gateway.in]]\ntopic = "questions"\n'
        for transport, we_listen in self.every_way():
            broker, req = self.pair_up("rep", "req", transport, we_listen, rules)
            mqtt = self.mqtt(broker, "questions")
            req.send(b"1+1")
            asked = mqtt.got.get(timeout=PATIENCE_S)
            self.assertEqual((asked.payload, asked.properties.ResponseTopic),
                             (b"1+1", "gateway/rep/answers"))
            back = asked.properties.CorrelationData
            mqtt.publish(asked.properties.ResponseTopic, "to nobody", CorrelationData=b"stranger")
            mqtt.publish(asked.properties.ResponseTopic, "2", CorrelationData=back)
            mqtt.publish(asked.properties.ResponseTopic, "3", CorrelationData=back)
            self.assertEqual(req.recv(), b"2")
            self.value(broker, "gateway/rep/dropped/no_rule", lambda value: value == "2")

    def test_a_survey_asks_all_of_them(self):
        for transport, we_listen in self.every_way():
            broker, all_of_them = self.three_up("surveyor", "respondent", transport, we_listen, OUT)
            mqtt = self.mqtt(broker, "answers")
            mqtt.publish("out/x", "who is there", ResponseTopic="answers", CorrelationData=b"c")
            for number, one in enumerate(all_of_them):
                self.assertEqual(one.recv(), b"who is there")
                one.send(b"%d" % number)
            self.assertEqual(sorted(mqtt.next()[1] for _ in all_of_them), [b"0", b"1", b"2"])

    def test_surveys_of_sockets_are_answered_by_clients_of_mqtt(self):
        rules = '[[gateway.in]]\ntopic = "questions"\n'
        for transport, we_listen in self.every_way():
            broker, surveyor = self.pair_up("respondent", "surveyor", transport, we_listen, rules,
                                            survey_time=PATIENCE_MS)
            mqtt = self.mqtt(broker, "questions")
            surveyor.send(b"who")
            asked = mqtt.got.get(timeout=PATIENCE_S)
            mqtt.publish(asked.properties.ResponseTopic, "me",
                         CorrelationData=asked.properties.CorrelationData)
            self.assertEqual(surveyor.recv(), b"me")

    def test_tls_asks_for_certificates_and_shows_them(self):
        own = certs.Certs(self.folder)
        for name in ("ours", "theirs"):
            own.issue(name, name, server=True, client=True)
        for ours, theirs in (("pull", "push"), ("pair", "pair")):
            for transport in ("tls+tcp", "wss"):
                for we_listen in (True, False):
                    with self.subTest(ours=ours, transport=transport, we_listen=we_listen):
                        self.secured(own, transport, we_listen, ours, theirs)

    def secured(self, own, transport, we_listen, ours, theirs):
        url = self.url(transport).replace("127.0.0.1", "localhost")
        more = "".join(f'tls.{key} = "{own.path(name)}"\n' for key, name in
                       (("ca", "ca.pem"), ("certificate", "ours.pem"), ("key", "ours.key")))
        rules = IN + OUT if ours == "pair" else IN
        text = gateway(ours, f'{"listen" if we_listen else "dial"} = ["{url}"]', rules, more)
        both = own.path("both.pem")
        with open(both, "w") as file:
            for name in ("theirs.key", "theirs.pem"):
                with open(own.path(name)) as part:
                    file.write(part.read())
        tls = pynng.TLSConfig
        peer = KINDS[theirs](send_timeout=PATIENCE_MS, recv_timeout=PATIENCE_MS)
        self.addCleanup(peer.close)
        if we_listen:
            peer.tls_config = tls(tls.MODE_CLIENT, server_name="localhost", ca_files=[own.ca],
                                  auth_mode=tls.AUTH_MODE_REQUIRED, cert_key_file=both)
            broker = self.listening(text)
            peer.dial(url)
        else:
            peer.tls_config = tls(tls.MODE_SERVER, ca_files=[own.ca], cert_key_file=both,
                                  auth_mode=tls.AUTH_MODE_REQUIRED)
            peer.listen(url)
            broker = self.start(text)
        self.joined(broker, ours)
        mqtt = self.mqtt(broker, "from/#")
        peer.send(b"in/a/sealed")
        self.assertEqual(mqtt.next(), ("from/a", b"sealed"))
        if ours == "pair":
            mqtt.publish("out/a", "too")
            self.assertEqual(peer.recv(), b"out/a/too")
        if we_listen:
            # Somebody without a certificate.
            context = ssl.create_default_context(cafile=own.ca)
            port = int(url.rsplit(":", 1)[1])
            with socket.create_connection(("localhost", port)) as plain, \
                    self.assertRaises(ssl.SSLError), \
                    context.wrap_socket(plain, server_hostname="localhost") as secure:
                secure.recv(1)

    def test_what_nanomq_and_ekuiper_say_is_understood(self):
        """Topic, delimiter, payload, as NanoMQ's bridges.nng has it."""
        more = 'delimiter = ":"'
        rules = OUT.replace("out/#", "ekuiper/#") + "topic = \"nng/${1}\"\n"
        broker, sub = self.pair_up("pub", "sub", "ipc", True, rules, more, topics=b"nng/remote:")
        self.mqtt(broker).publish("ekuiper/remote", '{"t": 1}')
        self.assertEqual(sub.recv(), b'nng/remote:{"t": 1}')
        rules = '[[gateway.in]]\nfilter = "topic_can"\ntopic = "can/frames"\n'
        broker, pub = self.pair_up("sub", "pub", "ipc", True, rules, more)
        mqtt = self.mqtt(broker, "can/#")
        for message in (b"topic_can1234:hello", b"topic_can", b"topic_can:sub:hello"):
            pub.send(message)
        self.assertEqual(mqtt.next(), ("can/frames", b"sub:hello"))

    def test_a_puller_that_went_gets_the_rest_when_it_is_back(self):
        url = self.url()
        broker = self.listening(gateway("push", f'listen = ["{url}"]', OUT))
        mqtt = self.mqtt(broker)
        for number in range(100):
            mqtt.publish("out/a", f"{number}")
        self.value(broker, "gateway/push/queue/messages", lambda value: value == "100")
        pull = self.socket("pull", url, False)
        got = [pull.recv() for _ in range(100)]
        self.assertEqual(got, [b"out/a/%d" % number for number in range(100)])
        pull.close()
        self.joined(broker, "push", 0)
        mqtt.publish("out/a", "later")
        self.assertEqual(self.socket("pull", url, False).recv(), b"out/a/later")

    def test_a_broker_that_is_killed_finds_its_queue_and_its_sockets_again(self):
        url, data = self.url(), f"{self.folder}/data"
        text = gateway("push", f'listen = ["{url}"]', OUT)
        broker = self.listening(text, "--data", data)
        mqtt = self.mqtt(broker)
        for number in range(50):
            mqtt.publish("out/a", f"{number}")
        broker.child.kill()
        broker.wait()
        pull = self.socket("pull", url, False)
        self.listening(text, "--data", data)
        got = [pull.recv() for _ in range(50)]
        self.assertEqual(got, [b"out/a/%d" % number for number in range(50)])

    def test_a_subscriber_that_does_not_read_costs_no_more_than_its_queue(self):
        more = 'peer.queue_bytes_max = "1MiB"'
        url = self.url()
        broker = self.listening(gateway("pub", f'listen = ["{url}"]', OUT, more))
        # One of NNG reads what comes, and drops it itself.
        stalled = stalled_peer(url, b"\0SP\0\0\x21\0\0")
        self.addCleanup(stalled.close)
        sub = self.socket("sub", url, False, topics=b"")
        self.joined(broker, "pub", 2)
        mqtt, before = self.mqtt(broker), rss_kib(broker.child.pid)
        for _ in range(10):
            for _ in range(1000):
                mqtt.client.publish("out/a", b"x" * 10_000, qos=0)
            mqtt.publish("out/a", "last")
        self.value(broker, "gateway/pub/dropped/peer_slow", lambda value: int(value) > 1000)
        grown = rss_kib(broker.child.pid) - before
        self.assertLess(grown, 48 * 1024, "100 MB were published")
        self.assertEqual(len(sub.recv()), 10_006, "whoever reads is not kept waiting")

    def test_a_puller_that_does_not_read_fills_the_queue_and_then_gets_what_is_in_it(self):
        url = self.url()
        more = 'queue.messages_max = 100000\nqueue.bytes_max = "4MiB"'
        broker = self.listening(gateway("push", f'listen = ["{url}"]', OUT, more))
        pull = self.socket("pull", url, False, recv_buffer_size=1)
        self.joined(broker, "push")
        mqtt, before = self.mqtt(broker), rss_kib(broker.child.pid)
        for number in range(10_000):
            mqtt.client.publish("out/a", b"%05d" % number + b"x" * 10_000, qos=0)
        mqtt.publish("out/a", "last")
        self.value(broker, "gateway/push/dropped/queue_full", lambda value: int(value) > 5000)
        self.assertLess(rss_kib(broker.child.pid) - before, 48 * 1024, "100 MB were published")
        got = [pull.recv()]
        while got[-1] != b"out/a/last":
            got.append(pull.recv())
        self.assertGreater(len(got), 400)
        self.assertEqual(got, sorted(got))

    def test_changed_options_touch_only_their_gateway(self):
        urls = [self.url(), self.url()]
        text = gateway("pub", f'listen = ["{urls[0]}"]', OUT)
        other = gateway("pull", f'listen = ["{urls[1]}"]', IN)
        broker = self.listening(text + other)
        sub, push = self.socket("sub", urls[0], False, topics=b""), self.socket("push", urls[1], False)
        self.joined(broker, "pub")
        self.joined(broker, "pull")
        with open(self.config, "w") as file:
            file.write(text.replace("out/#", "new/#") + other)
        broker.signal(1)
        broker.line("options read again.*changed=gateway")
        self.lines(broker, "listens", 3)
        mqtt = self.mqtt(broker, "from/#")
        until(lambda: len(sub.pipes) == 1, "the socket is not back")
        self.joined(broker, "pub")
        mqtt.publish("out/a", "no longer")
        mqtt.publish("new/a", "yes")
        self.assertEqual(sub.recv(), b"new/a/yes")
        push.send(b"in/a/still")
        self.assertEqual(mqtt.next(), ("from/a", b"still"))
        with open(self.config, "w") as file:
            file.write(other)
        broker.signal(1)
        broker.line("gone, with what it had queued")
        push.send(b"in/a/still")
        self.assertEqual(mqtt.next(), ("from/a", b"still"))

    @unittest.skipUnless(shutil.which("nngcat"), "nngcat not here")
    def test_nngcat_pushes_and_pulls(self):
        url = self.url("ipc")
        more, rules = 'form = "raw"', '[[gateway.in]]\ntopic = "from/cat"\n'
        broker = self.listening(gateway("pull", f'listen = ["{url}"]', rules, more))
        mqtt = self.mqtt(broker, "from/#")
        subprocess.run(["nngcat", "--push", "--dial", url, "--data", "meow"], check=True)
        self.assertEqual(mqtt.next(), ("from/cat", b"meow"))
        url = self.url()
        broker = self.listening(gateway("push", f'listen = ["{url}"]', OUT, more))
        self.mqtt(broker).publish("out/x", "purr")
        said = subprocess.run(["nngcat", "--pull", "--dial", url, "--count", "1", "--raw"],
                              check=True, capture_output=True, timeout=PATIENCE_S).stdout
        self.assertEqual(said, b"purr")


if __name__ == "__main__":
    unittest.main()
