"""paho-mqtt in 3.1, 3.1.1 and 5.0 against the brokers at CLIENTS_PORT and CLIENTS_NARROW_PORT.

A test waits for what must come; only where the rule is that nothing comes, or that time passes,
does it wait for a fixed time.
"""

import itertools
import os
import queue
import socket
import threading
import time
import unittest

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

PORT = int(os.environ["CLIENTS_PORT"])
NARROW_PORT = int(os.environ["CLIENTS_NARROW_PORT"])
# Of the same brokers, where the suite is to come over WebSocket.
WEB_PORTS = {
    int(tcp): int(web)
    for tcp, web in (pair.split("=") for pair in os.environ.get("CLIENTS_WEB_PORTS", "").split())
}
# What must come has this long; what must not come has QUIET_S to show itself.
PATIENCE_S = 10
QUIET_S = 0.25
V31, V311, V5 = MQTTProtocolVersion.MQTTv31, MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
NAMES = itertools.count(1)


def unique(word):
    return f"paho-{word}-{os.getpid()}-{next(NAMES)}"


def properties(packet, **values):
    """Properties(packet) with these values; a list of a user property keeps its order."""
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Paho(paho.Client):
    """paho-mqtt 2 reads the reason of a DISCONNECT only where properties follow it."""

    ended_by = None

    def _handle_disconnect(self):
        packet = self._in_packet["packet"]
        self.ended_by = packet[0] if packet else 0
        super()._handle_disconnect()


