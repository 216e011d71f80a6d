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
//!                          `warden`; `particular` before it: QoS and RETAIN matter
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
//!   ! warden asked           says, as the client `warden`, what was asked since the last time
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

use crate::disk::Syncs;
use crate::names;
use crate::people::{self, People};
use crate::rule;
use crate::settings;
use crate::warden::Warden;
use broker::classes::Class;
use broker::options::Asks;
use broker::{ListenerId, Options};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Script {
    pub lines: Vec<Line>,
    pub options: Options,
    /// The options of the header, as they are written.
    pub settings: Vec<(String, String)>,
    /// What listeners and groups have for themselves.
    listeners: Vec<(usize, Vec<(String, String)>)>,
    groups: Vec<(String, Vec<(String, String)>)>,
    rules: Vec<String>,
    caches: Option<String>,
    pub shards: Option<usize>,
    pub sim_only: bool,
    /// Whether there must be a store, or must not.
    pub disk: Option<bool>,
    pub whole_connack: bool,
    pub people: People,
    pub warden: Warden,
    /// Clients in the order of their first line.
    pub clients: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Act {
        text: String,
        act: Act,
    },
    Expect {
        client: usize,
        text: String,
    },
    /// Comments, headers and empty lines.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Answer {
        waits: bool,
    },
    Caches {
        text: String,
    },
    Bans {
        text: String,
    },
    By {
        client: usize,
        listener: u8,
    },
    CloseAll,
    /// More waits for the disk than it likes, or no longer.
    Crowd {
        is_crowded: bool,
    },
    Cut {
        client: usize,
    },
    Disk {
        syncs: Syncs,
    },
    Drain,
    /// The broker is told that the store has no room, or some again.
    Fill {
        is_full: bool,
    },
    From {
        client: usize,
        address: IpAddr,
    },
    Pass {
        ms: u64,
    },
    /// Some who wait to hear what they may do are told, and whether others wait.
    Permit {
        count: usize,
        waits: bool,
    },
    Power,
    /// The disk takes nothing that grows, or everything again.
    Refuse {
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
    Stored,
    Trickle {
        client: usize,
    },
    Warden {
        text: String,
    },
    WardenAsked,
}

impl Act {
    pub fn client(&self) -> Option<usize> {
        match self {
            Act::By { client, .. }
            | Act::Cut { client }
            | Act::From { client, .. }
            | Act::Resume { client }
            | Act::Send { client, .. }
            | Act::Stall { client }
            | Act::Trickle { client } => Some(*client),
            Act::Answer { .. }
            | Act::Bans { .. }
            | Act::Caches { .. }
            | Act::CloseAll
            | Act::Crowd { .. }
            | Act::Disk { .. }
            | Act::Drain
            | Act::Fill { .. }
            | Act::Pass { .. }
            | Act::Permit { .. }
            | Act::Power
            | Act::Refuse { .. }
            | Act::Reload { .. }
            | Act::Rule { .. }
            | Act::Rules { .. }
            | Act::Stored
            | Act::Warden { .. }
            | Act::WardenAsked => None,
        }
    }

    /// Whether only the simulator can do it.
    pub fn is_simulated(&self) -> bool {
        match self {
            Act::Answer { .. }
            | Act::Bans { .. }
            | Act::By { .. }
            | Act::Caches { .. }
            | Act::CloseAll
            | Act::Crowd { .. }
            | Act::Disk { .. }
            | Act::Drain
            | Act::Fill { .. }
            | Act::From { .. }
            | Act::Permit { .. }
            | Act::Power
            | Act::Refuse { .. }
            | Act::Reload { .. }
            | Act::Resume { .. }
            | Act::Rule { .. }
            | Act::Rules { .. }
            | Act::Stall { .. }
            | Act::Stored
            | Act::Warden { .. }
            | Act::WardenAsked => true,
            Act::Cut { .. } | Act::Pass { .. } | Act::Send { .. } | Act::Trickle { .. } => false,
        }
    }
}

