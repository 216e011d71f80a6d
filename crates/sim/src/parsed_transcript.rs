//! The parser of the transcript language: a text becomes lines, each an action or an expectation.
//!
//! ```text
//!   # options: session.inflight_max=2 queue.policy=drop_newest
//!   # listener: 1 queue.messages_max=5    options of listener 1; the first listener is 0
//!   # group: slow limits.messages_per_s=2    options of a client group, at any listener
//!   # shards: 2              run with this number of shards; by default with one, two and three
//!   # connack: whole         print the properties of CONNACK with default values, too
//!   # disk: on               run only with a store, which outlives `! power`; `off`: without
//!   # user: ann password=x  a user; clients which match no user are refused: see `users`
//!   # rules: allow topic=a   access rules
//!   # rule: NAME ... : SQL   a rule over messages and events: see `rule`
//!   # warden: allow a/#; silence b   the authorizer, asked where no access rule applies: see
//!                          `authorizer`; `particular` before the rules: QoS and RETAIN matter
//!   # rewrite: publish a/# ^a/(.+)$ b/$1   `subscribe` and `all` likewise
//!   # auto: clients/%c qos=1 no_local retain_handling=2   subscriptions of every client
//!   # preset: a t/# u qos=1 expiry=60 user=ann   a session before the client's first connection
//!   # caches: last t/# u messages_max=2 topics_max=9 bytes_max=999 age_s_max=60; all #
//!   # bans: id=a for=5s; address=10.0.0.0/8   clients to refuse
//!   # sim only               cannot be repeated over TCP
//!   a> CONNECT id=a v=311    client a sends; opens a connection first if there is none
//!   a> PINGREQ &             held back, sent together with a's next line
//!   a< CONNACK present=0     client a receives; `*` stands for any value
//!   a< CLOSED                the broker closed a's connection
//!   a! cut                   a's connection breaks without DISCONNECT
//!   a! from 10.0.0.7         a's address from its next connection on
//!   a! by 1                  a's listener from its next connection on; `own`: the broker
//!                          itself opens the connection, as for links
//!   a! stall, a! resume      a stops reading; a reads again
//!   a! trickle               from now on a's bytes arrive one by one
//!   ! drain, ! close_all     a command of the control plane to all shards
//!   ! reload queue.qos0=true
//!   ! judge waits, ! judge answers   authentication decisions wait, or are sent
//!   ! warden waits, ! warden answers; ! warden answers 1: only the oldest request
//!   ! warden asked           prints, as the client `warden`, the requests since the last time
//!   ! warden says allow a    replaces the authorizer's rules, and reloads the options
//!   ! rules deny topic=a     replaces the access rules
//!   ! rule NAME ... : SQL    replaces all rules by this rule
//!   ! bans user=b            replaces the bans
//!   ! caches last t/#        replaces the caches; `none` for no cache
//!   ! power                  the broker restarts, without the data that its disk did not sync
//!   ! disk holds, ! disk syncs; ! disk syncs 1 batch, and holds later batches
//!   ! disk refuses, ! disk takes  writes which grow; removals are always accepted
//!   ! disk is crowded, ! disk is roomy   the store is backlogged, or not
//!   ! disk is full, ! disk has room
//!   ! disk waits            syncs a batch once a client waits for it, or after a second
//!   ! stored                 prints, as the client `disk`, the number of records in the store
//!   + 5s, + 300ms            time passes
//! ```
//!
//! A line that ends in a backslash continues in the next. The lines caused by an action follow it:
//! first those of the acting client, then the other clients in the order of their first line.

use crate::authorizer::TestAuthorizer;
use crate::disk::SyncMode;
use crate::users::{self, TestUsers};
use crate::{name_options, rule, settings};
use broker::options::client_groups::{AuthzOptions, ClientGroup};
use broker::{BrokerOptions, ListenerId};
use std::net::IpAddr;
use std::sync::Arc;

