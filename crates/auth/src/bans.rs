//! The file of bans, in TOML. It becomes a [`BanList`] only as a whole; every error has its line
//! and says what would be right.
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

use broker::access_rules::acl_rules::NamePattern;
use broker::options::bans::{Ban, BanList, BanTarget};
use config::nearest::nearest_word;
use config::source::{self, LineErrors, TomlReader, TomlValue};
use net::timestamp::UnixTimestamp;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeValue;

/// Reads the file; durations of bans count from `now`.
pub fn read_ban_file(path: &Path, now: UnixTimestamp) -> Result<BanList, Vec<String>> {
    let bans =
        source::read(path, "file of bans (bans.file)", "TOML must be", |text| parse(text, now))?;
    Ok(BanList::new(bans))
}

fn parse(source: &str, now: UnixTimestamp) -> Result<Vec<Ban>, LineErrors> {
    TomlReader::read(source, |reader, document| {
        let mut bans = Vec::new();
        for (key, value) in document {
            let at = key.span().start;
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("ban", DeValue::Array(all)) => {
                    all.iter().for_each(|one| bans.extend(read_ban(reader, one, now)));
                }
                ("ban", _) => reader.report_error(at, "a ban begins with [[ban]]"),
                (other, _) => {
                    reader.report_error(at, format!("{other:?} is nothing here, use [[ban]]"))
                }
            }
        }
        bans
    })
}

const KEYS: [&str; 5] = ["address", "client_id", "reason", "until", "user"];

fn read_ban(reader: &mut TomlReader<'_>, ban: &TomlValue<'_>, now: UnixTimestamp) -> Vec<Ban> {
    let at = ban.span().start;
    let DeValue::Table(table) = ban.get_ref() else {
        reader.report_error(at, "a ban begins with [[ban]]");
        return Vec::new();
    };
    let (mut all, mut for_ms) = (Vec::new(), None);
    let mut reason: Arc<str> = Arc::from("");
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "address" => all.extend(
                crate::acl::read_networks(reader, value).into_iter().map(BanTarget::Address),
            ),
            "client_id" => {
                let names = reader.read_texts(value, "client ids");
                all.extend(names.iter().map(|name| BanTarget::ClientId(NamePattern::parse(name))));
            }
            "reason" => match value.get_ref() {
                DeValue::String(text) => reason = Arc::from(&**text),
                _ => reader.report_error(value.span().start, "use text in quotes"),
            },
            "until" => for_ms = Some(read_remaining_ms(reader, value, now)),
            "user" => {
                let names = reader.read_texts(value, "user names");
                all.extend(names.iter().map(|name| BanTarget::User(NamePattern::parse(name))));
            }
            other => {
                let meant = nearest_word(other, KEYS.into_iter()).unwrap_or("one of the others");
                let why = format!("a ban has no {other}, did you mean {meant}?");
                reader.report_error(key.span().start, why);
            }
        }
    }
    if all.is_empty() && !reader.has_errors() {
        reader.report_error(at, "the ban says neither client_id nor user nor address");
    }
    // Expired bans are dropped.
    let all = all.into_iter().filter(|_| for_ms != Some(0));
    all.map(|whom| Ban { whom, for_ms, reason: reason.clone() }).collect()
}

/// Returns the milliseconds from `now` to a point in time. A date without a time is the beginning
/// of that day, and a time without an offset is UTC.
fn read_remaining_ms(
    reader: &mut TomlReader<'_>,
    value: &TomlValue<'_>,
    now: UnixTimestamp,
) -> u64 {
    let moment = value.get_ref().as_datetime().and_then(|moment| {
        let day = moment.date.and_then(|date| {
            UnixTimestamp::of_day(date.year.into(), date.month.into(), date.day.into())
        });
        let seconds = moment.time.map_or(0, |time| {
            let second = u64::from(time.second.unwrap_or(0));
            u64::from(time.hour) * 3600 + u64::from(time.minute) * 60 + second
        });
        let offset = moment.offset.map(|offset| offset.to_string()).unwrap_or_default();
        since_1970(day, seconds, minutes_ahead(&offset))
    });
    let Some(until) = moment else {
        let why = "use a moment like 2030-01-31T12:00:00Z, without quotes";
        reader.report_error(value.span().start, why);
        return 0;
    };
    let left = until.saturating_sub(now.0);
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time since 1970; `None` for earlier times.
fn since_1970(day: Option<UnixTimestamp>, seconds: u64, ahead_minutes: i64) -> Option<Duration> {
    let seconds = day?.0.as_secs() + seconds;
    Some(Duration::from_secs(seconds.checked_add_signed(-60 * ahead_minutes)?))
}

/// Returns the offset from UTC in minutes, as in `+02:00`; 0 for `Z`.
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

    /// Current time of the tests: 2026-11-21T10:00:00Z.
    const NOW: UnixTimestamp = UnixTimestamp(Duration::from_secs(1_795_255_200));

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
        assert_eq!(bans[1].whom, BanTarget::ClientId(NamePattern::StartingWith("lab-".into())));
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
                "4: \"10.0.0.0/40\" is neither an address nor a network, \
                 use one like \"192.0.2.7\" or \
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
