//! The transcript language, read: a text becomes lines, each an action or an expectation.
//!
//! ```text
//!   # options: inflight_max=2 queue_policy=drop_newest
//!   # listener: 1 queue_messages_max=5    what listener 1 has for itself; the first is 0
//!   # group: slow messages_per_s=2    what a group of users has for itself, at any listener
//!   # shards: 2              only with so many; without it with one, two and three
//!   # connack: whole         print also what CONNACK says of the server's usual limits
//!   # disk: on               only with a store, which outlives `! power`; `off`: only without
//!   # user: ann password=x  lets in who is named, and nobody else: see `people`
//!   # rules: allow topic=a   what they may do
//!   # rule: NAME ... : SQL   a rule over messages and events: see `rule`
//!   # warden: allow a/#; silence b   who is asked where no rule says anything: see
//!                          `authorizer`; `particular` before it: QoS and RETAIN matter
//!   # rewrite: publish a/# ^a/(.+)$ b/$1   `subscribe` and `all` likewise
//!   # auto: clients/%c qos=1 no_local retain_handling=2   what everyone has subscribed
//!   # preset: a t/# u qos=1 expiry=60 user=ann   a session of who was never here
//!   # caches: last t/# u messages_max=2 topics_max=9 bytes_max=999 age_s_max=60; all #
//!   # bans: id=a for=5s; address=10.0.0.0/8   who may not come in
//!   # sim only               cannot be repeated over TCP
//!   a> CONNECT id=a v=311    client a sends; it connects first where it has no connection
//!   a> PINGREQ &             held back, sent together with a's next line
//!   a< CONNACK present=0     client a gets; `*` stands for any value
//!   a< CLOSED                the broker closed a's connection
//!   a! cut                   a's network goes without a word
//!   a! from 10.0.0.7         a's address from its next connection on
//!   a! by 1                  the same of the listener by which it comes in; `own`: the broker
//!                          itself opens it, as it does for links
//!   a! stall, a! resume      a reads nothing; a reads again
//!   a! trickle               from now on a's bytes arrive one by one
//!   ! drain, ! close_all     the control plane speaks
//!   ! reload queue_qos0=true
//!   ! judge waits, ! judge answers
//!   ! warden waits, ! warden answers; ! warden answers 1, the first of those who wait
//!   ! warden asked           says, as the client `authorizer`, what was asked since the last time
//!   ! warden says allow a    and everyone is told that it is another
//!   ! rules deny topic=a     others from now on
//!   ! rule NAME ... : SQL    this one from now on, and no other
//!   ! bans user=b            others from now on
//!   ! caches last t/#        others from now on; `none` is none
//!   ! power                  the machine goes, with all that its disk did not sync, and comes back
//!   ! disk holds, ! disk syncs; ! disk syncs 1 batch, and holds the others
//!   ! disk refuses, ! disk takes  what grows; removals it takes always
//!   ! disk is crowded, ! disk is roomy
//!   ! disk is full, ! disk has room
//!   ! disk waits            for a batch for which somebody waits, or a second
//!   ! stored                 says, as the client `disk`, how many records the store holds
//!   + 5s, + 300ms            time passes
//! ```
//!
//! A line that ends in a backslash goes on in the next. What an action causes stands right after
//! it: first what the acting client gets, then the others in the order of their first line.

use crate::authorizer::TestAuthorizer;
use crate::disk::SyncMode;
use crate::name_options;
use crate::rule;
use crate::settings;
use crate::users::{self, TestUsers};
use broker::authorization::client_groups::ClientGroup;
use broker::options::AuthzOptions;
use broker::{BrokerOptions, ListenerId};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct ParsedTranscript {
    pub lines: Vec<ScriptLine>,
    pub options: BrokerOptions,
    /// The options of the header, as they are written.
    pub settings: Vec<(String, String)>,
    /// Options of listeners and groups.
    listeners: Vec<(usize, Vec<(String, String)>)>,
    groups: Vec<(String, Vec<(String, String)>)>,
    rules: Vec<String>,
    caches: Option<String>,
    pub shards: Option<usize>,
    pub sim_only: bool,
    /// Whether there must be a store, or must not.
    pub disk: Option<bool>,
    pub whole_connack: bool,
    pub users: TestUsers,
    pub authorizer: TestAuthorizer,
    /// Clients in the order of their first line.
    pub clients: Vec<String>,
}

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
    /// Comments, headers and empty lines.
    Other(String),
}

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
    /// More waits for the disk than it likes, or no longer.
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
    /// The broker is told that the store has no room, or some again.
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
    /// Some who wait to hear what they may do are told, and whether others wait.
    AnswerAuthz {
        count: usize,
        waits: bool,
    },
    Power,
    /// The disk takes nothing that grows, or everything again.
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
    /// Rules in SQL: this one, and no other.
    Rule {
        text: String,
    },
    Rules {
        text: String,
    },
    /// `held` waits for the client's next line.
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

    /// Whether only the simulator can do it.
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
            // The tree of `$SYS` is for the transcripts that ask for it.
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

    /// Listeners and groups have for themselves what the header says, and else what all have.
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

    /// Returns the transcript for a world in which no member of a group was seen yet.
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

    /// Returns the total time that the transcript waits, in milliseconds.
    pub fn waits_ms(&self) -> u64 {
        let wait = |line: &ScriptLine| match line {
            ScriptLine::Act { act: ScriptAction::Pass { ms }, .. } => *ms,
            _ => 0,
        };
        self.lines.iter().map(wait).sum()
    }

    /// Whether it means the same against a process of its own.
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

/// Ends a line that goes on in the next.
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