/// A transcript with the options of its header.
#[derive(Clone, Debug)]
pub struct ParsedTranscript {
    pub lines: Vec<ScriptLine>,
    pub options: BrokerOptions,
    /// The header's `options:`, as written. `replay` leaves out transcripts with any.
    pub settings: Vec<(String, String)>,
    /// Options of single listeners (by index) and of groups (by name), which `overrule` applies to
    /// `options`.
    listeners: Vec<(usize, Vec<(String, String)>)>,
    groups: Vec<(String, Vec<(String, String)>)>,
    rules: Vec<String>,
    caches: Option<String>,
    pub shards: Option<usize>,
    pub sim_only: bool,
    /// Whether the transcript requires a store (`true`) or excludes one (`false`).
    pub disk: Option<bool>,
    pub whole_connack: bool,
    pub users: TestUsers,
    pub authorizer: TestAuthorizer,
    /// Names of the clients in the order of their first line; a `ScriptAction` holds indexes.
    pub clients: Vec<String>,
}

/// A line of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptLine {
    Act {
        text: String,
        act: ScriptAction,
    },
    Expect {
        client: usize,
        text: String,
    },
    /// Comments, headers and empty lines, kept for `UPDATE_EXPECT`.
    Other(String),
}

/// An action of a transcript: of a client, or with `!` of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptAction {
    AnswerAuth {
        waits: bool,
    },
    Caches {
        text: String,
    },
    Bans {
        text: String,
    },
    SetListener {
        client: usize,
        listener: u8,
    },
    CloseAll,
    /// Sets whether the store is backlogged: see `SimWorld::set_store_backlogged`.
    BacklogStore {
        is_crowded: bool,
    },
    Cut {
        client: usize,
    },
    Disk {
        syncs: SyncMode,
    },
    Drain,
    /// Reports to the broker that the store is full, or has room again.
    FillStore {
        is_full: bool,
    },
    SetAddress {
        client: usize,
        address: IpAddr,
    },
    Pass {
        ms: u64,
    },
    /// The authorizer answers `count` requests; `waits` applies to later requests.
    AnswerAuthz {
        count: usize,
        waits: bool,
    },
    Power,
    /// Sets `SimDisk::refuses`: the disk refuses writes that grow, or accepts all writes again.
    RefuseGrowth {
        refuses: bool,
    },
    Reload {
        name: String,
        value: String,
    },
    Resume {
        client: usize,
    },
    /// Replaces the rules over messages and events by a single rule in SQL.
    Rule {
        text: String,
    },
    Rules {
        text: String,
    },
    /// Sends a packet. `held` packets are sent together with the client's next line.
    Send {
        client: usize,
        packet: String,
        held: bool,
    },
    Stall {
        client: usize,
    },
    PrintRecordCounts,
    Trickle {
        client: usize,
    },
    ChangeAuthz {
        text: String,
    },
    PrintAuthzRequests,
}

impl ScriptAction {
    pub fn client(&self) -> Option<usize> {
        match self {
            ScriptAction::SetListener { client, .. }
            | ScriptAction::Cut { client }
            | ScriptAction::SetAddress { client, .. }
            | ScriptAction::Resume { client }
            | ScriptAction::Send { client, .. }
            | ScriptAction::Stall { client }
            | ScriptAction::Trickle { client } => Some(*client),
            ScriptAction::AnswerAuth { .. }
            | ScriptAction::Bans { .. }
            | ScriptAction::Caches { .. }
            | ScriptAction::CloseAll
            | ScriptAction::BacklogStore { .. }
            | ScriptAction::Disk { .. }
            | ScriptAction::Drain
            | ScriptAction::FillStore { .. }
            | ScriptAction::Pass { .. }
            | ScriptAction::AnswerAuthz { .. }
            | ScriptAction::Power
            | ScriptAction::RefuseGrowth { .. }
            | ScriptAction::Reload { .. }
            | ScriptAction::Rule { .. }
            | ScriptAction::Rules { .. }
            | ScriptAction::PrintRecordCounts
            | ScriptAction::ChangeAuthz { .. }
            | ScriptAction::PrintAuthzRequests => None,
        }
    }

