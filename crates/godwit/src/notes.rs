//! Turns what the broker noted into log lines: which module, which level, which fields.

use broker::mount::parts;
use broker::{Note, Withheld};
use tracing::{debug, error, info, warn};

pub(crate) fn log(note: &Note) {
    match note {
        Note::Connected { .. }
        | Note::Disconnected { .. }
        | Note::Lost { .. }
        | Note::TakenOver { .. }
        | Note::Violated { .. }
        | Note::Banned { .. }
        | Note::Flapped { .. }
        | Note::TurnedAway { .. }
        | Note::Refused { .. } => connection(note),
        Note::SessionEnded { client_id, expired } => {
            let (namespace, client_id) = parts(client_id);
            debug!(target: "godwit::session", %client_id, namespace, expired, "session ended");
        }
        Note::Subscribed { client_id, filter, code } => {
            let (namespace, client_id) = parts(client_id);
            debug!(
                target: "godwit::subscription", %client_id, namespace, %filter, code, "subscribed"
            );
        }
        Note::Unsubscribed { client_id, filter, code } => {
            let (namespace, client_id) = parts(client_id);
            debug!(
                target: "godwit::subscription", %client_id, namespace, %filter, code,
                "unsubscribed"
            );
        }
        Note::NotOpened { peer, why, count } => {
            info!(target: "godwit::conn", %peer, %why, count, "connections ended before CONNECT");
        }
        Note::AcceptFailed { .. } | Note::AcceptPaused { .. } | Note::AcceptResumed => {
            accepting(note);
        }
        Note::ProcessPaused { .. } | Note::TimeOfDayStepped { .. } => clocks(note),
        Note::StoreFailing { .. }
        | Note::StoreRecovered
        | Note::StoreFull
        | Note::StoreRoomy
        | Note::StoreUnreadable { .. } => store(note),
        Note::RuleSaid { .. } | Note::RuleFailed { .. } => rule(note),
        Note::Denied { .. } | Note::Dropped { .. } => loss(note),
        Note::Withheld { what, count } => withheld(*what, *count),
        Note::WindowStalled { .. } => stall(note),
        // For sinks.
        Note::Fate { .. } | Note::Untold { .. } => {}
        Note::Traced { client_id, peer, sent, packet } => {
            let way = if *sent { "sent" } else { "received" };
            info!(target: "godwit::trace", %client_id, %peer, %packet, "{way}");
        }
    }
}

fn clocks(note: &Note) {
    match note {
        Note::TimeOfDayStepped { by_ms } => {
            let by_s = *by_ms as f64 / 1000.0;
            warn!(
                target: "godwit::serve", by_s,
                "the time of day was changed: waits and what is stored are not affected"
            );
        }
        Note::ProcessPaused { ms } => {
            warn!(
                target: "godwit::serve", ms,
                "the process did not run: sockets were read before timeouts were checked"
            );
        }
        _ => {}
    }
}

fn accepting(note: &Note) {
    match note {
        Note::AcceptFailed { fault } => {
            warn!(target: "godwit::conn", %fault, "no connection can be accepted for a second");
        }
        Note::AcceptPaused { limit, reserved } => {
            warn!(
                target: "godwit::conn", limit, reserved,
                "connections wait to be accepted: the process may open `limit` file descriptors \
                 (RLIMIT_NOFILE), and the last `reserved` are kept for the store, logs, links and \
                 backends; raise the hard limit, by LimitNOFILE= of the systemd unit, `ulimit -Hn` \
                 or the container's --ulimit nofile="
            );
        }
        Note::AcceptResumed => {
            info!(target: "godwit::conn", "connections are accepted as they come again");
        }
        _ => {}
    }
}

fn store(note: &Note) {
    match note {
        Note::StoreFailing { fault } => {
            error!(target: "godwit::store", %fault, "the disk refuses: trying again");
        }
        Note::StoreRecovered => {
            info!(target: "godwit::store", "the disk takes what it is given again");
        }
        Note::StoreFull => {
            warn!(target: "godwit::store", "the store is full: what would be kept is refused");
        }
        Note::StoreRoomy => info!(target: "godwit::store", "the store has room again"),
        Note::StoreUnreadable { fault } => {
            let what = "what is stored cannot be read, and waits: start once with --repair";
            error!(target: "godwit::store", %fault, "{what}");
        }
        _ => {}
    }
}

