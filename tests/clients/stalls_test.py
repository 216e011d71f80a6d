"""Sockets at a gateway that say who they are and never read, of each pattern that goes out: what
they cost is what the options say, and what they miss is counted or waits. Of pub zmq_test and
nng_test have it, beside a socket that reads.
"""

import contextlib
import functools
import signal
import struct
import time
import unittest

import sockets
from sockets import OUT, Case, rss_kib, stalled_peer, zmtp

BODY = b"x" * 10_000
COUNT = 4000
# A peer's queue has 1 MiB and the session's 4; the rest is what an allocator keeps of 40 MB.
MORE = """answer_timeout_ms = 60000
peer.queue_bytes_max = "1MiB"
queue.bytes_max = "4MiB"
queue.messages_max = 100000
"""
GROWN_KIB_MAX = 16 * 1024
ASKED = '[[gateway.in]]\ntopic = "questions"\n'
sp = functools.partial(sockets.gateway, protocol='protocol = "sp"')


def greeting(protocol):
    return b"\0SP\0" + struct.pack(">HH", protocol, 0)


def asks_sp(number):
    """Of REQ and SURVEYOR alike: the number of the question, and nothing in it."""
    return struct.pack(">QI", 4, 1 << 31 | number)


def asks_zmq(_):
    """Of a DEALER that keeps asking: an empty frame, and one that is the question."""
    return b"\x01\x00\x00\x01?"


# What goes to one socket waits in the session's queue, what goes to all passes it by.
ALL = [
    ("push", sockets.gateway, zmtp("PULL"), "queue_full"),
    ("pair", sockets.gateway, zmtp("PAIR"), "queue_full"),
    ("req", sockets.gateway, zmtp("REP"), "queue_full"),
    ("xpub", sockets.gateway, zmtp("SUB") + b"\x00\x01\x01", "peer_slow"),
    ("xsub", sockets.gateway, zmtp("XPUB"), "peer_slow"),
    ("push", sp, greeting(0x51), "queue_full"),
    ("pair", sp, greeting(0x10), "queue_full"),
    ("pair1", sp, greeting(0x11), "queue_full"),
    ("req", sp, greeting(0x31), "queue_full"),
    ("bus", sp, greeting(0x70), "peer_slow"),
    ("surveyor", sp, greeting(0x63), "peer_slow"),
]
ANSWERS = [
    ("rep", sockets.gateway, zmtp("DEALER"), asks_zmq),
    ("rep", sp, greeting(0x30), asks_sp),
    ("respondent", sp, greeting(0x62), asks_sp),
]


