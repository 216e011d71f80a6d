//! Writes a test CA and certificates of every kind into a folder: `cargo x certs FOLDER`.

#[path = "../tests/process/certs.rs"]
mod certs;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "certs".to_string()));
    let made = std::fs::create_dir_all(&folder).map_err(Into::into);
    match made.and_then(|()| certs::make(&folder)) {
        Ok(()) => {
            println!("in {}: ca.pem, server.pem, server.key and others", folder.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{}: {why}", folder.display());
            ExitCode::FAILURE
        }
    }
}
