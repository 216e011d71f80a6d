//! Outputs of log lines. A failed write must not stop the broker, so the failure is reported once
//! on stderr and not returned.

use super::line::LogLine;
use crate::options::settings::{LogFormat, LogSettings, LogTarget};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::Level;

pub(super) struct LogOutput {
    to: LogDestination,
    format: LogFormat,
    buffer: String,
    failed: bool,
}

enum LogDestination {
    File(File),
    Stderr,
    Syslog(UnixDatagram),
}

impl LogOutput {
    pub(super) fn open(settings: &LogSettings) -> Result<LogOutput, String> {
        let to = match settings.target {
            LogTarget::File => LogDestination::File(open_file(&settings.file)?),
            LogTarget::Stderr => LogDestination::Stderr,
            LogTarget::Syslog => LogDestination::Syslog(open_syslog(Path::new(SYSLOG))?),
        };
        Ok(LogOutput { to, format: settings.format, buffer: String::new(), failed: false })
    }

    pub(super) fn write(&mut self, level: Level, line: &LogLine) {
        self.buffer.clear();
        if let LogDestination::Syslog(_) = self.to {
            syslog_head(level, &mut self.buffer);
        }
        match (self.format, &self.to) {
            (LogFormat::Json, _) => line.write_json(&mut self.buffer),
            (LogFormat::Text, LogDestination::Syslog(_)) => line.write_unstamped(&mut self.buffer),
            (LogFormat::Text, _) => line.write_text(&mut self.buffer),
        }
        let written = self.flush();
        if let Err(error) = &written
            && !self.failed
        {
            let _ = writeln!(io::stderr(), "godwit: the log cannot be written: {error}");
        }
        self.failed = written.is_err();
    }

    /// Writes a line by a single system call, so that lines of several processes do not mix.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            LogDestination::Syslog(socket) => return send(socket, self.buffer.as_bytes()),
            LogDestination::File(_) | LogDestination::Stderr => self.buffer.push('\n'),
        }
        match &mut self.to {
            LogDestination::File(file) => file.write_all(self.buffer.as_bytes()),
            _ => io::stderr().lock().write_all(self.buffer.as_bytes()),
        }
    }
}

fn open_file(path: &Path) -> Result<File, String> {
    let file = File::options().append(true).create(true).open(path);
    let whole = config::source::absolute_path(path);
    file.map_err(|error| {
        format!("{}: the log file (log.file) cannot be opened: {error}", whole.display())
    })
}

fn open_syslog(path: &Path) -> Result<UnixDatagram, String> {
    connect(path).map_err(|error| format!("syslog at {} is not reached: {error}", path.display()))
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // A slow syslog loses lines rather than blocking a shard.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends a line to syslog, and reconnects if syslog has restarted with a new socket.
fn send(socket: &mut UnixDatagram, bytes: &[u8]) -> io::Result<()> {
    match socket.send(bytes) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
            *socket = connect(Path::new(SYSLOG))?;
            socket.send(bytes)?;
        }
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    Ok(())
}

/// Writes the header of syslog's local form, `<priority>godwit[pid]: `, which rsyslog, journald and
/// busybox accept; the network form of RFC 5424 differs. Time and host are added by syslog.
fn syslog_head(level: Level, out: &mut String) {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    let priority = FACILITY_DAEMON * 8 + severity;
    out.push_str(&format!("<{priority}>godwit[{}]: ", std::process::id()));
}

const FACILITY_DAEMON: u8 = 3;
const SYSLOG: &str = "/dev/log";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syslog_lines_have_priority_name_and_pid() {
        let mut head = String::new();
        syslog_head(Level::WARN, &mut head);
        assert_eq!(head, format!("<28>godwit[{}]: ", std::process::id()));
    }

    #[test]
    fn syslog_is_a_datagram_socket() {
        let path = std::env::temp_dir().join(format!("godwit-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(open_syslog(&path).unwrap_err().contains("is not reached"));
        let server = UnixDatagram::bind(&path).unwrap();
        send(&mut open_syslog(&path).unwrap(), b"<30>godwit[1]: hello").unwrap();
        let mut bytes = [0; 64];
        let len = server.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"<30>godwit[1]: hello");
        let _ = std::fs::remove_file(&path);
    }
}
