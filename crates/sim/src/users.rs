//! The users, access rules and bans in a transcript's header. `TestUsers` replaces the
//! authentication of the control plane.

use broker::access_rules::acl_rules::{
    ANY_QOS, AclRule, AclRuleSet, IpNetwork, NamePattern, TopicPattern,
};
use broker::options::bans::{Ban, BanList, BanTarget};
use broker::peer::authentication::{Principal, SecretBytes};
use broker::{AuthDecision, AuthRequest, AuthStep, ConnId, Refusal};
use std::sync::Arc;

/// Users and pending decisions of a simulated world.
#[derive(Clone, Debug, Default)]
pub struct TestUsers {
    users: Vec<TestUser>,
    /// Whether decisions wait until `! judge answers`.
    pub waits: bool,
    /// Undecided requests: shard, connection, `case` of `Effect::Authenticate`, and the request.
    pub pending: Vec<(usize, ConnId, u32, AuthRequest)>,
}

/// A user with the [`Principal`] that authentication returns.
#[derive(Clone, Debug)]
struct TestUser {
    /// User name, or `None` for clients without a user name.
    name: Option<String>,
    password: Vec<u8>,
    principal: Principal,
    /// Number of authentication steps which the method `STEPS` requires of the user.
    steps: usize,
}

impl TestUsers {
    pub fn decide(&self, request: &AuthRequest) -> AuthDecision {
        if let Some(step) = &request.step {
            return self.next_step(step);
        }
        let same = |person: &&TestUser| person.name.as_deref() == request.user_name.as_deref();
        let Some(person) = self.users.iter().find(same) else {
            return AuthDecision::Deny(Refusal::BadCredentials);
        };
        let SecretBytes(given) = request.password.clone().unwrap_or(SecretBytes([].into()));
        match *given == *person.password {
            true => AuthDecision::Allow(Box::new(person.principal.clone())),
            false => AuthDecision::Deny(Refusal::BadCredentials),
        }
    }

    /// Decides a step of the authentication method `STEPS`: the client sends its name, then its
    /// password `TestUser::steps` times.
    fn next_step(&self, step: &AuthStep) -> AuthDecision {
        let said = String::from_utf8_lossy(&step.data.0);
        let memory = step.memory.as_ref().map(|memory| String::from_utf8_lossy(&memory.0));
        let (name, done) = match &memory {
            Some(memory) => memory.split_once(' ').expect("ours"),
            None => (&*said, "0"),
        };
        let done: usize = done.parse().expect("ours");
        let known = self.users.iter().find(|person| person.name.as_deref() == Some(name));
        let Some(person) = known else { return AuthDecision::Deny(Refusal::BadCredentials) };
        let is_right = memory.is_none() || said.as_bytes() == person.password;
        match (is_right, done == person.steps) {
            (false, _) => AuthDecision::Deny(Refusal::BadCredentials),
            (true, true) => {
                let says = Some(Box::from(&b"welcome"[..]));
                AuthDecision::Allow(Box::new(Principal {
                    auth_data: says,
                    ..person.principal.clone()
                }))
            }
            (true, false) => {
                let memory = SecretBytes(format!("{name} {}", done + 1).into_bytes().into());
                AuthDecision::Challenge { data: Box::from(&b"prove it"[..]), memory }
            }
        }
    }

    /// Adds a user: `anonymous`, or `alice password=secret superuser id=x group=ops namespace=n
    /// expires=5s steps=2`, with access rules of the user after ` : `.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (text, own) = text.split_once(" : ").map_or((text, None), |(a, b)| (a, Some(b)));
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("who?")?;
        let name = Some(name).filter(|name| *name != "anonymous");
        let user = name.map(Arc::from);
        let principal =
            Principal { user, permissions: own.map(rules).transpose()?, ..Principal::default() };
        let (name, password) = (name.map(String::from), Vec::new());
        let mut person = TestUser { name, password, principal, steps: 1 };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "expires" => {
                    let seconds = value.strip_suffix('s').and_then(|text| text.parse::<u64>().ok());
                    let seconds = seconds.ok_or("when does it expire?")?;
                    person.principal.expires_in_ms = Some(seconds * 1000);
                }
                "group" => person.principal.groups.push(value.into()),
                "id" => person.principal.client_id = Some(value.into()),
                "namespace" => person.principal.namespace = Some(value.into()),
                "password" => person.password = value.into(),
                "steps" => person.steps = value.parse().map_err(|_| "how many steps?")?,
                "superuser" => person.principal.is_superuser = true,
                _ => return Err(format!("a user has no {key}")),
            }
        }
        self.users.push(person);
        Ok(())
    }
}

/// Parses access rules separated by `;`: `deny topic=a/b; allow publish user=ann topic=a/#`.
pub fn rules(text: &str) -> Result<Arc<AclRuleSet>, String> {
    let rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty());
    Ok(Arc::new(AclRuleSet::new(rules.map(rule).collect::<Result<_, _>>()?)))
}

/// Parses bans separated by `;`: `id=a; user=b for=5s; address=10.0.0.0/8`.
pub fn bans(text: &str) -> Result<Arc<BanList>, String> {
    let bans = text.split(';').map(str::trim).filter(|ban| !ban.is_empty());
    Ok(Arc::new(BanList::new(bans.map(ban).collect::<Result<Vec<_>, _>>()?)))
}

fn ban(text: &str) -> Result<Ban, String> {
    let (mut whom, mut for_ms) = (None, None);
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "address" => {
                whom = Some(BanTarget::Address(IpNetwork::parse(value).ok_or("which address?")?));
            }
            "for" => {
                let seconds = value.strip_suffix('s').and_then(|text| text.parse::<u64>().ok());
                for_ms = Some(seconds.ok_or("for how long?")? * 1000);
            }
            "id" => whom = Some(BanTarget::ClientId(NamePattern::parse(value))),
            "user" => whom = Some(BanTarget::User(NamePattern::parse(value))),
            _ => return Err(format!("a ban has no {key}")),
        }
    }
    Ok(Ban { whom: whom.ok_or("whom?")?, for_ms, reason: "".into() })
}

fn rule(text: &str) -> Result<AclRule, String> {
    let mut rule = AclRule::default();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "address" => rule.addresses.push(IpNetwork::parse(value).ok_or("which address?")?),
            "allow" => rule.allows = true,
            "anonymous" => rule.anonymous_only = true,
            "deny" => rule.allows = false,
            "group" => rule.groups.push(value.into()),
            "id" => rule.client_ids.push(NamePattern::parse(value)),
            "publish" => rule.subscribe = false,
            "qos" => {
                let qos = value.parse::<u8>().map_err(|_| "which QoS?")?;
                rule.qos = if rule.qos == ANY_QOS { 1 << qos } else { rule.qos | 1 << qos };
            }
            "retain" => rule.retain = Some(value == "1"),
            "subscribe" => rule.publish = false,
            "topic" => rule.topics.push(TopicPattern::parse(value)?),
            "user" => rule.users.push(NamePattern::parse(value)),
            _ => return Err(format!("a rule has no {key}")),
        }
    }
    Ok(rule)
}
