"""MQTT over aioquic, a QUIC of others: a peer with streams of bytes, and the few packets that tests
need. Knows nothing of any broker."""

import asyncio
import socket
import ssl
import struct

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (ConnectionTerminated, HandshakeCompleted, StreamDataReceived,
                                 StreamReset)

PATIENCE_S = 10


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(value)) + value


def packet(first, body):
    length, rest = b"", len(body)
    while True:
        rest, byte = rest >> 7, rest & 127
        length += bytes([byte | (128 if rest else 0)])
        if not rest:
            return bytes([first]) + length + body


def connect_packet(client_id, clean=True, keep_alive_s=0, version=4, user=None, password=None):
    flags = (2 if clean else 0) | (0x80 if user else 0) | (0x40 if password else 0)
    body = text("MQTT") + bytes([version, flags]) + struct.pack("!H", keep_alive_s)
    body += (b"\0" if version == 5 else b"") + text(client_id)
    return packet(0x10, body + (text(user) if user else b"") + (text(password) if password else b""))


def publish(topic, payload, qos=0, id=1):
    payload = payload.encode() if isinstance(payload, str) else payload
    return packet(0x30 | qos << 1, text(topic) + (struct.pack("!H", id) if qos else b"") + payload)


def subscribe(topic, qos=0, id=1):
    return packet(0x82, struct.pack("!H", id) + text(topic) + bytes([qos]))


def unsubscribe(topic, id=1):
    return packet(0xA2, struct.pack("!H", id) + text(topic))


def puback(id):
    return packet(0x40, struct.pack("!H", id))


PINGREQ, PINGRESP, DISCONNECT, CONNACK = b"\xc0\0", b"\xd0\0", b"\xe0\0", b"\x20\x02\0\0"


class Peer(QuicConnectionProtocol):
    """One connection: what came on each stream, and how it ended."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.came, self.ended, self.news = {}, set(), asyncio.Event()
        self.terminated, self.handshake = None, None

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived):
            self.came.setdefault(event.stream_id, bytearray()).extend(event.data)
            if event.end_stream:
                self.ended.add(event.stream_id)
        elif isinstance(event, StreamReset):
            self.ended.add(event.stream_id)
        elif isinstance(event, HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, ConnectionTerminated):
            self.terminated = event
        self.news.set()

    def open(self):
        """A stream of its own, which the peer hears of with the first byte."""
        stream = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream, b"")
        return stream

    def send(self, data, stream=0, end=False):
        self._quic.send_stream_data(stream, data, end)
        self.transmit()

    async def move(self):
        """As when a NAT forgets: another port, and nobody is told."""
        before = self._transport
        wide = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        wide.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        wide.bind(("::", 0))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=wide)
        before.close()

    async def until(self, done, seconds=PATIENCE_S):
        async with asyncio.timeout(seconds):
            while not done():
                self.news.clear()
                await self.news.wait()

    async def take(self, length, stream=0, seconds=PATIENCE_S):
        """So many bytes of a stream."""
        await self.until(lambda: len(self.came.get(stream, b"")) >= length, seconds)
        taken = bytes(self.came[stream][:length])
        del self.came[stream][:length]
        return taken

    async def expect(self, data, stream=0):
        taken = await self.take(len(data), stream)
        assert taken == data, (taken, data)

    async def packet(self, stream=0):
        """The next whole packet: its first byte, and what follows its length."""
        first, length, shift = (await self.take(1, stream))[0], 0, 0
        while True:
            byte = (await self.take(1, stream))[0]
            length, shift = length | (byte & 127) << shift, shift + 7
            if byte < 128:
                return first, await self.take(length, stream)

    async def end(self, seconds=PATIENCE_S):
        """Waits for the end of the connection, and says how it ended."""
        await self.until(lambda: self.terminated, seconds)
        return self.terminated

    async def welcome(self, client_id, **named):
        self.send(connect_packet(client_id, **named))
        await self.expect(CONNACK)


def configuration(ca=None, certificate=None, alpn=("mqtt",), **named):
    made = QuicConfiguration(alpn_protocols=list(alpn), is_client=True, server_name="localhost",
                             **named)
    if ca:
        made.load_verify_locations(ca)
    else:
        made.verify_mode = ssl.CERT_NONE
    if certificate:
        made.load_cert_chain(*certificate)
    return made


def peer(port, host="127.0.0.1", create=Peer, tickets=None, tokens=None, waits=True,
         **named):
    """`async with peer(port) as one:`"""
    return connect(host, port, configuration=configuration(**named), create_protocol=create,
                   session_ticket_handler=tickets, token_handler=tokens, wait_connected=waits)
