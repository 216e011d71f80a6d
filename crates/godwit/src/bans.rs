//! The file of bans, in TOML. It becomes [`Bans`] only as a whole; every error names its line and
//! what would be right.
//!
//! ```toml
//! [[ban]]
//! client_id = ["sensor-7", "lab-*"]   # or user, or address; one or several
//! until = 2030-01-31T12:00:00Z        # for good without it
//! reason = "floods the plant's topics"
//!
//! [[ban]]
//! address = ["192.0.2.7", "2001:db8::/32"]
//! ```

use crate::options::nearest::nearest;
use crate::timestamp::Timestamp;
use broker::bans::{Ban, Bans, Whom};
use broker::permissions::{Name, Network};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

type Entry<'a> = Spanned<DeValue<'a>>;

/// Reads the file as it counts from `now` on.
pub(crate) fn read(path: &Path, now: Timestamp) -> Result<Bans, Vec<String>> {
    let shown = path.display();
    let source = std::fs::read(path)
        .map_err(|error| vec![format!("{shown}: the file of bans cannot be read: {error}")])?;
    let bans = match std::str::from_utf8(&source) {
        Ok(text) => parse(text, now),
        Err(error) => {
            let line = line_at(&source, error.valid_up_to());
            Err(vec![(line, "not UTF-8 text, which TOML must be".to_string())])
        }
    };
    bans.map(Bans::new).map_err(|wrongs| {
        wrongs.iter().map(|(line, why)| format!("{shown}:{line}: {why}")).collect()
    })
}

fn line_at(source: &[u8], at: usize) -> usize {
    1 + source[..at.min(source.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn parse(source: &str, now: Timestamp) -> Result<Vec<Ban>, Vec<(usize, String)>> {
    let (document, errors) = DeTable::parse_recoverable(source);
    let mut reader = Reader { source, now, bans: Vec::new(), wrongs: Vec::new() };
    for error in &errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.wrong(at, format!("not TOML: {}", error.message()));
    }
    if errors.is_empty() {
        for (key, value) in document.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("ban", DeValue::Array(all)) => {
                    all.iter().for_each(|one| reader.ban(one));
                }
                ("ban", _) => reader.wrong(key.span().start, "a ban begins with [[ban]]".into()),
                (other, _) => {
                    let why = format!("{other:?} is nothing here, use [[ban]]");
                    reader.wrong(key.span().start, why);
                }
            }
        }
    }
    if reader.wrongs.is_empty() { Ok(reader.bans) } else { Err(reader.wrongs) }
}

struct Reader<'a> {
    source: &'a str,
    now: Timestamp,
    bans: Vec<Ban>,
    wrongs: Vec<(usize, String)>,
}

const KEYS: [&str; 5] = ["address", "client_id", "reason", "until", "user"];

impl Reader<'_> {
    fn wrong(&mut self, at: usize, why: String) {
        self.wrongs.push((line_at(self.source.as_bytes(), at), why));
    }

    fn ban(&mut self, ban: &Entry<'_>) {
        let at = ban.span().start;
        let DeValue::Table(table) = ban.get_ref() else {
            return self.wrong(at, "a ban begins with [[ban]]".into());
        };
        let (mut all, mut for_ms) = (Vec::new(), None);
        let mut reason: Arc<str> = Arc::from("");
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "address" => {
                    for text in self.texts(value, "addresses like \"10.0.0.0/8\"") {
                        match Network::parse(&text) {
                            Some(network) => all.push(Whom::Address(network)),
                            None => self.wrong(value.span().start, not_an_address(&text)),
                        }
                    }
                }
                "client_id" => {
                    let names = self.texts(value, "client ids");
                    all.extend(names.iter().map(|name| Whom::ClientId(Name::parse(name))));
                }
                "reason" => match value.get_ref() {
                    DeValue::String(text) => reason = Arc::from(&**text),
                    _ => self.wrong(value.span().start, "use text in quotes".into()),
                },
                "until" => for_ms = Some(self.until(value)),
                "user" => {
                    let names = self.texts(value, "user names");
                    all.extend(names.iter().map(|name| Whom::User(Name::parse(name))));
                }
                other => {
                    let meant = nearest(other, KEYS.into_iter()).unwrap_or("one of the others");
                    let why = format!("a ban has no {other}, did you mean {meant}?");
                    self.wrong(key.span().start, why);
                }
            }
        }
        if all.is_empty() && self.wrongs.is_empty() {
            self.wrong(at, "the ban says neither client_id nor user nor address".into());
        }
        // One that is over already says nothing.
        let all = all.into_iter().filter(|_| for_ms != Some(0));
        self.bans.extend(all.map(|whom| Ban { whom, for_ms, reason: reason.clone() }));
    }

    /// How long until then. A day without a time is its beginning, and a time without an offset is
    /// UTC.
    fn until(&mut self, value: &Entry<'_>) -> u64 {
        let moment = value.get_ref().as_datetime().and_then(|moment| {
            let day = moment.date.and_then(|date| {
                Timestamp::of_day(date.year.into(), date.month.into(), date.day.into())
            });
            let seconds = moment.time.map_or(0, |time| {
                let second = u64::from(time.second.unwrap_or(0));
                u64::from(time.hour) * 3600 + u64::from(time.minute) * 60 + second
            });
            let offset = moment.offset.map(|offset| offset.to_string()).unwrap_or_default();
            since_1970(day, seconds, minutes_ahead(&offset))
        });
        let Some(until) = moment else {
            let why = "use a moment like 2030-01-31T12:00:00Z, without quotes".into();
            self.wrong(value.span().start, why);
            return 0;
        };
        let left = until.saturating_sub(self.now.0);
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }

    /// One text or a list of them.
    fn texts(&mut self, value: &Entry<'_>, of: &str) -> Vec<String> {
        let one = |value: &Entry<'_>| match value.get_ref() {
            DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
            _ => None,
        };
        let texts: Option<Vec<String>> = match value.get_ref() {
            DeValue::Array(many) => many.iter().map(one).collect(),
            _ => one(value).map(|text| vec![text]),
        };
        match texts {
            Some(texts) if !texts.is_empty() => texts,
            _ => {
                self.wrong(value.span().start, format!("use {of}, as text in quotes or a list"));
                Vec::new()
            }
        }
    }
}

