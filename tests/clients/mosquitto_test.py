"""mosquitto_pub, mosquitto_sub and mosquitto_rr in 3.1, 3.1.1 and 5.0 against CLIENTS_PORT."""

import os
import subprocess
import time
import unittest

import programs
from programs import PATIENCE_S

PORT = os.environ["CLIENTS_PORT"]
NARROW_PORT = os.environ["CLIENTS_NARROW_PORT"]
V31, V311, V5 = "mqttv31", "mqttv311", "mqttv5"


def unique(word):
    return programs.unique(f"mosquitto-{word}")


def run(program, version, *flags, said=None, port=PORT):
    return programs.run([program], port, "-V", version, *flags, said=said)


class Case(unittest.TestCase):
    version = V5

    def sub(self, *flags, **rest):
        sub = programs.Sub(["mosquitto_sub"], PORT, "-V", self.version, *flags, **rest)
        self.addCleanup(sub.close)
        return sub

    def pub(self, topic, payload, *flags, said=None):
        given = ["-s"] if said is not None else ["-n"] if payload == "" else ["-m", payload]
        code, _, error = run("mosquitto_pub", self.version, "-t", topic, *given, *flags, said=said)
        self.assertEqual((code, error), (0, ""))

    def kept(self, client_id):
        return ("-c", "-i", client_id)


