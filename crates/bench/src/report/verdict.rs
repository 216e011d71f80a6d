//! Conclusion of a comparison: the winner, the lead, and whether the result counts.
//!
//! A broker with a fault cannot win. Where throughputs differ, the highest wins; where all brokers
//! carried the requested load, the 99th percentile of latency decides. A lead that is not present
//! in all rounds is not a win.

use super::grouping::{BrokerRuns, GroupKind, LoadGroup};
use super::reservations::{ResultReservation, reservations};
use super::wording::{amount, list_of, more_or_less};
use super::{list, number, text};
use serde_json::Value;

/// The conclusion of a page.
pub(crate) struct PageVerdict {
    pub(crate) sentence: String,
    /// Conclusions of the individual loads, if there are several.
    pub(crate) of_loads: Vec<String>,
    pub(crate) standing: VerdictStanding,
    pub(crate) has_winner: bool,
    pub(crate) reservations: Vec<ResultReservation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerdictStanding {
    Counts,
    CountsWithReservations,
    DoesNotCount,
}

/// The conclusion of one load.
pub(crate) struct GroupVerdict {
    pub(crate) sentence: String,
    /// Index of the winner in `LoadGroup::brokers`.
    pub(crate) winner: Option<usize>,
    /// Lead of the winner, as a factor of at least 1.
    pub(crate) lead: Option<f64>,
    pub(crate) measure: &'static ComparedMeasure,
    /// Indexes of the brokers: without faults first, the best first; then brokers with faults.
    pub(crate) order: Vec<usize>,
    pub(crate) reservations: Vec<ResultReservation>,
}

/// A figure by which brokers are compared.
#[derive(Debug)]
pub(crate) struct ComparedMeasure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) is_higher_better: bool,
    pub(crate) value: fn(&Value) -> Option<f64>,
}

pub(crate) static RECEIVED: ComparedMeasure = ComparedMeasure {
    name: "throughput",
    unit: "messages/s delivered",
    is_higher_better: true,
    value: |run| run.pointer("/rates/received")?.as_f64(),
};
pub(crate) static PUBLISHED: ComparedMeasure = ComparedMeasure {
    name: "throughput",
    unit: "messages/s published",
    is_higher_better: true,
    value: |run| run.pointer("/rates/published")?.as_f64(),
};
static SUB_P99: ComparedMeasure = ComparedMeasure {
    name: "99th percentile of delivery latency",
    unit: "ms",
    is_higher_better: false,
    value: |run| sampler(run, "Sub", "p99"),
};
static PUB_P99: ComparedMeasure = ComparedMeasure {
    name: "99th percentile of publish latency",
    unit: "ms",
    is_higher_better: false,
    value: |run| sampler(run, "Pub", "p99"),
};
static CONNECT_P99: ComparedMeasure = ComparedMeasure {
    name: "99th percentile of connect latency",
    unit: "ms",
    is_higher_better: false,
    value: |run| sampler(run, "Connect", "p99"),
};

pub(crate) fn sampler(run: &Value, name: &str, key: &str) -> Option<f64> {
    list(run, "/samplers").iter().find(|one| one["name"] == name)?[key].as_f64()
}

impl PageVerdict {
    /// Says whether the result counts, with each major reservation as a reason.
    pub(crate) fn describe_standing(&self) -> String {
        let major = self.reservations.iter().filter(|one| one.is_major);
        let why = major.map(|one| one.text.as_str()).collect::<Vec<_>>().join(" ");
        match (self.standing, self.has_winner, self.reservations.len()) {
            (VerdictStanding::Counts, ..) => {
                "It counts: the tester and the host had room in every run.".into()
            }
            (VerdictStanding::CountsWithReservations, _, 1) => {
                "It counts, with one reservation.".into()
            }
            (VerdictStanding::CountsWithReservations, _, n) => {
                format!("It counts, with {n} reservations.")
            }
            (VerdictStanding::DoesNotCount, true, _) => format!("It does not count. {why}"),
            (VerdictStanding::DoesNotCount, false, _) => format!("The figures do not count. {why}"),
        }
    }
}

/// Smallest ratio of two throughputs that counts as a difference, and (`LEAD_MIN`) smallest lead of
/// a winner.
const RATES_DIFFER: f64 = 1.05;
const LEAD_MIN: f64 = 1.02;

