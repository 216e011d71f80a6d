//! Charts of one load: bars of the main figures, and curves over the measured time. Every axis of
//! values begins at zero. Phases before the measured phase are not drawn.

use super::super::cpu_resolution::{
    CPU_OF_DELIVERY, CPU_TICK_S, PROCESSOR_MEAN, amount_or_bound, cpu_resolution,
};
use super::super::grouping::{BrokerRuns, GroupKind, LoadGroup, median};
use super::super::verdict::{GroupVerdict, sampler};
use super::super::wording::{amount, fixed};
use super::super::{list, number, text};
use super::result_section::BarRow;
use super::{escape_html, series_class};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes a small bar chart for each figure of `BARS`, with a bar per broker. Nothing is drawn for
/// a single broker.
pub(super) fn bars(group: &LoadGroup<'_>, own: &GroupVerdict, out: &mut String) {
    if group.brokers.len() < 2 {
        return;
    }
    let _ = writeln!(out, "<div class=\"grid\">");
    for (name, unit, better, of) in BARS {
        let values: Vec<Option<f64>> = group.brokers.iter().map(|one| one.median(of)).collect();
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        if values.iter().all(Option::is_none) || *name == own.measure.name {
            continue;
        }
        let _ = writeln!(out, "<figure class=\"bars\">");
        let better = if group.kind == GroupKind::Steps || better.is_empty() {
            String::new()
        } else {
            format!("; {better} is better")
        };
        let _ = writeln!(out, "<figcaption>{name}, {unit}{better}</figcaption>\n<ul>");
        for (at, broker) in group.brokers.iter().enumerate() {
            let of_cpu = |run: &Value| Some(cpu_resolution(run, CPU_OF_DELIVERY));
            let resolution = Some(of_cpu).filter(|_| *name == CPU_BAR);
            let resolution = resolution.and_then(|of_cpu| broker.median(of_cpu)).unwrap_or(0.0);
            let row = BarRow { name: &broker.name, value: values[at], unit, note: "", resolution };
            let series = if group.kind == GroupKind::Steps { 0 } else { at };
            let _ = writeln!(out, "<li>{}</li>", row.html(most, series));
        }
        let _ = writeln!(out, "</ul>\n</figure>");
    }
    let _ = writeln!(out, "</div>");
}

type ChartFigure = fn(&Value) -> Option<f64>;

/// Name, unit, direction of better values, and the figure itself.
const BARS: &[(&str, &str, &str, ChartFigure)] = &[
    ("Delivered", "messages/s", "longer", |run| run.pointer("/rates/received")?.as_f64()),
    ("Median latency of deliveries", "ms", "shorter", |run| sampler(run, "Sub", "p50")),
    ("99th percentile of delivery latency", "ms", "shorter", |run| sampler(run, "Sub", "p99")),
    (CPU_BAR, "\u{b5}s", "shorter", |run| run.pointer(CPU_OF_DELIVERY)?.as_f64()),
    ("Memory at most", "MB", "shorter", |run| {
        Some(run.pointer("/target_use/memory_kb/max")?.as_f64()? / 1024.0)
    }),
    ("99th percentile of connect latency", "ms", "shorter", |run| sampler(run, "Connect", "p99")),
];

const CPU_BAR: &str = "CPU a delivery";

/// A figure over time, drawn as a curve.
struct ChartCurve {
    name: &'static str,
    unit: &'static str,
    path: &'static str,
    factor: f64,
    /// Whether several seconds drawn as one point show their maximum instead of their mean.
    is_peak: bool,
    /// Whether the phase of connecting is drawn as well.
    is_of_all: bool,
    /// The figure of a whole run, if a report has one. For a percentile this is not the median of
    /// the seconds.
    whole_run: Option<ChartFigure>,
    /// Path of the whole run's figure if the figure is a processor time, for `cpu_resolution`.
    cpu: Option<&'static str>,
}

