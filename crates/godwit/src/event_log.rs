//! Converts events of the broker to log lines, each with a module, a level and fields.

use broker::message::namespace::split_client_id;
use broker::{BrokerEvent, WithheldKind};
use engine::limited_log::nonzero;
use tracing::{debug, error, info, warn};

pub(crate) fn log_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::Connected { .. }
        | BrokerEvent::Disconnected { .. }
        | BrokerEvent::Lost { .. }
        | BrokerEvent::TakenOver { .. }
        | BrokerEvent::Violated { .. }
        | BrokerEvent::Banned { .. }
        | BrokerEvent::Flapped { .. }
        | BrokerEvent::TurnedAway { .. }
        | BrokerEvent::Refused { .. } => log_connection_event(event),
        BrokerEvent::SessionEnded { client_id, expired } => {
            let (namespace, client_id) = split_client_id(client_id);
            debug!(target: "godwit::session", %client_id, namespace, expired, "session ended");
        }
        BrokerEvent::Subscribed { client_id, filter, code } => {
            let (namespace, client_id) = split_client_id(client_id);
            debug!(
                target: "godwit::subscription", %client_id, namespace, %filter, code, "subscribed"
            );
        }
        BrokerEvent::Unsubscribed { client_id, filter, code } => {
            let (namespace, client_id) = split_client_id(client_id);
            debug!(
                target: "godwit::subscription", %client_id, namespace, %filter, code,
                "unsubscribed"
            );
        }
        BrokerEvent::NotOpened { peer, why, count } => {
            info!(target: "godwit::conn", %peer, %why, count, "connections ended before CONNECT");
        }
        BrokerEvent::AcceptFailed { .. }
        | BrokerEvent::AcceptPaused { .. }
        | BrokerEvent::AcceptResumed => {
            log_accept_event(event);
        }
        BrokerEvent::ProcessPaused { .. } | BrokerEvent::TimeOfDayStepped { .. } => {
            log_clock_event(event)
        }
        BrokerEvent::StoreFailing { .. }
        | BrokerEvent::StoreRecovered
        | BrokerEvent::StoreFull
        | BrokerEvent::StoreHasRoom
        | BrokerEvent::StoreUnreadable { .. } => log_store_event(event),
        BrokerEvent::RulePrinted { .. } | BrokerEvent::RuleFailed { .. } => log_rule_event(event),
        BrokerEvent::Denied { .. } | BrokerEvent::Dropped { .. } => log_loss_event(event),
        BrokerEvent::Withheld { what, count } => log_withheld(*what, *count),
        BrokerEvent::WindowStalled { .. } => log_stall_event(event),
        // Only sinks use these events.
        BrokerEvent::Delivery { .. } | BrokerEvent::DeliveriesSkipped { .. } => {}
        BrokerEvent::Traced { client_id, peer, sent, packet } => {
            let way = if *sent { "sent" } else { "received" };
            info!(target: "godwit::trace", %client_id, %peer, %packet, "{way}");
        }
    }
}

fn log_clock_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::TimeOfDayStepped { by_ms } => {
            let by_s = *by_ms as f64 / 1000.0;
            warn!(
                target: "godwit::serve", by_s,
                "the time of day was changed: waits and what is stored are not affected"
            );
        }
        BrokerEvent::ProcessPaused { ms } => {
            warn!(
                target: "godwit::serve", ms,
                "the process did not run: sockets were read before timeouts were checked"
            );
        }
        _ => {}
    }
}

fn log_accept_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::AcceptFailed { fault } => {
            warn!(target: "godwit::conn", %fault, "no connection can be accepted for a second");
        }
        BrokerEvent::AcceptPaused { limit, reserved } => {
            warn!(
                target: "godwit::conn", limit, reserved,
                "connections wait to be accepted: the process may open `limit` file descriptors \
                 (RLIMIT_NOFILE), and the last `reserved` are kept for the store, logs, links and \
                 backends; raise the hard limit, by LimitNOFILE= of the systemd unit, `ulimit -Hn` \
                 or the container's --ulimit nofile="
            );
        }
        BrokerEvent::AcceptResumed => {
            info!(target: "godwit::conn", "connections are accepted as they come again");
        }
        _ => {}
    }
}

fn log_store_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::StoreFailing { fault } => {
            error!(target: "godwit::store", %fault, "the disk refuses: trying again");
        }
        BrokerEvent::StoreRecovered => {
            info!(target: "godwit::store", "the disk takes what it is given again");
        }
        BrokerEvent::StoreFull => {
            warn!(target: "godwit::store", "the store is full: what would be kept is refused");
        }
        BrokerEvent::StoreHasRoom => info!(target: "godwit::store", "the store has room again"),
        BrokerEvent::StoreUnreadable { fault } => {
            let what = "what is stored cannot be read, and waits: start once with --repair";
            error!(target: "godwit::store", %fault, "{what}");
        }
        _ => {}
    }
}