    /// Whether only the simulator can perform the action, so that `replay` must leave it out.
    pub fn is_simulated(&self) -> bool {
        match self {
            ScriptAction::AnswerAuth { .. }
            | ScriptAction::Bans { .. }
            | ScriptAction::SetListener { .. }
            | ScriptAction::Caches { .. }
            | ScriptAction::CloseAll
            | ScriptAction::BacklogStore { .. }
            | ScriptAction::Disk { .. }
            | ScriptAction::Drain
            | ScriptAction::FillStore { .. }
            | ScriptAction::SetAddress { .. }
            | ScriptAction::AnswerAuthz { .. }
            | ScriptAction::Power
            | ScriptAction::RefuseGrowth { .. }
            | ScriptAction::Reload { .. }
            | ScriptAction::Resume { .. }
            | ScriptAction::Rule { .. }
            | ScriptAction::Rules { .. }
            | ScriptAction::Stall { .. }
            | ScriptAction::PrintRecordCounts
            | ScriptAction::ChangeAuthz { .. }
            | ScriptAction::PrintAuthzRequests => true,
            ScriptAction::Cut { .. }
            | ScriptAction::Pass { .. }
            | ScriptAction::Send { .. }
            | ScriptAction::Trickle { .. } => false,
        }
    }
}

impl ParsedTranscript {
    pub fn parse(text: &str) -> Result<ParsedTranscript, String> {
        let mut script = ParsedTranscript {
            lines: Vec::new(),
            // The `$SYS` tree is only for transcripts which enable it.
            options: BrokerOptions { sys_interval_s: 0, ..BrokerOptions::default() },
            settings: Vec::new(),
            listeners: Vec::new(),
            groups: Vec::new(),
            rules: Vec::new(),
            caches: None,
            shards: None,
            sim_only: false,
            disk: None,
            whole_connack: false,
            users: TestUsers::default(),
            authorizer: TestAuthorizer::default(),
            clients: Vec::new(),
        };
        let mut whole = String::new();
        for (at, line) in text.trim_end().lines().enumerate() {
            if at == 0 && line.trim().is_empty() {
                continue;
            }
            whole.push_str(line.trim());
            if let Some(open) = whole.strip_suffix(CONTINUES) {
                whole.truncate(open.len() + 1);
                continue;
            }
            let line = script.line(&whole).map_err(|why| format!("{why}: {whole}"))?;
            script.lines.push(line);
            whole.clear();
        }
        script.overrule()?;
        Ok(script)
    }

    /// Builds the options of listeners and groups: a copy of the header's options with their own
    /// values.
    fn overrule(&mut self) -> Result<(), String> {
        let rules = self.rules.iter().map(|text| rule::parse(text));
        self.options.rules = rules.collect::<Result<_, String>>()?;
        if let Some(text) = &self.caches {
            self.options.caches = name_options::caches(text)?.into();
        }
        self.options.client_groups = self.classes(&self.options)?;
        let mounts = |(name, value): &(String, String)| {
            name == "namespace" && (value.contains("${") || !self.groups.is_empty())
        };
        let all = self.listeners.iter().map(|(_, list)| list);
        let mut all = all.chain(self.groups.iter().map(|(_, list)| list)).flatten();
        self.options.namespace_needs_user |= self.options.authenticates && all.any(mounts);
        for (at, list) in &self.listeners {
            let mut own = self.options.clone();
            set_all(&mut own, list)?;
            own.client_groups = self.classes(&own)?;
            let most = self.options.listeners.len().max(at + 1);
            self.options.listeners.resize(most, None);
            self.options.listeners[*at] = Some(Arc::new(own));
        }
        Ok(())
    }

    /// Returns the transcript with fresh `ClientGroup` counters, for a new world.
    pub(crate) fn anew(&self) -> ParsedTranscript {
        let mut script = self.clone();
        script.options.client_groups = Vec::new();
        script.overrule().expect("it was read before");
        script
    }

    fn classes(&self, options: &BrokerOptions) -> Result<Vec<ClientGroup>, String> {
        let mut all = BrokerOptions { client_groups: Vec::new(), ..options.clone() };
        (all.connections_max, all.connections_per_s) = (0, 0);
        let mut classes = Vec::new();
        for (at, (name, list)) in self.groups.iter().enumerate() {
            let mut own = all.clone();
            set_all(&mut own, list)?;
            let present = options.client_groups.get(at).map(|class| class.present.clone());
            let (name, present) = (name.as_str().into(), present.unwrap_or_default());
            classes.push(ClientGroup { name, options: Arc::new(own), present });
        }
        Ok(classes)
    }