pub(super) fn over_time(group: &LoadGroup<'_>, out: &mut String) {
    let drawn = |curves: &[ChartCurve]| {
        let mut charts = String::new();
        let count = curves.iter().filter(|curve| curve.draw(group, &mut charts)).count();
        (count, charts)
    };
    let (count, charts) = drawn(MAIN);
    if count == 0 {
        return;
    }
    let rounds = group.brokers.iter().map(|one| one.runs.len()).max().unwrap_or(1);
    let rounds = match rounds {
        1 => "",
        _ => {
            " A thick line and a figure in bold are the median of the rounds, a thin line is a \
              round."
        }
    };
    let _ = writeln!(
        out,
        "<h3>Over the measured time</h3>\n<p class=\"note\">Seconds since measuring began; warming \
         up is left out.{rounds}</p>\n<div class=\"grid\">\n{charts}</div>"
    );
    let (count, charts) = drawn(MORE);
    if count > 0 {
        let _ = writeln!(
            out,
            "<details><summary>{count} more charts: clients, bytes, broker and host</summary>\n\
             <div class=\"grid\">\n{charts}</div>\n</details>"
        );
    }
}

/// Points of a line: seconds and values.
type ChartPoints = Vec<(f64, f64)>;

impl ChartCurve {
    /// Draws the chart. Returns whether there was a value to draw.
    fn draw(&self, group: &LoadGroup<'_>, out: &mut String) -> bool {
        let rounds: Vec<Vec<ChartPoints>> =
            group.brokers.iter().map(|broker| self.rounds(broker)).collect();
        let all = || rounds.iter().flatten().flatten();
        let Some(most) = all().map(|(_, value)| *value).reduce(f64::max) else { return false };
        let span = all().map(|(at, _)| *at).fold(1.0, f64::max);
        let axis = ChartAxis::for_values_to(most);
        let _ = writeln!(
            out,
            "<figure class=\"chart\">\n<figcaption>{}, {}</figcaption>\n<div class=\"plot\">",
            self.name, self.unit
        );
        for tick in axis.ticks() {
            let _ = writeln!(
                out,
                "<span class=\"tick\" style=\"bottom:{:.2}%\">{}</span>",
                tick / axis.top * 100.0,
                fixed(tick, axis.digits())
            );
        }
        let _ = writeln!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}\">",
            escape_html(&self.describe(group, &rounds, span))
        );
        for tick in axis.ticks() {
            let y = HEIGHT - tick / axis.top * HEIGHT;
            let _ = writeln!(out, "<path class=\"rule\" d=\"M0 {y:.1}H{WIDTH}\"/>");
        }
        for (at, own) in rounds.iter().enumerate() {
            let series = series_class(at);
            if own.len() > 1 {
                for round in own {
                    let path = path(round, span, axis.top);
                    let _ = writeln!(out, "<path class=\"line thin {series}\" d=\"{path}\"/>");
                }
            }
            let path = path(&median_points(own), span, axis.top);
            let _ = writeln!(out, "<path class=\"line {series}\" d=\"{path}\"/>");
        }
        let _ = writeln!(
            out,
            "</svg>\n</div>\n<p class=\"times\"><span>0 s</span><span>{} s</span></p>",
            amount(span)
        );
        self.write_legend(group, &rounds, out);
        let _ = writeln!(out, "</figure>");
        true
    }

    /// Writes the names of the lines with their figures.
    fn write_legend(&self, group: &LoadGroup<'_>, rounds: &[Vec<ChartPoints>], out: &mut String) {
        let _ = writeln!(out, "<ul class=\"key\">");
        for (at, own) in rounds.iter().enumerate() {
            let figures = match self.figures(&group.brokers[at], own) {
                Some((name, value, peak)) => {
                    format!("{name} <b>{value}</b>, highest second {peak}")
                }
                None => "no figures".into(),
            };
            let _ = writeln!(
                out,
                "<li><svg class=\"swatch\" viewBox=\"0 0 28 8\" aria-hidden=\"true\"><path \
                 class=\"line {}\" d=\"M0 4H28\"/></svg><span>{}</span> \
                 <span class=\"figures\">{figures}</span></li>",
                series_class(at),
                escape_html(&group.brokers[at].name)
            );
        }
        let _ = writeln!(out, "</ul>");
        let is_below_tick = |value: f64| self.cpu.is_some() && value < CPU_TICK_S / 2.0;
        if rounds.iter().flatten().flatten().any(|(_, value)| is_below_tick(*value)) {
            let _ = writeln!(
                out,
                "<p class=\"note\">The kernel counts processor time in clock ticks of 10 ms. A \
                 second with less than one tick is drawn at 0.</p>"
            );
        }
    }

    /// Returns the legend's figures of a line: name, value, and maximum of a second.
    fn figures(
        &self,
        broker: &BrokerRuns<'_>,
        rounds: &[ChartPoints],
    ) -> Option<(&'static str, String, String)> {
        let (middle, peak) = (median_value(rounds)?, peak(rounds)?);
        let of_seconds = if self.cpu.is_some() { CPU_TICK_S } else { 0.0 };
        let of_run = |path| broker.median(|run| Some(cpu_resolution(run, path))).unwrap_or(0.0);
        let (name, value, resolution) =
            match self.whole_run.and_then(|figure| broker.median(figure)) {
                Some(whole) => ("whole run", whole, self.cpu.map_or(0.0, of_run)),
                None => ("median second", middle, of_seconds),
            };
        let value = amount_or_bound(value, resolution);
        Some((name, value, amount_or_bound(peak, of_seconds)))
    }

    /// Describes the chart in words, for screen readers.
    fn describe(&self, group: &LoadGroup<'_>, rounds: &[Vec<ChartPoints>], span: f64) -> String {
        let mut words = format!("{}, {}, over {} s.", self.name, self.unit, amount(span));
        for (at, own) in rounds.iter().enumerate() {
            let name = &group.brokers[at].name;
            let _ = match self.figures(&group.brokers[at], own) {
                Some((figure, value, peak)) => {
                    write!(words, " {name}: {figure} {value}, highest second {peak}.")
                }
                None => write!(words, " {name}: no figures."),
            };
        }
        words
    }

    fn rounds(&self, broker: &BrokerRuns<'_>) -> Vec<ChartPoints> {
        let rounds = broker.runs.iter().map(|run| self.points(run));
        rounds.filter(|points| !points.is_empty()).collect()
    }

    fn points(&self, run: &Value) -> ChartPoints {
        let seconds = list(run, "/seconds").iter();
        let seconds: Vec<&Value> =
            seconds.filter(|second| self.is_of_all || is_measured(run, second)).collect();
        let first = seconds.first().map_or(0.0, |second| number(second, "/t"));
        let points: ChartPoints = seconds
            .iter()
            .filter_map(|second| {
                let value = second.pointer(self.path)?.as_f64()? * self.factor;
                Some((number(second, "/t") - first, value))
            })
            .collect();
        self.thin_out(points)
    }

    /// Merges points so that at most `POINTS_MAX` remain.
    fn thin_out(&self, points: ChartPoints) -> ChartPoints {
        let size = points.len().div_ceil(POINTS_MAX).max(1);
        let one = |some: &[(f64, f64)]| {
            let peak = some.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            let mean = some.iter().map(|(_, value)| value).sum::<f64>() / some.len() as f64;
            (some[0].0, if self.is_peak { peak } else { mean })
        };
        points.chunks(size).map(one).collect()
    }
}