pub(crate) fn verdict(groups: &[LoadGroup<'_>]) -> PageVerdict {
    let all: Vec<GroupVerdict> = groups.iter().map(group_verdict).collect();
    let mut reservations: Vec<ResultReservation> = Vec::new();
    for (group, own) in groups.iter().zip(&all) {
        for one in &own.reservations {
            let text = match groups.len() {
                1 => one.text.clone(),
                _ => format!("{}: {}", group.name, one.text),
            };
            reservations.push(ResultReservation { text, is_major: one.is_major });
        }
    }
    let standing = match &reservations[..] {
        [] => VerdictStanding::Counts,
        some if some.iter().any(|one| one.is_major) => VerdictStanding::DoesNotCount,
        _ => VerdictStanding::CountsWithReservations,
    };
    let (sentence, of_loads) = match &all[..] {
        [] => ("A report to conclude from is missing.".to_string(), Vec::new()),
        [one] => (one.sentence.clone(), Vec::new()),
        some => (summary(groups, some), some.iter().map(|one| one.sentence.clone()).collect()),
    };
    let has_winner = all.iter().any(|one| one.winner.is_some());
    PageVerdict { sentence, of_loads, standing, has_winner, reservations }
}

/// Summarizes several loads in a sentence.
fn summary(groups: &[LoadGroup<'_>], all: &[GroupVerdict]) -> String {
    let loads = all.len();
    if groups.iter().all(|group| group.brokers.len() < 2) {
        let is_good =
            |group: &&LoadGroup<'_>| group.brokers.iter().all(|one| one.faults().is_empty());
        let passed = groups.iter().filter(is_good).count();
        return format!("{passed} of {loads} runs passed without a fault.");
    }
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for (group, own) in groups.iter().zip(all) {
        let Some(winner) = own.winner.filter(|_| !own.is_void()) else { continue };
        let name = group.brokers[winner].name.as_str();
        match wins.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => wins.push((name, 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let void = all.iter().filter(|own| own.is_void()).count();
    let open = loads - void - wins.iter().map(|(_, count)| count).sum::<usize>();
    let mut undecided = match open {
        0 => String::new(),
        1 => "; 1 has no clear winner".to_string(),
        n => format!("; {n} have no clear winner"),
    };
    match void {
        0 => {}
        1 => undecided += "; 1 does not count",
        n => undecided += &format!("; {n} do not count"),
    }
    let [(first, count), others @ ..] = &wins[..] else {
        let uncounted = if void > 0 { " that counts" } else { "" };
        return format!("None of the {loads} loads has a clear winner{uncounted}.");
    };
    let mut leads: Vec<f64> = groups
        .iter()
        .zip(all)
        .filter(|(_, own)| !own.is_void())
        .filter(|(group, own)| own.winner.is_some_and(|at| group.brokers[at].name == *first))
        .filter_map(|(_, own)| own.lead)
        .collect();
    leads.sort_by(f64::total_cmp);
    let by = match (leads.first(), leads.last()) {
        (Some(least), Some(most)) if most / least < LEAD_MIN => {
            format!(", {} ahead", factor(*least))
        }
        (Some(least), Some(most)) => format!(", {} to {} ahead", factor(*least), factor(*most)),
        _ => String::new(),
    };
    let others = others.iter().map(|(name, count)| format!("{name} won {count}"));
    let others: Vec<String> = others.collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", list_of(&others)) };
    format!("{first} won {count} of {loads} loads{by}{others}{undecided}.")
}

/// Beginning of a sentence with a winner by figures that do not count.
const VOID_RESULT: &str = "Not a valid comparison. By its figures ";

impl GroupVerdict {
    /// Whether a major reservation makes the figures of this load invalid.
    pub(crate) fn is_void(&self) -> bool {
        self.reservations.iter().any(|one| one.is_major)
    }
}

fn factor(lead: f64) -> String {
    if lead < 2.0 { format!("{:.0} %", (lead - 1.0) * 100.0) } else { format!("{lead:.1} times") }
}

pub(crate) fn group_verdict(group: &LoadGroup<'_>) -> GroupVerdict {
    match (group.kind, &group.brokers[..]) {
        (GroupKind::Steps, _) => judge_steps(group),
        (GroupKind::Brokers, [only]) => {
            let (sentence, measure) = describe_single_run(only);
            let reservations = reservations(group, &[0]);
            let order = vec![0];
            GroupVerdict { sentence, winner: None, lead: None, measure, order, reservations }
        }
        (GroupKind::Brokers, _) => judge_brokers(group),
    }
}

fn judge_brokers(group: &LoadGroup<'_>) -> GroupVerdict {
    let is_eligible = |at: &usize| {
        let broker = &group.brokers[*at];
        broker.faults().is_empty() && broker.error().is_none() && measure_of_one(broker).is_some()
    };
    let (mut order, faulty): (Vec<usize>, Vec<usize>) =
        (0..group.brokers.len()).partition(is_eligible);
    let measure = deciding_measure(group, &order);
    let value = |at: usize| group.brokers[at].median(measure.value).unwrap_or(0.0);
    order.sort_by(|a, b| {
        let (a, b) = if measure.is_higher_better { (b, a) } else { (a, b) };
        value(*a).total_cmp(&value(*b))
    });
    let (mut sentence, winner, lead) = match &order[..] {
        [] => (format!("No broker passed {} without a fault.", group.name), None, None),
        [only] => {
            let name = &group.brokers[*only].name;
            let sentence = format!("{name} won {}: it alone had no fault.", group.name);
            (sentence, Some(*only), None)
        }
        [best, next, ..] => compare_leaders(group, measure, *best, *next),
    };
    for at in &faulty {
        let broker = &group.brokers[*at];
        let why = match broker.error() {
            Some(_) => "could not be run".to_string(),
            None if broker.faults().is_empty() => "has no figures".to_string(),
            None => fault_of(broker),
        };
        sentence += &format!(" {} is out: {why}.", broker.name);
    }
    let leading: Vec<usize> = order.iter().take(2).copied().collect();
    let reservations = reservations(group, &leading);
    order.extend(faulty);
    if winner.is_some() && reservations.iter().any(|one| one.is_major) {
        sentence.insert_str(0, VOID_RESULT);
    }
    GroupVerdict { sentence, winner, lead, measure, order, reservations }
}

/// Returns the main fault of a broker: the lost share of the deliveries, else the first fault.
pub(crate) fn fault_of(broker: &BrokerRuns<'_>) -> String {
    let sum = |path: &str| broker.runs.iter().map(|run| number(run, path)).sum::<f64>();
    let (lost, expected) = (sum("/messages/lost"), sum("/messages/expected"));
    if lost > 0.0 && expected > 0.0 {
        let share = lost / expected * 100.0;
        return format!(
            "it lost {} of {} deliveries ({} %)",
            amount(lost),
            amount(expected),
            amount(share)
        );
    }
    broker.faults().first().cloned().unwrap_or_default()
}

/// Returns the measure that decides among `eligible` brokers: a rate if the rates differ by
/// `RATES_DIFFER`, else a latency.
fn deciding_measure(group: &LoadGroup<'_>, eligible: &[usize]) -> &'static ComparedMeasure {
    let all = || eligible.iter().map(|at| &group.brokers[*at]);
    for rate in [&RECEIVED, &PUBLISHED] {
        let mut values: Vec<f64> = all().filter_map(|one| one.median(rate.value)).collect();
        values.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (values.first(), values.last())
            && *most > least * RATES_DIFFER
        {
            return rate;
        }
    }
    let has = |measure: &ComparedMeasure| {
        eligible.iter().all(|at| group.brokers[*at].median(measure.value).is_some())
    };
    [&SUB_P99, &PUB_P99, &CONNECT_P99].into_iter().find(|one| has(one)).unwrap_or(&SUB_P99)
}

fn compare_leaders(
    group: &LoadGroup<'_>,
    measure: &'static ComparedMeasure,
    best: usize,
    next: usize,
) -> (String, Option<usize>, Option<f64>) {
    let (first, second) = (&group.brokers[best], &group.brokers[next]);
    let of = |one: &BrokerRuns<'_>| one.median(measure.value).unwrap_or(0.0);
    let (a, b) = (of(first), of(second));
    let lead = if measure.is_higher_better { a / b.max(1e-9) } else { b / a.max(1e-9) };
    let (name, unit) = (measure.name, measure.unit);
    if lead < LEAD_MIN {
        let sentence = format!(
            "No clear winner in {}: the {name} of {} and of {} is the same within 2 %, {} {unit}.",
            group.name,
            first.name,
            second.name,
            amount(a)
        );
        return (sentence, None, None);
    }
    let ranges = first.range(measure.value).zip(second.range(measure.value));
    let do_overlap = |((a_min, a_max), (b_min, b_max)): ((f64, f64), (f64, f64))| {
        if measure.is_higher_better { a_min <= b_max } else { a_max >= b_min }
    };
    if first.runs.len() > 1 && ranges.is_some_and(do_overlap) {
        let span = |one: &BrokerRuns<'_>| {
            let (least, most) = one.range(measure.value).unwrap_or_default();
            format!("{} to {}", amount(least), amount(most))
        };
        let sentence = format!(
            "No clear winner in {}: the {name} of {} is best in the median, {} {unit}, and its \
             rounds ({}) overlap with those of {} ({}).",
            group.name,
            first.name,
            amount(a),
            span(first),
            second.name,
            span(second)
        );
        return (sentence, None, None);
    }
    let sentence = format!(
        "{} won {}: its {name} is {} {unit}; {}, the next, has {}, {}.",
        first.name,
        group.name,
        amount(a),
        second.name,
        amount(b),
        more_or_less(a, b)
    );
    (sentence, Some(best), Some(lead))
}

fn measure_of_one(broker: &BrokerRuns<'_>) -> Option<&'static ComparedMeasure> {
    let all = [&SUB_P99, &PUB_P99, &CONNECT_P99];
    all.into_iter().find(|measure| broker.median(measure.value).is_some())
}

/// Describes a single run by its faults or its latency, with the measure used.
fn describe_single_run(broker: &BrokerRuns<'_>) -> (String, &'static ComparedMeasure) {
    let (name, run) = (&broker.name, broker.runs[0]);
    let measure = measure_of_one(broker).unwrap_or(&SUB_P99);
    if let Some(why) = broker.error() {
        return (format!("{name} could not be run: {why}."), measure);
    }
    let faults = broker.faults();
    if !faults.is_empty() {
        return (format!("{name} failed: {}.", list_of(&faults)), measure);
    }
    let latency = match broker.median(measure.value) {
        Some(value) => format!("; the {} is {} ms", measure.name, amount(value)),
        None => String::new(),
    };
    let figure = |path: &str| number(run, path);
    let (received, expected) = (figure("/messages/received"), figure("/messages/expected"));
    let sent = figure("/counts/pub");
    let sentence = match () {
        () if expected > 0.0 => format!(
            "{name} delivered all {} messages once and in order, {} a second{latency}.",
            amount(received),
            amount(figure("/rates/received"))
        ),
        () if sent > 0.0 => format!(
            "{name} took {} messages, {} a second{latency}. Whether they arrived was not judged.",
            amount(sent),
            amount(figure("/rates/published"))
        ),
        () if figure("/counts/recv") > 0.0 => format!(
            "{name} delivered {} messages, {} a second{latency}. What others sent is not known \
             here, so loss was not judged.",
            amount(figure("/counts/recv")),
            amount(figure("/rates/received"))
        ),
        () if figure("/counts/connect_succ") > 0.0 => format!(
            "{name} took {} connections{latency}. No message was sent.",
            amount(figure("/counts/connect_succ"))
        ),
        () => format!("Nothing happened in this run of {name}: there is nothing to judge."),
    };
    (sentence, measure)
}

fn judge_steps(group: &LoadGroup<'_>) -> GroupVerdict {
    let steps: Vec<&Value> = group.brokers.iter().map(|step| step.runs[0]).collect();
    let best = steps.iter().position(|step| step["ramp"]["is_recommended"] == true);
    let mut sentence = match best {
        Some(at) => {
            let p99 =
                (SUB_P99.value)(steps[at]).map(|p99| format!(", with {} ms p99", amount(p99)));
            format!(
                "The recommended load of {} is {} messages/s in and out (rate {}){}.",
                group.name,
                amount(number(steps[at], "/ramp/load")),
                amount(number(steps[at], "/ramp/rate")),
                p99.unwrap_or_default()
            )
        }
        None => format!("No load of {} is recommended.", group.name),
    };
    for step in &steps {
        let why = text(step, "/ramp/broken");
        if !why.is_empty() {
            sentence += &format!(
                " The step of rate {} ended the ramp: {why}.",
                amount(number(step, "/ramp/rate"))
            );
        }
    }
    let mut reservations = reservations(group, &[]);
    reservations.extend(steps.iter().filter_map(|step| {
        let note = text(step, "/ramp/host_note");
        let text = format!("At rate {} {note}.", amount(number(step, "/ramp/rate")));
        (!note.is_empty()).then_some(ResultReservation { text, is_major: false })
    }));
    GroupVerdict {
        sentence,
        winner: best,
        lead: None,
        measure: &LOAD,
        order: (0..steps.len()).collect(),
        reservations,
    }
}

static LOAD: ComparedMeasure = ComparedMeasure {
    name: "load",
    unit: "messages/s in and out",
    is_higher_better: true,
    value: |run| run.pointer("/ramp/load")?.as_f64(),
};

#[cfg(test)]
mod tests;
