//! Binary of the program, which is in the library [`godwit`].
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    godwit::main()
}
