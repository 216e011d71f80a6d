//! Runs a transcript in the simulator and compares the whole output with the expected text. With
//! `UPDATE_EXPECT=1` the output replaces the text in the source file.

use crate::name_options;
use crate::packet_line;
use crate::parsed_transcript::{CONTINUES, ParsedTranscript, ScriptAction, ScriptLine};
use crate::rule;
use crate::settings;
use crate::users;
use crate::world::{SimWorld, WireId};
use broker::{ListenerId, RecordSpace, ShardCommand};
use mqtt::ProtocolVersion;
use std::fmt::Write;
use std::net::IpAddr;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Properties of CONNACK with this broker's default values, omitted from the output.
const USUAL_LIMITS: [&str; 3] =
    ["receive_maximum=16384", "maximum_packet_size=2097152", "topic_alias_maximum=64"];

/// Runs a transcript. Panics with the first difference if the output differs from the text.
#[track_caller]
pub fn check(text: &str) {
    check_at(text, Location::caller().file());
}

/// Runs a transcript like [`check`]. Error messages contain `file`, the source file of the
/// transcript.
pub fn check_at(text: &str, file: &str) {
    let script = match ParsedTranscript::parse(text) {
        Ok(script) => script,
        Err(why) => panic!("{file}: {why}"),
    };
    let updates = std::env::var_os("UPDATE_EXPECT").is_some();
    let can_fail = script.lines.iter().any(|line| matches!(line, ScriptLine::Expect { .. }));
    assert!(can_fail || updates, "{file}: a transcript that expects nothing cannot fail:\n{text}");
    let expected = expected(&script);
    for (at, round) in world_setups(&script).into_iter().enumerate() {
        let WorldSetup { shards, seed, disk } = round;
        let came = run(&script, round);
        let may_count_otherwise = disk && script.disk.is_none();
        if came == expected
            || may_count_otherwise && without_packet_ids(&came) == without_packet_ids(&expected)
        {
            continue;
        }
        if at == 0 && updates && update_source(text, &came, file) {
            return;
        }
        println!("with {shards} shards, seed {seed}, disk {disk}, this came:\n\n{came}");
        let difference = difference(&expected, &came);
        panic!("{file}: with {shards} shards, seed {seed}, disk {disk}\n{difference}");
    }
}

/// A world in which a transcript is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldSetup {
    pub shards: usize,
    pub seed: u64,
    /// Whether the world has a store. Most transcripts must not depend on this.
    pub disk: bool,
}

/// Returns the worlds for a transcript. The owner shard of a session depends on the seed; the
/// output must not, and must not depend on whether decisions are stored.
fn world_setups(script: &ParsedTranscript) -> Vec<WorldSetup> {
    let worlds = match script.shards {
        None => vec![(1, 1), (2, 1), (2, 2), (3, 3), (3, 4)],
        Some(1) => vec![(1, 1)],
        Some(shards) => (1..=4).map(|seed| (shards, seed)).collect(),
    };
    let round = |disk| move |&(shards, seed): &(usize, u64)| WorldSetup { shards, seed, disk };
    let only = |disk| move |_: &&(usize, u64)| script.disk.is_none_or(|only| only == disk);
    let without = worlds.iter().filter(only(false)).map(round(false));
    without.chain(worlds.iter().filter(only(true)).map(round(true))).collect()
}

fn expected(script: &ParsedTranscript) -> String {
    let mut text = String::new();
    for line in &script.lines {
        match line {
            ScriptLine::Act { text: line, .. } | ScriptLine::Other(line) => {
                writeln!(text, "{line}")
            }
            ScriptLine::Expect { client, text: line } => {
                writeln!(text, "{}< {line}", script.clients[*client])
            }
        }
        .expect("a String takes everything");
    }
    text
}

