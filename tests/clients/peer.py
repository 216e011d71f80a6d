"""A socket of ZeroMQ in a process of its own, which can be killed as a whole.

    peer.py PATTERN bind|connect URL

Says on stderr that it is there, and then a line for what it gets: the last frame. REP answers what
it was asked; PUSH says numbers from the first argument after its URL on, and REQ asks that argument.
"""

import itertools
import sys
import time

import zmq

# It is slower than whoever fills it, and keeps little: what comes then waits where it comes from.
EACH_S = 0.0005
KEPT = 10


def main(pattern, way, url, first="0"):
    socket = zmq.Context().socket(getattr(zmq, pattern.upper()))
    socket.rcvhwm = socket.sndhwm = KEPT
    socket.reconnect_ivl = 20
    if pattern == "sub":
        socket.subscribe(b"")
    getattr(socket, way)(url)
    say("there")
    if pattern == "push":
        for number in itertools.count(int(first)):
            socket.send_multipart([b"in/a", b"%d" % number])
            time.sleep(EACH_S)
    if pattern == "req":
        socket.send_string(first)
    while True:
        payload = socket.recv_multipart()[-1].decode().rstrip("x")
        if pattern == "rep":
            socket.send_string(f"yes {payload}")
        say(f'"{payload}"')
        time.sleep(EACH_S)


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
