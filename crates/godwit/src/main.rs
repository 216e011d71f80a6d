//! See the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    godwit::main()
}
