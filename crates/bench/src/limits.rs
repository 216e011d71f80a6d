//! All bounds of the load tester, each with the behaviour at the bound.

/// Unsent bytes of a socket above which its publisher pauses. Messages that come due wait in the
/// schedule, and their latency counts from the due time.
pub(crate) const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Largest number of bytes of one `read`. All connections of a thread share the buffer.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;

/// Sockets read per turn before acknowledgements are written. Unread messages age while the tester
/// writes, and that delay would count against the broker.
pub(crate) const EVENTS_A_TURN_MAX: usize = 4_096;

/// Largest packet accepted from a broker; a larger packet closes the connection.
pub(crate) const PACKET_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Connections of a thread between the first TCP packet and CONNACK. Further clients wait: the
/// backlog of a listener is shorter than a test has clients.
pub(crate) const OPENING_MAX: usize = 1_000;

/// Timeout of a connection in seconds, from the first packet to CONNACK or the last SUBACK.
pub(crate) const CONNECT_S_MAX: u64 = 30;

/// Gaps remembered per stream and consumer. Above the bound the oldest gap is forgotten: its
/// messages stay lost, and a late arrival counts as a duplicate.
pub(crate) const HOLES_MAX: usize = 1 << 16;

/// Seconds to wait for messages in flight after publishing has ended.
pub(crate) const DRAIN_S_DEFAULT: f64 = 5.0;

/// Deliveries in flight of all publishers together in a closed loop (`PublishPace::AsTaken`).
pub(crate) const WINDOW_DEFAULT: u64 = 20_000;

/// Unacknowledged messages of one publisher at QoS 1 and 2, unless the plan sets `inflight`.
pub(crate) const INFLIGHT_DEFAULT: u16 = 16;

/// Largest payload. A packet has at most 268,435,455 bytes after its length (MQTT 2.2.3 and 5.0
/// 2.1.4); 128 KiB remain for topic and properties. A larger size is refused as a wrong command
/// line or scenario.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 256 * 1024 * 1024 - 128 * 1024;

/// Highest rate of one publisher. Above it an interval has too few nanoseconds, and a schedule that
/// cannot be kept still costs a count per message; refused as a wrong command line or scenario.
pub(crate) const PUBLISHER_PER_S_MAX: f64 = 1_000_000.0;

/// Clients of a test and threads of the tester; more are refused as a wrong command line or
/// scenario.
pub(crate) const CLIENTS_MAX: u64 = 1_000_000_000;
pub(crate) const THREADS_MAX: u64 = 1_024;

/// Largest start number of the clients of `conn`, `pub` and `sub`.
pub(crate) const START_NUMBER_MAX: u64 = 1_000_000_000_000;

/// Publishers send on a grid of this many nanoseconds, so that one wake-up serves all due messages.
/// The intended time of a message is a point of the grid.
pub(crate) const GRID_NS: u64 = 100_000;

/// Spare output buffers of a thread; larger buffers are freed.
pub(crate) const SPARES_MAX: usize = 256;
pub(crate) const SPARE_BYTES_MAX: usize = 256 * 1024;

/// Streams listed individually in a report, the worst first; the sums include all streams.
pub(crate) const STREAMS_LISTED_MAX: usize = 50;

/// Share of a processor in a second above which a thread of the tester makes it the bottleneck.
pub(crate) const OWN_CPU_MAX: f64 = 0.9;

/// Delay in microseconds that 1 % of the messages must exceed to make the tester the bottleneck.
pub(crate) const LATENESS_US_MAX: u64 = 10_000;

/// Mean load of the host's processors above which the tester is the bottleneck.
pub(crate) const HOST_CPU_MAX: f64 = 0.95;

/// Shares of the processors' time taken by a hypervisor (`STOLEN`) or by other processes
/// (`OTHERS`). Above `NOTED` a report has a note; above `MAJOR` a comparison does not count.
pub(crate) const STOLEN_NOTED: f64 = 0.02;
pub(crate) const STOLEN_MAJOR: f64 = 0.10;
pub(crate) const OTHERS_NOTED: f64 = 0.10;
pub(crate) const OTHERS_MAJOR: f64 = 0.30;

/// Largest number of rows of a JTL. In a larger test one row stands for several samples.
pub(crate) const JTL_ROWS_MAX: u64 = 2_000_000;
