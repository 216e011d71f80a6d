"""aioquic against a broker of its own: a life over QUIC, certificates, migration, and what ends a
connection. Starts brokers from CLIENTS_GODWIT."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
import unittest

import quic
from aioquic.asyncio import serve
from aioquic.quic.configuration import QuicConfiguration
from broker import Godwit, free_port
from certs import Certs
from quic import DISCONNECT, PINGREQ, PINGRESP, peer, publish, subscribe

SHARDS = os.environ.get("CLIENTS_SHARDS", "2")
SUBACK0 = b"\x90\x03\0\x01\0"


class Case(unittest.IsolatedAsyncioTestCase):
    OPTIONS = ()

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.certs = Certs(self.folder)
        self.server = self.certs.issue("server", "localhost", server=True)
        self.start()

    def start(self, *options, listen="quic://127.0.0.1:0"):
        own = [f"tls.certificate={self.server[0]}", f"tls.key={self.server[1]}"]
        self.broker = Godwit("--listen", listen, shards=SHARDS,
                             options=[*own, *self.OPTIONS, *options])
        self.port = int(self.broker.line(r"listening on +quic://.*:(\d+)")[1])

    def restart(self, *options, **named):
        self.broker.stop()
        self.start(*options, **named)

    def tearDown(self):
        code = self.broker.stop()
        shutil.rmtree(self.folder)
        self.assertEqual(code, 0, self.broker.text())


class Lives(Case):
    async def test_a_life_from_connect_to_disconnect(self):
        async with peer(self.port, ca=self.certs.ca) as one:
            self.assertEqual(one.handshake.alpn_protocol, "mqtt")
            await one.welcome("one")
            one.send(subscribe("a/#"))
            await one.expect(SUBACK0)
            one.send(publish("a/b", "hello") + PINGREQ)
            await one.expect(publish("a/b", "hello") + PINGRESP)
            one.send(DISCONNECT)
            ended = await one.end()
            self.assertEqual((ended.error_code, 0 in one.ended), (0, True))

    async def test_clients_of_both_transports_meet(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            one.send(subscribe("t", qos=1))
            await one.expect(b"\x90\x03\0\x01\x01")
            reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
            writer.write(quic.connect_packet("two") + subscribe("u") + publish("t", "x", 1, 7))
            self.assertEqual(await reader.readexactly(13), quic.CONNACK + SUBACK0 + quic.puback(7))
            first, rest = await one.packet()
            self.assertEqual((first, rest), (0x32, b"\0\x01t\0\x01x"))
            one.send(quic.puback(1) + publish("u", "back"))
            back = publish("u", "back")
            self.assertEqual(await reader.readexactly(len(back)), back)
            writer.close()

    async def test_large_packets_go_both_ways(self):
        large = os.urandom(900_000)
        async with peer(self.port, max_data=1 << 22, max_stream_data=1 << 22) as one:
            await one.welcome("one")
            one.send(subscribe("t", qos=1))
            await one.expect(b"\x90\x03\0\x01\x01")
            for round in range(1, 4):
                one.send(publish("t", large, 1, round))
                seen = [await one.packet(), await one.packet()]
                data = next(rest for first, rest in seen if first == 0x32)
                self.assertEqual(data[5:], large)
                one.send(quic.puback(int.from_bytes(data[3:5])))

    async def test_many_clients_at_once(self):
        async def life(number):
            async with peer(self.port) as one:
                await one.welcome(f"many-{number}")
                one.send(subscribe(f"to/{number}"))
                await one.expect(SUBACK0)
                one.send(publish(f"to/{number}", f"{number}"))
                await one.expect(publish(f"to/{number}", f"{number}"))
                one.send(DISCONNECT)
                await one.end()
        await asyncio.gather(*(life(number) for number in range(40)))

    async def test_a_second_client_of_an_id_takes_over(self):
        async with peer(self.port) as one, peer(self.port) as two:
            await one.welcome("same")
            await two.welcome("same")
            await one.end()
            two.send(PINGREQ)
            await two.expect(PINGRESP)

    async def test_what_is_said_before_the_end_is_heard(self):
        async with peer(self.port) as reader, peer(self.port) as writer:
            await reader.welcome("reader")
            reader.send(subscribe("t"))
            await reader.expect(SUBACK0)
            await writer.welcome("writer")
            all = b"".join(publish("t", f"{at:04}") for at in range(2000))
            writer.send(all + DISCONNECT, end=True)
            await writer.end()
            await reader.expect(all)

    async def test_a_will_is_said_when_the_connection_breaks(self):
        async with peer(self.port) as reader:
            await reader.welcome("reader")
            reader.send(subscribe("will"))
            await reader.expect(SUBACK0)
            for way in ("close", "end"):
                async with peer(self.port) as one:
                    body = quic.text("MQTT") + b"\x04\x06\0\0" + quic.text("w")
                    body += quic.text("will") + quic.text(way)
                    one.send(quic.packet(0x10, body))
                    await one.expect(quic.CONNACK)
                    if way == "end":
                        one.send(b"", end=True)
                        await one.end()
                await reader.expect(publish("will", way))

    async def test_a_violation_is_told_before_the_end(self):
        async with peer(self.port) as one:
            one.send(quic.connect_packet("five", version=5))
            first, _ = await one.packet()
            self.assertEqual(first, 0x20)
            one.send(quic.connect_packet("five", version=5))
            first, rest = await one.packet()
            self.assertEqual((first, rest[0]), (0xE0, 0x82))
            await one.end()

    async def test_a_stop_is_told(self):
        async with peer(self.port) as one:
            one.send(quic.connect_packet("five", version=5))
            await one.packet()
            began = time.monotonic()
            self.broker.signal(signal.SIGTERM)
            first, rest = await one.packet()
            self.assertEqual((first, rest[0]), (0xE0, 0x8B))
            await one.end()
            self.assertLess(time.monotonic() - began, 3)


class Deadlines(Case):
    OPTIONS = ("connect.timeout_ms=500",)

    async def test_a_silent_client_is_ended(self):
        async with peer(self.port) as one:
            began = time.monotonic()
            await one.end(5)
            self.assertGreater(time.monotonic() - began, 0.3)

    async def test_keep_alive_ends_who_is_silent(self):
        async with peer(self.port) as one:
            await one.welcome("one", keep_alive_s=1)
            began = time.monotonic()
            await one.end(5)
            self.assertGreater(time.monotonic() - began, 1.4)

    async def test_who_speaks_while_the_process_stands_still_stays(self):
        """Longer than 1.5 times the keep-alive, as by `docker pause`: all that waits in the socket
        is read before anybody is late."""
        async with contextlib.AsyncExitStack() as all:
            peers = [await all.enter_async_context(peer(self.port)) for _ in range(40)]
            for number, one in enumerate(peers):
                await one.welcome(f"paused-{number}", keep_alive_s=2)
            silent = await all.enter_async_context(peer(self.port))
            await silent.welcome("silent", keep_alive_s=2)
            for one in peers:
                one.send(PINGREQ)
                await one.expect(PINGRESP)
            self.broker.signal(signal.SIGSTOP)
            for one in peers:
                one.send(PINGREQ)
            await asyncio.sleep(3.2)
            self.broker.signal(signal.SIGCONT)
            for one in peers:
                await one.expect(PINGRESP)
            for number, one in enumerate(peers):
                one.send(publish("t", f"{number}", 1, 7))
                await one.expect(quic.puback(7))
            # aioquic tells of the end of a connection three of its own timeouts later.
            await silent.until(lambda: 0 in silent.ended, 8)

    async def test_the_idle_timeout_is_the_options(self):
        self.restart("quic.idle_timeout_ms=1000")
        async with peer(self.port) as one:
            await one.welcome("one")
            began = time.monotonic()
            await one.end(5)
            self.assertLess(time.monotonic() - began, 3)


class Certificates(Case):
    async def test_a_certificate_is_who_the_client_is(self):
        ann = self.certs.issue("ann", "ann")
        rules = self.certs.write("acl.toml", b"""
