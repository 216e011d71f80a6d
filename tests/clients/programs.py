"""Clients that are programs: mosquitto's and our own, which have the same flags."""

import itertools
import os
import queue
import re
import signal
import subprocess
import threading

# What must come has this long; what must not come has QUIET_S to show itself.
PATIENCE_S = 10
QUIET_S = 0.25
NAMES = itertools.count(1)


def unique(word):
    return f"{word}-{os.getpid()}-{next(NAMES)}"


def run(program, port, *flags, said=None):
    """(exit code, stdout, stderr)"""
    command = [*program, "-h", "127.0.0.1", "-p", str(port), *flags]
    done = subprocess.run(command, input=said, capture_output=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


class Sub:
    """A running subscriber, whose messages come as tuples of the format's fields."""

    def __init__(self, program, port, *flags, format="%t|%q|%r|%p"):
        command = ["stdbuf", "-oL", *program, "-h", "127.0.0.1", "-p", str(port), "-d",
                   "-F", f"got {format}", *flags]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines, self.inbox = [], queue.Queue()
        self.said = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.child.stdout:
            line = line.rstrip("\n")
            if line.startswith("got "):
                self.inbox.put(tuple(line[4:].split("|")))
            with self.said:
                self.lines.append(line)
                self.said.notify_all()
        with self.said:
            self.lines.append("end")
            self.said.notify_all()

    def line(self, pattern):
        """Waits for a line that matches; all of it."""
        def found():
            return [line for line in self.lines if re.search(pattern, line)]
        with self.said:
            if not self.said.wait_for(lambda: found() or self.lines[-1:] == ["end"], PATIENCE_S) \
                    or not found():
                raise AssertionError(f"no {pattern!r} in\n" + "\n".join(self.lines))
            return found()[0]

    def ready(self):
        self.line("^Subscribed|received SUBACK")
        return self

    def next(self):
        try:
            return self.inbox.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError("nothing came:\n" + "\n".join(self.lines)) from None

    def take(self, count):
        return [self.next() for _ in range(count)]

    def quiet(self, seconds=QUIET_S):
        try:
            message = self.inbox.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"unexpected: {message}")

    def cut(self):
        """Killed: the socket goes without DISCONNECT."""
        self.child.kill()
        self.child.wait(PATIENCE_S)

    def close(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(1)
        except subprocess.TimeoutExpired:
            # mosquitto_sub says DISCONNECT in its signal handler, where it can block itself.
            self.cut()
        self.reader.join(PATIENCE_S)
        self.child.stdout.close()
