//! New filters of a link, until the link has requested their retained messages.
//!
//! A connection with `is_quiet` prepares the session. The position of a new filter in the tree of
//! retained messages waits in the session for the first connection without `is_quiet`. A process
//! which ends earlier loses the position. A note, a subscription below the link's own name, is
//! stored with the session, so the next process requests the retained messages again.

use super::local_session::{LocalSession, NOTE_OPTIONS, note_filter, note_prefix};
use mqtt::SubscribeOptions;
use std::collections::HashSet;

/// New filters of a session whose retained messages are still to be requested, see
/// [`LocalSession::request_retained`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewLinkFilters {
    /// The filters and the notes which stand for them, see `note_filter`.
    all: Vec<(String, String)>,
}

const FRESH: &str = "fresh";

impl NewLinkFilters {
    /// Returns the filters of `wanted` with Retain Handling 1 which are not in `had`, or whose note
    /// still is: the retained messages of these filters were not requested yet.
    pub(super) fn new_since(
        link_id: &str,
        wanted: &[(String, SubscribeOptions)],
        had: &HashSet<&str>,
    ) -> NewLinkFilters {
        // Other values of Retain Handling do not depend on whether a subscription is new.
        let once = wanted.iter().filter(|(_, options)| options.retain_handling == 1);
        let noted = once.map(|(filter, _)| (filter.clone(), note_filter(link_id, FRESH, filter)));
        let is_fresh = |one: &(String, String)| !had.contains(&*one.0) || had.contains(&*one.1);
        NewLinkFilters { all: noted.filter(is_fresh).collect() }
    }

    /// Whether `filter` is a note of a new filter of this link.
    pub(super) fn is_note(link_id: &str, filter: &str) -> bool {
        filter.strip_prefix(&note_prefix(link_id)).is_some_and(|rest| rest.starts_with(FRESH))
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|(_, note)| &**note)
    }

    /// Returns the subscriptions which prepare a session: a note for each new filter, and `wanted`.
    /// A filter for which `is_left` finds the note of an ended process gets Retain Handling 0, so
    /// the broker sends the retained messages again.
    pub(super) fn initial_subscriptions<'a>(
        &'a self,
        wanted: &'a [(String, SubscribeOptions)],
        is_left: impl Fn(&str) -> bool,
    ) -> Vec<(&'a str, SubscribeOptions)> {
        let left = self.all.iter().filter(|(_, note)| is_left(note));
        let left: HashSet<&str> = left.map(|(filter, _)| &**filter).collect();
        let wanted = wanted.iter().map(|(filter, options)| match left.contains(&**filter) {
            true => (&**filter, SubscribeOptions { retain_handling: 0, ..*options }),
            false => (&**filter, *options),
        });
        // The notes come first, so a subscription in force always has a stored note.
        self.notes().map(|note| (note, NOTE_OPTIONS)).chain(wanted).collect()
    }
}

impl LocalSession {
    /// Removes the notes of the new filters from the session, and empties `fresh`: the caller's
    /// connection delivers the retained messages.
    pub async fn request_retained(&mut self, fresh: &mut NewLinkFilters) -> Result<(), String> {
        if !fresh.all.is_empty() {
            self.subscribe(&[], &fresh.notes().collect::<Vec<_>>()).await?;
            fresh.all.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "$link/sink/s";

    fn wanted(retain_handling: u8) -> Vec<(String, SubscribeOptions)> {
        vec![("up/#".into(), SubscribeOptions { retain_handling, ..SubscribeOptions::default() })]
    }

    fn fresh(handling: u8, had: &[&str]) -> NewLinkFilters {
        NewLinkFilters::new_since(LINK, &wanted(handling), &had.iter().copied().collect())
    }

    #[test]
    fn a_filter_is_fresh_until_its_note_is_gone() {
        let new = fresh(1, &[]);
        let note = new.notes().next().expect("it is fresh");
        assert!(NewLinkFilters::is_note(LINK, note) && !NewLinkFilters::is_note(LINK, "up/#"));
        assert_eq!(fresh(1, &["up/#", note]), new);
        for (handling, had) in [(1, &["up/#"][..]), (0, &[]), (2, &[])] {
            assert_eq!(fresh(handling, had), NewLinkFilters::default(), "{handling}");
        }
    }

    #[test]
    fn who_comes_after_a_process_that_ended_asks_in_its_place() {
        let (fresh, wanted) = (fresh(1, &[]), wanted(1));
        for (is_left, handling) in [(false, 1), (true, 0)] {
            let all = fresh.initial_subscriptions(&wanted, |_| is_left);
            assert_eq!(
                all.iter().map(|one| one.1.retain_handling).collect::<Vec<_>>(),
                [2, handling]
            );
            assert_eq!(all[1].0, "up/#");
        }
    }
}
