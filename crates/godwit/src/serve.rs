//! `godwit serve`: starts a broker from its options, and handles signals.

use crate::links::ProcessLinks;
use crate::listener_socket::{self, BoundListener, ListenerSpec};
use crate::logs::LogSubscriber;
use crate::options::flags::{self, OptionFlag};
use crate::options::settings::{ListenerSettings, ProgramSettings};
use crate::options::{OptionPlan, OptionSources, environment, table};
use crate::{
    EXIT_WRONG_OPTION, PROGRAM, VERSION, event_log, fail, fail_with_usage_error, host,
    report_line_error,
};
use auth::Authenticator;
use auth::auth_resources::AuthResources;
use auth::security_state::SecurityState;
use broker::message::Durability;
use broker::{BrokerOptions, ShardCommand};
use command_line::{Command, FlagRow};
use config::source::absolute_path;
use engine::quic::QuicConfig;
use engine::websocket::{AllowedOrigins, WebSocketSite};
use engine::{Listener, ListenerTransport, limited_log};
use net::unix_socket::SocketFile;
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

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["-c", "--config"], &["FILE"], "read options from this TOML file"),
    FlagRow::new(&["--memory"], &[], "keep everything in memory"),
    FlagRow::new(
        &["--repair"],
        &[],
        "start although the store is damaged, without what is missing",
    ),
    FlagRow::new(&["-s", "--set"], &["KEY=VALUE"], "any option; may be repeated"),
];

pub(crate) fn command() -> Command {
    broker_command("serve", "Runs the broker").override_usage("godwit serve [OPTIONS]")
}

/// Returns a command with all options of the broker as arguments.
pub(crate) fn broker_command(name: &'static str, about: &'static str) -> Command {
    command_line::command(name, about, FLAGS).args(flags::option_arguments())
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let sources = match sources(command(), arguments) {
        Ok(sources) => sources,
        Err(code) => return code,
    };
    let plan = match OptionPlan::read(&sources) {
        Ok(plan) => plan,
        Err(wrongs) => {
            return fail_with_usage_error(
                &wrongs.iter().map(ToString::to_string).collect::<Vec<_>>(),
            );
        }
    };
    match RunningBroker::start(sources, plan) {
        Ok(process) => process.run(),
        Err(wrongs) => fail(&wrongs),
    }
}

/// Returns the sources of the options, or the exit code after an error or help.
pub(crate) fn sources(
    mut command: Command,
    arguments: &[OsString],
) -> Result<OptionSources, ExitCode> {
    let variables = std::env::vars_os();
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let environment: Vec<_> = variables.map(|(name, value)| (text(name), text(value))).collect();
    let config = environment.iter().find(|(name, _)| name == environment::CONFIG);
    let config = config.map(|(_, path)| path.into());
    let mut sources = OptionSources { config, environment, flags: Vec::new() };
    let matches = flags::check_dashes(&mut command, arguments)
        .and_then(|()| command_line::parse(PROGRAM, command, arguments))
        .map_err(|error| report_line_error(&flags::add_option_tip(error), EXIT_WRONG_OPTION))?;
    let names = FLAGS.iter().map(FlagRow::name).chain(table::rows().map(|row| row.key));
    for used in command_line::flags_in_order(&matches, names) {
        sources.flags.push(match used.name {
            "--config" => {
                sources.config = Some(used.value().into());
                continue;
            }
            "--memory" => OptionFlag::new("--memory", "durability", "memory"),
            "--repair" => OptionFlag::new("--repair", "store.repair", "true"),
            "--set" => OptionFlag::set(used.value()),
            key => OptionFlag::new(&format!("--{key}"), key, used.value()),
        });
    }
    Ok(sources)
}

/// State of the running broker on its control side.
struct RunningBroker {
    sources: OptionSources,
    plan: OptionPlan,
    memory_bytes: u64,
    /// Ports of the listening sockets.
    ports: Vec<Option<u16>>,
    authenticator: Arc<Authenticator>,
    access: AuthResources,
    logs: LogSubscriber,
    server: engine::Server,
    links: ProcessLinks,
    /// Index of the listener settings for each socket.
    listener_indexes: Vec<usize>,
    /// Files of unix sockets, removed when the process ends.
    files: Vec<SocketFile>,
    signals: Signals,
    /// Set by the first SIGTERM or SIGINT; the next signal exits at once.
    stopping: Arc<AtomicBool>,
}