class Every:
    def test_every_qos_passes_both_ways(self):
        topic = unique("qos")
        subs = [self.sub("-t", topic, "-q", f"{granted}").ready() for granted in (0, 1, 2)]
        for qos in (0, 1, 2):
            self.pub(topic, f"of {qos}", "-q", f"{qos}")
            for granted, sub in enumerate(subs):
                self.assertEqual(sub.next(), (topic, f"{min(qos, granted)}", "0", f"of {qos}"))

    def test_lines_arrive_in_order(self):
        topic = unique("lines")
        sub = self.sub("-t", topic, "-q", "2").ready()
        lines = "".join(f"{number}\n" for number in range(200))
        for qos in ("0", "1", "2"):
            code, _, error = run("mosquitto_pub", self.version, "-t", topic, "-l", "-q", qos,
                                 said=lines.encode())
            self.assertEqual((code, error), (0, ""))
            self.assertEqual([int(got[3]) for got in sub.take(200)], list(range(200)))

    def test_retained_is_set_replaced_cleared_and_found_by_wildcard(self):
        root = unique("retained")
        for name, payload, qos in (("a", "1", "0"), ("a", "2", "2"), ("b/c", "3", "1")):
            self.pub(f"{root}/{name}", payload, "-r", "-q", qos)
        late = self.sub("-t", f"{root}/#", "-q", "2").ready()
        self.assertEqual(sorted(late.take(2)), [(f"{root}/a", "2", "1", "2"),
                                                (f"{root}/b/c", "1", "1", "3")])
        for name in ("a", "b/c"):
            self.pub(f"{root}/{name}", "", "-r")
        self.assertEqual([got[3] for got in late.take(2)], ["", ""])
        later = self.sub("-t", f"{root}/#", "-t", f"{root}/+").ready()
        self.pub(f"{root}/a", "live")
        self.assertEqual(later.next()[2:], ("0", "live"))

    def test_will_comes_when_the_socket_is_cut_and_not_on_disconnect(self):
        topic = unique("will")
        watcher = self.sub("-t", topic, "-q", "1").ready()
        will = ("--will-topic", topic, "--will-qos", "1", "--will-retain", "--will-payload")
        self.sub("-t", unique("x"), *will, "lost").ready().cut()
        self.assertEqual(watcher.next(), (topic, "1", "0", "lost"))
        late = self.sub("-t", topic).ready()
        self.assertEqual(late.next(), (topic, "0", "1", "lost"))
        self.pub(topic, "", "-r")
        self.assertEqual(watcher.next()[3], "")
        code, _, _ = run("mosquitto_sub", self.version, "-t", unique("x"), "-E", *will, "never")
        self.assertEqual(code, 0)
        watcher.quiet()

    def test_a_shared_subscription_gives_each_message_to_one(self):
        topic = unique("shared")
        members = [self.sub("-t", f"$share/{topic}/{topic}", "-q", "1").ready() for _ in range(2)]
        own = self.sub("-t", topic).ready()
        lines = "".join(f"{number}\n" for number in range(40)).encode()
        run("mosquitto_pub", self.version, "-t", topic, "-l", "-q", "1", said=lines)
        got = sorted(int(got[3]) for member in members for got in member.take(20))
        self.assertEqual(got, list(range(40)))
        self.assertEqual([int(got[3]) for got in own.take(40)], list(range(40)))

    def test_a_session_resumes_with_its_backlog_in_order(self):
        topic, client_id = unique("resume"), unique("session")
        self.sub("-t", topic, "-q", "2", *self.kept(client_id)).ready().cut()
        for start, qos in ((0, "1"), (100, "2")):
            lines = "".join(f"{number}\n" for number in range(start, start + 100)).encode()
            run("mosquitto_pub", self.version, "-t", topic, "-l", "-q", qos, said=lines)
        again = self.sub("-t", unique("x"), "-q", "2", *self.kept(client_id))
        self.assertEqual([(int(got[3]), got[1]) for got in again.take(200)],
                         [(number, "1" if number < 100 else "2") for number in range(200)])
        again.close()
        code, _, _ = run("mosquitto_sub", self.version, "-t", topic, "-i", client_id, "-E")
        self.assertEqual(code, 0)

    def test_takeover_ends_the_older_connection(self):
        client_id = unique("takeover")
        old = self.sub("-t", unique("x"), "-i", client_id).ready()
        # The new one leaves at once, before the old one comes again as mosquitto_sub does.
        run("mosquitto_sub", self.version, "-t", unique("x"), "-i", client_id, "-E")
        if self.version == V5:
            old.line(r"Received DISCONNECT \(142\)")
        else:
            with old.said:
                connects = lambda: sum("sending CONNECT" in line for line in old.lines)
                self.assertTrue(old.said.wait_for(lambda: connects() > 1, PATIENCE_S))

    def test_a_megabyte_passes_whole(self):
        topic = unique("large")
        payload = os.urandom(1 << 19).hex()
        for qos in ("0", "1", "2"):
            sub = self.sub("-t", topic, "-q", qos, "-C", "1").ready()
            self.pub(topic, None, "-q", qos, said=payload.encode())
            self.assertEqual(sub.next(), (topic, qos, "0", payload))

    def test_many_topics_keep_apart(self):
        root = unique("many")
        flags = [flag for number in range(100) for flag in ("-t", f"{root}/{number}")]
        sub = self.sub(*flags, "-q", "1").ready()
        self.assertEqual(sub.line("^Subscribed").split(": ", 2)[2].split(", "), ["1"] * 100)
        for number in (0, 57, 99, 100):
            self.pub(f"{root}/{number}", "x")
        self.pub(f"{root}/1", "end")
        self.assertEqual([got[0] for got in sub.take(4)],
                         [f"{root}/{number}" for number in (0, 57, 99, 1)])

    def test_unsubscribing_from_a_kept_session_ends_delivery(self):
        topic, client_id = unique("unsubscribe"), unique("session")
        self.sub("-t", topic, "-q", "1", *self.kept(client_id)).ready().close()
        other = unique("other")
        run("mosquitto_sub", self.version, "-U", topic, "-t", other, "-q", "1", "-E",
            *self.kept(client_id))
        self.pub(topic, "no", "-q", "1")
        self.pub(other, "yes", "-q", "1")
        again = self.sub("-t", other, "-q", "1", *self.kept(client_id))
        self.assertEqual(again.next()[3], "yes")
        again.quiet(0.05)
        again.close()
        run("mosquitto_sub", self.version, "-t", topic, "-i", client_id, "-E")

    def test_the_sys_tree_has_the_names_of_mosquitto(self):
        names = ["version", "uptime", "clients/total", "clients/connected", "clients/disconnected",
                 "clients/maximum", "clients/expired", "messages/received", "messages/sent",
                 "publish/messages/dropped", "publish/messages/received", "publish/messages/sent",
                 "bytes/received", "bytes/sent", "subscriptions/count",
                 "shared_subscriptions/count", "retained messages/count", "store/messages/count",
                 "store/messages/bytes"]
        flags = [flag for name in names for flag in ("-t", f"$SYS/broker/{name}")]
        sub = self.sub(*flags).ready()
        retained, connected = {}, 0
        # Retained first, then as they change: we count ourselves in the next round.
        while connected == 0 or len(retained) < len(names):
            topic, _, retain, payload = sub.next()
            retained.setdefault(topic, retain)
            if topic.endswith("/connected"):
                connected = int(payload)
        self.assertEqual(retained, {f"$SYS/broker/{name}": "1" for name in names})


