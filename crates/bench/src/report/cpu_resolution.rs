//! Resolution of processor times. Linux counts the time of a process in clock ticks
//! (`proc_pid_stat(5)`), so a figure below one tick is shown as a bound: zero would not be a
//! measurement.

use super::number;
use super::wording::{amount_digits, fixed};
use serde_json::Value;

/// Returns the smallest positive figure that a run can measure at `path` of its report; 0 for paths
/// without processor times of the broker.
pub(crate) fn cpu_resolution(run: &Value, path: &str) -> f64 {
    let measured_s = number(run, "/phases_s/measure").max(1.0);
    match path {
        PROCESSOR_MEAN => CPU_TICK_S / measured_s,
        PROCESSOR_MAX => CPU_TICK_S,
        CPU_OF_DELIVERY => {
            let received = number(run, "/rates/received") * measured_s;
            CPU_TICK_S * 1e6 / received.max(1.0)
        }
        _ => 0.0,
    }
}

/// Formats a figure with `digits` decimals, or returns its [`bound`].
pub(crate) fn fixed_or_bound(value: f64, digits: usize, resolution: f64) -> String {
    bound(value, digits, resolution).unwrap_or_else(|| fixed(value, digits))
}

/// Returns "below N" for a figure below the resolution or below the last of `digits` decimals;
/// `None` for other figures. Figures from half of the bound on are shown as measured, since a
/// second of a report may be slightly longer than one second.
pub(crate) fn bound(value: f64, digits: usize, resolution: f64) -> Option<String> {
    let least = resolution.max(0.1_f64.powi(digits as i32));
    let is_below = resolution > 0.0 && value < least / 2.0;
    is_below.then(|| format!("below {}", fixed(least, digits)))
}

/// Formats a value with three significant digits, or as below the resolution, like
/// [`fixed_or_bound`].
pub(crate) fn amount_or_bound(value: f64, resolution: f64) -> String {
    let digits = amount_digits(value.max(resolution));
    fixed_or_bound(value, digits, resolution)
}

pub(crate) const PROCESSOR_MEAN: &str = "/target_use/cpu/mean";
pub(crate) const PROCESSOR_MAX: &str = "/target_use/cpu/max";
pub(crate) const CPU_OF_DELIVERY: &str = "/target_use/cpu_us_per_delivery";

/// A clock tick in seconds: `USER_HZ` is 100, even if the kernel's own clock is faster.
pub(crate) const CPU_TICK_S: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_figure_below_one_tick_is_a_bound() {
        let run = json!({ "phases_s": { "measure": 2.0 }, "rates": { "received": 50.0 } });
        let shown = |value, path, digits| fixed_or_bound(value, digits, cpu_resolution(&run, path));
        assert_eq!(shown(0.0, PROCESSOR_MEAN, 2), "below 0.01");
        assert_eq!(shown(0.005, PROCESSOR_MEAN, 3), "0.005");
        assert_eq!(shown(0.0, PROCESSOR_MAX, 2), "below 0.01");
        assert_eq!(shown(0.0099, PROCESSOR_MAX, 2), "0.01");
        assert_eq!(shown(0.0, CPU_OF_DELIVERY, 2), "below 100");
        assert_eq!(shown(100.0, CPU_OF_DELIVERY, 2), "100");
        assert_eq!(amount_or_bound(0.0, CPU_TICK_S), "below 0.01");
        assert_eq!(amount_or_bound(0.02, CPU_TICK_S), "0.02");
        assert_eq!(amount_or_bound(0.0, 0.0), "0");
        assert_eq!(shown(0.0, "/target_use/host_stolen/mean", 1), "0");
    }
}
