//! The process of a broker for one run: files, port, start and stop.

use crate::plan::TargetTransport;
use netem::{IMPAIRED_SERVER_ADDRESS, SERVER_ADDRESS};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use transport::{QuicClientEndpoint, QuicClientOptions};

/// A broker of a comparison: a `command`, or the `url` of a running broker. A command whose broker
/// does not offer plain MQTT has a `url` as well.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BrokerEntry {
    pub(crate) name: String,
    pub(crate) install: String,
    pub(crate) command: String,
    pub(crate) url: String,
    pub(crate) file: String,
    pub(crate) content: String,
    /// A command that prints the broker's version in the first line of its output.
    pub(crate) version: String,
    /// Text appended to `content` for the first of two brokers. `{second}` is the port of the
    /// second broker, and `{second_host}` its address, across the impaired line if the plan has a
    /// line.
    pub(crate) bridge: String,
}

impl BrokerEntry {
    /// Runs the command of `version` and returns the first line of its output; empty if the command
    /// fails.
    pub(crate) fn query_version(&self) -> String {
        let mut words = self.version.split_whitespace();
        let output = words.next().and_then(|name| Command::new(name).args(words).output().ok());
        let output = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().to_string()
    }

    /// Returns a copy of this entry with `bridge` appended to `content`, filled in for `second`.
    pub(crate) fn bridged_to(&self, second: &BrokerProcess) -> BrokerEntry {
        let port = second.url.rsplit(':').next().unwrap_or_default();
        let host = if second.is_across { IMPAIRED_SERVER_ADDRESS } else { Ipv4Addr::LOCALHOST };
        let bridge = self.bridge.replace("{second_host}", &host.to_string());
        let bridge = bridge.replace("{second}", port);
        BrokerEntry { content: self.content.clone() + &bridge, ..self.clone() }
    }

    /// Whether the broker can listen on another address (`{host}`) and its bridge can connect there
    /// (`{second_host}`).
    pub(crate) fn supports_remote_host(&self) -> bool {
        let told = [&self.command, &self.content, &self.url];
        told.iter().any(|text| text.contains("{host}")) && self.bridge.contains("{second_host}")
    }
}

#[derive(Debug)]
pub(crate) struct BrokerProcess {
    child: Option<Child>,
    folder: Option<PathBuf>,
    pub(crate) url: String,
    /// Whether the broker runs at the other end of the impaired line.
    is_across: bool,
}

impl BrokerProcess {
    pub(crate) fn start(entry: &BrokerEntry) -> Result<BrokerProcess, String> {
        BrokerProcess::start_at(entry, false)
    }

    /// Starts a broker at the other end of the impaired line. Clients of this host reach the broker
    /// without the impairment.
    pub(crate) fn start_across(entry: &BrokerEntry) -> Result<BrokerProcess, String> {
        BrokerProcess::start_at(entry, true)
    }

    fn start_at(entry: &BrokerEntry, is_beyond: bool) -> Result<BrokerProcess, String> {
        if entry.command.is_empty() {
            let url = entry.url.clone();
            return Ok(BrokerProcess { child: None, folder: None, url, is_across: is_beyond });
        }
        let host = if is_beyond { SERVER_ADDRESS } else { Ipv4Addr::LOCALHOST };
        let says = |error: std::io::Error| format!("{}: {error}; {}", entry.name, entry.install);
        let free = TcpListener::bind((host, 0)).and_then(|socket| socket.local_addr());
        let address = free.map_err(says)?;
        let folder = scratch_folder(address.port());
        fs::create_dir_all(&folder).map_err(says)?;
        // From here the folder is removed with the process, even if the program cannot be run.
        let filled = |text: &str| {
            let text = text.replace("{port}", &address.port().to_string());
            let text = text.replace("{host}", &host.to_string());
            text.replace("{dir}", &folder.to_string_lossy())
        };
        let url = match entry.url.is_empty() {
            true => format!("tcp://{address}"),
            false => filled(&entry.url),
        };
        let mut launched =
            BrokerProcess { child: None, folder: Some(folder.clone()), url, is_across: is_beyond };
        if !entry.file.is_empty() {
            fs::write(folder.join(&entry.file), filled(&entry.content)).map_err(says)?;
        }
        // Placeholders are filled after the split, so a path with spaces stays one word.
        let mut words = entry.command.split_whitespace().map(filled);
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| {
            format!(
                "{}: {program} cannot be run: {error}; to get it: {}",
                entry.name, entry.install
            )
        })?;
        launched.child = Some(child);
        launched.wait_until_listening(address).map_err(|why| format!("{}: {why}", entry.name))?;
        Ok(launched)
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn wait_until_listening(&mut self, address: SocketAddr) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < START_MAX {
            let listens = match crate::target::from_url(&self.url)?.transport {
                TargetTransport::Quic(manner) => {
                    completes_handshake(address, &manner).unwrap_or(false)
                }
                TargetTransport::Tcp(_) => TcpStream::connect(address).is_ok(),
            };
            if listens {
                // Work of the broker after its start must not count in the first scenario.
                thread::sleep(Duration::from_millis(300));
                return Ok(());
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!("it ended before it listened: {status}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err("it does not listen".into())
    }
}

/// Whether a QUIC handshake with `address` completes within `ANSWER_MAX`.
fn completes_handshake(address: SocketAddr, manner: &QuicClientOptions) -> std::io::Result<bool> {
    let mut outlet = QuicClientEndpoint::new(address, None, START_MAX)?;
    let connection = outlet.connect(manner, "localhost", 0)?;
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_MAX {
        outlet.send_pending();
        outlet.poll(&mut Vec::new())?;
        if outlet.poll_open(connection)? {
            outlet.close(connection);
            outlet.send_pending();
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Returns the folder for a broker's files, named by process and port. The broker's name is not
/// used: a name may hold any text, and configurations contain the path.
fn scratch_folder(port: u16) -> PathBuf {
    std::env::temp_dir().join(format!("godwit-bench-{}-{port}", std::process::id()))
}

const ANSWER_MAX: Duration = Duration::from_millis(500);
const START_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> Vec<PathBuf> {
        let own = format!("godwit-bench-{}-", std::process::id());
        let all = fs::read_dir(std::env::temp_dir()).expect("it is there").flatten();
        let own = all.filter(|one| one.file_name().to_string_lossy().starts_with(&own));
        own.map(|one| one.path()).collect()
    }

    #[test]
    fn a_program_that_cannot_be_run_leaves_nothing_behind() {
        let command = "no-such-broker {dir}/nothing-left".into();
        let (name, file) = ("a".to_string(), "nothing-left".to_string());
        let entry = BrokerEntry { name, command, file, ..BrokerEntry::default() };
        let why = BrokerProcess::start(&entry).expect_err("no such program");
        assert!(why.contains("no-such-broker cannot be run"), "{why}");
        assert!(!folders().iter().any(|folder| folder.join("nothing-left").exists()));
    }

    #[test]
    fn a_name_of_several_words_is_no_part_of_a_command() {
        let name = "mosquitto 2.0 / one core".to_string();
        let (command, file) = ("sh {dir}/run".to_string(), "run".to_string());
        let entry =
            BrokerEntry { name, command, file, content: "exit 7".into(), ..BrokerEntry::default() };
        let why = BrokerProcess::start(&entry).expect_err("it is not a broker");
        assert!(why.contains("mosquitto 2.0 / one core: it ended before it listened"), "{why}");
        assert!(why.contains("exit status: 7"), "{why}");
    }
}
