//! The simulator: shards with simulated connections in virtual time; the transcript language for
//! the packets which clients send and must receive; and the transcripts of the protocol as a table
//! which can be replayed against any broker.
#![forbid(unsafe_code)]

pub mod authorizer;
mod backlog;
pub mod disk;
pub mod fuzz;
mod name_options;
pub mod oracle;
pub mod oracle_run;
pub mod packet_line;
pub mod parsed_transcript;
pub mod power;
pub mod random_actions;
pub mod replay;
pub mod rng;
mod rule;
pub mod settings;
mod store_client;
pub mod transcript;
pub mod users;
pub mod world;

pub use transcript::check;

/// A transcript of the protocol's chapters, declared by `transcripts!`.
#[derive(Clone, Copy, Debug)]
pub struct Transcript {
    pub chapter: &'static str,
    pub name: &'static str,
    pub text: &'static str,
}

/// Declares transcripts as tests and as a table `TRANSCRIPTS`, which `replay` runs against a
/// broker.
#[macro_export]
macro_rules! transcripts {
    ($(fn $name:ident() { $text:literal })*) => {
        pub const TRANSCRIPTS: &[$crate::Transcript] = &[$($crate::Transcript {
            chapter: module_path!(),
            name: stringify!($name),
            text: $text,
        }),*];

        $(
            #[cfg(test)]
            #[test]
            fn $name() {
                $crate::transcript::check_at($text, file!());
            }
        )*
    };
}

/// The tables of `tests/protocol`, which are tests there and data here.
#[cfg(not(test))]
pub mod protocol;

/// Returns every transcript of the protocol.
#[cfg(not(test))]
pub fn transcripts() -> impl Iterator<Item = &'static Transcript> {
    protocol::CHAPTERS.iter().flat_map(|chapter| chapter.iter())
}
