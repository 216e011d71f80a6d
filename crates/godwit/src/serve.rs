//! `godwit serve`: options to a running broker, and signals to what they ask for.

use crate::flags::{self, Flag};
use crate::identity::Porter;
#[cfg(feature = "gateway")]
use crate::links::gateway;
#[cfg(feature = "bridge")]
use crate::links::{LinkSettings, Links, Wanted, bridge::far};
use crate::listen::{Bound, SocketFile, Wish};
use crate::logs::Logs;
use crate::options::flags::OptionFlag;
use crate::options::settings::{ListenerSettings, Settings};
use crate::options::{Plan, Sources, environment};
use crate::outside::Outside;
use crate::security::Security;
use crate::source::whole_path;
use crate::withheld;
use crate::{VERSION, fail, host, listen, notes, print, refuse};
use broker::options::Durability;
use broker::{Command, Options};
use engine::quic::Terms;
use engine::web::{Origins, Site};
use engine::{Door, Listener};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{error, info, warn};

pub(crate) const FLAGS: &[Flag] = &[
    Flag { names: &["-c", "--config"], values: &["FILE"], doc: "read options from this TOML file" },
    Flag {
        names: &["-l", "--listen"],
        values: &["URL"],
        doc: "listen here: tcp://ADDRESS:PORT, tls://, quic://, ws://, wss:// or unix:///PATH; may be repeated",
    },
    Flag { names: &["--data"], values: &["DIR"], doc: "folder for what outlives the process" },
    Flag { names: &["--memory"], values: &[], doc: "keep everything in memory" },
    Flag {
        names: &["--repair"],
        values: &[],
        doc: "start although the store is damaged, without what is missing",
    },
    Flag {
        names: &["--shards"],
        values: &["N"],
        doc: "threads that serve clients; 0 is one a core",
    },
    Flag { names: &["-s", "--set"], values: &["KEY=VALUE"], doc: "any option; may be repeated" },
    Flag { names: &["-h", "--help"], values: &[], doc: "this" },
];

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let sources = match sources(arguments) {
        Ok(Some(sources)) => sources,
        Ok(None) => return print(&format!("Runs the broker.\n\n{}", flags::help(FLAGS))),
        Err(wrongs) => return refuse(&wrongs),
    };
    let plan = match Plan::read(&sources) {
        Ok(plan) => plan,
        Err(wrongs) => return refuse(&wrongs.iter().map(ToString::to_string).collect::<Vec<_>>()),
    };
    match Process::start(sources, plan) {
        Ok(process) => process.run(),
        Err(wrongs) => fail(&wrongs),
    }
}

/// Where the options come from; `None` when help is wanted.
pub(crate) fn sources(arguments: &[OsString]) -> Result<Option<Sources>, Vec<String>> {
    let variables = std::env::vars_os();
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let environment: Vec<_> = variables.map(|(name, value)| (text(name), text(value))).collect();
    let config = environment.iter().find(|(name, _)| name == environment::CONFIG);
    let config = config.map(|(_, path)| path.into());
    let mut sources = Sources { config, environment, flags: Vec::new() };
    for used in flags::read(FLAGS, arguments)? {
        let option = |flag, key: &str, value: &str| OptionFlag {
            flag,
            key: key.to_string(),
            value: Some(value.to_string()),
        };
        match used.name {
            "--help" => return Ok(None),
            "--config" => sources.config = Some(used.value().into()),
            "--memory" => sources.flags.push(option("--memory", "durability", "memory")),
            "--repair" => sources.flags.push(option("--repair", "store.repair", "true")),
            "--set" => sources.flags.push(OptionFlag::set(used.value())),
            name => {
                sources.flags.push(option(name, name.trim_start_matches('-'), used.value()));
            }
        }
    }
    Ok(Some(sources))
}

