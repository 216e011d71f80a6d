//! Filters of a link that are new, until somebody comes for what is retained.
//!
//! A session is prepared by a quiet connection: what is retained for a new filter waits in the
//! session, as its place in the tree, for the first connection that carries. A process that ends
//! before forgets that place, but not a note in the session, below its own name: the next one asks
//! again for what is retained.

use super::local_session::{LocalSession, NOTE_OPTIONS, note_filter, note_prefix};
use mqtt::SubscribeOptions;
use std::collections::HashSet;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewLinkFilters {
    /// The filters and their notes.
    all: Vec<(String, String)>,
}

const FRESH: &str = "fresh";

impl NewLinkFilters {
    /// Returns the filters that a session is to have and does not have yet.
    pub(super) fn new_since(
        link_id: &str,
        wanted: &[(String, SubscribeOptions)],
        had: &HashSet<&str>,
    ) -> NewLinkFilters {
        // With other Retain Handlings nobody has to remember anything.
        let once = wanted.iter().filter(|(_, options)| options.retain_handling == 1);
        let noted = once.map(|(filter, _)| (filter.clone(), note_filter(link_id, FRESH, filter)));
        let is_fresh = |one: &(String, String)| !had.contains(&*one.0) || had.contains(&*one.1);
        NewLinkFilters { all: noted.filter(is_fresh).collect() }
    }

    /// Whether it is a note of this kind, whatever it stands for.
    pub(super) fn is_note(link_id: &str, filter: &str) -> bool {
        filter.strip_prefix(&note_prefix(link_id)).is_some_and(|rest| rest.starts_with(FRESH))
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|(_, note)| &**note)
    }

    /// Returns the subscriptions that prepare a session. Filters that are not new are included
    /// where the process that was to request their retained messages has ended.
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
        // Whatever comes into force has been written down.
        self.notes().map(|note| (note, NOTE_OPTIONS)).chain(wanted).collect()
    }
}

impl LocalSession {
    /// Requests the retained messages of new filters, once.
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
