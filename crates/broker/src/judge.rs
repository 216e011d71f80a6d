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
use crate::exchange::{Exchange, Step};
use crate::input::{ConnId, Now};
use crate::mount::Admitted;
use crate::outbox::{Effect, Outbox};
use crate::peer::{Address, Certificate, ListenerId};
use crate::permissions::Permissions;
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{Connect, Property, Version};
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
    /// What it says in an authentication exchange.
    pub step: Option<Step>,
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
    /// It has to say more, in AUTH. `memory` comes back with that.
    Challenge {
        data: Box<[u8]>,
        memory: Secret,
    },
    Deny(Refusal),
}

/// What a client that may come in is from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Who it is; none is nobody in particular.
    pub user: Option<Arc<str>>,
    /// In place of the client id that CONNECT has.
    pub client_id: Option<Box<str>>,
    /// In place of the one that its listener or its group has; empty is none.
    pub namespace: Option<Box<str>>,
    pub groups: Vec<Arc<str>>,
    /// May do everything.
    pub is_superuser: bool,
    /// Its own rules, which are asked before everyone's.
    pub permissions: Option<Arc<Permissions>>,
    /// When it has to go.
    pub expires_in_ms: Option<u64>,
    /// Nothing is sent to it but answers: messages wait for another connection of its session.
    pub is_quiet: bool,
    /// The last word of an authentication exchange, for the client.
    pub says: Option<Box<[u8]>>,
}

/// What was decided of a client, as its peer carries it from shard to shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) decided: Result<Box<Grant>, Refusal>,
    /// When the client has to go.
    pub(crate) expires: Option<Now>,
    /// AUTH packets behind the CONNECT that led to it.
    pub(crate) answers: u8,
}

impl Pass {
    pub(crate) fn grant(&self) -> Option<&Grant> {
        self.decided.as_deref().ok()
    }
}

impl Shard {
    /// What was decided of the client, or nothing before somebody did.
    pub(crate) fn decided(&self, conn: ConnId) -> Option<&Result<Box<Grant>, Refusal>> {
        self.conn(conn)?.peer.pass().map(|pass| &pass.decided)
    }

    /// The connection waits for a verdict.
    pub(crate) fn inquire(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        step: Option<Step>,
        out: &mut Outbox,
    ) {
        let deadline = Now(self.now.0 + u64::from(self.options.verdict_timeout_ms));
        let Some(known) = self.conn_mut(conn) else { return };
        if let Some(step) = step.as_ref().filter(|step| step.memory.is_none()) {
            let max = packet.properties.iter().find_map(|property| match property {
                Property::MaximumPacketSize(max) => Some(max),
                _ => None,
            });
            let exchange = Exchange::new(&step.method, max.unwrap_or(u32::MAX));
            known.exchange = Some(Box::new(exchange));
        }
        let claim = Claim {
            peer: known.peer.address,
            version: packet.version,
            client_id: packet.client_id.into(),
            user_name: packet.user_name.map(Into::into),
            password: packet.password.map(|password| Secret(password.into())),
            listener: known.peer.listener,
            certificate: known.peer.certificate().cloned(),
            step,
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
        if known.generation != case {
            return;
        }
        if !matches!(known.state, State::Asked | State::Challenged) {
            return self.judged_again(conn, verdict, out);
        }
        let decided = match verdict {
            Verdict::Challenge { data, memory } => match self.challenge(conn, &data, memory, out) {
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            Verdict::Allow(grant) => Ok(grant),
            Verdict::Deny(refusal) => Err(refusal),
        };
        let Some(known) = self.conn_mut(conn) else { return };
        let expires = decided.as_ref().ok().and_then(|grant| grant.expires_in_ms);
        let answers = known.exchange.as_ref().map_or(0, |exchange| exchange.answers());
        let expires = expires.map(|ms| Now(now.0.saturating_add(ms)));
        known.peer.give(Pass { decided, expires, answers });
        known.state = State::Greeting;
        out.effects.push(Effect::Resume { conn });
    }

    /// What the verdict makes of an admitted client id.
    pub(crate) fn obey(
        &mut self,
        conn: ConnId,
        packet: &Connect<'_>,
        admitted: Admitted,
        out: &mut Outbox,
    ) -> Result<Admitted, Refusal> {
        let (client_id, user) = match self.decided(conn) {
            None => return Ok(admitted),
            Some(Err(refusal)) => {
                let refusal = *refusal;
                let is_about_who = !matches!(refusal, Refusal::QuotaExceeded | Refusal::TooFast);
                self.sessions.counters.denied_connects += u64::from(is_about_who);
                return Err(refusal);
            }
            Some(Ok(grant)) => (grant.client_id.clone(), grant.user.clone()),
        };
        let namespace = self.namespace_at(conn)?;
        let client_id = match client_id {
            Some(id) if id.len() > usize::from(self.options.client_id_bytes_max) => {
                return Err(Refusal::ClientIdTooLong);
            }
            Some(id) if !id.is_empty() => {
                self.check_reserved(conn, &id)?;
                id
            }
            _ if packet.client_id.is_empty() => self.assign_client_id(&namespace),
            _ => admitted.client_id,
        };
        let admitted = Admitted::new(&namespace, client_id);
        self.check_bans(conn, &admitted, user.as_deref(), out)?;
        Ok(admitted)
    }

    /// Whether the verdict gave the client another id than it asked for.
    pub(crate) fn is_renamed(&self, conn: ConnId) -> bool {
        let grant = self.conn(conn).and_then(|known| known.peer.pass()).and_then(Pass::grant);
        let given = grant.and_then(|grant| grant.client_id.as_ref());
        given.is_some_and(|id| !id.is_empty())
    }
}