impl RunningBroker {
    fn start(sources: OptionSources, plan: OptionPlan) -> Result<RunningBroker, Vec<String>> {
        let memory_bytes = host::memory_bytes_default();
        let settings = plan.settings(memory_bytes);
        let logs = LogSubscriber::start(&settings.log).map_err(|why| vec![why])?;
        let stopping = Arc::new(AtomicBool::new(false));
        let signals =
            register_signals(&stopping).map_err(|error| vec![format!("signals: {error}")])?;
        let transports = load_listener_transports(&settings)?;
        let wanted = settings.links.load()?;
        let mut bound = bind_listeners(&settings)?;
        let ports: Vec<Option<u16>> = bound.iter().map(|bound| bound.port).collect();
        let (access, mut links) = (AuthResources::default(), ProcessLinks::default());
        let security = settings.load_security(&ports, &access)?;
        let shards = shard_count(&settings);
        let folder = settings.data.clone();
        let banner = banner(&sources, &settings, &security, &bound, shards);
        let indexes: Vec<usize> = bound.iter().map(|bound| bound.spec_index).collect();
        let options = effective_options(&settings, &security, &indexes);
        access.replace_authz_servers(&security, &indexes);
        let chains = security.chains(&indexes);
        let authenticator = Authenticator::new(chains, settings.security.limits());
        let files = bound.iter_mut().filter_map(|bound| bound.file.take()).collect();
        let listeners = bound.into_iter().map(|bound| Listener {
            socket: bound.socket,
            transport: transports[bound.spec_index].clone(),
        });
        let server = engine::Server::start(engine::ServerOptions {
            listeners: listeners.collect(),
            shards,
            io_uring: settings.io_uring,
            descriptors_reserved: descriptors_reserved(&settings),
            store: store_location(&settings),
            options: Arc::new(options),
            seed: random_seed().map_err(|error| vec![format!("/dev/urandom: {error}")])?,
            auth_handler: Some(auth_handler(authenticator.clone())),
            authz_handler: access.authz_handler(),
            log: event_logger(&links),
        });
        let server = server.map_err(|fault| vec![describe_start_error(&fault, &folder)])?;
        log_restored_state(&server);
        links.apply(wanted, &access, &server, settings.broker.sys_interval_s);
        server.open_listeners().map_err(|fault| vec![describe_start_error(&fault, &folder)])?;
        let _ = io::stderr().lock().write_all(banner.as_bytes());
        info!(target: "godwit::serve", version = VERSION, shards, "started");
        host::notify_init_system("READY=1");
        Ok(RunningBroker {
            sources,
            plan,
            memory_bytes,
            ports,
            authenticator,
            access,
            logs,
            server,
            links,
            listener_indexes: indexes,
            files,
            signals,
            stopping,
        })
    }

