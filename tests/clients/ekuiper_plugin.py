"""A portable plugin of eKuiper, as its users write them: a source of rows, and a sink that says on
stderr what it got. What carries them is eKuiper's own SDK, unchanged."""

import base64
import sys
import threading

from ekuiper import PluginConfig, Sink, Source, plugin


class Rows(Source):
    def configure(self, datasource, conf):
        self.name, self.count = datasource, conf["count"]
        self.closed = threading.Event()

    def open(self, ctx):
        for number in range(self.count):
            ctx.emit({"n": number, "text": "ä" * length_of(number)}, {"from": self.name})
        # NNG throws away what a socket that closes has not said.
        self.closed.wait()

    def close(self, ctx):
        self.closed.set()


class Printer(Sink):
    def configure(self, conf):
        pass

    def open(self, ctx):
        pass

    def collect(self, ctx, data):
        print("got", base64.b64encode(data).decode(), file=sys.stderr, flush=True)
        ctx.ack_ok()

    def close(self, ctx):
        pass


def length_of(number):
    """Every now and then a long one."""
    return 50_000 if number % 50 == 49 else number


if __name__ == "__main__":
    plugin.start(PluginConfig(sys.argv[1], {"rows": Rows}, {"printer": Printer}, {}))