/// The running broker, seen from its control side.
struct Process {
    sources: Sources,
    plan: Plan,
    memory_bytes: u64,
    /// Of the sockets that listen.
    ports: Vec<Option<u16>>,
    porter: Arc<Porter>,
    outside: Outside,
    logs: Logs,
    server: engine::Server,
    #[cfg(feature = "bridge")]
    links: Option<Links>,
    /// Which of the settings' listeners each socket is of.
    wishes: Vec<usize>,
    /// Removed when the process ends.
    files: Vec<SocketFile>,
    signals: Signals,
    /// From the first signal to stop on, the next one stops at once.
    stopping: Arc<AtomicBool>,
}

impl Process {
    fn start(sources: Sources, plan: Plan) -> Result<Process, Vec<String>> {
        let memory_bytes = host::memory_bytes_default();
        let settings = plan.settings(memory_bytes);
        let logs = Logs::start(&settings.log).map_err(|why| vec![why])?;
        let stopping = Arc::new(AtomicBool::new(false));
        let signals = signals(&stopping).map_err(|error| vec![format!("signals: {error}")])?;
        let doors = doors(&settings)?;
        #[cfg(feature = "bridge")]
        let (wanted, sys_interval_s) = (links(&settings)?, settings.broker.sys_interval_s);
        let mut bound = bind(&settings)?;
        let ports: Vec<Option<u16>> = bound.iter().map(|bound| bound.port).collect();
        let outside = Outside::default();
        let security = Security::load(&settings, &ports, &outside)?;
        let shards = if settings.shards == 0 { host::cores() } else { settings.shards };
        let shards = shards.min(broker::limits::SHARDS_MAX);
        let folder = settings.data.clone();
        let banner = banner(&sources, &settings, &security, &bound, shards);
        let wishes: Vec<usize> = bound.iter().map(|bound| bound.wish).collect();
        let options = in_force(&settings, &security, &wishes);
        #[cfg(feature = "http")]
        outside.permits.change(security.desks(&wishes));
        let porter = Porter::new(security.chains(&wishes), settings.security.limits());
        let files = bound.iter_mut().filter_map(|bound| bound.file.take()).collect();
        let listeners = bound
            .into_iter()
            .map(|bound| Listener { socket: bound.socket, door: doors[bound.wish].clone() });
        let server = engine::Server::start(engine::Setup {
            listeners: listeners.collect(),
            shards,
            io_uring: settings.io_uring,
            descriptors_reserved: descriptors_reserved(&settings),
            store: shelter(&settings),
            options: Arc::new(options),
            seed: seed().map_err(|error| vec![format!("/dev/urandom: {error}")])?,
            judge: Some(judge(porter.clone())),
            warden: outside.warden(),
            log: log(&outside),
        });
        let server = server.map_err(|fault| vec![cannot_start(&fault, &folder)])?;
        say_what_came_back(&server);
        #[cfg(feature = "bridge")]
        let links = {
            // Sessions of links that are no more may have come back.
            let has_stored = server.report().is_some_and(|(_, restored)| restored.sessions > 0);
            let any = !wanted.is_empty() || has_stored;
            any.then(|| Links::start(&outside, &server, wanted, sys_interval_s))
        };
        server.open().map_err(|fault| vec![cannot_start(&fault, &folder)])?;
        let _ = io::stderr().lock().write_all(banner.as_bytes());
        info!(target: "godwit::serve", version = VERSION, shards, "started");
        host::notify("READY=1");
        Ok(Process {
            sources,
            plan,
            memory_bytes,
            ports,
            porter,
            outside,
            logs,
            server,
            #[cfg(feature = "bridge")]
            links,
            wishes,
            files,
            signals,
            stopping,
        })
    }

    fn run(mut self) -> ExitCode {
        // Not before `start` has returned: what it drops draws code in, too.
        engine::code::let_go();
        loop {
            for signal in self.signals.wait() {
                if signal == SIGHUP {
                    self.reload();
                } else {
                    return self.stop();
                }
            }
        }
    }