/// Whether `second` is part of the measured phase. In old reports without `phase` the lengths of
/// the phases decide.
fn is_measured(run: &Value, second: &Value) -> bool {
    if second["phase"].is_string() {
        return text(second, "/phase") == "measure";
    }
    if !run["phases_s"].is_object() {
        return true;
    }
    let before = number(run, "/phases_s/connect") + number(run, "/phases_s/warm_up");
    let at = number(second, "/t") + 0.05;
    at >= before && at < before + number(run, "/phases_s/measure") + 0.1
}

/// Returns the median of the rounds for each second.
fn median_points(rounds: &[ChartPoints]) -> ChartPoints {
    if let [only] = rounds {
        return only.clone();
    }
    let mut at_second: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (at, value) in rounds.iter().flatten() {
        at_second.entry(at.round() as i64).or_default().push(*value);
    }
    let middle = at_second.into_iter().filter_map(|(at, mut values)| {
        values.sort_by(f64::total_cmp);
        Some((at as f64, median(values)?))
    });
    middle.collect()
}

fn median_value(rounds: &[ChartPoints]) -> Option<f64> {
    let mut all: Vec<f64> = rounds.iter().flatten().map(|(_, value)| *value).collect();
    all.sort_by(f64::total_cmp);
    median(all)
}

fn peak(rounds: &[ChartPoints]) -> Option<f64> {
    rounds.iter().flatten().map(|(_, value)| *value).reduce(f64::max)
}

