"""A broker as a child process: ours, or mosquitto to compare with. Knows nothing about MQTT."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

START_S = 10


class Process:
    """A child whose stderr is read line by line, so that it never blocks and can be shown."""

    def __init__(self, command, env=None):
        self.command = command
        self.lines = []
        self.child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", env=env)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with self.child.stderr as said:
            for line in said:
                self.lines.append(line.rstrip("\n"))

    def line(self, pattern, seconds=START_S, after=0):
        """Waits for a line that matches; its match."""
        until = time.monotonic() + seconds
        while True:
            for line in self.lines[after:]:
                if found := re.search(pattern, line):
                    return found
            if time.monotonic() > until or (
                    self.child.poll() is not None and not self.reader.is_alive()):
                raise AssertionError(f"{self.command[0]} said no {pattern!r}:\n" + self.text())
            time.sleep(0.005)

    def text(self):
        return "\n".join(self.lines)

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, seconds=START_S):
        code = self.child.wait(seconds)
        self.reader.join(seconds)
        return code

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.wait()


class Godwit(Process):
    """`godwit serve` on a port of its own choosing."""

    def __init__(self, *flags, godwit=None, shards=2, options=(), listen="tcp://127.0.0.1:0"):
        command = [godwit or os.environ["CLIENTS_GODWIT"], "serve", "--listen", listen]
        command += [] if "--data" in flags else ["--memory"]
        command += ["--listen", "ws://127.0.0.1:0/mqtt"]
        command += ["--shards", str(shards), *flags]
        for option in options:
            command += ["--set", option]
        super().__init__(command)
        self.port = int(self.line(r"listening on +tcp://.*:(\d+)")[1])
        self.web_port = int(self.line(r"listening on +ws://.*:(\d+)/mqtt")[1])
        self.line(r"\bstarted\b")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Mosquitto(Process):
    """The other broker, to try our clients on."""

    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.mkdtemp()
        config = os.path.join(self.folder, "mosquitto.conf")
        with open(config, "w") as file:
            file.write(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        super().__init__([mosquitto(), "-c", config])
        connects(self.port)

    def stop(self):
        code = super().stop()
        shutil.rmtree(self.folder)
        return code


def mosquitto():
    """Where it is; Debian puts it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def free_port(kind=socket.SOCK_STREAM):
    """Below those that the system gives to outgoing connections: it stays free until it is used."""
    while True:
        port = random.randrange(15000, 32768)
        with socket.socket(socket.AF_INET, kind) as probe:
            # A process that is just starting may have the probe open for a moment longer.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def connects(port, seconds=START_S):
    """Waits until somebody listens there."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