    fn stop(#[cfg_attr(not(feature = "bridge"), expect(unused_mut))] mut self) -> ExitCode {
        self.stopping.store(true, Ordering::SeqCst);
        info!(target: "godwit::serve", "draining: no new connections, clients are told");
        host::notify("STOPPING=1");
        #[cfg(feature = "bridge")]
        if let Some(links) = &mut self.links {
            links.stop();
        }
        let stopped = self.server.stop();
        drop(self.files);
        withheld::flush();
        match stopped {
            Ok(()) => {
                info!(target: "godwit::serve", "stopped");
                ExitCode::SUCCESS
            }
            Err(fault) => {
                error!(target: "godwit::serve", %fault, "stopped by a fault");
                ExitCode::FAILURE
            }
        }
    }

    /// All or nothing: any error leaves everything as it was.
    fn reload(&mut self) {
        let next = match Plan::read(&self.sources) {
            Ok(next) => next,
            Err(wrongs) => {
                for wrong in wrongs {
                    error!(target: "godwit::serve", "not reloaded: {wrong}");
                }
                return;
            }
        };
        let before = self.plan.clone();
        let changes = self.plan.reload(next);
        let settings = self.plan.settings(self.memory_bytes);
        let security = || Security::load(&settings, &self.ports, &self.outside);
        let read = doors(&settings).and_then(|doors| Ok((doors, security()?)));
        #[cfg(feature = "bridge")]
        let read = read.and_then(|read| Ok((read, links(&settings)?)));
        #[cfg(not(feature = "bridge"))]
        let read = read.map(|read| (read, ()));
        let ((doors, security), _links) = match read {
            Ok(read) => read,
            Err(wrongs) => {
                self.plan = before;
                for wrong in wrongs {
                    error!(target: "godwit::serve", "not reloaded: {wrong}");
                }
                return;
            }
        };
        if let Err(why) = self.logs.configure(&settings.log) {
            self.plan = before;
            error!(target: "godwit::serve", "not reloaded: {why}");
            return;
        }
        // Even where no option has changed the files may have.
        self.server.change_doors(self.wishes.iter().map(|at| doors[*at].clone()).collect());
        // Who is let in before what they may do: nobody is in by the old list under the new rules.
        let options = in_force(&settings, &security, &self.wishes);
        self.porter.change(security.chains(&self.wishes), settings.security.limits());
        #[cfg(feature = "http")]
        self.outside.permits.change(security.desks(&self.wishes));
        let _sys_interval_s = options.sys_interval_s;
        self.server.command(Command::Reload(Arc::new(options)));
        #[cfg(feature = "bridge")]
        match &mut self.links {
            Some(links) => links.change(_links, _sys_interval_s),
            None if _links.is_empty() => {}
            none => {
                *none = Some(Links::start(&self.outside, &self.server, _links, _sys_interval_s));
            }
        }
        // Who reads the line may rely on it.
        self.server.wait_until_done();
        info!(target: "godwit::serve", changed = changes.live.join(" "), "options read again");
        if !changes.restart.is_empty() {
            let options = changes.restart.join(" ");
            warn!(target: "godwit::serve", options, "these changes need a restart");
        }
    }
}

/// Every link, with what its files hold.
#[cfg(feature = "bridge")]
pub(crate) fn links(settings: &Settings) -> Result<Vec<Wanted>, Vec<String>> {
    let (mut all, mut wrongs) = (Vec::new(), Vec::new());
    for bridge in &settings.bridges {
        let speaks_tls =
            bridge.servers.iter().any(|url| ["tls", "wss", "quic"].contains(&&*url.scheme));
        match speaks_tls.then(|| far::trust(&bridge.tls)).transpose() {
            Ok(tls) => {
                let settings = LinkSettings::Bridge(Box::new(bridge.clone()));
                all.push(Wanted { settings, tls, served: None });
            }
            Err(why) => wrongs.push(format!("bridge {}: {why}", bridge.name)),
        }
    }
    #[cfg(feature = "gateway")]
    for gateway in &settings.gateways {
        match gateway::trust(gateway) {
            Ok((tls, served)) => {
                let settings = LinkSettings::Gateway(Box::new(gateway.clone()));
                all.push(Wanted { settings, tls, served });
            }
            Err(why) => wrongs.push(format!("gateway {}: {why}", gateway.name)),
        }
    }
    #[cfg(feature = "sink")]
    for sink in &settings.sinks {
        match sink.speaks_tls().then(|| far::trust(&sink.tls)).transpose() {
            Ok(tls) => {
                let settings = LinkSettings::Sink(Box::new(sink.clone()));
                all.push(Wanted { settings, tls, served: None });
            }
            Err(why) => wrongs.push(format!("sink {}: {why}", sink.name)),
        }
    }
    if wrongs.is_empty() { Ok(all) } else { Err(wrongs) }
}

