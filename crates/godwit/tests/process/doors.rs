//! A broker with several listeners, and the programs that connect to them: `godwit pub` and `godwit
//! sub`, mosquitto's clients, and openssl.

use crate::broker::{TestProgram, godwit, scratch};
use crate::certs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) struct ListenerBroker {
    pub(crate) program: TestProgram,
    /// URLs of the listeners, in the order of the options.
    pub(crate) urls: Vec<String>,
}

impl ListenerBroker {
    /// Starts a broker with the listeners of the arguments, in memory unless the arguments contain
    /// `--data`.
    pub(crate) fn start(arguments: &[&str]) -> ListenerBroker {
        let mut command = godwit(arguments);
        if !arguments.contains(&"--data") {
            command.arg("--memory");
        }
        let mut program = TestProgram::start(command);
        let mut urls = Vec::new();
        program.wait_for("godwit ");
        loop {
            let line = program.wait_for("");
            match line.split_once("listening on") {
                Some((_, url)) => urls.push(url.trim().to_string()),
                None => break,
            }
        }
        program.wait_for("memory limit");
        ListenerBroker { program, urls }
    }

    /// Returns the port of the listener with the index `at`.
    pub(crate) fn port(&self, at: usize) -> String {
        self.urls[at].rsplit(':').next().expect("a port").to_string()
    }
}

/// A folder with all certificates of [`certs::make`](crate::certs::make).
pub(crate) struct CertificateFolder {
    pub(crate) folder: PathBuf,
}

impl CertificateFolder {
    pub(crate) fn new(name: &str) -> CertificateFolder {
        let folder = scratch(name);
        certs::make(&folder).expect("certificates can be made");
        CertificateFolder { folder }
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().expect("the path is text").to_string()
    }

    /// Returns arguments `--set KEY=PATH,...` for pairs of an option and file names of this folder.
    pub(crate) fn set(&self, pairs: &[(&str, &str)]) -> Vec<String> {
        let one = |(key, files): &(&str, &str)| {
            let files: Vec<String> = files.split(',').map(|file| self.path(file)).collect();
            ["--set".to_string(), format!("{key}={}", files.join(","))]
        };
        pairs.iter().flat_map(one).collect()
    }

    /// Returns the options of the server certificate and its key, followed by `more`.
    pub(crate) fn serve(&self, more: &[&str]) -> Vec<String> {
        let mut arguments =
            self.set(&[("tls.certificate", "server.pem"), ("tls.key", "server.key")]);
        arguments.extend(more.iter().map(ToString::to_string));
        arguments
    }
}

pub(crate) fn refs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// A CONNECT of 3.1.1 with the client id `c`.
pub(crate) const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c";
/// The CONNACK of a successful [`CONNECT`].
pub(crate) const CONNACK: &[u8] = b"\x20\x02\0\0";

/// Runs `openssl s_client` with CONNECT and DISCONNECT as input. Returns whether the output
/// contains CONNACK, and the output as text.
pub(crate) fn s_client(port: &str, arguments: &[&str]) -> (bool, String) {
    // DISCONNECT ends it where all is well.
    let said = s_client_bytes(port, arguments, &[CONNECT, b"\xe0\0"].concat());
    let welcomed = said.windows(CONNACK.len()).any(|window| window == CONNACK);
    (welcomed, String::from_utf8_lossy(&said).into_owned())
}

/// The same that sends anything: all that it said.
pub(crate) fn s_client_bytes(port: &str, arguments: &[&str], words: &[u8]) -> Vec<u8> {
    let address = format!("127.0.0.1:{port}");
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-ign_eof"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl can be run");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A refused handshake ends it before it reads.
    let _ = stdin.write_all(words);
    drop(stdin);
    let Output { stdout, stderr, .. } = child.wait_with_output().expect("it ends");
    [stdout, stderr].concat()
}

/// Returns the subject of the server certificate in the output of `s_client`.
pub(crate) fn subject(said: &str) -> &str {
    said.lines().find_map(|line| line.strip_prefix("subject=")).unwrap_or("nobody").trim()
}
