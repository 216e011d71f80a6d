//! `cargo x certs`: writes a test CA and certificates signed by it, valid and invalid, for testing
//! TLS by hand.

use std::env;

use crate::shell::{cargo, run_to_end};

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let folder = match args {
        [] => "certs",
        [folder] if !folder.starts_with('-') => folder,
        _ => return Err("certs: takes a folder".into()),
    };
    let here = env::current_dir().map_err(|e| format!("certs: no current folder: {e}"))?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "godwit", "--example", "certs", "--"]);
    run_to_end(command.arg(here.join(folder)))
}
