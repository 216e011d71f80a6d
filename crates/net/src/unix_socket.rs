//! Listening unix sockets and their files.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Connections that wait for `accept`; the kernel reduces the number to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Error of a path at which another process listens.
pub const IN_USE_PATH: &str =
    "the socket is in use: another broker is running, or use another path";

/// The file of a listening unix socket, removed on drop.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed the file.
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens at `path` with the permissions `mode`. The file of a killed process, where no process
/// answers, is replaced.
pub fn bind_path(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), String> {
    let address = SockAddr::unix(path)
        .map_err(|_| "the path is too long for a socket, use at most 107 bytes".to_string())?;
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            return Err("a file that is not a socket is there, use another path".to_string());
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None);
        let answered = probe.and_then(|probe| probe.connect(&address));
        if answered.is_ok() {
            return Err(IN_USE_PATH.to_string());
        }
        fs::remove_file(path).map_err(|error| format!("an old socket is in the way: {error}"))?;
    }
    let bound = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&address)?;
        let file = SocketFile(path.into());
        // Permissions are set before `listen`, so that no excluded user can connect.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        socket.listen(BACKLOG)?;
        Ok((OwnedFd::from(socket).into(), file))
    };
    bound().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => IN_USE_PATH.to_string(),
        io::ErrorKind::NotFound => "its folder is not there, make it first".to_string(),
        io::ErrorKind::PermissionDenied => {
            "not permitted: use a folder that this user may write to".to_string()
        }
        _ => error.to_string(),
    })
}