fn log_loss_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::Denied { client_id, user, deed, topic, cause, count } => {
            let user = user.as_deref().unwrap_or_default();
            let (namespace, client_id) = split_client_id(client_id);
            warn!(
                target: "godwit::permission", %client_id, namespace, %user, deed, %topic,
                %cause, count, "not permitted"
            );
        }
        BrokerEvent::Dropped { client_id, drop, count } => {
            let (reason, option) = (drop.name(), drop.options());
            let (namespace, client_id) = split_client_id(client_id);
            warn!(
                target: "godwit::drop", %client_id, namespace, reason, option, count,
                "messages dropped"
            );
        }
        _ => {}
    }
}

fn log_stall_event(event: &BrokerEvent) {
    let BrokerEvent::WindowStalled {
        client_id,
        packet_id,
        age_s,
        unacknowledged,
        is_full,
        withheld,
    } = event
    else {
        return;
    };
    let (namespace, client_id) = split_client_id(client_id);
    let option = is_full.then_some("session.inflight_max, Receive Maximum");
    warn!(
        target: "godwit::session", %client_id, namespace, packet_id, age_s, unacknowledged,
        is_full, option, withheld = nonzero(*withheld), "the client leaves a message unacknowledged"
    );
}

fn log_withheld(what: WithheldKind, count: u64) {
    match what {
        WithheldKind::Connections => info!(
            target: "godwit::conn", withheld = count,
            "more connections were refused or ended than are logged one by one"
        ),
        WithheldKind::Rules => info!(
            target: "godwit::rule", withheld = count,
            "more came of rules than is logged one by one"
        ),
        WithheldKind::Stalls => warn!(
            target: "godwit::session", withheld = count,
            "more clients leave messages unacknowledged than are logged one by one"
        ),
    }
}

fn log_rule_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::RulePrinted { rule, row, withheld } => {
            info!(target: "godwit::rule", %rule, %row, withheld, "a row");
        }
        BrokerEvent::RuleFailed { rule, why, withheld } => {
            warn!(target: "godwit::rule", %rule, %why, withheld, "the rule failed");
        }
        _ => {}
    }
}

const OWN_KEEP_ALIVE: &str = "keep_alive_s is above connect.keep_alive_s_max, of which a client \
                              before 5.0 cannot be told: its own holds";

fn log_connection_event(event: &BrokerEvent) {
    match event {
        BrokerEvent::Connected {
            client_id,
            conn,
            peer,
            version,
            session_present,
            keep_alive_s,
            keeps_own_keep_alive,
        } => {
            let (namespace, client_id) = split_client_id(client_id);
            let hint = keeps_own_keep_alive.then_some(OWN_KEEP_ALIVE);
            info!(
                target: "godwit::conn", %client_id, namespace, %peer, conn = conn.0, %version,
                session_present, keep_alive_s, hint, "client connected"
            );
        }
        BrokerEvent::Disconnected { client_id, conn, reason } => {
            let (namespace, client_id) = split_client_id(client_id);
            info!(
                target: "godwit::conn", %client_id, namespace, conn = conn.0, %reason,
                "client disconnected"
            );
        }
        BrokerEvent::Lost { client_id, conn } => {
            let (namespace, client_id) = split_client_id(client_id);
            info!(target: "godwit::conn", %client_id, namespace, conn = conn.0, "connection lost");
        }
        BrokerEvent::TakenOver { client_id, by } => {
            let (namespace, client_id) = split_client_id(client_id);
            info!(target: "godwit::conn", %client_id, namespace, %by, "session taken over");
        }
        BrokerEvent::Violated { client_id, conn, peer, violation, detail, withheld } => {
            let (namespace, client_id) = split_client_id(client_id);
            warn!(
                target: "godwit::conn", %client_id, namespace, %peer, conn = conn.0,
                violation = ?violation, detail, withheld = nonzero(*withheld),
                "the client broke the protocol"
            );
        }
        BrokerEvent::Banned { client_id, peer, by, reason } => {
            let (namespace, client_id) = split_client_id(client_id);
            info!(
                target: "godwit::conn", %client_id, namespace, %peer, by, %reason,
                "the client is banned"
            );
        }
        BrokerEvent::Flapped { client_id, count, ban_s } => {
            let (namespace, client_id) = split_client_id(client_id);
            warn!(
                target: "godwit::conn", %client_id, namespace, count, ban_s,
                "the client comes and goes too often: it is kept out for a while"
            );
        }
        BrokerEvent::TurnedAway { peer, why, count } => {
            info!(target: "godwit::conn", %peer, %why, count, "connections turned away");
        }
        BrokerEvent::Refused { client_id, conn, peer, refusal, withheld, .. } => {
            let (namespace, client_id) = split_client_id(client_id);
            info!(
                target: "godwit::conn", %client_id, namespace, %peer, conn = conn.0,
                reason = %refusal.reason(), why = refusal.description(), option = refusal.options(),
                withheld = nonzero(*withheld), "connection refused"
            );
        }
        _ => {}
    }
}
