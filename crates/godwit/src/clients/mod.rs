//! `godwit pub` and `godwit sub`: small blocking clients for interactive use and scripts, with the
//! flags and exit codes of mosquitto_pub and mosquitto_sub.
//!
//! Exit codes: 0 success; 1 no connection, or a wrong command line; 7 connection lost; 27 timeout
//! of `-W`; otherwise the code of the broker's refusal: a return code of 3.x, or a reason code from
//! 128 on.

mod client_options;
mod connection;
mod format;
mod properties;
pub(crate) mod publish;
mod stream;
pub(crate) mod subscribe;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Error that ends a client: exit code and text.
#[derive(Debug)]
pub(crate) struct ClientError {
    pub(crate) code: u8,
    pub(crate) why: String,
}

impl ClientError {
    fn new(code: u8, why: impl Into<String>) -> ClientError {
        ClientError { code, why: why.into() }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Prints the error of a client unless `quiet`, and returns its exit code.
fn report_result(end: Result<(), ClientError>, quiet: bool) -> ExitCode {
    let Err(ClientError { code, why }) = end else { return ExitCode::SUCCESS };
    if !quiet && !why.is_empty() {
        let _ = writeln!(io::stderr(), "Error: {why}");
    }
    ExitCode::from(code)
}

fn report_flag_error(why: String) -> ExitCode {
    crate::print_errors(&[why]);
    ExitCode::from(EXIT_NO_CONNECTION)
}

const EXIT_NO_CONNECTION: u8 = 1;
const EXIT_LOST: u8 = 7;
const EXIT_TIMEOUT: u8 = 27;
