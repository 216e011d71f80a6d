//! Passes the linker script `start.ld` to the linker, which keeps the functions of a start
//! together.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=start.ld");
    println!("cargo::rerun-if-env-changed=GODWIT_PLAIN_LINK");
    // valgrind knows the lines of functions in the usual section alone.
    if env::var_os("GODWIT_PLAIN_LINK").is_some() {
        return;
    }
    let is = |key: &str, value: &str| env::var(key).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        // Places in the file and in memory agree by 64 KiB too, which is what is mapped at once.
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/start.ld,-z,max-page-size=65536");
        // `cargo x test` compares the script with it: a pattern that matches nothing is no error.
        let out = env::var("OUT_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-Map={out}/godwit.map");
    }
}