/// Returns the SVG path of a line. Missing seconds leave a gap; a single second is a short line.
fn path(points: &ChartPoints, span: f64, top: f64) -> String {
    let x = |at: f64| at / span * WIDTH;
    let y = |value: f64| HEIGHT - value / top * HEIGHT;
    let step = points.windows(2).map(|two| two[1].0 - two[0].0).fold(f64::MAX, f64::min);
    let mut path = String::new();
    let mut last = f64::MIN;
    for (at, value) in points {
        let command = if at - last > step * 2.5 || path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", x(*at), y(*value));
        last = *at;
    }
    if points.len() == 1 {
        path.push_str("h40");
    }
    path
}

/// Axis of values, from zero to a round number.
struct ChartAxis {
    top: f64,
    step: f64,
}

impl ChartAxis {
    fn for_values_to(most: f64) -> ChartAxis {
        let rough = if most > 0.0 { most / 3.0 } else { 1.0 / 3.0 };
        let size = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|n| n * size).find(|step| *step >= rough);
        let step = step.unwrap_or(size * 10.0);
        ChartAxis { top: (most / step).ceil().max(1.0) * step, step }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, count) = (self.step, (self.top / self.step).round() as u32);
        (0..=count).map(move |n| f64::from(n) * step)
    }

    fn digits(&self) -> usize {
        (1.0 - self.step.log10().floor()).clamp(0.0, 6.0) as usize
    }
}

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 300.0;
const POINTS_MAX: usize = 240;

const fn curve(name: &'static str, unit: &'static str, path: &'static str) -> ChartCurve {
    ChartCurve {
        name,
        unit,
        path,
        factor: 1.0,
        is_peak: false,
        is_of_all: false,
        whole_run: None,
        cpu: None,
    }
}

/// Returns `curve` with a figure of the whole run.
const fn with_whole(whole_run: ChartFigure, curve: ChartCurve) -> ChartCurve {
    ChartCurve { whole_run: Some(whole_run), ..curve }
}

const fn peak_curve(name: &'static str, path: &'static str) -> ChartCurve {
    ChartCurve { is_peak: true, ..curve(name, "ms", path) }
}

const fn scaled_curve(factor: f64, curve: ChartCurve) -> ChartCurve {
    ChartCurve { factor, ..curve }
}

const fn whole_run_curve(curve: ChartCurve) -> ChartCurve {
    ChartCurve { is_of_all: true, ..curve }
}

const KILO: f64 = 1.0 / 1024.0;
const PERCENT: f64 = 100.0;

const MAIN: &[ChartCurve] = &[
    with_whole(
        |run| run.pointer("/rates/received")?.as_f64(),
        curve("Delivered", "messages/s", "/received"),
    ),
    with_whole(
        |run| sampler(run, "Sub", "p99"),
        peak_curve("99th percentile of delivery latency", "/sub_ms/p99"),
    ),
    with_whole(
        |run| sampler(run, "Sub", "p50"),
        peak_curve("Median latency of deliveries", "/sub_ms/p50"),
    ),
    ChartCurve {
        cpu: Some(PROCESSOR_MEAN),
        ..with_whole(
            |run| run.pointer(PROCESSOR_MEAN)?.as_f64(),
            curve("Broker CPU", "processors", "/target/cpu"),
        )
    },
    scaled_curve(KILO, curve("Broker memory", "MB", "/target/memory_kb")),
    with_whole(
        |run| sampler(run, "Pub", "p99"),
        peak_curve("99th percentile of publish latency", "/pub_ms/p99"),
    ),
];