class Client:
    """One client with queues in place of callbacks."""

    def __init__(self, version, client_id=None, clean=True, keep_alive=60, will=None, port=PORT,
                 manual_ack=False, connect=None, wait=True):
        self.version = version
        self.client_id = unique("client") if client_id is None else client_id
        flag = {} if version == V5 else {"clean_session": clean}
        web = WEB_PORTS.get(port)
        self.paho = Paho(
            transport="websockets" if web else "tcp", callback_api_version=CallbackAPIVersion.VERSION2,
            client_id=self.client_id, protocol=version, reconnect_on_failure=False, manual_ack=manual_ack, **flag)
        self.paho.max_inflight_messages_set(1000)
        self.inbox, self.ended = queue.Queue(), queue.Queue()
        self.acks, self.connacks = queue.Queue(), queue.Queue()
        self.paho.on_connect = lambda _c, _u, *rest: self.connacks.put(rest)
        self.paho.on_disconnect = lambda *_: self.ended.put(self.paho.ended_by)
        self.paho.on_message = lambda _c, _u, message: self.inbox.put(message)
        self.paho.on_publish = lambda _c, _u, mid, reason, _p: self.acks.put((mid, reason))
        self.paho.on_subscribe = lambda _c, _u, mid, reasons, _p: self.acks.put((mid, reasons))
        self.paho.on_unsubscribe = lambda _c, _u, mid, reasons, _p: self.acks.put((mid, reasons))
        if will:
            self.paho.will_set(**will)
        flag = {"clean_start": clean, "properties": connect} if version == V5 else {}
        self.paho.connect("127.0.0.1", web or port, keep_alive, **flag)
        self.paho.loop_start()
        if wait:
            self.flags, reason, self.welcome = self.connacks.get(timeout=PATIENCE_S)
            assert reason == 0, f"CONNACK said {reason}"

    def answer(self, mid):
        """The answer to a packet id; they need not come in order."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found, reason = self.acks.get(timeout=PATIENCE_S)
            if found == mid:
                return reason
            self.acks.put((found, reason))
            time.sleep(0.001)
        raise AssertionError(f"no answer to {mid}")

    def subscribe(self, *filters, qos=0, **rest):
        """Reason codes, a number a filter."""
        wanted = [(one, qos) if self.version != V5 else (one, SubscribeOptions(qos=qos))
                  for one in filters]
        return self.subscribe_with(wanted, **rest)

    def subscribe_with(self, wanted, **rest):
        _, mid = self.paho.subscribe(wanted, **rest)
        return [reason.value for reason in self.answer(mid)]

    def unsubscribe(self, topic):
        _, mid = self.paho.unsubscribe(topic)
        return [reason.value for reason in self.answer(mid)]

    def publish(self, topic, payload="", qos=0, retain=False, **rest):
        """The reason code of the acknowledgement."""
        sent = self.paho.publish(topic, payload, qos, retain, **rest)
        return self.answer(sent.mid).value

    def publish_many(self, messages):
        """(topic, payload, qos) each, without waiting in between."""
        sent = [self.paho.publish(*message) for message in messages]
        for one in sent:
            one.wait_for_publish(PATIENCE_S)
            assert one.is_published()

    def end(self):
        """The reason code by which the broker ended the connection, None if it gave none."""
        return self.ended.get(timeout=PATIENCE_S)

    def next(self, seconds=PATIENCE_S):
        return self.inbox.get(timeout=seconds)

    def take(self, count):
        return [self.next() for _ in range(count)]

    def quiet(self, seconds=QUIET_S):
        """Asserts that nothing comes."""
        try:
            message = self.inbox.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"unexpected: {message.topic} {message.payload[:80]!r}")

    def sync(self, topic=None):
        """All that was sent to us before has come: our own message comes behind it."""
        topic = topic or unique("sync")
        self.subscribe(topic, qos=1)
        self.publish(topic, "sync", 1)
        came = []
        while (message := self.next()).topic != topic:
            came.append(message)
        return came

    def cut(self):
        """The socket goes without DISCONNECT."""
        # What paho has for WebSocket hides the socket.
        own = self.paho.socket()
        getattr(own, "_socket", own).shutdown(socket.SHUT_RDWR)
        self.paho.loop_stop()

    def freeze(self):
        """The socket stays, the client is silent."""
        self.paho._thread_terminate = True
        # Wakes the thread, which else would look up only once a second.
        self.paho.publish("freeze")
        self.paho.loop_stop()

    def close(self, **rest):
        self.paho.disconnect(**rest)
        self.paho.loop_stop()


class Case(unittest.TestCase):
    version = V5

    def client(self, *args, **rest):
        version = rest.pop("version", self.version)
        client = Client(version, *args, **rest)
        self.addCleanup(client.close)
        return client

    def kept(self, **rest):
        """What makes a session outlive its connection in this version."""
        if self.version == V5:
            rest["connect"] = properties(PacketTypes.CONNECT, SessionExpiryInterval=100)
        return {"clean": False, **rest}


class Every:
    """What all versions do alike."""

    def test_every_qos_passes_both_ways(self):
        topic = unique("qos")
        sender = self.client()
        for granted in (0, 1, 2):
            receiver = self.client()
            self.assertEqual(receiver.subscribe(topic, qos=granted), [granted])
            for qos in (0, 1, 2):
                sender.publish(topic, f"{qos} to {granted}", qos)
                message = receiver.next()
                self.assertEqual(message.payload.decode(), f"{qos} to {granted}")
                self.assertEqual(message.qos, min(qos, granted))
                self.assertFalse(message.retain or message.dup)
            receiver.sync()
            receiver.quiet(0)

    def test_order_holds_for_a_burst(self):
        topic = unique("burst")
        sender, receiver = self.client(), self.client()
        receiver.subscribe(topic, qos=2)
        for qos in (0, 1, 2):
            sender.publish_many([(topic, f"{number}", qos) for number in range(300)])
            got = [int(message.payload) for message in receiver.take(300)]
            self.assertEqual(got, list(range(300)))

    def test_wildcards_match_as_they_should(self):
        root = unique("wild")
        sender = self.client()
        expected = {
            f"{root}/+": {"a", ""},
            f"{root}/#": {"a", "", "a/b", "a/b/c", None},
            f"{root}/+/b": {"a/b"},
            f"{root}/+/#": {"a", "", "a/b", "a/b/c"},
            f"+/a/#": {"a", "a/b", "a/b/c"},
        }
        receivers = {one: self.client() for one in expected}
        for one, receiver in receivers.items():
            receiver.subscribe(one)
        for tail in ("a", "", "a/b", "a/b/c", None):
            sender.publish(root if tail is None else f"{root}/{tail}", "x", 1)
        for one, receiver in receivers.items():
            got = {m.topic for m in receiver.sync() if m.topic.startswith(root)}
            wanted = {root if tail is None else f"{root}/{tail}" for tail in expected[one]}
            self.assertEqual(got, wanted, one)

    def test_leading_wildcards_do_not_see_dollar_topics(self):
        name = unique("dollar")
        topic = f"$other/{name}"
        everything, named, late = self.client(), self.client(), self.client()
        everything.subscribe("#", f"+/{name}")
        named.subscribe("$other/#", qos=1)
        # Live on the way to those who are there, retained to those who come.
        self.client().publish(topic, "x", 1, True)
        self.assertEqual([m.topic for m in named.take(1)], [topic])
        late.subscribe("#", f"+/{name}")
        for client in (everything, late):
            self.assertEqual([m.topic for m in client.sync() if m.topic.startswith("$")], [])
        named.publish(topic, "", 1, True)

    def test_the_sys_tree_is_kept_for_whoever_asks(self):
        client = self.client()
        client.subscribe("$SYS/broker/uptime")
        message = client.next()
        self.assertTrue(message.retain)
        self.assertIn("seconds", message.payload.decode())

    def test_overlapping_filters_give_one_copy_at_the_highest_qos(self):
        root = unique("overlap")
        receiver = self.client()
        receiver.subscribe(f"{root}/+", qos=1)
        receiver.subscribe(f"{root}/a", qos=0)
        receiver.subscribe(f"{root}/#", qos=2)
        self.client().publish(f"{root}/a", "one", 2)
        self.assertEqual([(m.payload, m.qos) for m in receiver.sync()], [(b"one", 2)])

    def test_a_delayed_message_comes_at_its_time(self):
        topic = unique("delayed")
        receiver, sender = self.client(), self.client()
        receiver.subscribe(topic, qos=2)
        begun = time.monotonic()
        for qos in (2, 1, 0):
            sender.publish(f"$delayed/1/{topic}", str(qos), qos)
        sender.close()
        got = {message.payload: message.qos for message in receiver.take(3)}
        self.assertGreaterEqual(time.monotonic() - begun, 1)
        self.assertEqual(got, {b"2": 2, b"1": 1, b"0": 0})

    def test_an_exclusive_subscription_is_one_clients(self):
        topic = unique("exclusive")
        first, second = self.client(), self.client()
        self.assertEqual(first.subscribe(f"$exclusive/{topic}", qos=1), [1])
        refused = 0x97 if self.version == V5 else 0x80
        self.assertEqual(second.subscribe(f"$exclusive/{topic}", qos=1), [refused])
        second.publish(topic, "1", 1)
        self.assertEqual(first.next().payload, b"1")
        first.unsubscribe(f"$exclusive/{topic}")
        self.assertEqual(second.subscribe(f"$exclusive/{topic}", qos=1), [1])
        first.publish(topic, "2", 1)
        self.assertEqual(second.next().payload, b"2")
        first.quiet()

    def test_unsubscribe_ends_it(self):
        topic = unique("unsubscribe")
        receiver = self.client()
        receiver.subscribe(topic)
        receiver.unsubscribe(topic)
        self.client().publish(topic, "x", 1)
        self.assertEqual(receiver.sync(), [])

    def test_retained_is_set_replaced_and_cleared(self):
        topic = unique("retained")
        sender = self.client()
        present = self.client()
        present.subscribe(topic)
        for qos, payload in ((0, "first"), (1, "second"), (2, "third")):
            sender.publish(topic, payload, qos, True)
            # To those who are there it is not retained.
            self.assertEqual([(m.payload.decode(), m.retain) for m in present.take(1)],
                             [(payload, False)])
            late = self.client()
            late.subscribe(topic, qos=2)
            message = late.next()
            self.assertEqual((message.payload.decode(), message.retain, message.qos),
                             (payload, True, qos))
        sender.publish(topic, "not kept", 1)
        late = self.client()
        late.subscribe(topic)
        self.assertEqual(late.next().payload, b"third")
        sender.publish(topic, "", 1, True)
        self.assertEqual([m.payload for m in present.take(2)], [b"not kept", b""])
        late = self.client()
        late.subscribe(topic)
        self.assertEqual(late.sync(), [])

    def test_retained_messages_come_by_wildcard(self):
        root = unique("retained-wild")
        sender = self.client()
        for name in ("a", "a/b", "c/b", "d/e/f"):
            sender.publish(f"{root}/{name}", name, 1, True)
        for tail, names in (("#", {"a", "a/b", "c/b", "d/e/f"}), ("+/b", {"a/b", "c/b"}),
                            ("+", {"a"}), ("a/#", {"a", "a/b"})):
            late = self.client()
            late.subscribe(f"{root}/{tail}", qos=1)
            got = late.sync()
            self.assertEqual({m.payload.decode() for m in got}, names, tail)
            self.assertTrue(all(m.retain for m in got))
        for name in ("a", "a/b", "c/b", "d/e/f"):
            sender.publish(f"{root}/{name}", "", 1, True)

    def test_will_comes_when_the_socket_is_cut_and_not_on_disconnect(self):
        topic = unique("will")
        watcher = self.client()
        watcher.subscribe(topic, qos=2)
        for qos, retain in ((0, False), (1, True), (2, False)):
            will = {"topic": topic, "payload": f"will {qos}", "qos": qos, "retain": retain}
            self.client(will=will).cut()
            message = watcher.next()
            self.assertEqual((message.payload.decode(), message.qos), (f"will {qos}", qos))
        late = self.client()
        late.subscribe(topic)
        message = late.next()
        self.assertEqual((message.payload, message.retain), (b"will 1", True))
        self.client(will={"topic": topic, "payload": "never"}).close()
        watcher.quiet()
        watcher.publish(topic, "", 1, True)

    def test_keep_alive_is_kept_and_enforced(self):
        topic = unique("keep-alive")
        watcher = self.client()
        watcher.subscribe(topic)
        alive = self.client(keep_alive=1)
        begun = time.monotonic()
        self.client(keep_alive=1, will={"topic": topic, "payload": "silent"}).freeze()
        self.assertEqual(watcher.next().payload, b"silent")
        waited = time.monotonic() - begun
        self.assertGreater(waited, 1.3)
        self.assertLess(waited, 3)
        # This one pings, and has been idle for longer than one and a half keep-alives.
        time.sleep(max(0, 1.8 - waited))
        self.assertTrue(alive.ended.empty())
        self.assertEqual(alive.sync(), [])

    def test_a_shared_subscription_gives_each_message_to_one(self):
        topic, group = unique("shared"), unique("group")
        members = [self.client() for _ in range(3)]
        for member in members:
            self.assertEqual(member.subscribe(f"$share/{group}/{topic}", qos=2), [2])
        other = self.client()
        other.subscribe(f"$share/other-{group}/{topic}", qos=1)
        own = self.client()
        own.subscribe(topic, qos=0)
        sender = self.client()
        for qos in (0, 1, 2):
            sender.publish_many([(topic, f"{qos} {number}", qos) for number in range(60)])
        wanted = sorted(f"{qos} {number}" for qos in (0, 1, 2) for number in range(60))
        shares = [[m.payload.decode() for m in member.sync()] for member in members]
        self.assertEqual(sorted(sum(shares, [])), wanted)
        self.assertTrue(all(len(share) >= 20 for share in shares), [len(s) for s in shares])
        self.assertEqual(sorted(m.payload.decode() for m in other.sync()), wanted)
        self.assertEqual(sorted(m.payload.decode() for m in own.sync()), wanted)

    def test_a_shared_subscription_goes_on_without_a_member_and_gets_no_retained(self):
        topic, group = unique("shared-left"), unique("group")
        sender = self.client()
        sender.publish(topic, "retained", 1, True)
        one, two = self.client(), self.client()
        for member in (one, two):
            member.subscribe(f"$share/{group}/{topic}", qos=1)
        self.assertEqual(one.sync() + two.sync(), [])
        one.unsubscribe(f"$share/{group}/{topic}")
        sender.publish_many([(topic, f"{number}", 1) for number in range(10)])
        self.assertEqual([int(m.payload) for m in two.take(10)], list(range(10)))
        self.assertEqual(one.sync(), [])
        sender.publish(topic, "", 1, True)

    def test_what_a_cut_member_has_not_acknowledged_goes_to_another(self):
        topic, group = unique("shared-cut"), unique("group")
        lazy = self.client(manual_ack=True)
        lazy.subscribe(f"$share/{group}/{topic}", qos=1)
        sender = self.client()
        sender.publish_many([(topic, f"{number}", 1) for number in range(5)])
        lazy.take(5)
        eager = self.client()
        eager.subscribe(f"$share/{group}/{topic}", qos=1)
        lazy.cut()
        self.assertEqual(sorted(int(m.payload) for m in eager.take(5)), list(range(5)))

    def test_a_session_resumes_with_its_backlog_in_order(self):
        topic, client_id = unique("resume"), unique("session")
        first = self.client(client_id, **self.kept())
        self.assertFalse(first.flags.session_present)
        first.subscribe(topic, qos=2)
        first.cut()
        sender = self.client()
        sender.publish_many([(topic, f"{number}", 1 + number % 2) for number in range(200)])
        sender.publish(topic, "not for those away", 0)
        again = self.client(client_id, **self.kept())
        if self.version != V31:
            self.assertTrue(again.flags.session_present)
        got = again.take(200)
        # paho hands out QoS 2 only when it is released: order is seen by QoS.
        for qos in (1, 2):
            self.assertEqual([int(m.payload) for m in got if m.qos == qos],
                             list(range(qos - 1, 200, 2)))
        sender.publish(topic, "live", 1)
        self.assertEqual(again.next().payload, b"live")
        again.close()
        # A clean start forgets it.
        clean = self.client(client_id, clean=True)
        self.assertFalse(clean.flags.session_present)
        sender.publish(topic, "gone", 1)
        self.assertEqual(clean.sync(), [])

    def test_unacknowledged_messages_return_with_dup_in_order(self):
        topic, client_id = unique("dup"), unique("session")
        first = self.client(client_id, manual_ack=True, **self.kept())
        first.subscribe(topic, qos=1)
        sender = self.client()
        sender.publish_many([(topic, f"{number}", 1) for number in range(5)])
        before = first.take(5)
        self.assertFalse(any(m.dup for m in before))
        first.paho.ack(before[0].mid, 1)
        first.subscribe(unique("behind"))
        first.cut()
        again = self.client(client_id, **self.kept())
        after = again.take(4)
        self.assertEqual([(m.mid, m.payload, m.dup) for m in after],
                         [(m.mid, m.payload, True) for m in before[1:]])
        self.assertEqual(again.sync(), [])
        again.close()
        self.client(client_id, clean=True)

    def test_takeover_ends_the_older_connection_and_keeps_the_session(self):
        topic, client_id = unique("takeover"), unique("session")
        old = self.client(client_id, **self.kept())
        old.subscribe(topic, qos=1)
        new = self.client(client_id, **self.kept())
        self.assertEqual(old.end(), 0x8E if self.version == V5 else None)
        if self.version != V31:
            self.assertTrue(new.flags.session_present)
        self.client().publish(topic, "to the new one", 1)
        self.assertEqual(new.next().payload, b"to the new one")
        new.close()
        self.client(client_id, clean=True)

    def test_a_megabyte_passes_whole(self):
        topic = unique("large")
        payload = os.urandom(1 << 20)
        receiver, sender = self.client(), self.client()
        receiver.subscribe(topic, qos=2)
        for qos in (0, 1, 2):
            sender.publish(topic, payload, qos, qos == 1)
            self.assertEqual(receiver.next().payload, payload)
        late = self.client()
        late.subscribe(topic)
        self.assertEqual(late.next().payload, payload)
        sender.publish(topic, "", 1, True)

    def test_many_topics_keep_apart(self):
        root = unique("many")
        receiver, every, sender = self.client(), self.client(), self.client()
        filters = [f"{root}/{number}/x" for number in range(0, 1000, 2)]
        self.assertEqual(receiver.subscribe(*filters, qos=1), [1] * 500)
        every.subscribe(f"{root}/#", qos=1)
        sender.publish_many([(f"{root}/{number}/x", f"{number}", 1) for number in range(1000)])
        self.assertEqual([int(m.payload) for m in receiver.take(500)], list(range(0, 1000, 2)))
        self.assertEqual([m.topic for m in every.take(1000)],
                         [f"{root}/{number}/x" for number in range(1000)])
        receiver.quiet(0)

    def test_a_subscription_counts_from_its_suback_on_whichever_connection_publishes(self):
        receiver, senders = self.client(), [self.client() for _ in range(4)]
        for number in range(100):
            topic = unique("suback")
            receiver.subscribe(topic)
            senders[number % 4].paho.publish(topic, "x", 0)
            self.assertEqual(receiver.next().topic, topic)


class V31Test(Every, Case):
    version = V31

    def test_an_empty_client_id_is_refused(self):
        raw = socket.create_connection(("127.0.0.1", PORT), PATIENCE_S)
        self.addCleanup(raw.close)
        raw.sendall(bytes.fromhex("100e 0006") + b"MQIsdp" + bytes.fromhex("03 02 003c 0000"))
        self.assertEqual(raw.recv(16), bytes.fromhex("20020002"))
        self.assertEqual(raw.recv(16), b"")


class V311Test(Every, Case):
    version = V311

    def test_an_empty_client_id_is_fine_for_a_clean_session(self):
        one, two = self.client(""), self.client("")
        self.assertEqual(one.sync() + two.sync(), [])

    def test_a_publish_that_is_not_permitted_is_acknowledged_and_dropped(self):
        client = self.client()
        client.subscribe("$SYS/forged")
        for qos in (1, 2):
            self.assertEqual(client.publish("$SYS/forged", "x", qos), 0)
        self.assertEqual(client.sync(), [])

    def test_a_wrong_filter_is_told_as_0x80(self):
        narrow = self.client(port=NARROW_PORT)
        self.assertEqual(narrow.subscribe("narrow/#", "narrow/a"), [0x80, 0])


class V5Test(Every, Case):
    version = V5

    def test_all_properties_of_a_message_arrive_as_they_were(self):
        topic = unique("properties")
        receiver = self.client()
        receiver.subscribe(topic, qos=2)
        pairs = [("b", "2"), ("a", "1"), ("b", "1"), ("", "é漢")]
        for qos in (0, 1, 2):
            given = properties(
                PacketTypes.PUBLISH, UserProperty=pairs, ResponseTopic="answer/here",
                CorrelationData=b"\x00\xff\x01", ContentType="text/plain; charset=utf-8",
                PayloadFormatIndicator=1, MessageExpiryInterval=1000)
            self.client().publish(topic, "é", qos, properties=given)
            got = receiver.next().properties
            self.assertEqual(got.UserProperty, pairs)
            self.assertEqual(got.ResponseTopic, "answer/here")
            self.assertEqual(got.CorrelationData, b"\x00\xff\x01")
            self.assertEqual(got.ContentType, "text/plain; charset=utf-8")
            self.assertEqual(got.PayloadFormatIndicator, 1)
            self.assertIn(got.MessageExpiryInterval, (999, 1000))

    def test_all_properties_of_a_will_and_of_a_retained_message_arrive(self):
        topic = unique("will-properties")
        given = properties(
            PacketTypes.WILLMESSAGE, UserProperty=[("k", "2"), ("k", "1")], ResponseTopic="r",
            CorrelationData=b"c", ContentType="t", PayloadFormatIndicator=1,
            MessageExpiryInterval=500)
        self.client(will={"topic": topic, "payload": "w", "qos": 1, "retain": True,
                          "properties": given}).cut()
        watcher = self.client()
        watcher.subscribe(topic, qos=1)
        message = watcher.next()
        got = message.properties
        self.assertEqual((got.UserProperty, got.ResponseTopic, got.CorrelationData),
                         ([("k", "2"), ("k", "1")], "r", b"c"))
        self.assertEqual((got.ContentType, got.PayloadFormatIndicator), ("t", 1))
        self.assertIn(got.MessageExpiryInterval, (499, 500))
        self.assertFalse(hasattr(got, "WillDelayInterval"))
        watcher.publish(topic, "", 1, True)

    def test_message_expiry_is_counted_down_and_ends(self):
        topic, client_id = unique("expiry"), unique("session")
        first = self.client(client_id, **self.kept())
        first.subscribe(topic, qos=1)
        first.close()
        sender = self.client()
        for seconds in (1, 100):
            given = properties(PacketTypes.PUBLISH, MessageExpiryInterval=seconds)
            sender.publish(topic, f"{seconds}", 1, True, properties=given)
            sender.publish(f"{topic}/{seconds}", f"{seconds}", 1, True, properties=given)
        time.sleep(1.2)
        again = self.client(client_id, **self.kept())
        message = again.next()
        self.assertEqual(message.payload, b"100")
        self.assertIn(message.properties.MessageExpiryInterval, (98, 99))
        again.subscribe(f"{topic}/+", qos=1)
        message = again.next()
        self.assertEqual((message.payload, message.retain), (b"100", True))
        self.assertIn(message.properties.MessageExpiryInterval, (98, 99))
        self.assertEqual(again.sync(), [])
        for end in (topic, f"{topic}/100"):
            sender.publish(end, "", 1, True)
        again.close()
        self.client(client_id, clean=True)

    def test_topic_aliases_of_the_client_are_understood(self):
        one, two = unique("alias-one"), unique("alias-two")
        receiver, sender = self.client(), self.client()
        self.assertGreaterEqual(sender.welcome.TopicAliasMaximum, 2)
        receiver.subscribe(one, two, qos=1)
        last = sender.welcome.TopicAliasMaximum
        for topic, alias in ((one, 1), ("", 1), (two, last), ("", last), ("", 1), (two, 1), ("", 1)):
            given = properties(PacketTypes.PUBLISH, TopicAlias=alias)
            sender.publish(topic, "x", 1, properties=given)
        self.assertEqual([m.topic for m in receiver.take(7)], [one, one, two, two, one, two, two])

    def test_an_alias_out_of_range_and_an_unknown_one_end_the_connection(self):
        for alias, reason in ((1000, 0x94), (1, 0x82)):
            sender = self.client()
            given = properties(PacketTypes.PUBLISH, TopicAlias=alias)
            topic = "x" if reason == 0x94 else ""
            sender.paho.publish(topic, "x", 1, properties=given)
            self.assertEqual(sender.end(), reason)

    def test_topic_aliases_of_the_broker_stay_below_the_maximum_and_name_the_topic(self):
        names = [unique("alias-out") for _ in range(3)]
        receiver = self.client(connect=properties(PacketTypes.CONNECT, TopicAliasMaximum=2))
        receiver.subscribe(*names, qos=1)
        sender = self.client()
        sender.publish_many([(names[n % 3], names[n % 3], 1) for n in range(60)])
        known, saved = {}, 0
        for message in receiver.take(60):
            alias = getattr(message.properties, "TopicAlias", None)
            if alias is not None:
                self.assertIn(alias, (1, 2))
                if message.topic:
                    known[alias] = message.topic
                else:
                    saved += 1
            self.assertEqual(message.topic or known[alias], message.payload.decode())
        self.assertGreater(saved, 30)
        # Who announced no maximum gets no alias.
        plain = self.client()
        plain.subscribe(names[0], qos=1)
        sender.publish_many([(names[0], "x", 1)] * 10)
        self.assertTrue(all(m.topic and not hasattr(m.properties, "TopicAlias")
                            for m in plain.take(10)))

    def test_all_subscription_identifiers_arrive(self):
        root = unique("ids")
        receiver = self.client()
        for number, one in ((1, f"{root}/#"), (268_435_455, f"{root}/+"), (7, f"{root}/a")):
            given = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=number)
            receiver.subscribe(one, qos=1, properties=given)
        receiver.subscribe(f"{root}/b", qos=1)
        self.client().publish(f"{root}/a", "x", 1)
        self.assertEqual(sorted(receiver.next().properties.SubscriptionIdentifier),
                         [1, 7, 268_435_455])
        self.client().publish(f"{root}/b", "x", 1)
        self.assertEqual(sorted(receiver.next().properties.SubscriptionIdentifier),
                         [1, 268_435_455])
        # Subscribing again replaces the identifier, or takes it away.
        receiver.subscribe(f"{root}/#", f"{root}/+", qos=1)
        self.client().publish(f"{root}/b", "x", 1)
        self.assertFalse(hasattr(receiver.next().properties, "SubscriptionIdentifier"))

    def test_a_shared_subscription_has_its_identifier(self):
        topic = unique("shared-id")
        member = self.client()
        given = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=42)
        member.subscribe(f"$share/{topic}/{topic}", qos=1, properties=given)
        self.client().publish(topic, "x", 1)
        self.assertEqual(member.next().properties.SubscriptionIdentifier, [42])

    def test_retain_handling_says_when_retained_messages_come(self):
        topic = unique("handling")
        self.client().publish(topic, "kept", 1, True)

        def came(client, handling):
            options = SubscribeOptions(qos=1, retainHandling=handling)
            client.subscribe_with([(topic, options)])
            return len([m for m in client.sync() if m.topic == topic])

        fresh = self.client()
        self.assertEqual([came(fresh, one) for one in (2, 1, 0, 0)], [0, 0, 1, 1])
        fresh = self.client()
        self.assertEqual([came(fresh, one) for one in (1, 1)], [1, 0])
        fresh.publish(topic, "", 1, True)

    def test_retain_as_published_keeps_the_flag(self):
        topic = unique("as-published")
        keeps, not_keeps = self.client(), self.client()
        keeps.subscribe_with([(topic, SubscribeOptions(qos=1, retainAsPublished=True))])
        not_keeps.subscribe(topic, qos=1)
        sender = self.client()
        sender.publish(topic, "r", 1, True)
        sender.publish(topic, "n", 1, False)
        self.assertEqual([m.retain for m in keeps.take(2)], [True, False])
        self.assertEqual([m.retain for m in not_keeps.take(2)], [False, False])
        sender.publish(topic, "", 1, True)

    def test_no_local_keeps_what_one_says_from_oneself(self):
        topic = unique("no-local")
        one, other = self.client(), self.client()
        for client in (one, other):
            client.subscribe_with([(topic, SubscribeOptions(qos=1, noLocal=True))])
        one.publish(topic, "of one", 1)
        other.publish(topic, "of the other", 1)
        self.assertEqual([m.payload for m in one.sync()], [b"of the other"])
        self.assertEqual([m.payload for m in other.sync()], [b"of one"])

    def test_no_local_on_a_shared_subscription_is_an_error(self):
        client = self.client()
        client.paho.subscribe([("$share/g/t", SubscribeOptions(qos=1, noLocal=True))])
        self.assertEqual(client.end(), 0x82)

    def test_the_receive_maximum_of_the_client_holds_the_flow(self):
        topic = unique("receive-maximum")
        connect = properties(PacketTypes.CONNECT, ReceiveMaximum=3)
        receiver = self.client(manual_ack=True, connect=connect)
        receiver.subscribe(topic, qos=1)
        sender = self.client()
        sender.publish_many([(topic, f"{number}", 1) for number in range(8)])
        held = receiver.take(3)
        receiver.quiet()
        got = list(held)
        while held:
            receiver.paho.ack(held.pop(0).mid, 1)
            if len(got) < 8:
                got.append(receiver.next())
                held.append(got[-1])
        self.assertEqual([int(m.payload) for m in got], list(range(8)))

    def test_the_receive_maximum_does_not_hold_qos_0(self):
        topic = unique("receive-maximum")
        connect = properties(PacketTypes.CONNECT, ReceiveMaximum=1)
        receiver = self.client(manual_ack=True, connect=connect)
        receiver.subscribe(topic, qos=1)
        sender = self.client()
        sender.publish(topic, "holds", 1)
        sender.publish(topic, "passes", 0)
        self.assertEqual([m.payload for m in receiver.take(2)], [b"holds", b"passes"])

    def test_the_maximum_packet_size_of_the_client_is_respected(self):
        topic = unique("maximum")
        connect = properties(PacketTypes.CONNECT, MaximumPacketSize=300)
        receiver, other = self.client(connect=connect), self.client()
        for client in (receiver, other):
            client.subscribe(topic, qos=2)
        sender = self.client()
        for qos in (0, 1, 2):
            sender.publish(topic, "x" * 300, qos)
            sender.publish(topic, f"small {qos}", qos)
        self.assertEqual([m.payload for m in receiver.sync()], [b"small 0", b"small 1", b"small 2"])
        self.assertEqual(len(other.sync()), 6)

    def test_a_will_waits_for_its_delay(self):
        topic = unique("delay")
        watcher = self.client()
        watcher.subscribe(topic, qos=1)

        def lose(client_id, delay, **connect):
            given = properties(PacketTypes.WILLMESSAGE, WillDelayInterval=delay)
            will = {"topic": topic, "payload": client_id, "qos": 1, "properties": given}
            connect = properties(PacketTypes.CONNECT, **connect)
            self.client(client_id, will=will, connect=connect).cut()

        back, waits, ends, delayed = (unique(word) for word in ("back", "waits", "ends", "delayed"))
        begun = time.monotonic()
        lose(back, 1, SessionExpiryInterval=100)
        self.client(back, clean=False)
        # The session's end comes before the delay's; without expiry it is at once.
        lose(ends, 100)
        self.assertEqual(watcher.next().payload.decode(), ends)
        self.assertLess(time.monotonic() - begun, 0.9)
        lose(delayed, 1, SessionExpiryInterval=100)
        lose(waits, 100, SessionExpiryInterval=1)
        came = {watcher.next().payload.decode() for _ in range(2)}
        self.assertEqual(came, {delayed, waits})
        self.assertGreater(time.monotonic() - begun, 0.99)
        self.assertLess(time.monotonic() - begun, 3)
        watcher.quiet()

    def test_disconnect_with_will_message_publishes_it(self):
        topic = unique("will-0x04")
        watcher = self.client()
        watcher.subscribe(topic)
        client = self.client(will={"topic": topic, "payload": "last"})
        client.close(reasoncode=paho.ReasonCode(PacketTypes.DISCONNECT, identifier=4))
        self.assertEqual(watcher.next().payload, b"last")

    def test_the_session_ends_with_its_expiry_interval(self):
        ids = {word: unique(word) for word in ("none", "short", "long", "cleared", "prolonged")}
        expiry = {"none": 0, "short": 1, "long": 100, "cleared": 100, "prolonged": 1}
        said = {"cleared": 0, "prolonged": 100}
        for word, client_id in ids.items():
            connect = properties(PacketTypes.CONNECT, SessionExpiryInterval=expiry[word])
            client = self.client(client_id, clean=False, connect=connect)
            rest = {}
            if word in said:
                rest["properties"] = properties(
                    PacketTypes.DISCONNECT, SessionExpiryInterval=said[word])
            client.close(**rest)
        time.sleep(1.3)
        present = {word: self.client(client_id, clean=False).flags.session_present
                   for word, client_id in ids.items()}
        self.assertEqual(present, {"none": False, "short": False, "long": True, "cleared": False,
                                   "prolonged": True})

    def test_a_client_id_is_assigned_and_can_be_used_again(self):
        connect = properties(PacketTypes.CONNECT, SessionExpiryInterval=100)
        first, other = self.client("", connect=connect), self.client("")
        assigned = first.welcome.AssignedClientIdentifier
        self.assertNotEqual(assigned, other.welcome.AssignedClientIdentifier)
        self.assertFalse(hasattr(self.client().welcome, "AssignedClientIdentifier"))
        first.close()
        self.assertTrue(self.client(assigned, clean=False).flags.session_present)

    def test_reason_codes_say_what_became_of_a_request(self):
        client = self.client()
        # What a shard knows of the others' subscribers may say too much of a topic, and then it is
        # 0 (MQTT 5.0, 3.4.2.1): not of three.
        self.assertIn(0x10, [client.publish(unique("nobody"), "x", 1) for _ in range(3)])
        self.assertEqual(client.publish("$SYS/broker/uptime", "x", 1), 0x87)
        gone = []
        for topic in [unique("somebody") for _ in range(3)]:
            client.subscribe(topic)
            self.assertEqual(client.publish(topic, "x", 1), 0)
            self.assertEqual(client.unsubscribe(topic), [0])
            self.assertEqual(client.unsubscribe(topic), [0x11])
            gone.append(client.publish(topic, "x", 1))
        self.assertIn(0x10, gone)
        self.assertEqual(client.unsubscribe([topic, f"$share/g/{topic}"]), [0x11, 0x11])

    def test_a_request_finds_its_response(self):
        service = unique("service")
        responder, requester = self.client(), self.client()
        responder.subscribe(service, qos=1)
        answers = unique("answers")
        requester.subscribe(answers, qos=1)
        for number in range(3):
            given = properties(PacketTypes.PUBLISH, ResponseTopic=answers,
                               CorrelationData=f"{number}".encode())
            requester.publish(service, f"{number}", 1, properties=given)
        for request in responder.take(3):
            back = properties(PacketTypes.PUBLISH,
                              CorrelationData=request.properties.CorrelationData)
            responder.publish(request.properties.ResponseTopic, request.payload * 2, 1,
                              properties=back)
        self.assertEqual([(m.properties.CorrelationData, m.payload) for m in requester.take(3)],
                         [(b"0", b"00"), (b"1", b"11"), (b"2", b"22")])

    def test_versions_speak_to_each_other(self):
        topic = unique("versions")
        clients = [self.client(version=version) for version in (V31, V311, V5)]
        for client in clients:
            client.subscribe(topic, qos=1)
        given = properties(PacketTypes.PUBLISH, UserProperty=[("k", "v")])
        clients[2].publish(topic, "of 5", 1, properties=given)
        clients[0].publish(topic, "of 3.1", 1)
        for client in clients:
            self.assertEqual([m.payload for m in client.sync()], [b"of 5", b"of 3.1"])


class NarrowTest(Case):
    """A broker that offers less says so, and holds to it."""

    def narrow(self, keep_alive=1, **rest):
        """paho knows nothing of Server Keep Alive and must be told."""
        return self.client(port=NARROW_PORT, keep_alive=keep_alive, **rest)

    def test_connack_announces_it(self):
        connect = properties(PacketTypes.CONNECT, RequestResponseInformation=1,
                             SessionExpiryInterval=4_000_000)
        said = self.narrow(keep_alive=1000, connect=connect).welcome
        self.assertEqual(said.ServerKeepAlive, 1)
        self.assertEqual(said.MaximumQoS, 1)
        self.assertEqual(said.RetainAvailable, 0)
        self.assertEqual(said.WildcardSubscriptionAvailable, 0)
        self.assertEqual(said.SubscriptionIdentifierAvailable, 0)
        self.assertEqual(said.SharedSubscriptionAvailable, 0)
        self.assertEqual(said.MaximumPacketSize, 4096)
        self.assertEqual(said.SessionExpiryInterval, 3600)
        self.assertEqual(said.ResponseInformation, "answers/")
        self.assertFalse(hasattr(said, "TopicAliasMaximum"))
        self.assertFalse(hasattr(self.narrow().welcome, "ResponseInformation"))

    def test_server_keep_alive_is_what_counts(self):
        topic = unique("server-keep-alive")
        watcher = self.narrow()
        watcher.subscribe(topic)
        alive = self.narrow()
        begun = time.monotonic()
        self.narrow(keep_alive=1000, will={"topic": topic, "payload": "silent"}).freeze()
        self.assertEqual(watcher.next().payload, b"silent")
        self.assertGreater(time.monotonic() - begun, 1.3)
        time.sleep(max(0, 1.8 - (time.monotonic() - begun)))
        self.assertTrue(alive.ended.empty())

    def test_what_it_does_not_offer_is_refused(self):
        client = self.narrow()
        self.assertEqual(client.subscribe("a/#", "a/+/b", "$share/g/t", "fine", qos=2),
                         [0xA2, 0xA2, 0x9E, 1])
        given = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=1)
        self.assertEqual(client.subscribe("fine", properties=given), [0xA1])

    def test_what_the_client_was_told_not_to_do_ends_its_connection(self):
        for reason, qos, retain, payload in ((0x9B, 2, False, "x"), (0x9A, 1, True, "x"),
                                             (0x95, 1, False, "x" * 5000)):
            client = self.narrow()
            client.paho.publish("fine", payload, qos, retain)
            self.assertEqual(client.end(), reason)

    def test_a_will_beyond_it_is_refused_at_connect(self):
        for reason, will in ((0x9B, {"qos": 2}), (0x9A, {"retain": True})):
            client = self.narrow(will={"topic": "w", "payload": "w", **will}, wait=False)
            self.assertEqual(client.connacks.get(timeout=PATIENCE_S)[1].value, reason)


if __name__ == "__main__":
    unittest.main()
