"""MQTT.js in headless chromium, over ws and wss: what only a browser does, which is to say whose page
it acts for. Pages are served from here, and say here what became of them.
"""

import http.server
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import unittest

from broker import Godwit

PATIENCE_S = 60
NUMBERS = itertools.count(1)
PAGE = """<!doctype html><script src="/mqtt.js"></script><script>
const asked = new URLSearchParams(location.search)
const tell = (what) => fetch('/told', {
  method: 'POST', body: JSON.stringify([Number(asked.get('page')), what]),
})
const client = mqtt.connect(asked.get('url'), {
  protocolVersion: Number(asked.get('version')), reconnectPeriod: 0, connectTimeout: 20000,
})
const large = 'x'.repeat(200000)
client.on('connect', () => client.subscribe('browser/#', { qos: 1 }, () =>
  client.publish('browser/page', large, { qos: 1 })))
client.on('message', (topic, payload) => {
  tell({ topic, whole: payload.toString() === large })
  client.end()
})
client.on('close', () => tell({ closed: true }))
</script>"""


def browser():
    return shutil.which("chromium") or shutil.which("chromium-browser")


def bundle():
    """MQTT.js as browsers take it."""
    paths = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "js/node_modules"),
             *os.environ.get("NODE_PATH", "").split(":")]
    files = [os.path.join(path, "mqtt/dist/mqtt.min.js") for path in paths if path]
    return next((file for file in files if os.path.isfile(file)), None)


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/mqtt.js":
            with open(bundle(), "rb") as file:
                self.answer(file.read(), "text/javascript")
        else:
            self.answer(PAGE.encode(), "text/html")

    def do_POST(self):
        self.server.told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(b"", "text/plain")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        certificate, key = (os.path.join(cls.folder, name) for name in ("own.pem", "own.key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                        "-out", certificate, "-keyout", key], check=True, capture_output=True)
        cls.broker = Godwit("--listen", "wss://127.0.0.1:0/mqtt",
                            shards=int(os.environ["CLIENTS_SHARDS"]),
                            options=[f"tls.certificate={certificate}", f"tls.key={key}"])
        secured = cls.broker.line(r"listening on +wss://.*:(\d+)/mqtt")[1]
        cls.urls = {"ws": f"ws://127.0.0.1:{cls.broker.web_port}/mqtt",
                    "wss": f"wss://127.0.0.1:{secured}/mqtt"}
        cls.pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        cls.pages.told = queue.Queue()
        # A browser that is ended hears no answers.
        cls.pages.handle_error = lambda *_: None
        threading.Thread(target=cls.pages.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.pages.shutdown()
        cls.pages.server_close()
        cls.broker.stop()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def told(self, host, url, version):
        """The first that a page of this host tells."""
        number = next(NUMBERS)
        page = (f"http://{host}:{self.pages.server_port}/"
                f"?url={url}&version={version}&page={number}")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            child = subprocess.Popen(
                [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--ignore-certificate-errors", f"--user-data-dir={profile}",
                 "--remote-debugging-port=0",
                 "--host-resolver-rules=MAP pages.example 127.0.0.1", page],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                # The page before may tell more on its way out.
                while True:
                    page, what = self.pages.told.get(timeout=PATIENCE_S)
                    if page == number:
                        return what
            finally:
                child.terminate()
                child.wait()

    def test_a_page_of_this_host_subscribes_and_publishes(self):
        for scheme, version in [("ws", 4), ("wss", 5)]:
            with self.subTest(scheme):
                told = self.told("127.0.0.1", self.urls[scheme], version)
                self.assertEqual(told, {"topic": "browser/page", "whole": True})

    def test_a_page_of_elsewhere_stays_out(self):
        told = self.told("pages.example", self.urls["wss"], 5)
        self.assertEqual(told, {"closed": True})
        self.broker.line(r"pages of this origin may not connect")


if __name__ == "__main__":
    unittest.main()
