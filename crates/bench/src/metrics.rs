//! Counters and latencies for Prometheus while a test runs, with emqtt_bench's names.

use crate::load_stats::{COUNTS, LatencySampler, LoadStats, SAMPLERS};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// HTTP server of Prometheus metrics. Every request gets the text of the last second.
#[derive(Clone, Debug)]
pub(crate) struct MetricsServer {
    text: Arc<Mutex<String>>,
}

impl MetricsServer {
    /// Starts the server: `PORT` listens on loopback, `IP:PORT` on the given address.
    pub(crate) fn start(place: &str) -> Result<MetricsServer, String> {
        let address = place.parse::<SocketAddr>().or_else(|_| {
            let port = place.parse::<u16>();
            port.map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        });
        let address = address.map_err(|_| format!("{place}: use PORT or IP:PORT"))?;
        let listener = TcpListener::bind(address).map_err(|error| format!("{place}: {error}"))?;
        let metrics = MetricsServer { text: Arc::new(Mutex::new(render(&LoadStats::new()))) };
        let answering = metrics.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that closes early loses only its response.
                let _ = answering.respond(stream);
            }
        });
        Ok(metrics)
    }

    pub(crate) fn update(&self, total: &LoadStats) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = render(total);
    }

    fn respond(&self, mut stream: TcpStream) -> std::io::Result<()> {
        // A slow client must not delay the next client for long.
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        let mut request = [0; 1024];
        let read = stream.read(&mut request)?;
        let is_known = [&b"GET /metrics "[..], b"GET / "];
        let is_known = is_known.iter().any(|line| request[..read].starts_with(line));
        let (status, text) = match is_known {
            true => ("200 OK", self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            false => ("404 Not Found", String::new()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
    }
}

fn render(total: &LoadStats) -> String {
    let mut text = String::new();
    for (count, name) in COUNTS {
        let _ = writeln!(text, "# TYPE {name} counter\n{name} {}", total.count(*count));
    }
    for (sampler, _) in SAMPLERS {
        let name = metric(*sampler);
        let times = total.times(*sampler);
        let _ = writeln!(text, "# TYPE {name} histogram");
        for bound_ms in BOUNDS_MS {
            let below = match times.is_empty() {
                true => 0,
                false => times.count_between(0, bound_ms * 1_000),
            };
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound_ms}\"}} {below}");
        }
        let sum_ms = times.mean() * times.len() as f64 / 1_000.0;
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", times.len());
        let _ = writeln!(text, "{name}_sum {sum_ms}\n{name}_count {}", times.len());
    }
    text
}

/// Returns the name of the metric for a sampler; all values are milliseconds.
fn metric(sampler: LatencySampler) -> &'static str {
    match sampler {
        LatencySampler::Connect => "mqtt_client_connect_duration",
        LatencySampler::Subscribe => "mqtt_client_subscribe_duration",
        LatencySampler::Pub => "publish_latency",
        LatencySampler::Sub => "e2e_latency",
        LatencySampler::Reconnect => "mqtt_client_reconnect_duration",
        LatencySampler::Lateness => "bench_lateness",
    }
}

const BOUNDS_MS: &[u64] =
    &[1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 30_000];
const IO_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_stats::LoadCounter;

    #[test]
    fn buckets_hold_all_that_is_below() {
        let mut stats = LoadStats::new();
        stats.add(LoadCounter::Recv, 3);
        [500, 4_000, 70_000_000].iter().for_each(|us| stats.record(LatencySampler::Sub, *us));
        let text = render(&stats);
        for line in [
            "# TYPE recv counter",
            "recv 3",
            "e2e_latency_bucket{le=\"1\"} 1",
            "e2e_latency_bucket{le=\"5\"} 2",
            "e2e_latency_bucket{le=\"30000\"} 2",
            "e2e_latency_bucket{le=\"+Inf\"} 3",
            "e2e_latency_count 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_place_is_a_port_or_an_address() {
        assert!(MetricsServer::start("0").is_ok());
        assert!(MetricsServer::start("127.0.0.1:0").is_ok());
        for wrong in ["", "here", "127.0.0.1", "70000"] {
            assert!(MetricsServer::start(wrong).is_err(), "{wrong}");
        }
    }
}
