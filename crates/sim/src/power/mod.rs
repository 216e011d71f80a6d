//! Runs with power cuts, at random moments or after every single batch that the disk takes. The
//! `guarantees` must hold through any number of cuts. A failing run is shortened, action by action,
//! as long as it still fails.

mod client;
mod guarantees;
mod run;

use crate::random_actions::SimFailure;
use crate::rng::SimRng;
use run::PowerRun;

/// Number of publishing clients; the clients behind them subscribe.
pub(crate) const PUBLISHERS: usize = 3;
pub(crate) const CLIENTS: usize = 7;
/// First client with a session that never expires. Only such clients join groups.
pub(crate) const STEADY: usize = 5;
pub(crate) const TOPICS: [&str; 5] = ["a", "a/b", "a/c", "b", "r/s"];
pub(crate) const FILTERS: [&str; 6] = ["a/#", "b", "#", "a/+", "+", "w/+"];
/// Name, filter and QoS of each group.
pub(crate) const GROUPS: [(&str, &str, u8); 2] = [("g", "a/#", 2), ("h", "b", 1)];

const ACTIONS: usize = 100;
/// Number of actions in a run whose power is cut after every batch.
const ACTIONS_FEW: usize = 40;

const PASSES_S: [u64; 2] = [7, 20];
const SESSION_EXPIRY_S: u32 = 31;
const WILL_DELAYS_S: [u64; 2] = [0, 5];
pub(crate) const DELAYS_S: [u64; 2] = [1, 10];
pub(crate) const FOREVER: u32 = u32::MAX;

/// An action, and how far the world runs after it.
#[derive(Clone, Debug)]
pub(crate) struct PowerStep {
    pub(crate) action: PowerAction,
    /// Number of rounds that the world runs afterwards; `None` until no work is left.
    pub(crate) rounds: Option<usize>,
}

/// An action of a run. Actions which are impossible at their time are skipped.
#[derive(Clone, Debug)]
pub(crate) enum PowerAction {
    Connect {
        client: usize,
        greeting: PowerConnectRequest,
    },
    Cut {
        client: usize,
    },
    Disconnect {
        client: usize,
    },
    /// The disk stops syncing (`SyncMode::Nothing`), or syncs again.
    Hold {
        holds: bool,
    },
    Join {
        client: usize,
        group: usize,
    },
    Leave {
        client: usize,
        group: usize,
    },
    Pass {
        s: u64,
    },
    Power(PowerCut),
    Publish {
        client: usize,
        topic: usize,
        qos: u8,
        keep: PowerRetain,
        /// Delay of the message in seconds; 0 publishes at once. Retained messages are not delayed.
        delay_s: u64,
    },
    /// The client holds its acknowledgements back, or sends all of them.
    Silence {
        client: usize,
        silent: bool,
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

/// A power failure with the batch which is `batches` commits ahead; 0 is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PowerCut {
    pub(crate) batches: usize,
    /// Number of unsynced batches that survive the cut all the same.
    pub(crate) kept: usize,
    /// Determines the number of shards after the restart: 1 and the remainder by `shards_max`.
    pub(crate) shards: usize,
    /// Seconds between the cut and the restart.
    pub(crate) down_s: u64,
    /// Whether the disk does not sync after the restart, until the next `PowerAction::Hold`.
    pub(crate) holds: bool,
}

/// Effect of a publish on the retained message of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerRetain {
    Clear,
    No,
    Retain,
}

/// Options of a client's CONNECT.
#[derive(Clone, Debug)]
pub(crate) struct PowerConnectRequest {
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    pub(crate) window: u16,
    /// QoS, retain flag and delay in seconds of the will.
    pub(crate) will: Option<(u8, bool, u64)>,
}

/// Runs a seed with power cuts at random moments, on at most `shards_max` shards.
pub fn check_seed(seed: u64, shards_max: usize) -> Result<(), SimFailure> {
    let fails = |actions: &[PowerStep]| run_actions(seed, shards_max, actions, None).err();
    shorten(draw_steps(seed, ACTIONS, true), fails)
}

/// Runs a seed repeatedly, with a power cut after each batch in turn and with each number of
/// unsynced batches kept. Returns the number of cuts.
pub fn check_every_cut(seed: u64, shards_max: usize) -> Result<usize, SimFailure> {
    let mut cuts = 0;
    let fails = |actions: &[PowerStep]| {
        cuts = 0;
        let mut batches = 0;
        loop {
            batches += 1;
            let mut kept = 0;
            loop {
                let cut =
                    PowerCut { batches, kept, shards: batches + kept, down_s: 0, holds: false };
                match run_actions(seed, shards_max, actions, Some(cut)) {
                    Err(failure) => return Some(failure),
                    Ok(None) => return None,
                    Ok(Some(pending)) if kept >= pending => break,
                    Ok(Some(_)) => kept += 1,
                }
                cuts += 1;
            }
        }
    };
    shorten(draw_steps(seed, ACTIONS_FEW, false), fails)?;
    Ok(cuts)
}