impl Script {
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script {
            lines: Vec::new(),
            // The tree of `$SYS` is for the transcripts that ask for it.
            options: Options { sys_interval_s: 0, ..Options::default() },
            settings: Vec::new(),
            listeners: Vec::new(),
            groups: Vec::new(),
            rules: Vec::new(),
            caches: None,
            shards: None,
            sim_only: false,
            disk: None,
            whole_connack: false,
            people: People::default(),
            warden: Warden::default(),
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
            self.options.caches = names::caches(text)?.into();
        }
        self.options.classes = self.classes(&self.options)?;
        let mounts = |(name, value): &(String, String)| {
            name == "namespace" && (value.contains("${") || !self.groups.is_empty())
        };
        let all = self.listeners.iter().map(|(_, list)| list);
        let mut all = all.chain(self.groups.iter().map(|(_, list)| list)).flatten();
        self.options.mounts_users |= self.options.judges && all.any(mounts);
        for (at, list) in &self.listeners {
            let mut own = self.options.clone();
            set_all(&mut own, list)?;
            own.classes = self.classes(&own)?;
            let most = self.options.listeners.len().max(at + 1);
            self.options.listeners.resize(most, None);
            self.options.listeners[*at] = Some(Arc::new(own));
        }
        Ok(())
    }

    /// The same for a world in which nobody of a group was seen yet.
    pub(crate) fn anew(&self) -> Script {
        let mut script = self.clone();
        script.options.classes = Vec::new();
        script.overrule().expect("it was read before");
        script
    }

    fn classes(&self, options: &Options) -> Result<Vec<Class>, String> {
        let mut all = Options { classes: Vec::new(), ..options.clone() };
        (all.connections_max, all.connections_per_s) = (0, 0);
        let mut classes = Vec::new();
        for (at, (name, list)) in self.groups.iter().enumerate() {
            let mut own = all.clone();
            set_all(&mut own, list)?;
            let present = options.classes.get(at).map(|class| class.present.clone());
            let (name, present) = (name.as_str().into(), present.unwrap_or_default());
            classes.push(Class { name, options: Arc::new(own), present });
        }
        Ok(classes)
    }

    fn line(&mut self, line: &str) -> Result<Line, String> {
        if line.is_empty() || line.starts_with("//") {
            return Ok(Line::Other(line.into()));
        }
        if let Some(header) = line.strip_prefix('#') {
            self.header(header.trim())?;
            return Ok(Line::Other(line.into()));
        }
        let text = line.to_string();
        if let Some(wait) = line.strip_prefix('+') {
            let act = Act::Pass { ms: duration_ms(wait.trim()).ok_or("how long?")? };
            return Ok(Line::Act { text, act });
        }
        let (client, rest) = line.split_once(' ').ok_or("neither action nor expectation")?;
        let rest = rest.trim();
        if client == "!" {
            return Ok(Line::Act { text, act: command(rest)? });
        }
        let kind = client.chars().last().unwrap_or(' ');
        let client = self.client(client.trim_end_matches(['>', '<', '!']));
        let act = match (kind, rest) {
            ('<', _) => return Ok(Line::Expect { client, text: rest.into() }),
            ('>', _) => {
                let packet = rest.strip_suffix(" &").unwrap_or(rest).to_string();
                Act::Send { client, held: packet.len() < rest.len(), packet }
            }
            ('!', "cut") => Act::Cut { client },
            ('!', from) if from.starts_with("from ") => {
                let address = from[5..].parse().map_err(|_| "from where?")?;
                Act::From { client, address }
            }
            ('!', by) if by.starts_with("by ") => {
                let listener = match &by[3..] {
                    "own" => ListenerId::NONE.0,
                    other => other.parse().map_err(|_| "by which listener?")?,
                };
                Act::By { client, listener }
            }
            ('!', "stall") => Act::Stall { client },
            ('!', "resume") => Act::Resume { client },
            ('!', "trickle") => Act::Trickle { client },
            _ => return Err("neither action nor expectation".into()),
        };
        Ok(Line::Act { text, act })
    }

    fn header(&mut self, header: &str) -> Result<(), String> {
        if let Some(list) = header.strip_prefix("options:") {
            self.settings.extend(pairs(list)?);
            set_all(&mut self.options, &pairs(list)?)?;
        } else if let Some(shards) = header.strip_prefix("shards:") {
            self.shards = Some(shards.trim().parse().map_err(|_| "how many shards?")?);
        }
        if let Some(own) = header.strip_prefix("listener:") {
            let (at, list) = own.trim().split_once(' ').ok_or("which listener has what?")?;
            let at = at.parse().map_err(|_| "which listener?")?;
            self.listeners.push((at, pairs(list)?));
            self.sim_only = true;
        } else if let Some(own) = header.strip_prefix("group:") {
            let (name, list) = own.trim().split_once(' ').ok_or("which group has what?")?;
            self.groups.push((name.into(), pairs(list)?));
        }
        if let Some(user) = header.strip_prefix("user:") {
            self.people.add(user.trim())?;
            self.options.judges = true;
            self.options.access.methods = [Box::from("STEPS")].into();
            self.options.mounts_users |= user.contains(" namespace=");
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("rules:") {
            self.options.permissions = Some(people::rules(text)?);
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("rule:") {
            self.rules.push(text.trim().into());
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("bans:") {
            self.options.bans = Some(people::bans(text)?);
            self.sim_only = true;
        }
        if let Some(text) = header.strip_prefix("rewrite:") {
            let more = names::rewrite(text.trim())?;
            self.options.rewrites = self.options.rewrites.iter().cloned().chain([more]).collect();
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("auto:") {
            let more = names::auto(text.trim())?;
            self.options.autos = self.options.autos.iter().cloned().chain([more]).collect();
            self.sim_only = true;
        } else if let Some(text) = header.strip_prefix("preset:") {
            let more = names::preset(text.trim())?;
            self.options.presets = self.options.presets.iter().cloned().chain([more]).collect();
            self.sim_only = true;
        }
        if let Some(text) = header.strip_prefix("caches:") {
            self.caches = Some(text.trim().into());
            self.sim_only = true;
        }
        if let Some(text) = header.strip_prefix("warden:") {
            let particular = text.trim().strip_prefix("particular ");
            self.warden = Warden::parse(particular.unwrap_or(text))?;
            self.options.permissions.get_or_insert_default();
            let asks = self.options.asks.get_or_insert(Asks { kept_ms: 60_000, ..Asks::default() });
            asks.is_particular = particular.is_some();
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

    /// How long it waits in all.
    pub fn waits_ms(&self) -> u64 {
        let wait = |line: &Line| match line {
            Line::Act { act: Act::Pass { ms }, .. } => *ms,
            _ => 0,
        };
        self.lines.iter().map(wait).sum()
    }

    /// Whether it means the same against a process of its own.
    pub fn is_replayable(&self) -> bool {
        let simulated = |line: &Line| matches!(line, Line::Act { act, .. } if act.is_simulated());
        !self.sim_only && self.disk.is_none() && !self.lines.iter().any(simulated)
    }
}

fn pairs(list: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.into(), value.into()));
    let pairs: Option<Vec<_>> = list.split_whitespace().map(pair).collect();
    pairs.ok_or("name=value".into())
}

fn set_all(options: &mut Options, list: &[(String, String)]) -> Result<(), String> {
    list.iter().try_for_each(|(name, value)| settings::set(options, name, value))
}

/// Ends a line that goes on in the next.
pub const CONTINUES: &str = " \\";

fn command(text: &str) -> Result<Act, String> {
    Ok(match text {
        "drain" => Act::Drain,
        "close_all" => Act::CloseAll,
        "disk is crowded" => Act::Crowd { is_crowded: true },
        "disk has room" => Act::Fill { is_full: false },
        "disk is full" => Act::Fill { is_full: true },
        "disk is roomy" => Act::Crowd { is_crowded: false },
        "disk holds" => Act::Disk { syncs: Syncs::Nothing },
        "disk syncs" => Act::Disk { syncs: Syncs::Everything },
        "disk syncs 1 batch" => Act::Disk { syncs: Syncs::Batches(1) },
        "disk refuses" => Act::Refuse { refuses: true },
        "disk takes" => Act::Refuse { refuses: false },
        "judge answers" => Act::Answer { waits: false },
        "judge waits" => Act::Answer { waits: true },
        "disk waits" => Act::Disk { syncs: Syncs::Wanted },
        "power" => Act::Power,
        "stored" => Act::Stored,
        "warden answers" => Act::Permit { count: usize::MAX, waits: false },
        "warden answers 1" => Act::Permit { count: 1, waits: true },
        "warden asked" => Act::WardenAsked,
        "warden waits" => Act::Permit { count: 0, waits: true },
        _ if text.starts_with("bans ") => Act::Bans { text: text[5..].into() },
        _ if text.starts_with("caches ") => Act::Caches { text: text[7..].into() },
        _ if text.starts_with("warden says ") => Act::Warden { text: text[12..].into() },
        _ if text.starts_with("rule ") => Act::Rule { text: text[5..].into() },
        _ if text.starts_with("rules ") => Act::Rules { text: text[6..].into() },
        _ => {
            let pair = text.strip_prefix("reload ").and_then(|pair| pair.split_once('='));
            let (name, value) = pair.ok_or("no such command")?;
            Act::Reload { name: name.into(), value: value.into() }
        }
    })
}

fn duration_ms(text: &str) -> Option<u64> {
    match text.strip_suffix("ms") {
        Some(ms) => ms.trim().parse().ok(),
        None => text.strip_suffix('s')?.trim().parse::<u64>().ok().map(|seconds| seconds * 1000),
    }
}
