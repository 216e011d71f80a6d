//! Mutations of valid texts, for parsers of input from clients and administrators: no text may
//! cause a panic. `GODWIT_MUTATIONS` sets the number, for longer runs than a test has time for.

const COUNT: u64 = 20_000;

/// Fragments that parsers often do not expect.
const STRANGE: &[&str] = &[
    "\0",
    "\u{feff}",
    "\r\n",
    "\u{e9}",
    "\"",
    "'''",
    "[[",
    "]]",
    "{",
    "}",
    "${",
    "%u",
    "#",
    "+",
    "/",
    "//",
    "$",
    "=",
    "-1",
    "1e309",
    "18446744073709551616",
    "null",
    "[]",
    "\\u0000",
    ".",
];

/// Calls `read` with each text made from the samples by a few random changes.
pub(crate) fn for_each_mutation(samples: &[&str], mut read: impl FnMut(&str)) {
    let said = std::env::var("GODWIT_MUTATIONS").ok();
    let count = said.map_or(COUNT, |said| said.parse().expect("a number"));
    let mut rng = fastrand::Rng::with_seed(7);
    let mut draw = |below: usize| rng.usize(..below.max(1));
    for _ in 0..count {
        let mut text = samples[draw(samples.len())].as_bytes().to_vec();
        for _ in 0..1 + draw(4) {
            let (at, other) = (draw(text.len() + 1), samples[draw(samples.len())].as_bytes());
            let end = (at + draw(40)).min(text.len());
            match draw(6) {
                0 => text.insert(at, draw(256) as u8),
                1 => drop(text.drain(at..end)),
                2 => drop(text.splice(at..at, text[at..end].to_vec())),
                3 => drop(text.splice(at..at, STRANGE[draw(STRANGE.len())].bytes())),
                4 if at < text.len() => text[at] ^= 1 << draw(8),
                _ => {
                    let from = draw(other.len() + 1);
                    let upto = (from + draw(60)).min(other.len());
                    drop(text.splice(at..end, other[from..upto].iter().copied()));
                }
            }
        }
        read(&String::from_utf8_lossy(&text));
    }
}
