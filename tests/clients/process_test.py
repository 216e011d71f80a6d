"""The program itself: signals, options, `$SYS`, and `godwit pub` and `godwit sub` against our own
broker and against mosquitto. Starts its own brokers from CLIENTS_GODWIT, with CLIENTS_SHARDS.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import programs
from broker import Godwit, Mosquitto, mosquitto
from programs import PATIENCE_S, unique

GODWIT = os.environ["CLIENTS_GODWIT"]
SHARDS = os.environ["CLIENTS_SHARDS"]
PUB, SUB = [GODWIT, "pub"], [GODWIT, "sub"]


class Raw:
    """A bare socket that speaks 5.0, to see bytes that no client shows."""

    def __init__(self, port, client_id, version=5, will=b"", keep_alive=0):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        flags = 0x02 | (0x04 if will else 0)
        name = client_id.encode()
        body = b"\x00\x04MQTT" + bytes([version, flags]) + keep_alive.to_bytes(2, "big")
        body += b"\x00" if version == 5 else b""
        body += len(name).to_bytes(2, "big") + name + will
        self.socket.sendall(bytes([0x10, len(body)]) + body)
        self.connack = self.packet()

    def exact(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def packet(self):
        first, length = self.exact(2)
        assert length < 128
        return bytes([first]), self.exact(length)

    def ended(self):
        """Whether the broker has closed, and said no more."""
        return self.socket.recv(1) == b""

    def close(self):
        self.socket.close()


class Case(unittest.TestCase):
    def broker(self, *flags, **rest):
        broker = Godwit(*flags, shards=SHARDS, **rest)
        self.addCleanup(broker.stop)
        return broker

    def raw(self, *args, **rest):
        raw = Raw(*args, **rest)
        self.addCleanup(raw.close)
        return raw

    def file(self, text):
        handle, path = tempfile.mkstemp(suffix=".toml")
        self.addCleanup(os.unlink, path)
        with open(handle, "w") as file:
            file.write(text)
        return path


class SignalTest(Case):
    def test_sigterm_tells_v5_clients_0x8b_closes_all_and_exits_with_0(self):
        broker = self.broker()
        five, three = self.raw(broker.port, "five"), self.raw(broker.port, "three", version=4)
        self.assertEqual(five.connack[1][:2], b"\x00\x00")
        self.assertEqual(three.connack, (b"\x20", b"\x00\x00"))
        broker.signal(signal.SIGTERM)
        first, body = five.packet()
        self.assertEqual((first, body[0]), (b"\xe0", 0x8B))
        self.assertTrue(five.ended())
        self.assertTrue(three.ended())
        self.assertEqual(broker.wait(), 0)

    def test_sigterm_reaches_real_clients_on_every_shard(self):
        broker = self.broker()
        subs = [programs.Sub(["mosquitto_sub"], broker.port, "-V", "5", "-t", f"t/{number}")
                for number in range(6)]
        for sub in subs:
            self.addCleanup(sub.close)
            sub.ready()
        broker.signal(signal.SIGTERM)
        for sub in subs:
            sub.line(r"Received DISCONNECT \(139\)")
        self.assertEqual(broker.wait(), 0)

    def test_sigint_ends_it_like_sigterm(self):
        broker = self.broker()
        broker.signal(signal.SIGINT)
        self.assertEqual(broker.wait(), 0)

    def test_sighup_changes_what_is_live_and_names_what_is_not(self):
        path = self.file("[connect]\nkeep_alive_s_max = 500\n")
        broker = self.broker("--config", path)

        def server_keep_alive():
            connack = self.raw(broker.port, unique("reload"), keep_alive=600).connack[1]
            return int.from_bytes(connack[connack.index(b"\x13") + 1:][:2], "big")

        def reload(text, line):
            with open(path, "w") as file:
                file.write(text)
            said = len(broker.lines)
            broker.signal(signal.SIGHUP)
            broker.line(line, after=said)

        self.assertEqual(server_keep_alive(), 500)
        reload("[connect]\nkeep_alive_s_max = 50\n", r"changed=\"?connect\.keep_alive_s_max")
        self.assertEqual(server_keep_alive(), 50)
        # All or nothing: what is right beside a mistake is not taken either.
        reload("[connect]\nkeep_alive_s_max = 5\n[message]\nqos_maxx = 1\n",
               r"not reloaded.*:4.*qos_maxx")
        self.assertEqual(server_keep_alive(), 50)
        reload("[message]\nqos_max = 1\n[connect]\nkeep_alive_s_max = 40\n",
               "need a restart.*message.qos_max")
        self.assertEqual(server_keep_alive(), 40)


class StartTest(Case):
    def refused(self, *flags, code=2):
        done = subprocess.run([GODWIT, "serve", "--memory", *flags], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_anonymous_access_from_other_hosts_is_refused(self):
        for address in ("0.0.0.0", "[::]"):
            said = self.refused("--listen", f"tcp://{address}:0")
            self.assertIn("allow_anonymous", said)
        broker = self.broker(listen="tcp://0.0.0.0:0", options=["allow_anonymous=true"])
        self.assertEqual(self.raw(broker.port, "a").connack[1][1], 0)

    def test_a_wrong_option_is_refused_with_its_line_and_what_would_be_right(self):
        path = self.file("[message]\nqos_max = 1\nqos_maxx = 1\n")
        said = self.refused("--config", path)
        self.assertIn(f"{path}:3", said)
        self.assertIn("qos_max", said.replace("qos_maxx", ""))
        self.assertIn("message.qos_max", self.refused("--set", "message.qos_max=7"))
        self.assertIn("--listen", self.refused("--lisen", "tcp://127.0.0.1:0"))

    def test_a_port_that_is_taken_is_refused(self):
        broker = self.broker()
        said = self.refused("--listen", f"tcp://127.0.0.1:{broker.port}", code=1)
        self.assertIn(str(broker.port), said)

    def test_several_addresses_are_one_broker(self):
        broker = self.broker("--listen", "tcp://[::1]:0")
        second = int(broker.line(r"tcp://\[::1\]:(\d+)")[1])
        first = int(broker.line(r"tcp://127\.0\.0\.1:(\d+)")[1])
        sub = programs.Sub(SUB, first, "-t", "t").ready()
        self.addCleanup(sub.close)
        done = subprocess.run([*PUB, "-h", "::1", "-p", str(second), "-t", "t", "-m", "x"],
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sub.next(), ("t", "0", "0", "x"))

    def test_check_tells_what_the_options_change(self):
        path = self.file("[message]\nqos_max = 1\n")
        done = subprocess.run([GODWIT, "check", "--config", path], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("qos_max", done.stdout)


class Programs:
    """`godwit pub` and `godwit sub` in all versions, with mosquitto's clients at the other end."""

    @classmethod
    def tearDownClass(cls):
        cls.broker.stop()

    def sub(self, *flags, program=SUB, **rest):
        sub = programs.Sub(program, self.broker.port, *flags, **rest)
        self.addCleanup(sub.close)
        return sub

    def pub(self, *flags, program=PUB, said=None):
        code, _, error = programs.run(program, self.broker.port, *flags, said=said)
        self.assertEqual((code, error), (0, ""))

    def test_every_qos_passes_in_every_version(self):
        for version in ("31", "311", "5"):
            topic = unique("qos")
            subs = [self.sub("-V", version, "-t", topic, "-q", f"{granted}", program=program).ready()
                    for program in (SUB, ["mosquitto_sub"]) for granted in (0, 1, 2)]
            for program in (PUB, ["mosquitto_pub"]):
                for qos in (0, 1, 2):
                    payload = f"{program[-1]} {qos}"
                    self.pub("-V", version, "-t", topic, "-q", f"{qos}", "-m", payload,
                             program=program)
                    for at, sub in enumerate(subs):
                        self.assertEqual(sub.next(), (topic, f"{min(qos, at % 3)}", "0", payload))
            for sub in subs:
                sub.close()

    def test_lines_arrive_in_order(self):
        topic = unique("lines")
        sub = self.sub("-t", topic, "-q", "2", "-C", "600").ready()
        lines = "".join(f"{number}\n" for number in range(200)).encode()
        for qos in ("0", "1", "2"):
            self.pub("-t", topic, "-l", "-q", qos, said=lines)
            self.assertEqual([int(got[3]) for got in sub.take(200)], list(range(200)))
        self.assertEqual(sub.child.wait(PATIENCE_S), 0)

    def test_retained_is_set_replaced_and_cleared(self):
        topic = unique("retained")
        for payload in ("one", "two"):
            self.pub("-t", topic, "-r", "-m", payload, "-q", "1")
        self.assertEqual(self.sub("-t", topic).next(), (topic, "0", "1", "two"))
        code, out, _ = programs.run(SUB, self.broker.port, "-t", topic, "-C", "1", "-v")
        self.assertEqual((code, out), (0, f"{topic} two\n".encode()))
        self.pub("-t", topic, "-r", "-n")
        code, out, _ = programs.run(SUB, self.broker.port, "-t", topic, "-C", "1", "-W", "0.2")
        self.assertEqual((code, out), (27, b""))

    def test_will_comes_when_the_client_is_killed_and_not_when_it_is_done(self):
        topic = unique("will")
        watcher = self.sub("-t", topic, "-q", "1").ready()
        will = ("--will-topic", topic, "--will-qos", "1", "--will-payload")
        self.sub("-t", unique("x"), *will, "lost").ready().cut()
        self.assertEqual(watcher.next(), (topic, "1", "0", "lost"))
        self.pub("-t", unique("x"), "-m", "x", *will, "never")
        code, _, _ = programs.run(SUB, self.broker.port, "-t", "x", "-E", *will, "never")
        self.assertEqual(code, 0)
        watcher.quiet()

    def test_a_session_resumes_with_its_backlog(self):
        for version in ("31", "311", "5"):
            topic, client_id = unique("resume"), unique("session")
            kept = ("-V", version, "-c", "-i", client_id, "-q", "2")
            code, _, error = programs.run(SUB, self.broker.port, "-t", topic, "-E", *kept)
            self.assertEqual((code, error), (0, ""))
            lines = "".join(f"{number}\n" for number in range(50)).encode()
            self.pub("-t", topic, "-l", "-q", "1", said=lines)
            code, out, _ = programs.run(SUB, self.broker.port, "-t", topic, "-C", "50", *kept)
            self.assertEqual((code, out), (0, lines))

    def test_a_shared_subscription_gives_each_message_to_one(self):
        topic = unique("shared")
        members = [self.sub("-V", version, "-t", f"$share/g/{topic}", "-q", "1").ready()
                   for version in ("311", "5")]
        lines = "".join(f"{number}\n" for number in range(40)).encode()
        self.pub("-t", topic, "-l", "-q", "1", said=lines)
        got = sorted(int(got[3]) for member in members for got in member.take(20))
        self.assertEqual(got, list(range(40)))

    def test_all_properties_of_a_message_arrive_as_they_were(self):
        topic = unique("properties")
        subs = [self.sub("-V", "5", "-t", topic, program=program, format="%p|%C|%D|%E|%F|%P|%R")
                .ready() for program in (SUB, ["mosquitto_sub"])]
        flags = []
        for name, *value in (("content-type", "text/plain"), ("correlation-data", "c-1"),
                             ("message-expiry-interval", "300"), ("payload-format-indicator", "1"),
                             ("response-topic", "answer/here"), ("user-property", "b", "2"),
                             ("user-property", "a", "1"), ("user-property", "b", "1")):
            flags += ["-D", "publish", name, *value]
        for program in (PUB, ["mosquitto_pub"]):
            self.pub("-V", "5", "-t", topic, "-m", "x", *flags, program=program)
            for sub in subs:
                *got, pairs, response = sub.next()
                self.assertEqual(got[:3] + got[4:], ["x", "text/plain", "c-1", "1"])
                self.assertIn(got[3], ("299", "300"))
                self.assertEqual((pairs, response), ("b:2 a:1 b:1", "answer/here"))

    def test_a_megabyte_passes_whole(self):
        topic = unique("large")
        payload = os.urandom(1 << 20)
        path = os.path.join(tempfile.mkdtemp(), "payload")
        self.addCleanup(shutil.rmtree, os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(payload)
        for qos in ("0", "1", "2"):
            self.pub("-t", topic, "-r", "-f", path, "-q", qos)
            code, out, _ = programs.run(SUB, self.broker.port, "-t", topic, "-C", "1", "-N",
                                        "-q", qos)
            self.assertEqual((code, out == payload), (0, True))
            self.pub("-t", topic, "-r", "-n")

    def test_the_sys_tree_is_read(self):
        code, out, _ = programs.run(SUB, self.broker.port, "-t", "$SYS/broker/version", "-C", "1")
        self.assertEqual(code, 0)
        self.assertIn(b" version ", out)

    def test_the_options_of_a_subscription_are_sent(self):
        topic = unique("options")
        self.pub("-t", topic, "-r", "-m", "kept")
        never = self.sub("-V", "5", "-t", topic, "--retain-handling", "2").ready()
        keeps = self.sub("-V", "5", "-t", topic, "--retain-as-published").ready()
        self.assertEqual(keeps.next()[2:], ("1", "kept"))
        self.pub("-t", topic, "-r", "-m", "again")
        self.assertEqual(keeps.next()[2:], ("1", "again"))
        self.assertEqual(never.next()[2:], ("0", "again"))
        self.pub("-t", topic, "-r", "-n")


class OwnBrokerTest(Programs, Case):
    @classmethod
    def setUpClass(cls):
        cls.broker = Godwit(shards=SHARDS, options=["sys.interval_s=1"])

    def test_the_sys_tree_counts(self):
        sub = self.sub("-t", "$SYS/broker/publish/messages/received").ready()
        before = int(sub.next()[3])
        self.pub("-t", unique("counted"), "-l", said=b"x\n" * 70)
        begun = time.monotonic()
        while int(sub.next()[3]) < before + 70:
            self.assertLess(time.monotonic() - begun, 5)

    def test_every_shard_has_its_own_counters(self):
        found = self.sub("-t", "$SYS/broker/shards/+/clients/connected").ready()
        if SHARDS == "1":
            found.quiet()
            return
        topics = {got[0].split("/")[3] for got in found.take(int(SHARDS))}
        self.assertEqual(topics, {str(number) for number in range(int(SHARDS))})

    def test_the_exit_code_is_the_reason_of_the_refusal(self):
        port = self.broker.port
        code, _, error = programs.run(PUB, port, "-V", "5", "-t", "$SYS/x", "-m", "x", "-q", "1")
        self.assertEqual(code, 0x87)
        self.assertIn("authorized", error.lower())


@unittest.skipUnless(mosquitto(), "mosquitto is not here")
class MosquittoBrokerTest(Programs, Case):
    @classmethod
    def setUpClass(cls):
        cls.broker = Mosquitto()


if __name__ == "__main__":
    unittest.main()
