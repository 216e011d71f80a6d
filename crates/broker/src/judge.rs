//! Who is there: the question that a CONNECT raises where the broker is told to ask, and what
//! becomes of the answer.
//!
//! ```text
//!            CONNECT, asked for                     Input::Verdict, or the deadline: deny
//! Greeting ----------------------> Asked, held ----------------------------------------> Greeting
//!            Effect::Judge                          Effect::Resume
//! ```
//!
//! The CONNECT stays unread in the transport. It is decoded again when the verdict is there, so
//! whatever followed it keeps its order, and a refusal has one way.

use crate::conn::State;
use crate::input::{ConnId, Now};
use crate::outbox::{Effect, Outbox};
use crate::peer::{Address, Certificate, ListenerId};
use crate::permissions::Permissions;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{Connect, Version};
use std::fmt;
use std::sync::Arc;

/// What a client says of itself, and what its transport knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub peer: Address,
    pub version: Version,
    /// Empty where the client wants one to be assigned.
    pub client_id: Box<str>,
    pub user_name: Option<Box<str>>,
    pub password: Option<Secret>,
    pub listener: ListenerId,
    pub certificate: Option<Arc<Certificate>>,
}

/// Bytes that no log and no panic shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Box<[u8]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow(Box<Grant>),
    Deny(Refusal),
}

/// What a client that may come in is from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Who it is; none is nobody in particular.
    pub user: Option<Arc<str>>,
    /// In place of the client id that CONNECT has.
    pub client_id: Option<Box<str>>,
    pub groups: Vec<Arc<str>>,
    /// May do everything.
    pub is_superuser: bool,
    /// Its own rules, which are asked before everyone's.
    pub permissions: Option<Arc<Permissions>>,
    /// When it has to go.
    pub expires_in_ms: Option<u64>,
}

/// What was decided of a client, as its peer carries it from shard to shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) verdict: Verdict,
    /// When the client has to go.
    pub(crate) expires: Option<Now>,
}

impl Pass {
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match &self.verdict {
            Verdict::Allow(grant) => Some(grant),
            Verdict::Deny(_) => None,
        }
    }
}

impl Shard {
    /// What was decided of the client, or nothing before somebody did.
    pub(crate) fn verdict(&self, conn: ConnId) -> Option<&Verdict> {
        self.conn(conn)?.peer.pass().map(|pass| &pass.verdict)
    }

    /// The connection waits for a verdict.
    pub(crate) fn inquire(&mut self, conn: ConnId, packet: &Connect<'_>, out: &mut Outbox) {
        let deadline = Now(self.now.0 + u64::from(self.options.verdict_timeout_ms));
        let Some(known) = self.conn_mut(conn) else { return };
        let claim = Claim {
            peer: known.peer.address,
            version: packet.version,
            client_id: packet.client_id.into(),
            user_name: packet.user_name.map(Into::into),
            password: packet.password.map(|password| Secret(password.into())),
            listener: known.peer.listener,
            certificate: known.peer.certificate().cloned(),
        };
        let case = known.generation;
        known.state = State::Asked;
        known.timer_at = deadline;
        self.timers.set(deadline, Timer::Conn { index: conn.0, generation: case });
        out.effects.push(Effect::Hold { conn });
        out.effects.push(Effect::Judge { conn, case, claim: Box::new(claim) });
    }

    /// The answer, unless the connection has gone or the deadline has answered.
    pub(crate) fn judged(&mut self, conn: ConnId, case: u32, verdict: Verdict, out: &mut Outbox) {
        let now = self.now;
        let Some(known) = self.conn_mut(conn) else { return };
        if known.generation != case || !matches!(known.state, State::Asked) {
            return;
        }
        let expires = match &verdict {
            Verdict::Allow(grant) => grant.expires_in_ms,
            Verdict::Deny(_) => None,
        };
        let expires = expires.map(|ms| Now(now.0.saturating_add(ms)));
        known.peer.give(Pass { verdict, expires });
        known.state = State::Greeting;
        out.effects.push(Effect::Resume { conn });
    }

    /// What the verdict makes of an admitted client id.
    pub(crate) fn obey(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        admitted: Box<str>,
        out: &mut Outbox,
    ) -> Result<Box<str>, Refusal> {
        let (client_id, user) = match self.verdict(conn) {
            None => return Ok(admitted),
            Some(Verdict::Deny(refusal)) => {
                let refusal = *refusal;
                let is_about_who = !matches!(refusal, Refusal::QuotaExceeded | Refusal::TooFast);
                self.sessions.counters.denied_connects += u64::from(is_about_who);
                return Err(refusal);
            }
            Some(Verdict::Allow(grant)) => (grant.client_id.clone(), grant.user.clone()),
        };
        let client_id = match client_id {
            Some(id) if id.len() > usize::from(self.options.client_id_bytes_max) => {
                return Err(Refusal::ClientIdTooLong);
            }
            Some(id) if !id.is_empty() => id,
            _ if packet.client_id.is_empty() => self.assign_client_id(),
            _ => admitted,
        };
        self.check_bans(conn, &client_id, user.as_deref(), out)?;
        Ok(client_id)
    }

    /// Whether the verdict gave the client another id than it asked for.
    pub(crate) fn is_renamed(&self, conn: ConnId) -> bool {
        let renamed = |verdict: &Verdict| match verdict {
            Verdict::Allow(grant) => grant.client_id.as_ref().is_some_and(|id| !id.is_empty()),
            Verdict::Deny(_) => false,
        };
        self.verdict(conn).is_some_and(renamed)
    }
}