fn not_an_address(text: &str) -> String {
    format!("{text:?} is no address, use one like \"192.0.2.7\" or \"2001:db8::/32\"")
}

/// None before 1970.
fn since_1970(day: Option<Timestamp>, seconds: u64, ahead_minutes: i64) -> Option<Duration> {
    let seconds = day?.0.as_secs() + seconds;
    Some(Duration::from_secs(seconds.checked_add_signed(-60 * ahead_minutes)?))
}

/// Minutes of `+02:00`; `Z` has none.
fn minutes_ahead(offset: &str) -> i64 {
    let minutes = |text: &str| {
        let (hours, minutes) = text.split_once(':')?;
        Some(60 * hours.parse::<i64>().ok()? + minutes.parse::<i64>().ok()?)
    };
    match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
        (Some(text), _) => minutes(text).unwrap_or(0),
        (_, Some(text)) => -minutes(text).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T10:00:00Z
    const NOW: Timestamp = Timestamp(Duration::from_secs(1_795_255_200));

    #[test]
    fn the_example_above_is_read() {
        let example: String = include_str!("bans.rs")
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| format!("{}\n", line.trim_start_matches("//!").trim_start()))
            .collect();
        let bans = parse(&example, NOW).unwrap();
        assert_eq!(bans.len(), 4);
        assert_eq!(bans[1].whom, Whom::ClientId(Name::StartingWith("lab-".into())));
        assert_eq!(&*bans[1].reason, "floods the plant's topics");
        assert!(bans[1].for_ms.is_some() && bans[2].for_ms.is_none());
    }

    #[test]
    fn a_ban_ends_at_its_moment_wherever_that_is_written() {
        let for_ms = |until: &str| {
            let bans = parse(&format!("[[ban]]\nuser = \"a\"\nuntil = {until}\n"), NOW).unwrap();
            bans.first().and_then(|ban| ban.for_ms)
        };
        assert_eq!(for_ms("2026-11-21T10:00:01Z"), Some(1000));
        assert_eq!(for_ms("2026-11-21 10:00:01"), Some(1000));
        assert_eq!(for_ms("2026-11-21T12:00:01+02:00"), Some(1000));
        assert_eq!(for_ms("2026-11-22"), Some(14 * 3_600_000));
        assert_eq!(for_ms("2026-11-21"), None, "it is over");
    }

    #[test]
    fn every_error_has_its_line_and_what_would_be_right() {
        let source = "[[ban]]\nclientid = \"a\"\n[[ban]]\naddress = [\"10.0.0.0/40\"]\n\
                      until = \"tomorrow\"\nuser = []\n[ban2]\n";
        let wrongs = parse(source, NOW).unwrap_err();
        let mut wrongs: Vec<String> =
            wrongs.iter().map(|(line, why)| format!("{line}: {why}")).collect();
        wrongs.sort();
        assert_eq!(
            wrongs,
            [
                "2: a ban has no clientid, did you mean client_id?",
                "4: \"10.0.0.0/40\" is no address, use one like \"192.0.2.7\" or \
                 \"2001:db8::/32\"",
                "5: use a moment like 2030-01-31T12:00:00Z, without quotes",
                "6: use user names, as text in quotes or a list",
                "7: \"ban2\" is nothing here, use [[ban]]",
            ]
        );
        let wrongs = parse("[[ban]]\nreason = \"none\"\n", NOW).unwrap_err();
        assert_eq!(wrongs, [(1, "the ban says neither client_id nor user nor address".into())]);
        assert!(parse("[[ban]\n", NOW).unwrap_err()[0].1.starts_with("not TOML"));
    }
}