    fn line(&mut self, line: &str) -> Result<ScriptLine, String> {
        if line.is_empty() || line.starts_with("//") {
            return Ok(ScriptLine::Other(line.into()));
        }
        if let Some(header) = line.strip_prefix('#') {
            self.header(header.trim())?;
            return Ok(ScriptLine::Other(line.into()));
        }
        let text = line.to_string();
        if let Some(wait) = line.strip_prefix('+') {
            let act = ScriptAction::Pass { ms: duration_ms(wait.trim()).ok_or("how long?")? };
            return Ok(ScriptLine::Act { text, act });
        }
        let (client, rest) = line.split_once(' ').ok_or("neither action nor expectation")?;
        let rest = rest.trim();
        if client == "!" {
            return Ok(ScriptLine::Act { text, act: parse_command(rest)? });
        }
        let kind = client.chars().last().unwrap_or(' ');
        let client = self.client(client.trim_end_matches(['>', '<', '!']));
        let act = match (kind, rest) {
            ('<', _) => return Ok(ScriptLine::Expect { client, text: rest.into() }),
            ('>', _) => {
                let packet = rest.strip_suffix(" &").unwrap_or(rest).to_string();
                ScriptAction::Send { client, held: packet.len() < rest.len(), packet }
            }
            ('!', "cut") => ScriptAction::Cut { client },
            ('!', from) if from.starts_with("from ") => {
                let address = from[5..].parse().map_err(|_| "from where?")?;
                ScriptAction::SetAddress { client, address }
            }
            ('!', by) if by.starts_with("by ") => {
                let listener = match &by[3..] {
                    "own" => ListenerId::NONE.0,
                    other => other.parse().map_err(|_| "by which listener?")?,
                };
                ScriptAction::SetListener { client, listener }
            }
            ('!', "stall") => ScriptAction::Stall { client },
            ('!', "resume") => ScriptAction::Resume { client },
            ('!', "trickle") => ScriptAction::Trickle { client },
            _ => return Err("neither action nor expectation".into()),
        };
        Ok(ScriptLine::Act { text, act })
    }