[[rule]]
allow = "all"
user = "ann"
topic = "of/${username}/#"
""")
        self.restart(f"tls.client_ca={self.certs.ca}", "tls.client_certificate=required",
                     "auth.certificate=common_name", f"acl.file={rules}")
        async with peer(self.port, ca=self.certs.ca, certificate=ann) as one:
            await one.welcome("one")
            one.send(subscribe("of/ann/x") + subscribe("of/bob/x", id=2))
            await one.expect(SUBACK0 + b"\x90\x03\0\x02\x80")
        async with peer(self.port, ca=self.certs.ca) as nobody:
            ended = await nobody.end()
            self.assertEqual(ended.error_code, 0x174)
        self.broker.line("ended before CONNECT.*no certificates")

    async def test_a_reload_changes_the_certificate_and_drops_nobody(self):
        async with peer(self.port, ca=self.certs.ca) as one:
            await one.welcome("one")
            other = Certs(tempfile.mkdtemp(dir=self.folder))
            for old, new in zip(self.server, other.issue("server", "localhost", server=True)):
                shutil.copy(new, old)
            self.broker.signal(signal.SIGHUP)
            self.broker.line("options read again")
            async with peer(self.port, ca=other.ca) as two:
                await two.welcome("two")
            one.send(PINGREQ)
            await one.expect(PINGRESP)

    async def test_another_protocol_is_refused(self):
        async with peer(self.port, alpn=["h3"], waits=False) as one:
            one.transmit()
            self.assertEqual((await one.end()).error_code, 0x178)


class Own(Case):
    """`godwit pub` and `godwit sub`, with aioquic at the other end."""

    def command(self, word, port, *arguments):
        return asyncio.create_subprocess_exec(
            os.environ["CLIENTS_GODWIT"], word, "-h", f"quic://localhost:{port}", "--cafile",
            self.certs.ca, *arguments, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)

    async def test_our_clients_and_aioquic_meet(self):
        async with peer(self.port, ca=self.certs.ca) as one:
            await one.welcome("one")
            one.send(subscribe("to/#", qos=1))
            await one.expect(b"\x90\x03\0\x01\x01")
            ours = await self.command("sub", self.port, "-t", "from/#", "-q", "1", "-C", "1", "-d")
            while b"SUBACK" not in await ours.stderr.readline():
                pass
            one.send(publish("from/one", "theirs", 1, 7))
            await one.expect(quic.puback(7))
            said, _ = await ours.communicate()
            self.assertEqual((ours.returncode, said), (0, b"theirs\n"))
            ours = await self.command("pub", self.port, "-t", "to/one", "-m", "ours", "-q", "1")
            first, rest = await one.packet()
            self.assertEqual((first, rest), (0x32, b"\0\x06to/one\0\x01ours"))
            one.send(quic.puback(1))
            await ours.communicate()
            self.assertEqual(ours.returncode, 0)

    async def test_a_server_of_another_protocol_is_told_apart(self):
        config = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
        config.load_cert_chain(*self.server)
        port = free_port(socket.SOCK_DGRAM)
        server = await serve("127.0.0.1", port, configuration=config)
        ours = await self.command("pub", port, "-t", "a", "-m", "x")
        _, why = await ours.communicate()
        server.close()
        self.assertEqual(ours.returncode, 1)
        self.assertIn(b"QUIC: aborted by peer: ", why)
        self.assertIn(b"error 120", why)


class Migration(Case):
    async def test_a_client_may_move_to_another_address(self):
        async with peer(self.port) as one, peer(self.port) as other:
            await other.welcome("other")
            await one.welcome("one")
            one.send(subscribe("t"))
            await one.expect(SUBACK0)
            for round in range(5):
                await one.move()
                one.send(PINGREQ)
                await one.expect(PINGRESP)
                other.send(publish("t", f"{round}"))
                await one.expect(publish("t", f"{round}"))


class Coming(Case):
    async def again(self, **named):
        """A client that comes back with the ticket of its first time, and what it says early."""
        tickets = []
        async with peer(self.port, tickets=tickets.append, **named) as one:
            await one.welcome("one")
            one.send(subscribe("t", qos=1))
            await one.expect(b"\x90\x03\0\x01\x01")
            await one.until(lambda: tickets)
        async with peer(self.port, session_ticket=tickets[0], waits=False, **named) as two:
            two.send(quic.connect_packet("two"))
            await two.expect(quic.CONNACK)
            await two.until(lambda: two.handshake)
            return two.handshake.session_resumed, two.handshake.early_data_accepted

    async def test_early_data_is_not_taken_unless_allowed(self):
        self.assertEqual(await self.again(), (True, False))
        self.restart("quic.early_data=true")
        self.assertEqual(await self.again(), (True, True))

    async def test_early_data_is_not_taken_where_certificates_are_asked_for(self):
        ann = self.certs.issue("ann", "ann")
        self.restart("quic.early_data=true", f"tls.client_ca={self.certs.ca}",
                     "tls.client_certificate=required")
        self.assertEqual(await self.again(certificate=ann), (True, False))
        self.restart("quic.early_data=true", f"tls.client_ca={self.certs.ca}",
                     "tls.client_certificate=optional")
        self.assertEqual(await self.again(), (True, False))

    async def test_a_restarted_broker_says_that_connections_are_gone(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            token = one._quic._peer_cid.stateless_reset_token
            self.broker.child.kill()
            self.broker.wait()
            self.start(listen=f"quic://127.0.0.1:{self.port}")
            came, receive = [], one.datagram_received
            one.datagram_received = lambda data, address: (came.append(data), receive(data, address))
            one.send(publish("t", b"x" * 200))
            for _ in range(50):
                if any(data.endswith(token) for data in came):
                    return
                await asyncio.sleep(0.1)
            self.fail(f"{len(came)} datagrams and no reset")


class Streams(Case):
    OPTIONS = ("quic.streams_max=4",)

    async def open(self, one, *, topic=None):
        stream = one.open()
        if topic:
            one.send(subscribe(topic), stream)
            await one.expect(SUBACK0, stream)
        return stream

    async def test_what_a_stream_subscribed_to_comes_there(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            two, three = await self.open(one, topic="two"), await self.open(one, topic="three")
            one.send(subscribe("zero"))
            await one.expect(SUBACK0)
            for stream in (0, two, three):
                for topic in ("zero", "two", "three"):
                    one.send(publish(topic, f"by {stream}"), stream)
            for stream, topic in ((0, "zero"), (two, "two"), (three, "three")):
                came = await one.take(3 * len(publish(topic, "by 0")), stream)
                for by in (0, two, three):
                    self.assertIn(publish(topic, f"by {by}"), came)
            self.assertEqual([bytes(one.came[at]) for at in (0, two, three)], [b""] * 3)

    async def test_packet_ids_of_streams_have_nothing_to_do_with_each_other(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            streams = [0, await self.open(one), await self.open(one)]
            for stream in streams:
                one.send(subscribe("t", qos=1, id=9), stream)
                await one.expect(b"\x90\x03\0\x09\x01", stream)
            # The same id on each, for QoS 2, unfinished.
            for stream in streams:
                one.send(publish("other", "x", 2, 5), stream)
                await one.expect(b"\x50\x02\0\x05", stream)
            one.send(publish("t", "x", 1, 7), streams[1])
            for stream in streams:
                seen = [await one.packet(stream)]
                if stream == streams[1]:
                    seen.append(await one.packet(stream))
                    self.assertIn((0x40, b"\0\x07"), seen)
                self.assertIn((0x32, b"\0\x01t\0\x01x"), seen)

    async def test_a_stream_waits_for_the_welcome(self):
        async with peer(self.port) as one:
            control, data = one.open(), None
            one.send(quic.connect_packet("one")[:5], control)
            data = one.open()
            one.send(subscribe("t"), data)
            await asyncio.sleep(0.3)
            self.assertEqual(one.came.get(data, b""), b"")
            one.send(quic.connect_packet("one")[5:], control)
            await one.expect(quic.CONNACK)
            await one.expect(SUBACK0, data)

    async def test_the_end_of_a_stream_is_the_end_of_its_subscriptions_only(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            data = await self.open(one, topic="t")
            one.send(subscribe("t"))
            await one.expect(SUBACK0)
            one.send(publish("t", "1"))
            await one.expect(publish("t", "1"))
            await one.expect(publish("t", "1"), data)
            one.send(b"", data, end=True)
            await one.until(lambda: data in one.ended)
            one.send(publish("t", "2") + PINGREQ)
            await one.expect(publish("t", "2") + PINGRESP)
            self.assertEqual(one.came[data], b"")
            # Its place is free for another.
            for round in range(8):
                again = await self.open(one, topic="again")
                one.send(b"", again, end=True)
                await one.until(lambda: again in one.ended)

    async def test_a_connection_packet_ends_a_data_stream_and_nothing_else(self):
        for wrong in (PINGREQ, DISCONNECT, quic.connect_packet("x"), b"\xf0\0", b"\0\0"):
            async with peer(self.port) as one:
                await one.welcome("one")
                data = await self.open(one, topic="t")
                one.send(wrong, data)
                await one.until(lambda: data in one.ended)
                self.assertEqual(one.came[data], b"")
                one.send(PINGREQ)
                await one.expect(PINGRESP)

    async def test_the_end_of_the_control_stream_is_the_end_of_all(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            await self.open(one, topic="t")
            one.send(DISCONNECT)
            await one.end()

    async def test_talk_on_a_stream_keeps_the_connection_alive(self):
        async with peer(self.port) as one:
            await one.welcome("one", keep_alive_s=1)
            data = await self.open(one)
            for round in range(6):
                await asyncio.sleep(0.5)
                one.send(publish("t", "x", 1, 1), data)
                await one.expect(quic.puback(1), data)
            await one.end(5)

    async def test_a_takeover_ends_every_stream(self):
        async with peer(self.port) as one, peer(self.port) as two:
            await one.welcome("same")
            await self.open(one, topic="t")
            await two.welcome("same")
            await one.end()
            two.send(publish("t", "x") + PINGREQ)
            await two.expect(PINGRESP)

    async def test_more_streams_than_allowed_are_an_error(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            one._quic._remote_max_streams_bidi = 1000
            for number in range(1, 30):
                one.send(PINGREQ, 4 * number)
            self.assertEqual((await one.end()).error_code, 4)

    async def test_streams_of_the_other_kind_are_an_error(self):
        async with peer(self.port) as one:
            await one.welcome("one")
            one._quic._remote_max_streams_uni = 1000
            one.send(b"x", one._quic.get_next_available_stream_id(is_unidirectional=True))
            self.assertEqual((await one.end()).error_code, 4)


if __name__ == "__main__":
    unittest.main()