/// What becomes of a note: a line, and an event where somebody wants it.
fn log(#[cfg_attr(not(feature = "sink"), expect(unused))] outside: &Outside) -> Log {
    #[cfg(not(feature = "sink"))]
    return Box::new(notes::log);
    #[cfg(feature = "sink")]
    {
        let hub = outside.hub.clone();
        Box::new(move |note| {
            notes::log(note);
            hub.hear(note);
        })
    }
}

type Log = Box<dyn Fn(&broker::Note) + Send + Sync>;

/// How shards ask.
fn judge(porter: Arc<Porter>) -> engine::Judge {
    Arc::new(move |engine::Question { claim, liveness, answer }| {
        porter.hear(claim, liveness, Box::new(move |verdict| answer.give(verdict)));
    })
}

fn signals(stopping: &Arc<AtomicBool>) -> io::Result<Signals> {
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(stopping))?;
    }
    Signals::new([SIGHUP, SIGINT, SIGTERM])
}

/// What shards go by: the options, with what files say and where each socket has its own.
fn in_force(settings: &Settings, security: &Security, wishes: &[usize]) -> Options {
    let options = Options {
        mounts_users: settings.mounts_users(),
        listeners: wishes.iter().map(|at| settings.listeners[*at].broker.clone()).collect(),
        ..settings.broker.clone()
    };
    security.in_force(wishes, options)
}

/// What is behind each listener, from its files.
pub(crate) fn doors(settings: &Settings) -> Result<Vec<Door>, Vec<String>> {
    let (mut doors, mut wrongs) = (Vec::new(), Vec::new());
    for listener in &settings.listeners {
        match door(listener) {
            Ok(door) => doors.push(door),
            // Several listeners may share a file.
            Err(whys) => {
                for why in whys {
                    if !wrongs.contains(&why) {
                        wrongs.push(why);
                    }
                }
            }
        }
    }
    if wrongs.is_empty() { Ok(doors) } else { Err(wrongs) }
}

fn door(listener: &ListenerSettings) -> Result<Door, Vec<String>> {
    let ListenerSettings { url, door, .. } = listener;
    let web = site(listener).map(Arc::new);
    let own = Door { proxy: door.proxy, web, ..Door::default() };
    if !url.is_tls() {
        return Ok(own);
    }
    #[cfg(feature = "psk")]
    if let Some(file) = &door.psk_file {
        return Ok(Door { keys: Some(crate::psk::read(file)?), ..own });
    }
    let tls = door.tls.load()?;
    if !url.is_quic() {
        return Ok(Door { tls: Some(tls), ..own });
    }
    let quic = Terms::new(&tls, door.quic).map_err(|why| vec![format!("{url}: {why}")])?;
    Ok(Door { quic: Some(quic), ..own })
}

/// What a WebSocket listener serves.
fn site(listener: &ListenerSettings) -> Option<Site> {
    let path = listener.url.web_path()?;
    let listed = &listener.door.ws_origins;
    let origins = match listed.is_empty() {
        // A page is a stranger, whatever host its reader sits at.
        true if !listener.is_open() && !listener.authenticates() => Origins::ThisHost,
        false if !listed.iter().any(|origin| origin == "*") => Origins::Listed(listed.clone()),
        _ => Origins::Any,
    };
    Some(Site { path: (!path.is_empty()).then(|| path.to_string()), origins })
}