    fn run(mut self) -> ExitCode {
        // Only after `start` has returned, since its drops load code pages too.
        engine::code_pages::drop_clean_pages();
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

    fn stop(mut self) -> ExitCode {
        self.stopping.store(true, Ordering::SeqCst);
        info!(target: "godwit::serve", "draining: no new connections, clients are told");
        host::notify_init_system("STOPPING=1");
        self.links.stop();
        let stopped = self.server.stop();
        drop(self.files);
        limited_log::flush();
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

    /// Reads the options again; any error leaves all settings unchanged.
    fn reload(&mut self) {
        let next = match OptionPlan::read(&self.sources) {
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
        let security = || settings.load_security(&self.ports, &self.access);
        let read = load_listener_transports(&settings)
            .and_then(|transports| Ok((transports, security()?, settings.links.load()?)));
        let (transports, security, links) = match read {
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
        // Files may have changed without a change of options.
        self.server.change_transports(
            self.listener_indexes.iter().map(|at| transports[*at].clone()).collect(),
        );
        // Authentication changes before authorization, so that no client is admitted by the old
        // backends under the new rules.
        let options = effective_options(&settings, &security, &self.listener_indexes);
        self.authenticator
            .replace_backends(security.chains(&self.listener_indexes), settings.security.limits());
        self.access.replace_authz_servers(&security, &self.listener_indexes);
        let sys_interval_s = options.sys_interval_s;
        self.server.send_command(ShardCommand::Reload(Arc::new(options)));
        self.links.apply(links, &self.access, &self.server, sys_interval_s);
        // A reader of the log line may rely on the change.
        self.server.wait_for_commands();
        info!(target: "godwit::serve", changed = changes.live.join(" "), "options read again");
        if !changes.restart.is_empty() {
            let options = changes.restart.join(" ");
            warn!(target: "godwit::serve", options, "these changes need a restart");
        }
    }
}

/// Returns the handler of events: a log line, and an event for sinks.
fn event_logger(links: &ProcessLinks) -> BrokerEventLogger {
    let distribute = links.event_handler();
    Box::new(move |event| {
        event_log::log_event(event);
        distribute(event);
    })
}

type BrokerEventLogger = Box<dyn Fn(&broker::BrokerEvent) + Send + Sync>;

/// Returns the number of shards: the option's, or the number of cores; at most `SHARDS_MAX`.
fn shard_count(settings: &ProgramSettings) -> usize {
    let wanted = if settings.shards == 0 { host::core_count() } else { settings.shards };
    wanted.min(broker::limits::SHARDS_MAX)
}

/// Returns the handler of the shards' requests, which calls `Authenticator::authenticate`.
fn auth_handler(authenticator: Arc<Authenticator>) -> engine::AuthHandler {
    Arc::new(move |engine::AuthTask { request, liveness, responder: answer }| {
        authenticator.authenticate(
            request,
            liveness,
            Box::new(move |verdict| answer.respond(verdict)),
        );
    })
}

fn register_signals(stopping: &Arc<AtomicBool>) -> io::Result<Signals> {
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(stopping))?;
    }
    Signals::new([SIGHUP, SIGINT, SIGTERM])
}

/// Returns the broker's options with the contents of files, and with the own options of each
/// socket.
fn effective_options(
    settings: &ProgramSettings,
    security: &SecurityState,
    wishes: &[usize],
) -> BrokerOptions {
    let options = BrokerOptions {
        namespace_needs_user: settings.has_user_namespaces(),
        listeners: wishes.iter().map(|at| settings.listeners[*at].broker.clone()).collect(),
        ..settings.broker.clone()
    };
    security.apply_to_options(wishes, options)
}

/// Loads the transport layers of each listener from its files.
pub(crate) fn load_listener_transports(
    settings: &ProgramSettings,
) -> Result<Vec<ListenerTransport>, Vec<String>> {
    let (mut transports, mut wrongs) = (Vec::new(), Vec::new());
    for listener in &settings.listeners {
        match load_listener_transport(listener) {
            Ok(transport) => transports.push(transport),
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
    if wrongs.is_empty() { Ok(transports) } else { Err(wrongs) }
}

fn load_listener_transport(listener: &ListenerSettings) -> Result<ListenerTransport, Vec<String>> {
    let ListenerSettings { url, transport, .. } = listener;
    let web = websocket_site(listener).map(Arc::new);
    let own = ListenerTransport {
        proxy: transport.proxy,
        websocket: web,
        ..ListenerTransport::default()
    };
    if !url.is_tls() {
        return Ok(own);
    }
    #[cfg(feature = "psk")]
    if let Some(file) = &transport.psk_file {
        return Ok(ListenerTransport { psk: Some(auth::psk_file::read_psk_file(file)?), ..own });
    }
    let tls = transport.tls.load()?;
    if !url.is_quic() {
        return Ok(ListenerTransport { tls: Some(tls), ..own });
    }
    let quic =
        QuicConfig::new(&tls, transport.quic).map_err(|why| vec![format!("{url}: {why}")])?;
    Ok(ListenerTransport { quic: Some(quic), ..own })
}

/// Returns the path and the allowed origins of a WebSocket listener; `None` for other listeners.
fn websocket_site(listener: &ListenerSettings) -> Option<WebSocketSite> {
    let path = listener.url.web_path()?;
    let listed = &listener.transport.ws_origins;
    let origins = match listed.is_empty() {
        // A web page is untrusted, even if its reader is on this host.
        true if !listener.accepts_other_hosts() && !listener.requires_credentials() => {
            AllowedOrigins::ThisHost
        }
        false if !listed.iter().any(|origin| origin == "*") => {
            AllowedOrigins::Listed(listed.clone())
        }
        _ => AllowedOrigins::Any,
    };
    Some(WebSocketSite {
        path: (!path.is_empty()).then(|| path.to_string()),
        origins,
        address_header: listener.transport.ws_address_header.clone(),
    })
}

fn bind_listeners(settings: &ProgramSettings) -> Result<Vec<BoundListener>, Vec<String>> {
    let wishes: Vec<ListenerSpec<'_>> = settings
        .listeners
        .iter()
        .map(|listener| ListenerSpec {
            url: &listener.url,
            open: listener.accepts_other_hosts() || listener.requires_credentials(),
            mode: listener.transport.unix_mode,
        })
        .collect();
    listener_socket::bind(&wishes)
}

fn banner(
    sources: &OptionSources,
    settings: &ProgramSettings,
    security: &SecurityState,
    listeners: &[BoundListener],
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
    let storage = match store_location(settings) {
        Some(shelter) => format!("in {}", shelter.folder.display()),
        None => "in memory: nothing outlives this process".to_string(),
    };
    let _ = writeln!(banner, "  storage       {storage}");
    let _ = writeln!(banner, "  options       {}", config.as_deref().unwrap_or("no file"));
    let memory = settings.broker.memory_bytes_max >> 20;
    let _ = writeln!(banner, "  memory limit  {memory} MiB");
    banner
}

/// Returns the number of file descriptors reserved for all parts other than client connections.
fn descriptors_reserved(settings: &ProgramSettings) -> usize {
    let backends = settings.security.backend_connections_max();
    DESCRIPTORS_OF_STORE + settings.links.count() * DESCRIPTORS_OF_LINK + backends * SERVERS_MAX
}

/// Descriptors for the store's tables and logs during a merge, and for files read by a reload.
const DESCRIPTORS_OF_STORE: usize = 64;
/// Descriptors of a link: two connections, connections to a cluster, files of a sink.
const DESCRIPTORS_OF_LINK: usize = 8;
/// Kinds of backend servers, whose connections are bounded for each kind.
const SERVERS_MAX: usize = 4;

/// Returns the folder and options of the store; `None` if all data is in memory.
fn store_location(settings: &ProgramSettings) -> Option<engine::StoreLocation> {
    let durable = settings.broker.durability != Durability::Memory;
    durable.then(|| engine::StoreLocation {
        folder: settings.data.clone().into(),
        options: settings.store.clone(),
    })
}

fn describe_start_error(fault: &engine::ServerFault, folder: &str) -> String {
    let folder = absolute_path(Path::new(folder));
    let folder = folder.display();
    match fault {
        engine::ServerFault::Store(store::Fault::Damaged(_)) => format!(
            "{folder}: {fault}. Nothing was changed; `godwit store check --data {folder}` says \
             more, and --repair starts without what is missing"
        ),
        engine::ServerFault::Store(store::Fault::Locked(_)) => format!(
            "{folder} (option data): another process uses the data folder, name another one with \
             --data"
        ),
        engine::ServerFault::Store(store::Fault::Disk(fault)) => format!(
            "{folder} (option data): the data folder cannot be used: {fault}. Name a folder that \
             can be written with --data, or keep nothing with --memory"
        ),
        engine::ServerFault::Store(fault) => format!("{folder} (option data): {fault}"),
        _ => format!("the broker cannot start: {fault}"),
    }
}

fn log_restored_state(server: &engine::Server) {
    let Some((report, restored)) = server.report() else { return };
    let broker::RestoreStats { sessions, subscriptions, retained } = *restored;
    info!(target: "godwit::store", sessions, subscriptions, retained, "stored state is back");
    if report.torn_bytes > 0 {
        let bytes = report.torn_bytes;
        info!(target: "godwit::store", bytes, "cut off a torn tail that nobody was promised");
    }
    for damage in &report.damage {
        warn!(target: "godwit::store", %damage, "repaired: this is missing");
    }
}

/// Returns a seed that differs in every process, so that assigned identifiers and hash collisions
/// cannot be predicted.
fn random_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
