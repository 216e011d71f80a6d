//! Whom shards ask what a client may do, as a transcript's header has it: the control plane's
//! stand-in.

use broker::ask::{Action, Answer, Question, Slip};
use mqtt::filter_matches;
use std::fmt::Write;

#[derive(Clone, Debug, Default)]
pub struct Warden {
    words: Vec<Word>,
    /// Answers wait until `! warden answers`.
    pub waits: bool,
    /// A shard, and what it asks.
    pub waiting: Vec<(usize, Slip, Question)>,
    /// A line for each question since they were last told.
    heard: Vec<String>,
}

/// What is said of topics.
#[derive(Clone, Debug)]
struct Word {
    answer: Answer,
    action: Option<Action>,
    user: Option<String>,
    filter: String,
}

impl Warden {
    /// `allow a/#; allow publish b; silence c; allow user=ann d`: the first that fits says it.
    pub fn parse(text: &str) -> Result<Warden, String> {
        let words = text.split(';').map(str::trim).filter(|word| !word.is_empty());
        Ok(Warden { words: words.map(word).collect::<Result<_, _>>()?, ..Warden::default() })
    }

    /// Others from now on.
    pub fn change(&mut self, text: &str) -> Result<(), String> {
        self.words = Warden::parse(text)?.words;
        Ok(())
    }

    pub fn hear(&mut self, shard: usize, slip: Slip, question: Question) {
        let Question { action, topic, qos, retain, client_id, namespace, user, .. } = &question;
        let what = if *action == Action::Publish { "publish" } else { "subscribe" };
        let mut line = format!("{what} {topic:?} qos={qos}");
        if *retain {
            line.push_str(" retain");
        }
        let _ = write!(line, " by {client_id}");
        if let Some(user) = user {
            let _ = write!(line, " user={user}");
        }
        if !namespace.is_empty() {
            let _ = write!(line, " namespace={namespace}");
        }
        self.heard.push(line);
        self.waiting.push((shard, slip, question));
    }

    pub fn answer(&self, question: &Question) -> Answer {
        let fits = |word: &&Word| {
            word.action.is_none_or(|action| action == question.action)
                && word.user.as_deref().is_none_or(|user| question.user.as_deref() == Some(user))
                && filter_matches(&word.filter, &question.topic)
        };
        self.words.iter().find(fits).map_or(Answer::Deny, |word| word.answer)
    }

    /// In an order that does not depend on shards.
    pub fn told(&mut self) -> Vec<String> {
        let mut heard = std::mem::take(&mut self.heard);
        heard.sort();
        heard
    }
}

fn word(text: &str) -> Result<Word, String> {
    let (mut answer, mut action, mut user, mut filter) = (None, None, None, None);
    for part in text.split_whitespace() {
        match part {
            "allow" => answer = Some(Answer::Allow),
            "deny" => answer = Some(Answer::Deny),
            "silence" => answer = Some(Answer::Silence),
            "publish" => action = Some(Action::Publish),
            "subscribe" => action = Some(Action::Subscribe),
            _ if part.starts_with("user=") => user = Some(part[5..].to_string()),
            _ => filter = Some(part.to_string()),
        }
    }
    let (answer, filter) = answer.zip(filter).ok_or("what does the warden say of what?")?;
    Ok(Word { answer, action, user, filter })
}