class V31Test(Every, Case):
    version = V31


class V311Test(Every, Case):
    version = V311

    def test_a_client_comes_and_goes_as_events(self):
        client_id = unique("events")
        watcher = self.sub("-t", f"$SYS/broker/client/{client_id}/+").ready()
        run("mosquitto_sub", V5, "-t", "x", "-i", client_id, "-E")
        self.assertEqual([(got[0].rsplit("/")[-1], got[3]) for got in watcher.take(2)],
                         [("online", "5.0"), ("offline", "5.0")])


    def test_keep_alive_is_answered(self):
        # The shortest that mosquitto_sub takes.
        self.sub("-t", unique("x"), "-k", "5").ready().line("received PINGRESP")


class V5Test(Every, Case):
    version = V5

    def test_sigterm_is_a_disconnect_with_will_message(self):
        topic = unique("will-0x04")
        watcher = self.sub("-t", topic).ready()
        will = ("--will-topic", topic, "--will-payload", "last")
        self.sub("-t", unique("x"), *will).ready().close()
        self.assertEqual(watcher.next()[3], "last")

    def test_all_properties_of_a_message_arrive_as_they_were(self):
        topic = unique("properties")
        sub = self.sub("-t", topic, "-q", "1", format="%p|%C|%D|%E|%F|%P|%R").ready()
        flags = []
        for name, *value in (("content-type", "text/plain"), ("correlation-data", "c-1"),
                             ("message-expiry-interval", "300"), ("payload-format-indicator", "1"),
                             ("response-topic", "answer/here"), ("user-property", "b", "2"),
                             ("user-property", "a", "1"), ("user-property", "b", "1")):
            flags += ["-D", "publish", name, *value]
        self.pub(topic, "x", "-q", "1", *flags)
        *got, pairs, response = sub.next()
        self.assertEqual(got[:3] + got[4:], ["x", "text/plain", "c-1", "1"])
        self.assertIn(got[3], ("299", "300"))
        self.assertEqual((pairs, response), ("b:2 a:1 b:1", "answer/here"))

    def test_a_will_waits_for_its_delay(self):
        topic = unique("delay")
        watcher = self.sub("-t", topic).ready()
        will = ("--will-topic", topic, "--will-payload", "late", "-D", "will",
                "will-delay-interval", "1", "-x", "100", "-i", unique("will"))
        lost = self.sub("-t", unique("x"), *will).ready()
        begun = time.monotonic()
        lost.cut()
        self.assertEqual(watcher.next()[3], "late")
        self.assertGreater(time.monotonic() - begun, 0.9)
        self.assertLess(time.monotonic() - begun, 3)

    def test_message_expiry_is_counted_down_while_the_client_is_away(self):
        topic, client_id = unique("expiry"), unique("session")
        self.sub("-t", topic, "-q", "1", *self.kept(client_id)).ready().close()
        for seconds in ("1", "100"):
            self.pub(topic, seconds, "-q", "1", "-D", "publish", "message-expiry-interval", seconds)
        time.sleep(1.2)
        again = self.sub("-t", topic, "-q", "1", "-c", "-i", client_id, "-x", "1", format="%p|%E")
        payload, left = again.next()
        self.assertEqual(payload, "100")
        self.assertIn(left, ("98", "99"))

    def test_topic_aliases_of_the_client_are_understood(self):
        topic = unique("alias")
        # Towards mosquitto_sub 2.0 there can be none: it takes an empty topic for an error.
        sub = self.sub("-t", topic).ready()
        code, out, error = run("mosquitto_pub", V5, "-t", topic, "-m", "x", "--repeat", "5", "-d",
                               "-D", "publish", "topic-alias", "3")
        self.assertEqual((code, error), (0, ""))
        self.assertIn(b"'(null)'", out)
        self.assertEqual([got[0] for got in sub.take(5)], [topic] * 5)

    def test_a_subscription_identifier_arrives(self):
        topic = unique("id")
        sub = self.sub("-t", topic, "-D", "subscribe", "subscription-identifier", "4711",
                       format="%p|%S").ready()
        self.pub(topic, "x")
        self.assertEqual(sub.next(), ("x", "4711"))

    def test_retain_as_published_keeps_the_flag(self):
        topic = unique("as-published")
        self.pub(topic, "kept", "-r")
        sub = self.sub("-t", topic, "--retain-as-published").ready()
        self.assertEqual(sub.next()[2:], ("1", "kept"))
        self.pub(topic, "again", "-r")
        self.assertEqual(sub.next()[2:], ("1", "again"))
        self.pub(topic, "", "-r")

    def test_the_receive_maximum_of_the_client_does_not_lose_anything(self):
        topic = unique("receive-maximum")
        sub = self.sub("-t", topic, "-q", "2", "-D", "connect", "receive-maximum", "2").ready()
        lines = "".join(f"{number}\n" for number in range(50)).encode()
        run("mosquitto_pub", V5, "-t", topic, "-l", "-q", "2", said=lines)
        self.assertEqual([int(got[3]) for got in sub.take(50)], list(range(50)))

    def test_the_maximum_packet_size_of_the_client_is_respected(self):
        topic = unique("maximum")
        sub = self.sub("-t", topic, "-D", "connect", "maximum-packet-size", "200").ready()
        self.pub(topic, "x" * 200)
        self.pub(topic, "small")
        self.assertEqual(sub.next()[3], "small")

    def test_the_maximum_packet_size_of_the_broker_is_known_to_the_client(self):
        _, out, _ = run("mosquitto_pub", V5, "-d", "-t", "x", "-q", "1", "-m", "x" * 5000,
                        port=NARROW_PORT)
        self.assertIn(b"received CONNACK (0)", out)
        self.assertNotIn(b"sending PUBLISH", out)

    def test_reason_codes_are_said(self):
        # A shard knows of another's subscribers by a table that may say too much, and somebody of
        # an earlier test may still be leaving: a server may always say 0 (MQTT 5.0, 3.4.2.1).
        for _ in range(20):
            out = run("mosquitto_pub", V5, "-d", "-t", unique("nobody"), "-m", "x", "-q", "1")[1]
            if b"PUBACK (Mid: 1, RC:16)" in out:
                break
        self.assertIn(b"PUBACK (Mid: 1, RC:16)", out)
        code, out, error = run("mosquitto_pub", V5, "-d", "-t", "$SYS/x", "-m", "x", "-q", "1")
        self.assertIn(b"RC:135", out)
        self.assertIn("Not authorized", error)

    def test_a_client_id_is_assigned(self):
        sub = self.sub("-t", unique("x")).ready()
        self.assertRegex(sub.line("received CONNACK"), r"^Client godwit-[0-9a-f]{24} ")

    def test_a_session_ends_with_its_expiry_interval(self):
        topic, client_id = unique("session-expiry"), unique("session")
        self.sub("-t", topic, "-q", "1", "-c", "-i", client_id, "-x", "1").ready().close()
        time.sleep(1.3)
        self.pub(topic, "gone", "-q", "1")
        again = self.sub("-t", unique("x"), "-q", "1", "-c", "-i", client_id, "-x", "1").ready()
        again.quiet(0.1)

    def test_a_request_finds_its_response(self):
        service, answers = unique("service"), unique("answers")
        responder = self.sub("-t", service, format="%p|%R|%D").ready()
        command = ["mosquitto_rr", "-h", "127.0.0.1", "-p", PORT, "-V", V5, "-t", service,
                   "-e", answers, "-m", "question", "-D", "publish", "correlation-data", "c7",
                   "-W", "10"]
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        payload, response_topic, correlation = responder.next()
        self.assertEqual((payload, response_topic, correlation), ("question", answers, "c7"))
        self.pub(response_topic, "answer", "-D", "publish", "correlation-data", correlation)
        out, _ = asking.communicate(timeout=PATIENCE_S)
        self.assertEqual((asking.returncode, out), (0, b"answer\n"))


if __name__ == "__main__":
    unittest.main()
