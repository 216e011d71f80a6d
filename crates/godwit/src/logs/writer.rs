//! Where lines go. A sink never fails towards its caller: a log that cannot be written must not
//! stop a broker, so a failing one says so once on stderr.

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
    // A syslog that does not keep up costs lines, never a shard's time.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A syslog that was restarted has a new socket behind the old name.
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

/// The local form, `<priority>godwit[pid]: `, which rsyslog, journald and busybox all read, as
/// opposed to the network form of RFC 5424. They add time and host.
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