class Stalls(Case):
    def joined_by(self, make, pattern, said, rules):
        url = self.url()
        broker = self.listening(make(pattern, f'listen = ["{url}"]', rules, MORE))
        # It has nothing to say to who does not listen, and would wait for it.
        self.addCleanup(broker.child.kill)
        stalled = stalled_peer(url, said)
        self.addCleanup(stalled.close)
        self.joined(broker, pattern)
        return broker, stalled

    def costs(self, broker, pattern, before, reason):
        topic = f"gateway/{pattern}/dropped/{reason}"
        missed = int(self.value(broker, topic, lambda value: int(value) > COUNT // 2))
        self.assertLess(missed, COUNT)
        grown = rss_kib(broker.child.pid) - before
        self.assertLess(grown, GROWN_KIB_MAX, f"KiB for {pattern}")

    def test_who_does_not_read_costs_no_more_than_queues(self):
        own = sockets.Properties(sockets.PacketTypes.PUBLISH)
        own.ResponseTopic = "answers"
        loaded = []
        for pattern, make, said, reason in ALL:
            broker, _ = self.joined_by(make, pattern, said, OUT)
            mqtt, before = self.mqtt(broker), rss_kib(broker.child.pid)
            for _ in range(COUNT):
                mqtt.client.publish("out/a", BODY, qos=0, properties=own)
            loaded.append((broker, pattern, before, reason, make is sp))
        for broker, pattern, before, reason, is_sp in loaded:
            with self.subTest(pattern=pattern, is_sp=is_sp):
                self.costs(broker, pattern, before, reason)
                if reason == "queue_full":
                    waits = f"gateway/{pattern}/queue/messages"
                    self.value(broker, waits, lambda value: int(value) > 200)

    def test_who_asks_and_does_not_read_the_answers_costs_no_more_than_its_queue(self):
        for pattern, make, said, asks in ANSWERS:
            with self.subTest(pattern=pattern, is_sp=make is sp):
                broker, stalled = self.joined_by(make, pattern, said, ASKED)
                mqtt = self.mqtt(broker, "questions")
                before = rss_kib(broker.child.pid)
                for first in range(0, COUNT, 100):
                    stalled.sendall(b"".join(asks(first + at) for at in range(100)))
                    for _ in range(100):
                        asked = mqtt.got.get(timeout=sockets.PATIENCE_S).properties
                        own = sockets.Properties(sockets.PacketTypes.PUBLISH)
                        own.CorrelationData = asked.CorrelationData
                        mqtt.client.publish(asked.ResponseTopic, BODY, qos=0, properties=own)
                self.costs(broker, pattern, before, "peer_slow")


class Slow(Case):
    """What goes to one socket, where that or another takes it late."""

    COUNT = 4000
    # Of these a system takes more than the session lets be under way.
    LENGTH = 1000
    MORE = 'queue.messages_max = 100000\nqueue.bytes_max = "64MiB"\n'
    PULLS = [(sockets.gateway, zmtp("PULL")), (sp, greeting(0x51))]

    def started(self, make, said, url, *flags):
        broker = self.listening(make("push", f'listen = ["{url}"]', OUT, self.MORE), *flags)
        reader = self.reader(url, said)
        self.joined(broker, "push")
        return broker, reader

    def reader(self, url, said):
        reader = sockets.Reader(url, said, self.LENGTH)
        self.addCleanup(reader.close)
        return reader

    def takes(self, reader, count):
        while len(reader.data) < count * self.LENGTH:
            self.assertTrue(reader.read(), f"{len(reader.data)} bytes, and no more")

    def publish(self, broker):
        client = self.mqtt(broker).client
        padding = b"x" * (self.LENGTH - 9)
        told = [client.publish("out/a", b"#%08d" % at + padding, qos=1)
                for at in range(self.COUNT)]
        for one in told:
            one.wait_for_publish(sockets.PATIENCE_S)

    def test_who_reads_has_what_another_does_not_take(self):
        for make, said in self.PULLS:
            for transport in ("tcp", "ipc"):
                with self.subTest(is_sp=make is sp, transport=transport):
                    url = self.url(transport)
                    broker, _ = self.started(make, said, url)
                    self.publish(broker)
                    # The other one keeps what the system took for it, and half of the rest.
                    self.takes(self.reader(url, said), self.COUNT // 2)
                    broker.child.kill()

    def test_stalled_sockets_together_leave_the_window_to_who_reads(self):
        for make, said in self.PULLS:
            with self.subTest(is_sp=make is sp):
                url = self.url("ipc")
                more = self.MORE + "session.inflight_max = 4\n"
                broker = self.listening(make("push", f'listen = ["{url}"]', OUT, more))
                # The last of them has the last message of the window.
                for at in range(6):
                    if at == 5:
                        hungry = self.reader(url, said)
                    else:
                        self.addCleanup(stalled_peer(url, said).close)
                    self.value(broker, "gateway/push/peers", lambda value: value == str(at + 1))
                    if at == 0:
                        self.publish(broker)
                # What all but it had taken comes again where one of them goes, and only that.
                self.takes(hungry, self.COUNT - 4)
                broker.child.kill()

    def test_who_works_through_ipc_and_goes_has_done_what_it_read(self):
        for make, said in self.PULLS:
            with self.subTest(is_sp=make is sp):
                url = self.url("ipc")
                broker, first = self.started(make, said, url)
                self.publish(broker)
                first.peer.setblocking(True)
                while len(first.data) < 100 * self.LENGTH:
                    first.data += first.peer.recv(self.LENGTH)
                # It works on the last of them.
                time.sleep(0.5)
                first.close()
                second = self.reader(url, said)
                self.takes(second, 1000)
                again = set(first.numbers()) & set(second.numbers())
                self.assertLess(len(again), 3, "what it was in the middle of")
                broker.child.kill()

    def test_a_host_that_goes_without_a_word_is_missed(self):
        url = self.url()
        broker, _ = self.started(*self.PULLS[0], url)
        port = f":{int(url.rsplit(':', 1)[1]):04X}"
        until, rows, timers = time.monotonic() + sockets.PATIENCE_S, [], []
        # proc(5): of those that are connected, which timer runs: 2 is that of keepalive, once
        # the handshake is acknowledged.
        while timers != ["02"]:
            self.assertLess(time.monotonic(), until, f"timers {timers} of {rows}")
            with open("/proc/net/tcp", encoding="ascii") as file:
                rows = [line.split() for line in file]
            rows = [row for row in rows if row[1].endswith(port) and row[3] == "01"]
            timers = [row[5][:2] for row in rows]
        broker.child.kill()

    def test_who_talks_and_reads_late_loses_nothing_with_the_broker(self):
        """A connection that is closed with something unread is reset."""
        ping, message = b"\x04\x07\x04PING\0\0", b"\0\0\0\0\0\0\0\x01x"
        for (make, said), says in zip(self.PULLS, (ping, message)):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with self.subTest(is_sp=make is sp, number=number):
                    url, data = self.url(), f"{self.folder}/{number}-{make is sp}"
                    broker, slow = self.started(make, said, url, "--data", data)
                    self.publish(broker)
                    slow.peer.sendall(says)
                    broker.signal(number)
                    until = time.monotonic() + 0.5
                    while time.monotonic() < until:
                        with contextlib.suppress(OSError):
                            slow.peer.sendall(says)
                        time.sleep(0.05)
                    broker.wait()
                    while slow.read():
                        pass
                    broker, late = self.started(make, said, url, "--data", data)
                    late.peer.settimeout(1)
                    while late.read():
                        pass
                    broker.stop()
                    came = slow.numbers() + late.numbers()
                    self.assertEqual(sorted(set(came)), list(range(self.COUNT)))


if __name__ == "__main__":
    unittest.main()
