//! Settings: the values of all options, as the program uses them. Each row of the option table sets
//! a field.

use crate::links::ConfiguredLinks;
use auth::auth_resources::AuthResources;
use auth::security_state::SecurityState;
use auth::settings::{
    AnonymousAccess, ListenerAccessFlags, ListenerAccessSettings, SecuritySettings,
};
use broker::BrokerOptions;
use broker::options::TraceFilter;
use broker::options::namespace_template::NamespaceTemplate;
use config::listen_url::ListenUrl;
use engine::options::ListenerTransportSettings;
use engine::tls::ClientCertificateMode;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;

#[derive(Clone, Debug)]
pub(crate) struct ProgramSettings {
    pub(crate) allow_anonymous: AnonymousAccess,
    pub(crate) broker: BrokerOptions,
    pub(crate) data: String,
    /// Transport of listeners without own options, see [`ListenerSettings::transport`].
    pub(crate) transport: ListenerTransportSettings,
    pub(crate) io_uring: bool,
    pub(crate) links: ConfiguredLinks,
    pub(crate) listen: Vec<ListenUrl>,
    /// Settings of every listener, the listeners of `listen` first.
    pub(crate) listeners: Vec<ListenerSettings>,
    pub(crate) log: LogSettings,
    pub(crate) security: SecuritySettings,
    /// Number of shards; 0 is the number of cores.
    pub(crate) shards: usize,
    pub(crate) store: store::StoreOptions,
}

/// Settings of a listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerSettings {
    pub(crate) url: ListenUrl,
    pub(crate) transport: ListenerTransportSettings,
    /// Broker options of the listener; `None` if the listener uses the options for all.
    pub(crate) broker: Option<Arc<BrokerOptions>>,
    /// Access without authentication.
    pub(crate) anonymous: AnonymousAccess,
    /// Authentication and authorization of clients.
    pub(crate) security: SecuritySettings,
    pub(crate) own_access: ListenerAccessFlags,
}

impl ListenerSettings {
    /// Whether every client must have shown a certificate or a pre-shared key.
    pub(crate) fn requires_credentials(&self) -> bool {
        let shown = self.transport.tls.client == ClientCertificateMode::Required;
        self.url.is_tls() && (shown || self.transport.psk_file.is_some())
    }

    /// Whether clients of other hosts are accepted: anonymous access is allowed, or clients
    /// authenticate.
    pub(crate) fn accepts_other_hosts(&self) -> bool {
        self.anonymous == AnonymousAccess::Always || self.security.requires_authentication()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) format: LogFormat,
    pub(crate) level: LevelFilter,
    pub(crate) modules: Vec<(String, LevelFilter)>,
    pub(crate) target: LogTarget,
    /// File of `LogTarget::File`.
    pub(crate) file: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Json,
    #[default]
    Text,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogTarget {
    File,
    #[default]
    Stderr,
    Syslog,
}

impl ProgramSettings {
    /// Returns the initial settings. `memory_bytes` is the value of `memory.bytes_max = "auto"`.
    pub(crate) fn new(memory_bytes: u64) -> ProgramSettings {
        ProgramSettings {
            allow_anonymous: AnonymousAccess::default(),
            broker: BrokerOptions { memory_bytes_max: memory_bytes, ..BrokerOptions::default() },
            data: String::new(),
            transport: ListenerTransportSettings::default(),
            io_uring: true,
            links: ConfiguredLinks::default(),
            listen: Vec::new(),
            listeners: Vec::new(),
            log: LogSettings::default(),
            security: SecuritySettings::default(),
            shards: 0,
            store: store::StoreOptions::default(),
        }
    }

    /// Reads the files of the access options, or returns every error. `ports` are those of all
    /// listeners.
    pub(crate) fn load_security(
        &self,
        ports: &[Option<u16>],
        resources: &AuthResources,
    ) -> Result<SecurityState, Vec<String>> {
        let access = self.listeners.iter().map(|listener| ListenerAccessSettings {
            listener: &listener.url,
            anonymous: listener.anonymous,
            security: &listener.security,
            own_access: listener.own_access,
        });
        let access: Vec<_> = access.collect();
        SecurityState::load(&self.security, self.allow_anonymous, &access, ports, resources)
    }

    /// Whether the namespace of a client can depend on its authentication.
    pub(crate) fn has_user_namespaces(&self) -> bool {
        let has_variables = |own: &BrokerOptions| {
            own.namespace.as_ref().is_some_and(NamespaceTemplate::has_variables)
        };
        let of_groups =
            self.broker.client_groups.iter().any(|class| class.options.namespace.is_some());
        let own = self.listeners.iter().map(|listener| &listener.security);
        let mut all =
            own.chain([&self.security]).filter(|own| own.requires_authentication()).peekable();
        let authenticates = all.peek().is_some();
        let of_tokens = all.any(|own| !own.jwt_claims.namespace.is_empty());
        let own = self.listeners.iter().filter_map(|listener| listener.broker.as_deref());
        let of_users = own.chain([&self.broker]).any(has_variables);
        authenticates && (of_groups || of_tokens || of_users)
    }

    /// Returns the trace filter, created on first use by a `trace.*` row.
    pub(super) fn trace(&mut self) -> &mut TraceFilter {
        self.broker.event_options.trace.get_or_insert_default()
    }
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            format: LogFormat::default(),
            level: LevelFilter::INFO,
            modules: Vec::new(),
            target: LogTarget::default(),
            file: PathBuf::new(),
        }
    }
}

impl auth::options::AuthOptionTarget for ProgramSettings {
    fn security(&mut self) -> &mut SecuritySettings {
        &mut self.security
    }

    fn broker(&mut self) -> &mut BrokerOptions {
        &mut self.broker
    }
}

impl broker_options::BrokerOptionTarget for ProgramSettings {
    fn broker(&mut self) -> &mut BrokerOptions {
        &mut self.broker
    }
}

impl engine::options::EngineOptionTarget for ProgramSettings {
    fn store(&mut self) -> &mut store::StoreOptions {
        &mut self.store
    }

    fn transport(&mut self) -> &mut ListenerTransportSettings {
        &mut self.transport
    }
}
