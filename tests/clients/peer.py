"""A socket of ZeroMQ or NNG in a process of its own, which can be killed as a whole.

    peer.py PATTERN bind|connect|listen|dial URL

Says on stderr that it is there, and then a line for what it gets: the last frame. REP answers what
it was asked; PUSH and PUB say numbers from the first argument after its URL on, and REQ asks that
argument. Who listens or dials, and does not bind or connect, speaks as NNG: PUSH and PUB do.
"""

import itertools
import sys
import time

# It is slower than whoever fills it, and keeps little: what comes then waits where it comes from.
EACH_S = 0.0005
KEPT = 10


def main(pattern, way, url, first="0"):
    if way in ("listen", "dial"):
        return speak_sp(pattern, way, url, int(first))
    import zmq
    socket = zmq.Context().socket(getattr(zmq, pattern.upper()))
    socket.rcvhwm = KEPT
    # REP throws an answer away where there is no room for it; the others wait.
    if pattern != "rep":
        socket.sndhwm = KEPT
    socket.reconnect_ivl = 20
    if pattern == "sub":
        socket.subscribe(b"")
    getattr(socket, way)(url)
    say("there")
    if pattern in ("push", "pub"):
        count(int(first), lambda number: socket.send_multipart([b"in/a", number]))
    if pattern == "req":
        socket.send_string(first)
    while True:
        payload = socket.recv_multipart()[-1].decode().rstrip("x")
        if pattern == "rep":
            socket.send_string(f"yes {payload}")
        say(f'"{payload}"')
        time.sleep(EACH_S)


def speak_sp(pattern, way, url, first):
    import pynng
    kind = {"push": pynng.Push0, "pub": pynng.Pub0}[pattern]
    socket = kind(reconnect_time_min=20, reconnect_time_max=100, send_buffer_size=KEPT)
    if way == "dial":
        socket.dial(url, block=False)
    else:
        socket.listen(url)
    say("there")
    count(first, lambda number: socket.send(b"in/a/" + number))


def count(first, send):
    for number in itertools.count(first):
        send(b"%d" % number)
        time.sleep(EACH_S)


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