fn bind(settings: &Settings) -> Result<Vec<Bound>, Vec<String>> {
    let wishes: Vec<Wish<'_>> = settings
        .listeners
        .iter()
        .map(|listener| Wish {
            url: &listener.url,
            open: listener.is_open() || listener.authenticates(),
            mode: listener.door.unix_mode,
        })
        .collect();
    listen::bind(&wishes)
}

fn banner(
    sources: &Sources,
    settings: &Settings,
    security: &Security,
    listeners: &[Bound],
    shards: usize,
) -> String {
    let mut banner = format!("godwit {VERSION}\n");
    for listener in listeners {
        let _ = writeln!(banner, "  listening on  {}", listener.shown);
    }
    for (what, text) in &security.banner {
        let _ = writeln!(banner, "  {what:13} {text}");
    }
    let config = sources.config.as_ref().map(|path| path.display().to_string());
    let _ = writeln!(banner, "  shards        {shards}");
    let storage = match shelter(settings) {
        Some(shelter) => format!("in {}", shelter.folder.display()),
        None => "in memory: nothing outlives this process".to_string(),
    };
    let _ = writeln!(banner, "  storage       {storage}");
    let _ = writeln!(banner, "  options       {}", config.as_deref().unwrap_or("no file"));
    let memory = settings.broker.memory_bytes_max >> 20;
    let _ = writeln!(banner, "  memory limit  {memory} MiB");
    banner
}

/// The number of file descriptors that client connections leave to the rest of the process.
fn descriptors_reserved(settings: &Settings) -> usize {
    let links = 0;
    #[cfg(feature = "bridge")]
    let links = links + settings.bridges.len();
    #[cfg(feature = "gateway")]
    let links = links + settings.gateways.len();
    #[cfg(feature = "sink")]
    let links = links + settings.sinks.len();
    let backends = settings.security.backend_connections_max();
    DESCRIPTORS_OF_STORE + links * DESCRIPTORS_OF_LINK + backends * SERVERS_MAX
}

/// The store's tables and logs while they are merged, and files that are read again.
const DESCRIPTORS_OF_STORE: usize = 64;
/// A link's two connections, those of a cluster, files of a sink.
const DESCRIPTORS_OF_LINK: usize = 8;
/// Kinds of servers that are asked about clients: their connections are bounded for each.
const SERVERS_MAX: usize = 4;

/// The folder and options of the store, unless everything is kept in memory.
fn shelter(settings: &Settings) -> Option<engine::Shelter> {
    let durable = settings.broker.durability != Durability::Memory;
    durable.then(|| engine::Shelter {
        folder: settings.data.clone().into(),
        options: settings.store.clone(),
    })
}

fn cannot_start(fault: &engine::Fault, folder: &str) -> String {
    let folder = whole_path(Path::new(folder));
    let folder = folder.display();
    match fault {
        engine::Fault::Store(store::Fault::Damaged(_)) => format!(
            "{folder}: {fault}. Nothing was changed; `godwit store check --data {folder}` says \
             more, and --repair starts without what is missing"
        ),
        engine::Fault::Store(store::Fault::Locked(_)) => format!(
            "{folder} (option data): another process uses the data folder, name another one with \
             --data"
        ),
        engine::Fault::Store(store::Fault::Disk(fault)) => format!(
            "{folder} (option data): the data folder cannot be used: {fault}. Name a folder that \
             can be written with --data, or keep nothing with --memory"
        ),
        engine::Fault::Store(fault) => format!("{folder} (option data): {fault}"),
        _ => format!("the broker cannot start: {fault}"),
    }
}

fn say_what_came_back(server: &engine::Server) {
    let Some((report, restored)) = server.report() else { return };
    let broker::Restored { sessions, subscriptions, retained } = *restored;
    info!(target: "godwit::store", sessions, subscriptions, retained, "stored state is back");
    if report.torn_bytes > 0 {
        let bytes = report.torn_bytes;
        info!(target: "godwit::store", bytes, "cut off a torn tail that nobody was promised");
    }
    for damage in &report.damage {
        warn!(target: "godwit::store", %damage, "repaired: this is missing");
    }
}

/// Different in every process, so that nobody can predict assigned ids and hash collisions.
fn seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