    fn header(&mut self, header: &str) -> Result<(), String> {
        if let Some(list) = header.strip_prefix("options:") {
            self.settings.extend(parse_pairs(list)?);
            set_all(&mut self.options, &parse_pairs(list)?)?;
        } else if let Some(shards) = header.strip_prefix("shards:") {
            self.shards = Some(shards.trim().parse().map_err(|_| "how many shards?")?);
        }
        if let Some(own) = header.strip_prefix("listener:") {
            let (at, list) = own.trim().split_once(' ').ok_or("which listener has what?")?;
            let at = at.parse().map_err(|_| "which listener?")?;
            self.listeners.push((at, parse_pairs(list)?));
            self.sim_only = true;
        } else if let Some(own) = header.strip_prefix("group:") {
            let (name, list) = own.trim().split_once(' ').ok_or("which group has what?")?;
            self.groups.push((name.into(), parse_pairs(list)?));
        }
        if let Some(user) = header.strip_prefix("user:") {
            self.users.add(user.trim())?;
            self.options.authenticates = true;
            self.options.access.methods = [Box::from("STEPS")].into();
            self.options.namespace_needs_user |= user.contains(" namespace=");
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("rules:") {
            self.options.permissions = Some(users::rules(text)?);
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("rule:") {
            self.rules.push(text.trim().into());
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("bans:") {
            self.options.bans = Some(users::bans(text)?);
            self.sim_only = true;
        }
        if let Some(text) = header.strip_prefix("rewrite:") {
            let more = name_options::rewrite(text.trim())?;
            self.options.rewrites = self.options.rewrites.iter().cloned().chain([more]).collect();
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("auto:") {
            let more = name_options::auto(text.trim())?;
            self.options.auto_subscriptions =
                self.options.auto_subscriptions.iter().cloned().chain([more]).collect();
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("preset:") {
            let more = name_options::preset(text.trim())?;
            self.options.presets = self.options.presets.iter().cloned().chain([more]).collect();
            self.sim_only = true;
        }
        if let Some(text) = header.strip_prefix("caches:") {
            self.caches = Some(text.trim().into());
            self.sim_only = true;
        }
        if let Some(text) = header.strip_prefix("warden:") {
            let particular = text.trim().strip_prefix("particular ");
            self.authorizer = TestAuthorizer::parse(particular.unwrap_or(text))?;
            self.options.permissions.get_or_insert_default();
            let asks = self
                .options
                .authz
                .get_or_insert(AuthzOptions { cache_ms: 60_000, ..AuthzOptions::default() });
            asks.uses_qos_or_retain = particular.is_some();
            self.sim_only = true;
        }
        self.sim_only |= header.starts_with("sim only");
        match header {
            "disk: on" => self.disk = Some(true),
            "disk: off" => self.disk = Some(false),
            _ => {}
        }
        self.whole_connack |= header == "connack: whole";
        Ok(())
    }

    fn client(&mut self, name: &str) -> usize {
        if let Some(at) = self.clients.iter().position(|known| known == name) {
            return at;
        }
        self.clients.push(name.into());
        self.clients.len() - 1
    }

    /// Returns the total time that the transcript waits, in milliseconds: a replay waits in real
    /// time.
    pub fn waits_ms(&self) -> u64 {
        let wait = |line: &ScriptLine| match line {
            ScriptLine::Act { act: ScriptAction::Pass { ms }, .. } => *ms,
            _ => 0,
        };
        self.lines.iter().map(wait).sum()
    }

    /// Whether the transcript has the same meaning against a real process: no simulated action, no
    /// disk.
    pub fn is_replayable(&self) -> bool {
        let simulated =
            |line: &ScriptLine| matches!(line, ScriptLine::Act { act, .. } if act.is_simulated());
        !self.sim_only && self.disk.is_none() && !self.lines.iter().any(simulated)
    }
}

fn parse_pairs(list: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.into(), value.into()));
    let pairs: Option<Vec<_>> = list.split_whitespace().map(pair).collect();
    pairs.ok_or("name=value".into())
}

fn set_all(options: &mut BrokerOptions, list: &[(String, String)]) -> Result<(), String> {
    list.iter().try_for_each(|(name, value)| settings::set(options, name, value))
}

/// Ends a line which continues in the next.
pub const CONTINUES: &str = " \\";

fn parse_command(text: &str) -> Result<ScriptAction, String> {
    Ok(match text {
        "drain" => ScriptAction::Drain,
        "close_all" => ScriptAction::CloseAll,
        "disk is crowded" => ScriptAction::BacklogStore { is_crowded: true },
        "disk has room" => ScriptAction::FillStore { is_full: false },
        "disk is full" => ScriptAction::FillStore { is_full: true },
        "disk is roomy" => ScriptAction::BacklogStore { is_crowded: false },
        "disk holds" => ScriptAction::Disk { syncs: SyncMode::Nothing },
        "disk syncs" => ScriptAction::Disk { syncs: SyncMode::Everything },
        "disk syncs 1 batch" => ScriptAction::Disk { syncs: SyncMode::Batches(1) },
        "disk refuses" => ScriptAction::RefuseGrowth { refuses: true },
        "disk takes" => ScriptAction::RefuseGrowth { refuses: false },
        "judge answers" => ScriptAction::AnswerAuth { waits: false },
        "judge waits" => ScriptAction::AnswerAuth { waits: true },
        "disk waits" => ScriptAction::Disk { syncs: SyncMode::Urgent },
        "power" => ScriptAction::Power,
        "stored" => ScriptAction::PrintRecordCounts,
        "warden answers" => ScriptAction::AnswerAuthz { count: usize::MAX, waits: false },
        "warden answers 1" => ScriptAction::AnswerAuthz { count: 1, waits: true },
        "warden asked" => ScriptAction::PrintAuthzRequests,
        "warden waits" => ScriptAction::AnswerAuthz { count: 0, waits: true },
        _ if text.starts_with("bans ") => ScriptAction::Bans { text: text[5..].into() },
        _ if text.starts_with("caches ") => ScriptAction::Caches { text: text[7..].into() },
        _ if text.starts_with("warden says ") => {
            ScriptAction::ChangeAuthz { text: text[12..].into() }
        }
        _ if text.starts_with("rule ") => ScriptAction::Rule { text: text[5..].into() },
        _ if text.starts_with("rules ") => ScriptAction::Rules { text: text[6..].into() },
        _ => {
            let pair = text.strip_prefix("reload ").and_then(|pair| pair.split_once('='));
            let (name, value) = pair.ok_or("no such command")?;
            ScriptAction::Reload { name: name.into(), value: value.into() }
        }
    })
}

fn duration_ms(text: &str) -> Option<u64> {
    match text.strip_suffix("ms") {
        Some(ms) => ms.trim().parse().ok(),
        None => text.strip_suffix('s')?.trim().parse::<u64>().ok().map(|seconds| seconds * 1000),
    }
}