const MORE: &[ChartCurve] = &[
    with_whole(
        |run| run.pointer("/rates/published")?.as_f64(),
        curve("Published", "messages/s", "/published"),
    ),
    with_whole(
        |run| sampler(run, "Sub", "mean"),
        peak_curve("Mean latency of deliveries", "/sub_ms/mean"),
    ),
    with_whole(
        |run| sampler(run, "Pub", "mean"),
        peak_curve("Mean latency of publishing", "/pub_ms/mean"),
    ),
    whole_run_curve(peak_curve(
        "Mean latency of connecting, from the first client on",
        "/connect_ms/mean",
    )),
    whole_run_curve(curve("Clients, from the first one on", "connected", "/live")),
    scaled_curve(KILO, curve("Received", "KB/s", "/bytes_in")),
    curve("Successful requests", "requests/s", "/succeeded"),
    curve("Failed requests", "in a second", "/failed"),
    scaled_curve(PERCENT, curve("Host CPU in use", "% of all processors", "/target/host_cpu")),
    scaled_curve(
        PERCENT,
        curve("CPU given to others (steal)", "% of all processors", "/target/host_stolen"),
    ),
    scaled_curve(
        PERCENT,
        curve("CPU of other processes", "% of all processors", "/target/host_others"),
    ),
    scaled_curve(KILO, curve("Host memory in use", "MB", "/target/host_memory_kb")),
    curve("Broker threads", "threads", "/target/threads"),
    curve("Broker descriptors", "open", "/target/descriptors"),
    curve("Broker context switches", "switches/s", "/target/switches_per_s"),
    scaled_curve(KILO, curve("Broker disk writes", "KB/s", "/target/disk_written_per_s")),
    scaled_curve(KILO, curve("Host network in", "KB/s", "/target/net_in_per_s")),
    scaled_curve(KILO, curve("Host network out", "KB/s", "/target/net_out_per_s")),
    scaled_curve(PERCENT, curve("Tester's busiest thread", "% of a processor", "/thread_cpu_max")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::grouping::group_by_load;
    use serde_json::json;

    #[test]
    fn axes_are_round_and_begin_at_zero() {
        for (most, ticks) in [
            (8.4, &[0.0, 5.0, 10.0][..]),
            (1_000.0, &[0.0, 500.0, 1_000.0]),
            (0.03, &[0.0, 0.01, 0.02, 0.03]),
            (0.0, &[0.0, 0.5]),
        ] {
            let axis = ChartAxis::for_values_to(most);
            let found: Vec<f64> = axis.ticks().collect();
            assert!(axis.top >= most && found[0] == 0.0);
            let is_close = found.iter().zip(ticks).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(found.len() == ticks.len() && is_close, "{most}: {found:?}");
        }
    }

    #[test]
    fn warming_up_is_not_drawn() {
        let second = |t: f64, phase: &str, n: f64| json!({ "t": t, "phase": phase, "received": n });
        let report = json!({ "seconds": [
            second(0.0, "connect", 900.0),
            second(1.0, "warm_up", 800.0),
            second(2.0, "measure", 10.0),
            second(3.0, "measure", 20.0),
            second(4.0, "drain", 700.0),
        ]});
        let reports = [report];
        let groups = group_by_load(&reports);
        assert_eq!(MAIN[0].rounds(&groups[0].brokers[0]), [vec![(0.0, 10.0), (1.0, 20.0)]]);
        let of_all = MORE.iter().find(|curve| curve.is_of_all).expect("there is one");
        assert_eq!(of_all.path, "/connect_ms/mean");
    }

    #[test]
    fn the_legend_has_the_percentile_of_the_whole_run_and_no_processor_time_below_a_tick() {
        let second = |t: f64, p99: f64| {
            json!({ "t": t, "received": 1, "sub_ms": { "p99": p99 },
            "target": { "cpu": 0.0 } })
        };
        let report = json!({
            "target_use": { "cpu": { "mean": 0.0, "max": 0.0 }, "cpu_us_per_delivery": 0.0 },
            "phases_s": { "measure": 3.0 },
            "rates": { "received": 1.0 },
            "samplers": [{ "name": "Sub", "p99": 4.5 }],
            "seconds": [second(0.0, 1.0), second(1.0, 2.0), second(2.0, 5.0)],
        });
        let reports = [report.clone(), report];
        let groups = group_by_load(&reports);
        let mut page = String::new();
        over_time(&groups[0], &mut page);
        assert!(page.contains("whole run <b>4.5</b>, highest second 5<"), "{page}");
        assert!(
            page.contains("whole run <b>below 0.003</b>, highest second below 0.01<"),
            "{page}"
        );
        assert!(page.contains("A second with less than one tick is drawn at 0."), "{page}");
        assert!(!page.contains("<b>0</b>"), "{page}");
    }

    #[test]
    fn long_tests_are_drawn_with_their_peaks() {
        let points: ChartPoints = (0..1_000).map(|n| (f64::from(n), f64::from(n % 10))).collect();
        let fewer = MAIN[1].thin_out(points);
        assert!(fewer.len() <= POINTS_MAX && fewer.iter().all(|(_, value)| *value >= 4.0));
    }
}