fn loss(note: &Note) {
    match note {
        Note::Denied { client_id, user, deed, topic, cause, count } => {
            let user = user.as_deref().unwrap_or_default();
            let (namespace, client_id) = parts(client_id);
            warn!(
                target: "godwit::permission", %client_id, namespace, %user, deed, %topic,
                %cause, count, "not permitted"
            );
        }
        Note::Dropped { client_id, drop, count } => {
            let (reason, option) = (drop.name(), drop.options());
            let (namespace, client_id) = parts(client_id);
            warn!(
                target: "godwit::drop", %client_id, namespace, reason, option, count,
                "messages dropped"
            );
        }
        _ => {}
    }
}

fn stall(note: &Note) {
    let Note::WindowStalled { client_id, packet_id, age_s, unacknowledged, is_full, withheld } =
        note
    else {
        return;
    };
    let (namespace, client_id) = parts(client_id);
    let option = is_full.then_some("session.inflight_max, Receive Maximum");
    warn!(
        target: "godwit::session", %client_id, namespace, packet_id, age_s, unacknowledged,
        is_full, option, withheld = some(*withheld), "the client leaves a message unacknowledged"
    );
}

fn withheld(what: Withheld, count: u64) {
    match what {
        Withheld::Connections => info!(
            target: "godwit::conn", withheld = count,
            "more connections were refused or ended than are logged one by one"
        ),
        Withheld::Rules => info!(
            target: "godwit::rule", withheld = count,
            "more came of rules than is logged one by one"
        ),
        Withheld::Stalls => warn!(
            target: "godwit::session", withheld = count,
            "more clients leave messages unacknowledged than are logged one by one"
        ),
    }
}

fn rule(note: &Note) {
    match note {
        Note::RuleSaid { rule, row, withheld } => {
            info!(target: "godwit::rule", %rule, %row, withheld, "a row");
        }
        Note::RuleFailed { rule, why, withheld } => {
            warn!(target: "godwit::rule", %rule, %why, withheld, "the rule failed");
        }
        _ => {}
    }
}

/// Said only where there is something to say.
pub(crate) fn some(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

const OWN_KEEP_ALIVE: &str = "keep_alive_s is above connect.keep_alive_s_max, of which a client \
                              before 5.0 cannot be told: its own holds";

fn connection(note: &Note) {
    match note {
        Note::Connected {
            client_id,
            conn,
            peer,
            version,
            session_present,
            keep_alive_s,
            keeps_own_keep_alive,
        } => {
            let (namespace, client_id) = parts(client_id);
            let hint = keeps_own_keep_alive.then_some(OWN_KEEP_ALIVE);
            info!(
                target: "godwit::conn", %client_id, namespace, %peer, conn = conn.0, %version,
                session_present, keep_alive_s, hint, "client connected"
            );
        }
        Note::Disconnected { client_id, conn, reason } => {
            let (namespace, client_id) = parts(client_id);
            info!(
                target: "godwit::conn", %client_id, namespace, conn = conn.0, %reason,
                "client disconnected"
            );
        }
        Note::Lost { client_id, conn } => {
            let (namespace, client_id) = parts(client_id);
            info!(target: "godwit::conn", %client_id, namespace, conn = conn.0, "connection lost");
        }
        Note::TakenOver { client_id, by } => {
            let (namespace, client_id) = parts(client_id);
            info!(target: "godwit::conn", %client_id, namespace, %by, "session taken over");
        }
        Note::Violated { client_id, conn, peer, violation, detail, withheld } => {
            let (namespace, client_id) = parts(client_id);
            warn!(
                target: "godwit::conn", %client_id, namespace, %peer, conn = conn.0,
                violation = ?violation, detail, withheld = some(*withheld),
                "the client broke the protocol"
            );
        }
        Note::Banned { client_id, peer, by, reason } => {
            let (namespace, client_id) = parts(client_id);
            info!(
                target: "godwit::conn", %client_id, namespace, %peer, by, %reason,
                "the client is banned"
            );
        }
        Note::Flapped { client_id, count, ban_s } => {
            let (namespace, client_id) = parts(client_id);
            warn!(
                target: "godwit::conn", %client_id, namespace, count, ban_s,
                "the client comes and goes too often: it is kept out for a while"
            );
        }
        Note::TurnedAway { peer, why, count } => {
            info!(target: "godwit::conn", %peer, %why, count, "connections turned away");
        }
        Note::Refused { client_id, conn, peer, refusal, withheld, .. } => {
            let (namespace, client_id) = parts(client_id);
            info!(
                target: "godwit::conn", %client_id, namespace, %peer, conn = conn.0,
                reason = %refusal.reason(), why = refusal.what(), option = refusal.options(),
                withheld = some(*withheld), "connection refused"
            );
        }
        _ => {}
    }
}
