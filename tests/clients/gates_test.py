"""What a gateway may do here, and what one socket may cost the others: by pyzmq and by bytes."""

import contextlib
import fcntl
import http.server
import json
import os
import re
import signal
import socket
import struct
import termios
import threading
import unittest

import zmq

from sockets import (IN, OUT, PATIENCE_MS, PATIENCE_S, Case, Mqtt, gateway, rss_kib,
                     stalled_peer, until, zmtp)

WHO = 'identity.user = "plant"'
BODY = "x" * 5_000
# Clients without a name are the tests' own.
ANYONE = '[[rule]]\nallow = "all"\nanonymous = true\n'


class Judge(http.server.BaseHTTPRequestHandler):
    """Says of every question what its server says now."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.dumps({"result": self.server.verdict}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def frame(body):
    """The last of a message."""
    return b"\x02" + len(body).to_bytes(8, "big") + body


def allow(deed, *topics, who='user = "plant"'):
    return f'[[rule]]\nallow = "{deed}"\n{who}\ntopic = {list(topics)}\n'


class Gates(Case):
    gateway = staticmethod(gateway)

    def setUp(self):
        super().setUp()
        self.context = zmq.Context()
        self.addCleanup(lambda: self.context.destroy(0))
        self.acl = os.path.join(self.folder, "acl.toml")

    def socket(self, kind, url, listens=False):
        socket = self.context.socket(getattr(zmq, kind.upper()))
        self.addCleanup(socket.close)
        socket.linger = 0
        socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
        socket.reconnect_ivl = 20
        (socket.bind if listens else socket.connect)(url)
        return socket

    def permit(self, *rules):
        with open(self.acl, "w") as file:
            file.write(ANYONE + "".join(rules))

    def judged(self, pattern, theirs, rules, more=WHO, before=""):
        """A gateway whose permissions are in the file, and a socket at it."""
        url = self.url()
        text = before + gateway(pattern, f'listen = ["{url}"]', rules, more)
        options = ("sys.interval_s=1", "log.modules.gateway=debug", f"acl.file={self.acl}")
        broker = self.listening(text, options=options)
        socket = self.socket(theirs, url)
        self.joined(broker, pattern)
        return broker, socket

    def reload(self, broker):
        read = sum("options read again" in line for line in broker.lines)
        broker.signal(signal.SIGHUP)
        self.lines(broker, "options read again", read + 1)

    def refused(self, broker, pattern, count):
        self.value(broker, f"gateway/{pattern}/dropped/refused_here",
                   lambda value: value == str(count))

    def test_its_identity_says_what_it_may_publish_and_subscribe_to(self):
        self.permit(allow("publish", "from/a"), allow("subscribe", "out/ok/#"))
        rules = OUT.replace("out/#", "out/no/#") + OUT.replace("out/#", "out/ok/#") + IN
        broker, pair = self.judged("pair", "pair", rules)
        mqtt = self.mqtt(broker, "from/#")
        broker.line("it subscribe to out/no/#: Not authorized")
        self.value(broker, "gateway/pair/last_error", lambda value: "out/no/#" in value)
        for name in (b"in/b", b"in/a", b"in/c", b"in/a"):
            pair.send_multipart([name, name])
        self.assertEqual([mqtt.next() for _ in range(2)], [("from/a", b"in/a")] * 2)
        mqtt.nothing()
        self.refused(broker, "pair", 2)
        mqtt.publish("out/no/x", "1")
        mqtt.publish("out/ok/x", "2")
        self.assertEqual(pair.recv_multipart(), [b"out/ok/x", b"2"])

        # It may do more, ...
        self.permit(allow("all", "from/a", "from/b", "out/no/#", "out/ok/#"))
        self.reload(broker)
        self.value(broker, "gateway/pair/last_error", lambda value: not value)
        mqtt.publish("out/no/x", "3")
        self.assertEqual(pair.recv_multipart(), [b"out/no/x", b"3"])
        pair.send_multipart([b"in/b", b"now"])
        self.assertEqual(mqtt.next(), ("from/b", b"now"))
        # ... and less, without a socket that noticed.
        self.permit(allow("all", "out/no/#"))
        self.reload(broker)
        self.value(broker, "gateway/pair/last_error", lambda value: "out/ok/#" in value)
        mqtt.publish("out/ok/x", "4")
        mqtt.publish("out/no/x", "5")
        self.assertEqual(pair.recv_multipart(), [b"out/no/x", b"5"])
        pair.send_multipart([b"in/a", b"not now"])
        self.refused(broker, "pair", 3)
        mqtt.nothing()
        self.assertEqual(sum("a socket came" in line for line in broker.lines), 1)

    def test_its_groups_and_its_client_id_stand_in_rules_and_its_queue_stays_its_own(self):
        self.permit(allow("subscribe", "out/a", who='group = "machines"'),
                    allow("subscribe", "out/b", who='client_id = "$link/gateway/*"'),
                    "[groups]\nslow = [\"plant\"]\n")
        url, data = self.url(), os.path.join(self.folder, "data")
        more = WHO + '\nidentity.groups = ["machines"]\nqueue.messages_max = 7'
        rules = OUT.replace("out/#", "out/a") + OUT.replace("out/#", "out/b")
        # Limits of a group that the user is in are not a link's.
        slow = '[[group]]\nname = "slow"\nqueue.messages_max = 1\n'

        def text(more):
            return slow + gateway("push", f'listen = ["{url}"]', rules, more)
        options = ("sys.interval_s=1", "log.modules.gateway=debug", f"acl.file={self.acl}")
        broker = self.listening(text(more), "--data", data, options=options)
        mqtt = self.mqtt(broker)
        for number in range(3):
            mqtt.publish("out/a", f"{number}")
            mqtt.publish("out/b", f"{number}")
        self.value(broker, "gateway/push/queue/messages", lambda value: value == "6")
        # Somebody else from now on, and what waits is there.
        self.permit(allow("subscribe", "out/+", who='user = "other"'))
        with open(self.config, "w") as file:
            file.write(text('identity.user = "other"\nqueue.messages_max = 7'))
        self.reload(broker)
        pull = self.socket("pull", url)
        got = [pull.recv_multipart() for _ in range(6)]
        self.assertEqual(got[::2], [[b"out/a", b"%d" % number] for number in range(3)])
        mqtt.publish("out/b", "more")
        self.assertEqual(pull.recv_multipart(), [b"out/b", b"more"])

    def test_what_rules_send_it_needs_no_permission(self):
        self.permit()
        rule = ('[[rule]]\nname = "hot"\nsql = """SELECT payload FROM "seen/+\\""""\n'
                'send.to = ["gateway/push"]\nsend.topic = "hot"\n')
        broker, pull = self.judged("push", "pull", "", before=rule)
        self.mqtt(broker).publish("seen/a", "1")
        self.assertEqual(pull.recv_multipart()[0], b"hot")
        self.permit()
        self.reload(broker)
        self.mqtt(broker).publish("seen/a", "2")
        self.assertEqual(pull.recv_multipart()[0], b"hot")

    def test_answers_go_where_the_gateway_may_publish_whoever_asked(self):
        self.permit(allow("subscribe", "out/#"), allow("publish", "answers/#"))
        broker, rep = self.judged("req", "rep", OUT)
        mqtt = self.mqtt(broker, "answers/#", "valves/#")
        for topic in ("valves/main", "answers/me"):
            mqtt.publish("out/x", topic, ResponseTopic=topic)
            rep.recv()
            rep.send(b"open")
        self.assertEqual(mqtt.next(), ("answers/me", b"open"))
        mqtt.nothing()
        self.refused(broker, "req", 1)
        # Whom nobody judges answers wherever it is asked to.
        broker, rep = self.judged("req", "rep", OUT, more="")
        mqtt = self.mqtt(broker, "valves/#")
        mqtt.publish("out/x", "", ResponseTopic="valves/main")
        rep.recv()
        rep.send(b"open")
        self.assertEqual(mqtt.next(), ("valves/main", b"open"))

    def says(self, url, kind, said):
        """A socket that says this and never reads."""
        peer = stalled_peer(url, zmtp(kind))
        self.addCleanup(peer.close)
        # It may be cut before all of it went.
        with contextlib.suppress(OSError):
            peer.sendall(said)
        return peer

    def test_what_a_socket_sends_back_ends_here(self):
        both = OUT + '[[gateway.in]]\nfilter = "out/#"\n'
        url = self.url()
        broker = self.listening(gateway("pair", f'listen = ["{url}"]', both))
        pair, mqtt = self.socket("pair", url), self.mqtt(broker, "out/#")
        self.joined(broker, "pair")
        mqtt.publish("out/a", "once")
        self.assertEqual(pair.recv_multipart(), [b"out/a", b"once"])
        pair.send_multipart([b"out/a", b"once"])
        pair.send_multipart([b"out/a", b"twice"])
        expected = [("out/a", one) for one in (b"once", b"once", b"twice")]
        self.assertEqual([mqtt.next() for _ in expected], expected)
        self.assertFalse(pair.poll(300), "it goes round")

    def half_way(self, url, announced, sent):
        """A socket that pushes, and stops in the middle of a message."""
        begun = frame(bytes(announced))[:9 + sent]
        return self.says(url, "PUSH", b"\x01\x04in/a" + begun)

    def wants(self, url, *prefixes):
        return self.says(url, "SUB", b"".join(frame(b"\x01" + one) for one in prefixes))

    def test_what_sockets_subscribe_to_costs_no_more_than_is_allowed(self):
        url, more = self.url(), 'peers_bytes_max = "16MiB"'
        broker = self.listening(gateway("pub", f'listen = ["{url}"]', OUT, more))
        before = rss_kib(broker.child.pid)
        modest = self.socket("sub", url)
        modest.subscribe(b"out/a")
        self.joined(broker, "pub")
        wishes = [b"%d/" % number + bytes(1000) for number in range(1000)]
        greedy = [self.wants(url, *wishes) for _ in range(100)]
        self.value(broker, "gateway/pub/dropped/no_room", lambda value: int(value) >= 80)
        broker.line("reason=no_room")
        # Above the bound of 16 MiB stands what is read before a socket is cut: 48 to 60 MB beside
        # other suites.
        self.assertLess(rss_kib(broker.child.pid) - before, 72 * 1024, "100 MB are asked for")
        # Who has least of it goes on, and there is room again once others went.
        self.mqtt(broker).publish("out/a", "hello")
        self.assertEqual(modest.recv_multipart(), [b"out/a", b"hello"])
        for peer in greedy:
            peer.close()
        self.joined(broker, "pub", 1)
        late = self.wants(url, *wishes)
        self.joined(broker, "pub", 2)
        # What is taken back makes room.
        churn = [frame(deed + one) for deed in (b"\x00", b"\x01") for one in wishes]
        for _ in range(20):
            late.sendall(b"".join(churn))
        until(lambda: outstanding(late) == 0, "it was not read")
        self.joined(broker, "pub", 2)

    def test_messages_that_do_not_end_cost_no_more_than_is_allowed(self):
        url, more = self.url(), 'peers_bytes_max = "16MiB"'
        broker = self.listening(gateway("pull", f'listen = ["{url}"]', IN, more))
        mqtt, before = self.mqtt(broker, "from/#"), rss_kib(broker.child.pid)
        modest = self.half_way(url, 10_000, 5_000)
        self.joined(broker, "pull")
        begun = [self.half_way(url, 1_000_000, 990_000) for _ in range(100)]
        self.value(broker, "gateway/pull/dropped/no_room", lambda value: int(value) >= 80)
        self.assertLess(rss_kib(broker.child.pid) - before, 56 * 1024, "99 MB are half-way")
        # Who has least of it goes on, and so does who comes now.
        modest.sendall(bytes(5_000))
        self.assertEqual(mqtt.next(), ("from/a", bytes(10_000)))
        push = self.socket("push", url)
        push.send_multipart([b"in/b", b"hello"])
        self.assertEqual(mqtt.next(), ("from/b", b"hello"))
        begun.clear()

    def test_what_came_whole_counts_though_what_follows_is_wrong(self):
        url = self.url()
        broker = self.listening(gateway("pull", f'listen = ["{url}"]', IN))
        mqtt = self.mqtt(broker, "from/#")
        numbers = [str(number).encode() for number in range(5_000)]
        whole = b"".join(b"\x01\x04in/a" + frame(number) for number in numbers)
        self.says(url, "PUSH", whole + b"\xff" * 20)
        for number in numbers:
            self.assertEqual(mqtt.next(), ("from/a", number))
        self.joined(broker, "pull", 0)

    def test_who_asks_without_end_keeps_nobody_from_asking(self):
        rules = '[[gateway.in]]\ntopic = "questions"\n'
        url, more = self.url(), "answer_timeout_ms = 60000"
        broker = self.listening(gateway("rep", f'listen = ["{url}"]', rules, more))
        mqtt, answers = self.mqtt(broker, "questions"), self.mqtt(broker)
        flood = self.socket("dealer", url)
        for _ in range(9000):
            flood.send_multipart([b"", b"?"])
        for _ in range(4096):
            self.assertEqual(mqtt.next()[1], b"?")
        mqtt.nothing()
        for number in range(3):
            req = self.socket("req", url)
            req.send(b"%d" % number)
            asked = mqtt.got.get(timeout=PATIENCE_S)
            self.assertEqual(asked.payload, b"%d" % number)
            answers.publish(asked.properties.ResponseTopic, "yes",
                            CorrelationData=asked.properties.CorrelationData)
            self.assertEqual(req.recv(), b"yes")

    def pushes(self, url, count):
        """A socket that has said so many messages, all of which were read of it."""
        peer = socket.socket(socket.AF_UNIX)
        self.addCleanup(peer.close)
        peer.connect(url.removeprefix("ipc://"))
        numbers = [b"%d" % number for number in range(count)]
        said = [b"\x01\x04in/a\x00" + bytes([len(one)]) + one for one in numbers]
        peer.sendall(zmtp("PUSH") + b"".join(said))
        until(lambda: outstanding(peer) == 0, "it was not read")
        return numbers

    def keeper(self, url, text):
        """A broker that has a message once it is on the disk, and so is behind; and for whom."""
        data = os.path.join(self.folder, "data")
        options = ("queue.messages_max=20000", "log.modules.gateway=debug")
        broker = self.listening(text, "--data", data, options=options)
        mqtt = Mqtt(broker.port, "from/#", client_id="reader")
        self.addCleanup(mqtt.stop)
        return broker, mqtt

    def test_what_was_read_is_published_before_a_gateway_changes(self):
        url = self.url("ipc")
        broker, mqtt = self.keeper(url, gateway("pull", f'listen = ["{url}"]', IN))
        with open(self.config, "w") as file:
            file.write(gateway("pull", f'listen = ["{url}"]', IN, "peers_max = 7"))
        expected = self.pushes(url, 4_000)
        self.reload(broker)
        self.assertEqual([mqtt.next()[1] for _ in expected], expected)
        mqtt.nothing()

    def test_what_was_read_is_published_before_the_broker_ends(self):
        url = self.url("ipc")
        text = gateway("pull", f'listen = ["{url}"]', IN)
        broker, mqtt = self.keeper(url, text)
        mqtt.stop()
        expected = self.pushes(url, 4_000)
        broker.signal(signal.SIGTERM)
        self.assertEqual(broker.wait(), 0)
        _, mqtt = self.keeper(url, text)
        self.assertEqual([mqtt.next()[1] for _ in expected], expected)
        mqtt.nothing()

    def test_what_a_socket_takes_while_a_gateway_stops_does_not_come_again(self):
        url = self.url("ipc")
        text = gateway("push", f'listen = ["{url}"]', OUT)
        broker, mqtt = self.keeper(url, text)
        puller = self.pulls(url)
        self.joined(broker, "push")
        for number in range(999):
            mqtt.client.publish("out/a", f"{number:04}" + BODY, qos=1)
        mqtt.publish("out/a", "0999" + BODY)
        mqtt.stop()
        broker.signal(signal.SIGTERM)
        before = pulled(puller)
        self.assertEqual(broker.wait(), 0)
        broker, _ = self.keeper(url, text)
        after = pulled(self.pulls(url))
        self.assertEqual(before + after, list(range(1000)))
        self.assertGreater(min(len(before), len(after)), 10, "it was not in the middle")

    def pulls(self, url):
        """A socket that takes what it is given once somebody reads it."""
        puller = socket.socket(socket.AF_UNIX)
        self.addCleanup(puller.close)
        puller.settimeout(PATIENCE_S)
        puller.connect(url.removeprefix("ipc://"))
        puller.sendall(zmtp("PULL"))
        return puller

    def test_what_it_may_not_have_it_asks_for_again_while_nobody_is_there(self):
        judge = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Judge)
        judge.verdict = "deny"
        threading.Thread(target=judge.serve_forever, daemon=True).start()
        self.addCleanup(judge.server_close)
        self.addCleanup(judge.shutdown)
        self.permit()
        url = self.url()
        broker = self.listening(
            gateway("push", f'listen = ["{url}"]', OUT, WHO),
            options=("sys.interval_s=1", "log.modules.gateway=debug", f"acl.file={self.acl}",
                     f"acl.http_url=http://127.0.0.1:{judge.server_port}/", "acl.http_cache_s=off"))
        broker.line("it subscribe to out/#: Not authorized")
        judge.verdict = "allow"
        self.value(broker, "gateway/push/last_error", lambda value: not value, seconds=30)
        self.mqtt(broker).publish("out/a", "waits")
        pull = self.socket("pull", url)
        self.assertEqual(pull.recv_multipart(), [b"out/a", b"waits"])


def pulled(puller):
    """The numbers that came as a whole, until the last one or the end of the connection."""
    came = bytearray()
    while not came.endswith(b"0999" + BODY.encode()) and (more := puller.recv(65536)):
        came += more
    return [int(number) for number in re.findall(b"(\\d{4})" + BODY.encode(), came)]


def outstanding(peer):
    """Bytes that a socket sent and that nobody has taken."""
    return struct.unpack("i", fcntl.ioctl(peer, termios.TIOCOUTQ, bytes(4)))[0]


if __name__ == "__main__":
    unittest.main()
