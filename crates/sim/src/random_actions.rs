//! Random runs against the oracle. The actions of a run are derived from the seed. A failing run is
//! shortened, action by action, as long as it still fails.

use crate::oracle::FOREVER;
use crate::oracle_run::OracleRun;
use crate::rng::SimRng;

pub const CLIENTS: usize = 6;
/// First client with a session that never expires. Only such clients join groups.
pub const STEADY: usize = 4;
pub const TOPICS: [&str; 5] = ["a", "a/b", "a/b/c", "b", "long/topic/name"];
pub const FILTERS: [&str; 8] = ["a", "a/#", "+/b", "#", "b", "long/+/name", "a/+/c", "w/+"];
pub const GROUPS: [(&str, &str, u8); 2] = [("g", "a/#", 1), ("h", "b", 2)];
const ACTIONS: usize = 120;

/// Lengths of pauses in seconds, chosen so that their sums never coincide with an expiry or a
/// delay: at each check an expiry is clearly over or not.
const PASSES_S: [u64; 2] = [7, 20];
const MESSAGE_EXPIRY_S: u64 = 11;
const SESSION_EXPIRIES_S: [u32; 3] = [0, 31, FOREVER];
const WILL_DELAYS_S: [u64; 3] = [0, 5, 58];

/// An action of a run. Actions which are impossible at their time are skipped.
#[derive(Clone, Debug)]
pub enum RandomAction {
    /// A client publishes several messages while the connection of `victim` is cut, or taken over.
    Burst {
        client: usize,
        topic: usize,
        qos: u8,
        count: usize,
        victim: usize,
        back: bool,
    },
    Connect {
        client: usize,
        greeting: ConnectRequest,
        takeover: bool,
    },
    Cut {
        client: usize,
    },
    Disconnect {
        client: usize,
        with_will: bool,
    },
    Join {
        client: usize,
        group: usize,
    },
    Pass {
        s: u64,
    },
    /// A client publishes. A `flaky` publisher is cut at once, reconnects and sends the message
    /// again.
    Publish {
        client: usize,
        topic: usize,
        qos: u8,
        keep: Keep,
        expiry_s: u64,
        flaky: bool,
    },
    /// The client holds its acknowledgements back, or sends all of them.
    Silence {
        client: usize,
        silent: bool,
    },
    Stall {
        client: usize,
        stalled: bool,
    },
    Subscribe {
        client: usize,
        filter: usize,
        qos: u8,
    },
    Unsubscribe {
        client: usize,
        filter: usize,
    },
}

/// Options of a client's CONNECT; MQTT 3.1.1 clients use only `clean` and `will`.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    pub clean: bool,
    pub expiry_s: u32,
    pub window: u16,
    /// QoS, retain flag and delay in seconds of the will.
    pub will: Option<(u8, bool, u64)>,
}

pub use crate::oracle::RetainAction as Keep;

/// A failure: the check that failed, the log of packets, and the number of actions left.
#[derive(Clone, Debug)]
pub struct SimFailure {
    pub why: String,
    pub log: String,
    pub actions: usize,
}

/// Runs a seed. A failure is returned with the shortest list of actions found.
pub fn check_seed(seed: u64) -> Result<(), SimFailure> {
    let mut actions = actions(seed);
    let Err(mut failure) = run(seed, &actions) else { return Ok(()) };
    let mut chunk = actions.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(at..(at + chunk).min(actions.len()));
            match run(seed, &fewer) {
                Err(shorter) => (actions, failure) = (fewer, shorter),
                Ok(()) => at += chunk,
            }
        }
        chunk /= 2;
    }
    Err(failure)
}

fn run(seed: u64, actions: &[RandomAction]) -> Result<(), SimFailure> {
    let mut life = OracleRun::new(seed);
    let mut outcome = Ok(());
    for action in actions {
        outcome = outcome.and_then(|()| life.apply(action));
    }
    outcome = outcome.and_then(|()| life.finish());
    outcome.map_err(|why| SimFailure { why, log: life.log, actions: actions.len() })
}

fn actions(seed: u64) -> Vec<RandomAction> {
    let mut rng = SimRng::new(seed);
    (0..ACTIONS).map(|_| action(&mut rng)).collect()
}

fn action(rng: &mut SimRng) -> RandomAction {
    let client = rng.below(CLIENTS);
    let (topic, filter) = (rng.below(TOPICS.len()), rng.below(FILTERS.len()));
    let qos = rng.below(3) as u8;
    match rng.below(26) {
        0..4 => RandomAction::Connect {
            client,
            greeting: greeting(client >= STEADY, rng),
            takeover: rng.one_in(3),
        },
        4 | 5 => RandomAction::Cut { client },
        6 => RandomAction::Disconnect { client, with_will: rng.one_in(3) },
        7 => RandomAction::Join {
            client: STEADY + rng.below(CLIENTS - STEADY),
            group: rng.below(GROUPS.len()),
        },
        8 => RandomAction::Pass { s: PASSES_S[rng.below(PASSES_S.len())] },
        9 | 10 => RandomAction::Silence { client, silent: rng.one_in(2) },
        11 => RandomAction::Stall { client, stalled: rng.one_in(2) },
        12..15 => RandomAction::Subscribe { client, filter, qos },
        15 => RandomAction::Unsubscribe { client, filter },
        16 | 17 => RandomAction::Burst {
            client,
            topic,
            qos,
            count: 1 + rng.below(5),
            victim: (client + 1 + rng.below(CLIENTS - 1)) % CLIENTS,
            back: rng.one_in(2),
        },
        _ => RandomAction::Publish {
            client,
            topic,
            qos,
            keep: [Keep::No, Keep::No, Keep::Keep, Keep::Clear][rng.below(4)],
            expiry_s: [0, 0, 0, MESSAGE_EXPIRY_S][rng.below(4)],
            flaky: rng.one_in(6),
        },
    }
}

fn greeting(steady: bool, rng: &mut SimRng) -> ConnectRequest {
    let will = (rng.below(3) as u8, rng.one_in(2), WILL_DELAYS_S[rng.below(3)]);
    ConnectRequest {
        clean: !steady && rng.one_in(4),
        expiry_s: if steady { FOREVER } else { SESSION_EXPIRIES_S[rng.below(3)] },
        window: [1, 2, 5, 100][rng.below(4)],
        will: Some(will).filter(|_| rng.one_in(2)),
    }
}