/// Returns the output without the packet ids of the broker's PUBLISH packets. With a store, ids
/// follow the positions of the stored queue, which may have gaps.
fn without_packet_ids(text: &str) -> String {
    let line = |line: &str| match line.split_once("< PUBLISH ") {
        Some((client, packet)) => {
            let rest = packet.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{client}< PUBLISH {rest}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Returns the lines around the first difference.
fn difference(expected: &str, came: &str) -> String {
    let (expected, came): (Vec<&str>, Vec<&str>) =
        (expected.lines().collect(), came.lines().collect());
    let same = expected.iter().zip(&came).take_while(|(expected, came)| expected == came).count();
    let around = |lines: &[&str]| {
        let from = same.saturating_sub(3).min(lines.len());
        lines[from..(same + 4).min(lines.len())].join("\n    ")
    };
    format!("expected\n    {}\ncame\n    {}\n", around(&expected), around(&came))
}

/// Returns the transcript with the received lines in place of the expected ones, for a comparison
/// of whole texts.
pub fn run(script: &ParsedTranscript, round: WorldSetup) -> String {
    let script = script.anew();
    let mut stage = TranscriptRunner::new(&script, round);
    let mut lines = script.lines.iter().peekable();
    while let Some(line) = lines.next() {
        let mut wanted = Vec::new();
        while let Some(ScriptLine::Expect { client, text }) = lines.peek() {
            wanted.push((*client, text.as_str()));
            lines.next();
        }
        match line {
            ScriptLine::Other(text) => stage.write_line(text),
            ScriptLine::Act { text, act } => {
                stage.write_line(text);
                stage.apply(act);
                stage.record_output(act.client(), &wanted);
            }
            // Expected lines before the first action: no packet can have arrived.
            ScriptLine::Expect { .. } => {}
        }
    }
    std::mem::take(&mut stage.came)
}

/// Returns the bytes that each client of a transcript sends, over all its connections: inputs for
/// the fuzzer's corpus.
pub fn sent_bytes(text: &str) -> Vec<Vec<u8>> {
    let Ok(script) = ParsedTranscript::parse(text) else { return Vec::new() };
    let mut all = vec![(ProtocolVersion::V5, Vec::new()); script.clients.len()];
    for line in &script.lines {
        let ScriptLine::Act { act: ScriptAction::Send { client, packet, .. }, .. } = line else {
            continue;
        };
        let (version, bytes) = &mut all[*client];
        let Ok(packet) = packet_line::encode(packet, *version) else { continue };
        *version = packet_line::version_of(&packet).unwrap_or(*version);
        bytes.extend(packet);
    }
    all.into_iter().map(|(_, bytes)| bytes).filter(|bytes| !bytes.is_empty()).collect()
}

/// Runs the lines of one script in a [`SimWorld`], and collects the output in `came`.
struct TranscriptRunner<'a> {
    script: &'a ParsedTranscript,
    world: SimWorld,
    clients: Vec<TranscriptClient>,
    came: String,
}

/// A client of a transcript: its connection, if any, and the settings for the next one.
#[derive(Debug, Default)]
struct TranscriptClient {
    wire: Option<WireId>,
    /// Address of the client's next connection; by default `SimWorld::HERE`.
    address: Option<IpAddr>,
    listener: ListenerId,
    version: Option<ProtocolVersion>,
    held: Vec<u8>,
    unread: Vec<u8>,
    trickles: bool,
}

impl Drop for TranscriptRunner<'_> {
    /// Prints the output so far if the broker has panicked.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the broker stopped after\n\n{}", self.came);
        }
    }
}

