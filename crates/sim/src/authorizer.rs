//! The authorizer in a transcript's header, which decides where no access rule applies.
//! `TestAuthorizer` replaces the authorization backends of the control plane.

use broker::access_rules::acl_rules::AclAction;
use broker::ids::RequestId;
use broker::interface::authz::{AuthzDecision, AuthzRequest};
use mqtt::filter_matches;
use std::fmt::Write;

/// Authorizer of a simulated world. Without a matching rule the decision is `Deny`.
#[derive(Clone, Debug, Default)]
pub struct TestAuthorizer {
    rules: Vec<TestAuthzRule>,
    /// Whether decisions wait until `! warden answers`.
    pub waits: bool,
    /// Undecided requests, each with the requesting shard, to be answered by
    /// `SimWorld::answer_authz`.
    pub pending: Vec<(usize, RequestId, AuthzRequest)>,
    /// A line for each request since `take_request_log` was last called.
    request_log: Vec<String>,
}

/// A rule of [`TestAuthorizer`]; an absent action or user matches all.
#[derive(Clone, Debug)]
struct TestAuthzRule {
    answer: AuthzDecision,
    action: Option<AclAction>,
    user: Option<String>,
    filter: String,
}

impl TestAuthorizer {
    /// Parses rules: `allow a/#; allow publish b; silence c; allow user=ann d`. The first match
    /// decides.
    pub fn parse(text: &str) -> Result<TestAuthorizer, String> {
        let words = text.split(';').map(str::trim).filter(|word| !word.is_empty());
        Ok(TestAuthorizer {
            rules: words.map(parse_rule).collect::<Result<_, _>>()?,
            ..TestAuthorizer::default()
        })
    }

    /// Replaces the rules. Pending requests stay, and are decided by the new rules.
    pub fn replace_rules(&mut self, text: &str) -> Result<(), String> {
        self.rules = TestAuthorizer::parse(text)?.rules;
        Ok(())
    }

    pub fn receive_request(&mut self, shard: usize, request_id: RequestId, question: AuthzRequest) {
        let AuthzRequest { action, topic, qos, retain, client_id, namespace, user, .. } = &question;
        let what = if *action == AclAction::Publish { "publish" } else { "subscribe" };
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
        self.request_log.push(line);
        self.pending.push((shard, request_id, question));
    }

    pub fn decide(&self, question: &AuthzRequest) -> AuthzDecision {
        let fits = |word: &&TestAuthzRule| {
            word.action.is_none_or(|action| action == question.action)
                && word.user.as_deref().is_none_or(|user| question.user.as_deref() == Some(user))
                && filter_matches(&word.filter, &question.topic)
        };
        self.rules.iter().find(fits).map_or(AuthzDecision::Deny, |word| word.answer)
    }

    /// Takes the log of requests, sorted: the order of arrival depends on the number of shards.
    pub fn take_request_log(&mut self) -> Vec<String> {
        let mut heard = std::mem::take(&mut self.request_log);
        heard.sort();
        heard
    }
}

fn parse_rule(text: &str) -> Result<TestAuthzRule, String> {
    let (mut answer, mut action, mut user, mut filter) = (None, None, None, None);
    for part in text.split_whitespace() {
        match part {
            "allow" => answer = Some(AuthzDecision::Allow),
            "deny" => answer = Some(AuthzDecision::Deny),
            "silence" => answer = Some(AuthzDecision::Unavailable),
            "publish" => action = Some(AclAction::Publish),
            "subscribe" => action = Some(AclAction::Subscribe),
            _ if part.starts_with("user=") => user = Some(part[5..].to_string()),
            _ => filter = Some(part.to_string()),
        }
    }
    let (answer, filter) = answer.zip(filter).ok_or("what does the warden say of what?")?;
    Ok(TestAuthzRule { answer, action, user, filter })
}
