//! Head of the page: the conclusion, whether the result counts, and a chart of the result.

use super::super::cpu_resolution::amount_or_bound;
use super::super::grouping::{GroupKind, LoadGroup};
use super::super::verdict::{GroupVerdict, PageVerdict, VerdictStanding, fault_of, group_verdict};
use super::super::wording::{list_of, more_or_less};
use super::{escape_html, series_class};
use std::fmt::Write as _;

pub(super) fn write(groups: &[LoadGroup<'_>], verdict: &PageVerdict, out: &mut String) {
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let _ = writeln!(out, "<header>\n<p class=\"over\">{}</p>", page_kind(groups));
    let _ = writeln!(out, "<h1>{}</h1>\n</header>", escape_html(&list_of(&names)));
    let _ = writeln!(out, "<section class=\"answer\" aria-label=\"Conclusion\">");
    let _ = writeln!(out, "<p class=\"sentence\">{}</p>", escape_html(&verdict.sentence));
    write_standing(verdict, out);
    for group in groups {
        write_picture(group, &group_verdict(group), groups.len() > 1, out);
    }
    write_reasons(verdict, out);
    let _ = writeln!(out, "</section>");
}

/// Returns the kind of the page, as its heading.
fn page_kind(groups: &[LoadGroup<'_>]) -> &'static str {
    match groups {
        _ if groups.iter().any(|group| group.kind == GroupKind::Steps) => "Ramp of an MQTT load",
        _ if groups.iter().any(|group| group.brokers.len() > 1) => "Comparison of MQTT brokers",
        _ => "Load test of an MQTT broker",
    }
}

fn write_standing(verdict: &PageVerdict, out: &mut String) {
    let (class, mark) = match verdict.standing {
        VerdictStanding::Counts => ("good", "\u{2713}"),
        VerdictStanding::CountsWithReservations => ("fair", "!"),
        VerdictStanding::DoesNotCount => ("bad", "\u{2717}"),
    };
    let says = verdict.describe_standing();
    let _ = writeln!(
        out,
        "<p class=\"standing {class}\"><span aria-hidden=\"true\">{mark}</span> {}</p>",
        escape_html(&says)
    );
}

/// Writes the reservations below the chart, since a reader looks for the result first.
fn write_reasons(verdict: &PageVerdict, out: &mut String) {
    if verdict.reservations.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h3>Reservations</h3>");
    let _ = writeln!(out, "<ul class=\"reservations\">");
    for one in &verdict.reservations {
        let class = if one.is_major { " class=\"major\"" } else { "" };
        let _ = writeln!(out, "<li{class}>{}</li>", escape_html(&one.text));
    }
    let _ = writeln!(out, "</ul>");
}

/// Writes the chart of the deciding measure: a ranking of brokers, or the percentiles of a single
/// run.
fn write_picture(group: &LoadGroup<'_>, own: &GroupVerdict, is_named: bool, out: &mut String) {
    let _ = writeln!(out, "<figure class=\"bars main\">");
    if is_named {
        let _ = writeln!(out, "<p class=\"of-load\">{}</p>", escape_html(&own.sentence));
    }
    if group.brokers.len() == 1 && group.kind == GroupKind::Brokers {
        percentiles(group, own, out);
    } else {
        ranking(group, own, out);
    }
    let _ = writeln!(out, "</figure>");
}

fn ranking(group: &LoadGroup<'_>, own: &GroupVerdict, out: &mut String) {
    let better = match (group.kind, own.measure.is_higher_better) {
        (GroupKind::Steps, _) => "each step of the ramp",
        (GroupKind::Brokers, true) => "longer is better",
        (GroupKind::Brokers, false) => "shorter is better",
    };
    let of = |at: usize| group.brokers[at].median(own.measure.value);
    let rounds = group.brokers.iter().map(|one| one.runs.len()).max().unwrap_or(1);
    let medians = if rounds > 1 { format!(", median of {rounds} rounds") } else { String::new() };
    let _ = writeln!(
        out,
        "<figcaption>{}, {}{medians}; {better}</figcaption>\n<ol>",
        capital(own.measure.name),
        own.measure.unit
    );
    let most = own.order.iter().filter_map(|at| of(*at)).fold(0.0, f64::max);
    let best = own.order.first().and_then(|at| of(*at)).unwrap_or(0.0);
    for (place, at) in own.order.iter().enumerate() {
        let broker = &group.brokers[*at];
        let is_winner = own.winner == Some(*at);
        let is_out = broker.error().is_some()
            || group.kind == GroupKind::Brokers && !broker.faults().is_empty();
        let note = match (group.kind, of(*at)) {
            (GroupKind::Steps, _) if is_winner => "recommended".to_string(),
            (GroupKind::Steps, _) => String::new(),
            _ if broker.error().is_some() => "could not be run".to_string(),
            _ if is_out => format!("out: {}", fault_of(broker)),
            _ if is_winner && own.is_void() => "best, does not count".to_string(),
            _ if is_winner => "won".to_string(),
            (_, Some(value)) if place > 0 => more_or_less(best, value),
            _ => String::new(),
        };
        let class = match (is_winner && !own.is_void(), is_out) {
            (true, _) => " class=\"won\"",
            (_, true) => " class=\"out\"",
            _ => "",
        };
        let series = if group.kind == GroupKind::Steps { 0 } else { *at };
        let row = BarRow {
            name: &broker.name,
            value: of(*at),
            unit: short(own),
            note: &note,
            resolution: 0.0,
        };
        let _ = writeln!(out, "<li{class}>{}</li>", row.html(most, series));
    }
    let _ = writeln!(out, "</ol>");
}

fn percentiles(group: &LoadGroup<'_>, own: &GroupVerdict, out: &mut String) {
    let (name, sampler) = match own.measure.name {
        name if name.contains("connect") => ("Latency of connecting", "Connect"),
        name if name.contains("publish") => ("Latency of publishing", "Pub"),
        _ => ("Latency of deliveries", "Sub"),
    };
    let of = |key: &str| {
        group.brokers[0].median(|run| super::super::verdict::sampler(run, sampler, key))
    };
    let Some(most) = of("max") else { return };
    let _ = writeln!(out, "<figcaption>{name}, ms</figcaption>\n<ol>");
    for (name, key) in [
        ("half within", "p50"),
        ("90 % within", "p90"),
        ("99 % within", "p99"),
        ("99.9 % within", "p999"),
        ("all within", "max"),
    ] {
        let row = BarRow { name, value: of(key), unit: "ms", note: "", resolution: 0.0 };
        let _ = writeln!(out, "<li>{}</li>", row.html(most, 0));
    }
    let _ = writeln!(out, "</ol>");
}

fn short(own: &GroupVerdict) -> &'static str {
    if own.measure.unit.starts_with("messages/s") { "messages/s" } else { own.measure.unit }
}

pub(super) fn capital(text: &str) -> String {
    let mut all = text.chars();
    all.next().map_or(String::new(), |first| first.to_uppercase().chain(all).collect())
}

/// A row of a bar chart: name, bar and value.
pub(super) struct BarRow<'a> {
    pub(super) name: &'a str,
    pub(super) value: Option<f64>,
    pub(super) unit: &'a str,
    pub(super) note: &'a str,
    /// A value below this resolution is shown as a bound.
    pub(super) resolution: f64,
}

impl BarRow<'_> {
    /// Returns the row as HTML. The bar begins at zero, and the bar of the value `most` has the
    /// full width.
    pub(super) fn html(&self, most: f64, series: usize) -> String {
        let width = self.value.map_or(0.0, |value| value / most.max(1e-12) * 100.0);
        let value = match self.value {
            Some(value) => format!("{} {}", amount_or_bound(value, self.resolution), self.unit),
            None => "no figure".into(),
        };
        let note = match self.note {
            "" => String::new(),
            note => format!(" <small>{}</small>", escape_html(note)),
        };
        format!(
            "<span class=\"who\">{}</span>\
             <svg class=\"bar {}\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><rect width=\"{width:.2}\" height=\"10\"/></svg>\
             <span class=\"value\"><b>{value}</b>{note}</span>",
            escape_html(self.name),
            series_class(series)
        )
    }
}
