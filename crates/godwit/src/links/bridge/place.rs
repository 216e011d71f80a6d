//! What a bridge's session remembers of the servers: at which of them it is, so of whose session
//! the QoS 2 messages are that it has taken and that are not released; and which of them may have a
//! session that is of one before it.
//!
//! Only the session here can know that through a restart. It knows it by subscriptions to what
//! nobody publishes, below its own name, so that this is kept with it and goes with it.

use crate::identity::remote::url::Url;
use crate::links::near::{note, notes};

/// Filters that the session has.
#[derive(Default)]
pub(super) struct Places {
    link_id: String,
    notes: Vec<String>,
}

/// What is to be written down before anything is carried.
pub(super) struct Change {
    pub(super) wanted: Vec<String>,
    pub(super) gone: Vec<String>,
    /// It comes from another server.
    pub(super) moves: bool,
}

impl Places {
    /// Of a session that was there before.
    pub(super) fn of(link_id: &str, filters: &[Box<str>]) -> Places {
        let beginning = notes(link_id);
        let notes = filters.iter().filter(|filter| filter.starts_with(&beginning));
        Places { link_id: link_id.into(), notes: notes.map(|filter| (**filter).into()).collect() }
    }

    /// Of a new one, for which each of the servers may have something that is not its own.
    pub(super) fn unmet(link_id: &str, servers: &[Url]) -> Places {
        let mut places = Places { link_id: link_id.into(), notes: Vec::new() };
        places.notes = servers.iter().map(|server| places.note("unmet", server)).collect();
        places
    }

    pub(super) fn filters(&self) -> Vec<String> {
        self.notes.clone()
    }

    pub(super) fn is_unmet(&self, server: &Url) -> bool {
        self.notes.contains(&self.note("unmet", server))
    }

    /// Once it is at this server.
    pub(super) fn move_to(&self, server: &Url) -> Change {
        let (here, unmet) = (self.note("at", server), self.note("unmet", server));
        let is_elsewhere = |note: &str| self.is_at(note) && *note != here;
        let gone = self.notes.iter().filter(|note| **note == unmet || is_elsewhere(note));
        let gone: Vec<String> = gone.cloned().collect();
        let moves = gone.iter().any(|note| is_elsewhere(note));
        let wanted = if self.notes.contains(&here) { Vec::new() } else { vec![here] };
        Change { wanted, gone, moves }
    }

    /// The session has it.
    pub(super) fn change(&mut self, change: Change) {
        self.notes.retain(|note| !change.gone.contains(note));
        self.notes.extend(change.wanted);
    }

    fn is_at(&self, note: &str) -> bool {
        note.strip_prefix(&notes(&self.link_id)).is_some_and(|note| note.starts_with("at/"))
    }

    fn note(&self, what: &str, server: &Url) -> String {
        note(&self.link_id, what, &format!("{server}{}", server.path))
    }
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.gone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls() -> Vec<Url> {
        let url = |text| Url::parse(text, &["tcp"]).expect("a URL");
        ["tcp://one:1", "tcp://two:2"].map(url).into()
    }

    /// What the session has after a change, as a restart finds it.
    fn after(places: &Places, change: &Change) -> Places {
        let kept = places.filters().into_iter().filter(|note| !change.gone.contains(note));
        let kept: Vec<Box<str>> =
            kept.chain(change.wanted.clone()).map(String::into_boxed_str).collect();
        Places::of("$link/bridge/b", &kept)
    }

    #[test]
    fn a_server_is_met_once_and_for_itself_alone() {
        let urls = urls();
        let places = Places::unmet("$link/bridge/b", &urls);
        assert!(urls.iter().all(|url| places.is_unmet(url)));
        let places = after(&places, &places.move_to(&urls[0]));
        assert!(!places.is_unmet(&urls[0]) && places.is_unmet(&urls[1]));
        assert!(places.move_to(&urls[0]).is_empty());
    }

    #[test]
    fn it_is_at_one_server_and_knows_when_it_moves() {
        let urls = urls();
        let places = Places::of("$link/bridge/b", &["up/#".into()]);
        let change = places.move_to(&urls[0]);
        assert!(!change.moves, "nobody knows where it was");
        let places = after(&places, &change);
        let change = places.move_to(&urls[1]);
        assert!(change.moves);
        let places = after(&places, &change);
        assert_eq!(places.filters().len(), 1);
        assert!(places.move_to(&urls[0]).moves && !places.move_to(&urls[1]).moves);
    }
}
