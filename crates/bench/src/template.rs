//! Templates of names: `%i` in a topic or a client identifier becomes the client's number.
//!
//! Placeholders may stand anywhere, also inside a level; an unknown `%` stands for itself.

use mqtt::template::{TemplatePart, TextTemplate};

/// Values of a client for the placeholders of a template.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TemplateValues<'a> {
    /// `%i`; `%t` is the remainder of its division by the group's topics.
    pub(crate) number: u64,
    pub(crate) topics: u64,
    /// Value of `%s`: the number of the message, counted by its publisher.
    pub(crate) message: u64,
    /// Value of `%c`: the client id.
    pub(crate) client_id: &'a str,
    /// Value of `%u`: the user name.
    pub(crate) user_name: &'a str,
}

/// A parsed template of a topic, client identifier or user name.
#[derive(Clone, Debug)]
pub(crate) struct BenchTemplate(TextTemplate<BenchPlaceholder>);

#[derive(Clone, Copy, Debug)]
enum BenchPlaceholder {
    ClientId,
    Message,
    Number,
    /// A random number from 1 to this value.
    Random(u64),
    Topic,
    UserName,
}

impl BenchTemplate {
    pub(crate) fn parse(text: &str) -> BenchTemplate {
        BenchTemplate(TextTemplate::parse_letters(text, |rest| {
            let place = rest.strip_prefix('%')?;
            let (value, len) = match place.as_bytes().first()? {
                b'i' => (BenchPlaceholder::Number, 1),
                b't' => (BenchPlaceholder::Topic, 1),
                b's' => (BenchPlaceholder::Message, 1),
                b'c' => (BenchPlaceholder::ClientId, 1),
                b'u' => (BenchPlaceholder::UserName, 1),
                _ => rand_max(place).map(|(max, len)| (BenchPlaceholder::Random(max), len))?,
            };
            Some((TemplatePart::Value(value), 1 + len))
        }))
    }

    /// Returns the name with every place filled in.
    pub(crate) fn fill(&self, who: &TemplateValues<'_>, rng: &mut BenchRng) -> String {
        let mut name = String::new();
        self.0.fill(&mut name, |place, name| {
            use std::fmt::Write as _;
            let number = match place {
                BenchPlaceholder::ClientId => return name.push_str(who.client_id),
                BenchPlaceholder::UserName => return name.push_str(who.user_name),
                BenchPlaceholder::Message => who.message,
                BenchPlaceholder::Number => who.number,
                BenchPlaceholder::Random(max) => rng.next() % (*max).max(1) + 1,
                BenchPlaceholder::Topic => who.number % who.topics.max(1),
            };
            let _ = write!(name, "{number}");
        });
        name
    }
}

/// Parses a template and fills in the values.
pub(crate) fn fill_template(
    template: &str,
    who: &TemplateValues<'_>,
    rng: &mut BenchRng,
) -> String {
    BenchTemplate::parse(template).fill(who, rng)
}

/// Returns the filters of a template: one, or with `%a` one per topic of the group.
pub(crate) fn fill_filters(
    template: &str,
    who: &TemplateValues<'_>,
    rng: &mut BenchRng,
) -> Vec<String> {
    if !template.contains("%a") {
        return vec![fill_template(template, who, rng)];
    }
    let each = 0..who.topics.max(1);
    each.map(|topic| fill_template(&template.replace("%a", &topic.to_string()), who, rng)).collect()
}

/// Refuses a template whose result is not a valid topic name.
pub(crate) fn check_topic_template(template: &str) -> Result<(), String> {
    let topic = fill_template(template, &EXAMPLE_VALUES, &mut BenchRng::new(1));
    match mqtt::topic::topic_error(topic.as_bytes()) {
        None => Ok(()),
        Some(why) => Err(format!("\"{template}\" {why}; use a topic such as bench/%i")),
    }
}

/// Refuses a template whose result is not a valid topic filter.
pub(crate) fn check_filter_template(template: &str) -> Result<(), String> {
    let filters = fill_filters(template, &EXAMPLE_VALUES, &mut BenchRng::new(1));
    match filters.first().and_then(|filter| mqtt::topic::filter_error(filter)) {
        None => Ok(()),
        Some(why) => Err(format!("\"{template}\" {why}; use a filter such as bench/%i or bench/#")),
    }
}

const EXAMPLE_VALUES: TemplateValues<'_> =
    TemplateValues { number: 1, topics: 1, message: 0, client_id: "c", user_name: "u" };

/// Whether the name changes from message to message: `%s` or `%rand_`.
pub(crate) fn varies_by_message(template: &str) -> bool {
    template.contains("%s") || template.contains("%rand_")
}

/// Parses a placeholder such as `rand_100` at the start of `place`. Returns the largest random
/// number and the length of the placeholder: 100 and 8.
fn rand_max(place: &str) -> Option<(u64, usize)> {
    let digits = place.strip_prefix("rand_")?;
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    Some((digits[..len].parse().ok()?, "rand_".len() + len))
}

/// A pseudo-random generator with a fixed seed.
#[derive(Clone, Debug)]
pub(crate) struct BenchRng(fastrand::Rng);

impl BenchRng {
    pub(crate) fn new(seed: u64) -> BenchRng {
        BenchRng(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..) >> 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> String {
        let who =
            TemplateValues { number: 13, topics: 5, message: 7, client_id: "me", user_name: "you" };
        fill_template(template, &who, &mut BenchRng::new(1))
    }

    #[test]
    fn places_are_filled_also_inside_a_level() {
        assert_eq!(filled("bench/%i/%t"), "bench/13/3");
        assert_eq!(filled("a/x%iy/%c-%u/%s"), "a/x13y/me-you/7");
        assert_eq!(filled("100%/of/%%i"), "100%/of/%13");
        assert_eq!(filled("plain"), "plain");
    }

    #[test]
    fn chance_stays_in_its_range() {
        for _ in 0..100 {
            let name = filled("r/%rand_3/end");
            assert!(["r/1/end", "r/2/end", "r/3/end"].contains(&name.as_str()), "{name}");
        }
        assert_eq!(filled("%rand_/%rand_x"), "%rand_/%rand_x");
    }

    #[test]
    fn one_filter_for_every_topic() {
        let who = TemplateValues { topics: 3, ..TemplateValues::default() };
        let all = fill_filters("fan/%a", &who, &mut BenchRng::new(1));
        assert_eq!(all, ["fan/0", "fan/1", "fan/2"]);
        assert_eq!(fill_filters("fan/+", &who, &mut BenchRng::new(1)), ["fan/+"]);
    }

    #[test]
    fn a_template_that_makes_no_topic_or_filter_is_refused() {
        for topic in ["a", "a/%i", "%u", "%rand_9/x", "100%"] {
            assert_eq!(check_topic_template(topic), Ok(()));
            assert_eq!(check_filter_template(topic), Ok(()));
        }
        for filter in ["a/#", "+/%i", "$share/g/a/%a"] {
            assert_eq!(check_filter_template(filter), Ok(()));
        }
        for wrong in ["", "a/#", "a+%i"] {
            assert!(check_topic_template(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "a/#/b", "a+%i", "$share/g", "$share//a"] {
            assert!(check_filter_template(wrong).is_err(), "{wrong}");
        }
    }
}
