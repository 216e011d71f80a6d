"""What one socket of a gateway may cost the others: by pyzmq and by bytes."""

import contextlib
import unittest

import zmq

from sockets import (IN, PATIENCE_MS, PATIENCE_S, Case, gateway, rss_kib,
                     stalled_peer)


class Gates(Case):
    gateway = staticmethod(gateway)

    def setUp(self):
        super().setUp()
        self.context = zmq.Context()
        self.addCleanup(lambda: self.context.destroy(0))

    def socket(self, kind, url, listens=False):
        socket = self.context.socket(getattr(zmq, kind.upper()))
        self.addCleanup(socket.close)
        socket.linger = 0
        socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
        socket.reconnect_ivl = 20
        (socket.bind if listens else socket.connect)(url)
        return socket

    def half_way(self, url, announced, sent):
        """A socket that pushes, and stops in the middle of a message."""
        greeting = bytearray(64)
        greeting[0], greeting[9], greeting[10], greeting[12:16] = 0xFF, 0x7F, 3, b"NULL"
        ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
        begun = b"\x01\x04in/a" + b"\x02" + announced.to_bytes(8, "big") + bytes(sent)
        peer = stalled_peer(url, bytes(greeting) + bytes([4, len(ready)]) + ready)
        self.addCleanup(peer.close)
        # It may be cut before all of it went.
        with contextlib.suppress(OSError):
            peer.sendall(begun)
        return peer

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


if __name__ == "__main__":
    unittest.main()
