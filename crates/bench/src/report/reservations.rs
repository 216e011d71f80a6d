//! Reservations: reasons why the figures of a comparison may describe the tester or the host rather
//! than a broker.

use super::grouping::{GroupKind, LoadGroup};
use super::wording::{amount, fixed, list_of};
use super::{list, number};
use crate::limits::{HOST_CPU_MAX, OTHERS_MAJOR, OTHERS_NOTED, STOLEN_MAJOR, STOLEN_NOTED};
use serde_json::Value;

/// A reservation about a result, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultReservation {
    pub(crate) text: String,
    /// Whether the result does not count because of this reservation.
    pub(crate) is_major: bool,
}

/// Returns the reservations about a load. `leading` holds the indexes of the two brokers compared
/// by the result.
pub(crate) fn reservations(group: &LoadGroup<'_>, leading: &[usize]) -> Vec<ResultReservation> {
    let mut all = Vec::new();
    let runs: Vec<(usize, &Value)> = group
        .brokers
        .iter()
        .enumerate()
        .flat_map(|(at, broker)| broker.runs.iter().map(move |run| (at, *run)))
        .collect();
    all.extend(incomplete_runs(group, &runs, leading));
    all.extend(tester_bound(group, &runs, leading));
    all.extend(host_shared(group, &runs, leading));
    let late = runs.iter().filter(|(_, run)| has_warning(run, "One message in a hundred left"));
    let late: Vec<_> = late.map(|(at, _)| *at).collect();
    all.extend(affected_runs(group, late, |who, count| ResultReservation {
        text: format!(
            "The tester sent late (a hundredth of its messages by more than 10 ms) in {count} of \
             {} runs, those of {who}: their latencies hold this wait.",
            runs.len()
        ),
        is_major: false,
    }));
    let is_alone = group.kind == GroupKind::Brokers && group.brokers.len() > 1;
    if is_alone && group.brokers.iter().all(|broker| broker.runs.len() == 1) {
        let text = "There was one round: how much rounds differ is not known.".to_string();
        all.push(ResultReservation { text, is_major: false });
    }
    let is_unjudged =
        |run: &Value| number(run, "/counts/pub") > 0.0 && number(run, "/messages/expected") == 0.0;
    if is_alone && runs.iter().any(|(_, run)| is_unjudged(run)) {
        let text = "Loss was not judged: see the warnings of the runs.".to_string();
        all.push(ResultReservation { text, is_major: false });
    }
    all
}

/// Reports runs that were cut short or failed to start.
fn incomplete_runs(
    group: &LoadGroup<'_>,
    runs: &[(usize, &Value)],
    leading: &[usize],
) -> Vec<ResultReservation> {
    let mut all = Vec::new();
    let cut = runs.iter().filter(|(_, run)| run["interrupted"] == true);
    all.extend(affected_runs(group, cut.map(|(at, _)| *at).collect(), |who, count| {
        ResultReservation {
            text: format!(
                "{count} of {} runs were cut short by a signal, those of {who}.",
                runs.len()
            ),
            is_major: true,
        }
    }));
    let errors = runs.iter().filter(|(_, run)| run["error"].is_string());
    all.extend(affected_runs(group, errors.map(|(at, _)| *at).collect(), |who, _| {
        ResultReservation {
            text: format!("{who} could not be run; the reason is below."),
            is_major: group.brokers.len() > 1 && leading.len() < 2,
        }
    }));
    all
}

fn tester_bound(
    group: &LoadGroup<'_>,
    runs: &[(usize, &Value)],
    leading: &[usize],
) -> Option<ResultReservation> {
    let hot = runs.iter().filter(|(_, run)| number(run, "/own/hot_seconds") > 0.0);
    let hot: Vec<&(usize, &Value)> = hot.collect();
    let is_half = |(at, run): &&&(usize, &Value)| {
        leading.contains(at)
            && number(run, "/own/hot_seconds") * 2.0 >= number(run, "/phases_s/measure").max(1.0)
    };
    let is_major = hot.iter().any(|one| is_half(&one));
    affected_runs(group, hot.iter().map(|(at, _)| *at).collect(), |who, count| ResultReservation {
        text: format!(
            "The tester was at its limit in {count} of {} runs, those of {who}: their figures may \
             be the tester's own.",
            runs.len()
        ),
        is_major,
    })
}

/// Reports processors' time taken by a hypervisor or by other processes, above the bounds `NOTED`
/// and `MAJOR` of `limits`.
fn host_shared(
    group: &LoadGroup<'_>,
    runs: &[(usize, &Value)],
    leading: &[usize],
) -> Vec<ResultReservation> {
    let mut all = Vec::new();
    for (path, noted_at, major_at, what) in [
        ("/target_use/host_stolen/mean", STOLEN_NOTED, STOLEN_MAJOR, "The host gave others"),
        ("/target_use/host_others/mean", OTHERS_NOTED, OTHERS_MAJOR, "Other processes used"),
    ] {
        let above = runs.iter().filter(|(_, run)| number(run, path) > noted_at);
        let above: Vec<&(usize, &Value)> = above.collect();
        let most = above.iter().map(|(_, run)| number(run, path)).fold(0.0, f64::max);
        let is_major =
            above.iter().any(|(at, run)| leading.contains(at) && number(run, path) > major_at);
        let tail = if path.contains("stolen") { " (steal)" } else { "" };
        all.extend(affected_runs(group, above.iter().map(|(at, _)| *at).collect(), |who, count| {
            let text = format!(
                "{what} up to {} % of the processors' time{tail} in {count} of {} runs, those of \
                 {who}.",
                fixed(most * 100.0, 1),
                runs.len()
            );
            ResultReservation { text, is_major }
        }));
    }
    let is_busy = |run: &Value| number(run, "/target_use/host_cpu/mean") > HOST_CPU_MAX;
    let busy = runs.iter().filter(|(_, run)| is_busy(run)).map(|(at, _)| *at).collect();
    all.extend(affected_runs(group, busy, |who, count| ResultReservation {
        text: format!(
            "The host's processors were busy for more than {} % of the time in {count} of {} \
             runs, those of {who}: latencies hold waiting for a processor.",
            amount(HOST_CPU_MAX * 100.0),
            runs.len()
        ),
        is_major: false,
    }));
    all
}

/// Builds a reservation from the distinct names of the brokers and the number of runs; `None`
/// without runs.
fn affected_runs(
    group: &LoadGroup<'_>,
    places: Vec<usize>,
    say: impl Fn(String, usize) -> ResultReservation,
) -> Option<ResultReservation> {
    let count = places.len();
    let mut unique = places;
    unique.sort_unstable();
    unique.dedup();
    let names: Vec<String> = unique.iter().map(|at| group.brokers[*at].name.clone()).collect();
    (count > 0).then(|| say(list_of(&names), count))
}

fn has_warning(run: &Value, start: &str) -> bool {
    let mut warnings = list(run, "/warnings").iter().filter_map(Value::as_str);
    warnings.any(|warning| warning.starts_with(start))
}