impl<'a> TranscriptRunner<'a> {
    fn new(script: &'a ParsedTranscript, round: WorldSetup) -> TranscriptRunner<'a> {
        let mut world = SimWorld::new(script.options.clone(), round.shards, round.seed, None);
        *world.users() = script.users.clone();
        *world.authorizer() = script.authorizer.clone();
        if round.disk {
            world.enable_disk();
        }
        let clients = script.clients.iter().map(|_| TranscriptClient::default()).collect();
        TranscriptRunner { script, world, clients, came: String::new() }
    }

    fn write_line(&mut self, line: &str) {
        self.came.push_str(line);
        self.came.push('\n');
    }

    fn apply(&mut self, act: &ScriptAction) {
        match act {
            ScriptAction::AnswerAuth { waits } => {
                self.world.users().waits = *waits;
                if !waits {
                    self.world.answer_auth();
                }
            }
            ScriptAction::CloseAll => self.world.command(&ShardCommand::CloseAll),
            ScriptAction::BacklogStore { is_crowded } => {
                self.world.set_store_backlogged(*is_crowded)
            }
            ScriptAction::Disk { syncs } => {
                if let Some(disk) = self.world.disk() {
                    disk.sync_mode = *syncs;
                }
            }
            ScriptAction::Drain => self.world.command(&ShardCommand::Drain),
            ScriptAction::FillStore { is_full } => self.world.set_store_full(*is_full),
            ScriptAction::RefuseGrowth { refuses } => {
                if let Some(disk) = self.world.disk() {
                    disk.refuses = *refuses;
                }
            }
            ScriptAction::Power => self.world.cut_power(self.script.shards.unwrap_or(2)),
            ScriptAction::Pass { ms } => self.world.advance(*ms),
            ScriptAction::Bans { .. }
            | ScriptAction::Caches { .. }
            | ScriptAction::Reload { .. }
            | ScriptAction::Rule { .. }
            | ScriptAction::Rules { .. } => self.reload(act),
            ScriptAction::SetListener { client, listener } => {
                self.clients[*client].listener = ListenerId(*listener);
            }
            ScriptAction::SetAddress { client, address } => {
                self.clients[*client].address = Some(*address)
            }
            ScriptAction::Cut { client } => {
                if let Some(wire) = self.clients[*client].wire.take() {
                    self.world.cut(wire);
                }
            }
            ScriptAction::Stall { client } | ScriptAction::Resume { client } => {
                if let Some(wire) = self.clients[*client].wire {
                    self.world.stall(wire, matches!(act, ScriptAction::Stall { .. }));
                }
            }
            ScriptAction::PrintRecordCounts => {
                let count = |space| self.world.disk().map_or(0, |disk| disk.keys(space).count());
                let counts = [
                    RecordSpace::Messages,
                    RecordSpace::Queues,
                    RecordSpace::Retained,
                    RecordSpace::Sessions,
                ];
                let [messages, queues, retained, sessions] = counts.map(count);
                let kept = format!("retained {retained}, sessions {sessions}");
                self.write_line(&format!("disk< messages {messages}, queues {queues}, {kept}"));
            }
            ScriptAction::AnswerAuthz { .. }
            | ScriptAction::ChangeAuthz { .. }
            | ScriptAction::PrintAuthzRequests => self.apply_authz(act),
            ScriptAction::Trickle { client } => self.clients[*client].trickles = true,
            ScriptAction::Send { client, packet, held } => self.send(*client, packet, *held),
        }
        self.world.run_until_quiet();
    }

    /// Performs the statements `! warden ...`.
    fn apply_authz(&mut self, act: &ScriptAction) {
        match act {
            ScriptAction::AnswerAuthz { count, waits } => {
                self.world.authorizer().waits = *waits;
                self.world.answer_authz(*count);
            }
            ScriptAction::ChangeAuthz { text } => {
                self.world.authorizer().replace_rules(text).expect("what the warden says");
                self.world.command(&ShardCommand::Reload(Arc::new(self.script.options.clone())));
            }
            _ => {
                for line in self.world.authorizer().take_request_log() {
                    self.write_line(&format!("warden< {line}"));
                }
            }
        }
    }

    /// Reloads the header's options with a single change. Earlier changes are undone.
    fn reload(&mut self, act: &ScriptAction) {
        let mut options = self.script.options.clone();
        match act {
            ScriptAction::Bans { text } => {
                options.bans = users::bans(text).map(Some).expect("bans")
            }
            ScriptAction::Caches { text } => {
                options.caches = name_options::caches(text).expect("caches").into()
            }
            ScriptAction::Reload { name, value } => {
                settings::set(&mut options, name, value).expect("an option of the header's kind");
            }
            ScriptAction::Rule { text } => {
                options.rules = [rule::parse(text).expect("a rule")].into()
            }
            ScriptAction::Rules { text } => {
                options.permissions = users::rules(text).map(Some).expect("rules");
            }
            _ => return,
        }
        self.world.command(&ShardCommand::Reload(Arc::new(options)));
    }

    fn send(&mut self, client: usize, packet: &str, held: bool) {
        let client = &mut self.clients[client];
        let version = client.version.unwrap_or(ProtocolVersion::V5);
        let bytes = packet_line::encode(packet, version).unwrap_or_else(|why| panic!("{why}"));
        client.held.extend_from_slice(&bytes);
        if client.wire.is_none() {
            client.version = packet_line::version_of(&client.held).or(client.version);
        }
        if held {
            return;
        }
        let address = client.address.unwrap_or(SimWorld::HERE);
        let listener = client.listener;
        let wire = *client.wire.get_or_insert_with(|| self.world.open_at(listener, address));
        let bytes = std::mem::take(&mut client.held);
        let chunk = if client.trickles { 1 } else { bytes.len().max(1) };
        for bytes in bytes.chunks(chunk) {
            self.world.write(wire, bytes);
            self.world.run_until_quiet();
        }
    }

    /// Writes the lines which each client received, the acting client first.
    fn record_output(&mut self, first: Option<usize>, wanted: &[(usize, &str)]) {
        let others = (0..self.clients.len()).filter(|client| Some(*client) != first);
        for at in first.into_iter().chain(others).collect::<Vec<_>>() {
            let lines = self.read_lines(at);
            let mut wanted = wanted.iter().filter(|(client, _)| *client == at);
            for line in lines {
                let asked = wanted.next().map(|(_, text)| *text);
                let line = asked
                    .filter(|asked| packet_line::matches_expected(asked, &line))
                    .unwrap_or(&line);
                let line = format!("{}< {line}", self.script.clients[at]);
                self.write_line(&line);
            }
        }
    }

    fn read_lines(&mut self, at: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let client = &mut self.clients[at];
        let Some(wire) = client.wire else { return lines };
        client.unread.extend(self.world.read(wire));
        let version = client.version.unwrap_or(ProtocolVersion::V5);
        while let Some((line, len)) = packet_line::decode(&client.unread, version) {
            client.unread.drain(..len);
            lines.push(if self.script.whole_connack { line } else { without_usual(&line) });
        }
        if self.world.is_closed(wire) {
            if !client.unread.is_empty() {
                lines.push(format!("{} bytes of no packet", client.unread.len()));
            }
            let TranscriptClient { version, address, listener, .. } = *client;
            *client =
                TranscriptClient { version, address, listener, ..TranscriptClient::default() };
            lines.push("CLOSED".into());
        }
        lines
    }
}

/// Returns a CONNACK line without the values in `USUAL_LIMITS`.
fn without_usual(line: &str) -> String {
    if !line.starts_with("CONNACK ") {
        return line.into();
    }
    USUAL_LIMITS.iter().fold(line.to_string(), |line, usual| line.replace(&format!(" {usual}"), ""))
}

/// Replaces a transcript in its source file. Returns `false` unless the text occurs exactly once.
fn update_source(text: &str, came: &str, file: &str) -> bool {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let Ok(_guard) = ONE_AT_A_TIME.lock() else { return false };
    let Some(path) = find_source(file) else { return false };
    let Ok(source) = std::fs::read_to_string(&path) else { return false };
    if source.matches(text).count() != 1 {
        return false;
    }
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    let end = text.lines().next_back().filter(|line| line.trim().is_empty()).unwrap_or_default();
    let mut new = String::from("\n");
    for line in came.lines() {
        for (at, line) in wrap(line, COLUMNS_MAX - indent.len()).iter().enumerate() {
            new.push_str(if line.is_empty() { "" } else { indent });
            new.push_str(if at == 0 { "" } else { "    " });
            new.push_str(line);
            new.push('\n');
        }
    }
    new.push_str(end);
    std::fs::write(&path, source.replace(text, &new)).is_ok()
}

/// Breaks a line at blanks outside of quotes, as the parser joins it again.
fn wrap(line: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in packet_line::raw_words(line).unwrap_or_default() {
        let last = lines.last_mut().expect("there is always one");
        if last.len() + word.len() + 1 + CONTINUES.len() + 4 > columns && !last.is_empty() {
            last.push_str(CONTINUES);
            lines.push(word);
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(&word);
        }
    }
    if lines.len() == 1 { vec![line.to_string()] } else { lines }
}

const COLUMNS_MAX: usize = 100;

/// Returns the path of a source file named by `file!()`: that path is relative to the workspace,
/// and tests run in the folder of their package.
fn find_source(file: &str) -> Option<PathBuf> {
    let mut folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    loop {
        let path = folder.join(file);
        if path.exists() {
            return Some(path);
        }
        folder = folder.parent()?;
    }
}
