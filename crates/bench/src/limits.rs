//! Every bound of the load tester, each with what happens when it is reached.

/// Bytes that wait for one socket before its publisher holds back; what is due waits in the
/// schedule, and its latency counts from there.
pub(crate) const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Largest number of bytes of one read. All connections of a thread share the buffer.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;

/// Sockets that one turn reads at most before it writes acknowledgements. What has arrived and is
/// not read yet gets older by our own writing, and the broker would answer for that.
pub(crate) const EVENTS_A_TURN_MAX: usize = 4_096;

/// The largest packet we take; a broker that sends more is cut off.
pub(crate) const PACKET_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Connections of one thread that are between TCP's first packet and CONNACK. More are opened when
/// these are done: a listener's backlog is shorter than a test is wide.
pub(crate) const OPENING_MAX: usize = 1_000;

/// Time that a connection may take from its first packet to its last acknowledgement, in seconds.
pub(crate) const CONNECT_S_MAX: u64 = 30;

/// Holes that are remembered of one stream at one consumer. The oldest are forgotten beyond it:
/// they stay lost, and their late arrival would count as a duplicate.
pub(crate) const HOLES_MAX: usize = 1 << 16;

/// Time that messages under way may take after publishing has ended, in seconds.
pub(crate) const DRAIN_S_DEFAULT: f64 = 5.0;

/// Deliveries under way in a closed loop, all publishers together.
pub(crate) const WINDOW_DEFAULT: u64 = 20_000;

/// Unacknowledged messages of one publisher at QoS 1 and 2.
pub(crate) const INFLIGHT_DEFAULT: u16 = 16;

/// A packet has at most 268,435,455 bytes behind its length (MQTT 2.2.3 and 5.0 2.1.4); a topic and
/// properties have room beside this. A larger size is a wrong command line or scenario.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 256 * 1024 * 1024 - 128 * 1024;

/// A rate above it is a wrong command line or scenario: an interval has nanoseconds, and a schedule
/// that nobody can hold would still have to be counted message by message.
pub(crate) const PUBLISHER_PER_S_MAX: f64 = 1_000_000.0;

/// Clients of a test, and threads of the tester. A larger number is a wrong command line or
/// scenario.
pub(crate) const CLIENTS_MAX: u64 = 1_000_000_000;
pub(crate) const THREADS_MAX: u64 = 1_024;

/// The number that clients of `conn`, `pub` and `sub` may begin behind at most.
pub(crate) const START_NUMBER_MAX: u64 = 1_000_000_000_000;

/// Publishers send on this grid of time, so that one wake-up serves all that is due. The intended
/// time of a message is its place on the grid.
pub(crate) const GRID_NS: u64 = 100_000;

/// Spare output buffers of a thread, and how large one may be to be kept.
pub(crate) const SPARES_MAX: usize = 256;
pub(crate) const SPARE_BYTES_MAX: usize = 256 * 1024;

/// Streams that a report lists one by one, the worst first; the others are in the sums.
pub(crate) const STREAMS_LISTED_MAX: usize = 50;

/// The tester itself was the limit where one of its threads ran hotter than this in a second.
pub(crate) const OWN_CPU_MAX: f64 = 0.9;

/// Or where a hundredth of its messages left this much later than intended.
pub(crate) const LATENESS_US_MAX: u64 = 10_000;

/// Or where the host was busier than this on average.
pub(crate) const HOST_CPU_MAX: f64 = 0.95;

/// Shares of the processors' time that a hypervisor gave to others, or that other processes used,
/// from which on a report says so, and from which on a comparison of brokers does not count.
pub(crate) const STOLEN_NOTED: f64 = 0.02;
pub(crate) const STOLEN_MAJOR: f64 = 0.10;
pub(crate) const OTHERS_NOTED: f64 = 0.10;
pub(crate) const OTHERS_MAJOR: f64 = 0.30;

/// Rows of a JTL at most. A test with more samples has them together, several in a row.
pub(crate) const JTL_ROWS_MAX: u64 = 2_000_000;