/// Runs the actions. Returns the number of unsynced batches at the first cut, if one happened.
fn run_actions(
    seed: u64,
    shards_max: usize,
    actions: &[PowerStep],
    cut: Option<PowerCut>,
) -> Result<Option<usize>, SimFailure> {
    let mut run = PowerRun::new(seed, shards_max);
    if let Some(cut) = cut {
        run.schedule_cut(cut);
    }
    let mut outcome = Ok(());
    for action in actions {
        outcome = outcome.and_then(|()| run.apply(action));
    }
    outcome = outcome.and_then(|()| run.finish());
    outcome.map_err(|why| SimFailure { why, log: run.log, actions: actions.len() })?;
    Ok(run.pending_at_cut)
}

fn shorten(
    mut actions: Vec<PowerStep>,
    mut fails: impl FnMut(&[PowerStep]) -> Option<SimFailure>,
) -> Result<(), SimFailure> {
    let Some(mut failure) = fails(&actions) else { return Ok(()) };
    let mut chunk = actions.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(at..(at + chunk).min(actions.len()));
            match fails(&fewer) {
                Some(shorter) => (actions, failure) = (fewer, shorter),
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    Err(failure)
}

fn draw_steps(seed: u64, count: usize, cuts: bool) -> Vec<PowerStep> {
    let mut rng = SimRng::new(seed ^ 0xc07);
    // All clients connect first, and some subscribe.
    let mut actions: Vec<PowerStep> =
        (0..CLIENTS).map(|client| first_step(client, &mut rng)).collect();
    for client in PUBLISHERS..CLIENTS {
        let (filter, qos) = (rng.below(FILTERS.len()), 1 + rng.below(2) as u8);
        actions.push(PowerStep {
            action: PowerAction::Subscribe { client, filter, qos },
            rounds: None,
        });
    }
    for client in STEADY..CLIENTS {
        let group = rng.below(GROUPS.len());
        actions.push(PowerStep { action: PowerAction::Join { client, group }, rounds: None });
    }
    actions.extend((0..count).map(|_| {
        let act = draw_action(cuts, &mut rng);
        let rounds = rng.one_in(2).then(|| rng.below(5));
        PowerStep { action: act, rounds }
    }));
    actions
}

fn first_step(client: usize, rng: &mut SimRng) -> PowerStep {
    let greeting = PowerConnectRequest { clean: true, ..draw_connect(client, rng) };
    PowerStep { action: PowerAction::Connect { client, greeting }, rounds: None }
}

fn draw_action(cuts: bool, rng: &mut SimRng) -> PowerAction {
    let (client, group) = (rng.below(CLIENTS), rng.below(GROUPS.len()));
    let (topic, filter) = (rng.below(TOPICS.len()), rng.below(FILTERS.len()));
    let publisher = rng.below(PUBLISHERS);
    let subscriber = PUBLISHERS + rng.below(CLIENTS - PUBLISHERS);
    let steady = STEADY + rng.below(CLIENTS - STEADY);
    match rng.below(40) {
        0..8 => PowerAction::Connect { client, greeting: draw_connect(client, rng) },
        8..11 => PowerAction::Cut { client },
        11 => PowerAction::Disconnect { client },
        12 | 13 => PowerAction::Hold { holds: rng.one_in(2) },
        14 => PowerAction::Join { client: steady, group },
        15 if rng.one_in(2) => PowerAction::Leave { client: steady, group },
        16 => PowerAction::Pass { s: PASSES_S[rng.below(PASSES_S.len())] },
        17 | 18 if cuts => PowerAction::Power(PowerCut {
            batches: rng.below(12),
            kept: rng.below(4),
            shards: rng.below(6),
            down_s: [0, 3][rng.below(2)],
            holds: rng.one_in(3),
        }),
        19..21 => PowerAction::Silence { client: subscriber, silent: rng.one_in(2) },
        21 | 22 => {
            PowerAction::Subscribe { client: subscriber, filter, qos: 1 + rng.below(2) as u8 }
        }
        23 => PowerAction::Unsubscribe { client: subscriber, filter },
        24 | 25 => PowerAction::Publish {
            client: publisher,
            topic,
            qos: 1 + rng.below(2) as u8,
            keep: PowerRetain::No,
            delay_s: DELAYS_S[rng.below(2)],
        },
        _ => PowerAction::Publish {
            client: publisher,
            topic,
            qos: [0, 1, 1, 2, 2, 2][rng.below(6)],
            keep: [
                PowerRetain::No,
                PowerRetain::No,
                PowerRetain::No,
                PowerRetain::Retain,
                PowerRetain::Clear,
            ][rng.below(5)],
            delay_s: 0,
        },
    }
}

fn draw_connect(client: usize, rng: &mut SimRng) -> PowerConnectRequest {
    let will = (rng.below(3) as u8, rng.one_in(2), WILL_DELAYS_S[rng.below(2)]);
    let short = (PUBLISHERS..STEADY).contains(&client) && rng.one_in(2);
    PowerConnectRequest {
        clean: rng.one_in(8),
        expiry_s: if short { SESSION_EXPIRY_S } else { FOREVER },
        window: [1, 2, 5, 100][rng.below(4)],
        will: Some(will).filter(|_| rng.one_in(3)),
    }
}
