//! Notes of a bridge's session about its servers: the server of the open QoS 2 exchanges (`at`),
//! servers which may have a session of an earlier bridge (`unmet`), and servers which were left
//! while a message may have been in flight (`left`).
//!
//! Only the local session survives a restart. The notes are subscriptions below the session's own
//! name, where no client publishes, so they are stored and removed with the session.

use crate::local_session::{note_filter, note_prefix};
use net::server_url::ServerUrl;

/// The notes of a bridge's session.
#[derive(Default)]
pub(super) struct ServerMarks {
    link_id: String,
    /// Part of the notes: another client id means another session at the server.
    client_id: String,
    notes: Vec<String>,
}

/// A change of the notes for a connection to a server. The session records the change before any
/// message passes over the connection.
pub(super) struct ServerMarksChange {
    pub(super) added: Vec<String>,
    pub(super) removed: Vec<String>,
    /// Whether messages now come from another server than before.
    pub(super) moves: bool,
}

impl ServerMarks {
    /// Reads the notes of an existing session from its filters.
    pub(super) fn from_filters(
        link_id: &str,
        client_id: &str,
        filters: &[Box<str>],
    ) -> ServerMarks {
        let beginning = note_prefix(link_id);
        let notes = filters.iter().filter(|filter| filter.starts_with(&beginning));
        let notes = notes.map(|filter| (**filter).into()).collect();
        ServerMarks { link_id: link_id.into(), client_id: client_id.into(), notes }
    }

    /// Returns the notes of a new session: each server may have messages of an earlier session.
    pub(super) fn for_new_session(
        link_id: &str,
        client_id: &str,
        servers: &[ServerUrl],
    ) -> ServerMarks {
        let mut places = ServerMarks::from_filters(link_id, client_id, &[]);
        places.notes = servers.iter().map(|server| places.note("unmet", server)).collect();
        places
    }

    pub(super) fn filters(&self) -> Vec<String> {
        self.notes.clone()
    }

    pub(super) fn is_unvisited(&self, server: &ServerUrl) -> bool {
        self.notes.contains(&self.note("unmet", server))
    }

    /// Returns the note `left` of a server, if there is one.
    pub(super) fn left_note(&self, server: &ServerUrl) -> Option<String> {
        let left = self.note("left", server);
        self.notes.contains(&left).then_some(left)
    }

    /// Returns the change for a connection to `server`. `has_two`: the server left behind may have
    /// QoS 2 messages in flight.
    pub(super) fn move_to(&self, server: &ServerUrl, has_two: bool) -> ServerMarksChange {
        let (here, unmet) = (self.note("at", server), self.note("unmet", server));
        let beginning = format!("{}at/", note_prefix(&self.link_id));
        let mut change = ServerMarksChange { added: Vec::new(), removed: Vec::new(), moves: false };
        for note in &self.notes {
            let elsewhere = note.strip_prefix(&beginning).filter(|_| *note != here);
            if let Some(digits) = elsewhere {
                change.moves = true;
                let left = format!("{}left/{digits}", note_prefix(&self.link_id));
                change.added.extend(has_two.then_some(left));
            }
            if elsewhere.is_some() || *note == unmet {
                change.removed.push(note.clone());
            }
        }
        if !self.notes.contains(&here) {
            change.added.push(here);
        }
        change
    }

    /// Applies a change after the session has recorded it.
    pub(super) fn apply(&mut self, change: ServerMarksChange) {
        self.notes.retain(|note| !change.removed.contains(note) && !change.added.contains(note));
        self.notes.extend(change.added);
    }

    /// Removes the note `left`: the server has no open exchange of an earlier connection.
    pub(super) fn is_released(&mut self, server: &ServerUrl) {
        let left = self.note("left", server);
        self.notes.retain(|note| *note != left);
    }

    fn note(&self, what: &str, server: &ServerUrl) -> String {
        note_filter(&self.link_id, what, &format!("{} {server}{}", self.client_id, server.path))
    }
}

impl ServerMarksChange {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls() -> Vec<ServerUrl> {
        let url = |text| ServerUrl::parse(text, &["tcp"]).expect("a URL");
        ["tcp://one:1", "tcp://two:2"].map(url).into()
    }

    /// Returns the notes of the session after a change, as a restarted process reads them.
    fn after(places: &ServerMarks, change: &ServerMarksChange) -> ServerMarks {
        let kept = places.filters().into_iter().filter(|note| !change.removed.contains(note));
        let kept: Vec<Box<str>> =
            kept.chain(change.added.clone()).map(String::into_boxed_str).collect();
        ServerMarks::from_filters("$link/bridge/b", "c", &kept)
    }

    #[test]
    fn a_server_is_met_once_and_for_itself_alone() {
        let urls = urls();
        let places = ServerMarks::for_new_session("$link/bridge/b", "c", &urls);
        assert!(urls.iter().all(|url| places.is_unvisited(url)));
        let places = after(&places, &places.move_to(&urls[0], true));
        assert!(!places.is_unvisited(&urls[0]) && places.is_unvisited(&urls[1]));
        assert!(places.move_to(&urls[0], true).is_empty());
    }

    #[test]
    fn it_is_at_one_server_and_knows_when_it_moves() {
        let urls = urls();
        let places = ServerMarks::from_filters("$link/bridge/b", "c", &["up/#".into()]);
        let change = places.move_to(&urls[0], true);
        assert!(!change.moves, "nobody knows where it was");
        let places = after(&places, &change);
        let change = places.move_to(&urls[1], true);
        assert!(change.moves);
        let places = after(&places, &change);
        assert_eq!(places.left_note(&urls[0]), Some(places.note("left", &urls[0])));
        assert_eq!(places.filters().len(), 2);
        assert!(places.move_to(&urls[0], true).moves && !places.move_to(&urls[1], true).moves);
    }

    #[test]
    fn it_knows_where_a_message_may_be_half_way_until_that_is_released() {
        let urls = urls();
        let places = ServerMarks::from_filters("$link/bridge/b", "c", &[]);
        let places = after(&places, &places.move_to(&urls[0], true));
        let without = after(&places, &places.move_to(&urls[1], false));
        assert_eq!(without.left_note(&urls[0]), None, "without QoS 2");
        let mut places = after(&places, &places.move_to(&urls[1], true));
        let back = places.move_to(&urls[0], true);
        places.apply(back);
        assert!(places.left_note(&urls[0]).is_some() && places.left_note(&urls[1]).is_some());
        places.is_released(&urls[0]);
        assert!(places.left_note(&urls[0]).is_none() && places.left_note(&urls[1]).is_some());
    }

    #[test]
    fn another_client_id_is_another_place_at_the_same_server() {
        let urls = urls();
        let places = ServerMarks::from_filters("$link/bridge/b", "c", &[]);
        let places = after(&places, &places.move_to(&urls[0], true));
        let other = ServerMarks { client_id: "d".into(), ..places };
        let change = other.move_to(&urls[0], true);
        assert!(change.moves);
        let back = ServerMarks { client_id: "c".into(), ..after(&other, &change) };
        assert!(back.left_note(&urls[0]).is_some());
    }
}
