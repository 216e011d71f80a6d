//! Access options of a process, loaded from files and ready for use: authentication, permissions
//! and bans.

#[cfg(feature = "http")]
use crate::acl::authorizer::{HttpAuthzServer, ListenerAuthzPools};
use crate::auth_resources::AuthResources;
use crate::backend::{AuthBackend, BackendChain, ListenerChains};
use crate::certificate::CertificateBackend;
#[cfg(feature = "http")]
use crate::http::HttpAuthServer;
#[cfg(feature = "http")]
use crate::jwks::RemoteJwks;
use crate::jwt::{JwtBackend, JwtKeySource};
use crate::key_set::KeySet;
#[cfg(feature = "remote")]
use crate::remote::RemoteBackend;
use crate::settings::{AnonymousAccess, ListenerAccessSettings, SecuritySettings};
#[cfg(feature = "redis")]
use crate::tables::redis::RedisAuthServer;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::tables::sql::{SqlAuthServer, SqlAuthSettings};
use crate::users::UserFile;
use crate::verified_cache::VerifiedCache;
use crate::{acl, bans};
use broker::BrokerOptions;
use broker::access_rules::acl_rules::AclRuleSet;
use broker::options::bans::BanList;
use broker::options::client_groups::AuthzOptions;
use broker::options::{AccessByListener, ListenerAccess};
#[cfg(feature = "http")]
use net::http_client::HttpRoute;
#[cfg(feature = "http")]
use net::server_pool::ConnectionPool;
use net::server_url::ServerUrl;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use net::sql::SqlDatabase;
#[cfg(feature = "mysql")]
use net::sql::mysql::MysqlDatabase;
#[cfg(feature = "postgres")]
use net::sql::postgres::PostgresDatabase;
use net::timestamp::UnixTimestamp;
#[cfg(feature = "remote")]
use net::tls_client_config;
#[cfg(feature = "remote")]
use rustls::ClientConfig;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Loaded access options of a listener, or of all listeners without their own.
#[derive(Default)]
pub struct LoadedAccess {
    chain: Arc<BackendChain>,
    permissions: Option<Arc<AclRuleSet>>,
    asks: Option<AuthzOptions>,
    /// Whether a CONNECT waits for the chain's verdict.
    judges: bool,
    /// Number of the set of users to which the listener's clients belong, as in [`ListenerAccess`].
    identity_domain: u64,
    #[cfg(feature = "http")]
    permits: Option<Arc<ConnectionPool<HttpAuthzServer>>>,
}

/// Loaded access options, by listener.
pub struct SecurityState {
    all: LoadedAccess,
    /// Access options by index of the listener in the settings.
    own: Vec<Option<LoadedAccess>>,
    pub bans: Option<Arc<BanList>>,
    /// A line for each part, printed at the start.
    pub banner: Vec<(&'static str, String)>,
}

impl SecurityState {
    /// Reads every file, and returns the state or all errors. `ports` are the ports of all
    /// listeners. Sends no request to a server yet.
    pub fn load(
        settings: &SecuritySettings,
        anonymous: AnonymousAccess,
        listeners: &[ListenerAccessSettings<'_>],
        ports: &[Option<u16>],
        resources: &AuthResources,
    ) -> Result<SecurityState, Vec<String>> {
        let mut load = SecurityLoader {
            own: settings,
            resources,
            chain: BackendChain::default(),
            permissions: None,
            #[cfg(feature = "http")]
            permits: None,
            banner: Vec::new(),
            verified: VerifiedCache::new(settings.password_cache_s).map(Arc::new),
            wrongs: Vec::new(),
            #[cfg(feature = "http")]
            keys: Vec::new(),
        };
        let all = load.load_access(anonymous, ports);
        let bans = load.load_bans();
        let own = listeners.iter().map(|listener| {
            let own = listener.own_access;
            own.any().then(|| load.load_listener_access(listener, settings, &all, ports))
        });
        let own = own.collect();
        if !load.wrongs.is_empty() {
            // Several listeners may share a file.
            let mut wrongs = load.wrongs;
            let mut seen = BTreeSet::new();
            wrongs.retain(|why| seen.insert(why.clone()));
            return Err(wrongs);
        }
        #[cfg(feature = "http")]
        resources.set_remote_key_sets(load.keys);
        Ok(SecurityState { all, own, bans, banner: load.banner })
    }

    /// Returns a part of the access options that each socket's listener has for itself; `None` for
    /// a listener without its own options. `wishes` has the listener's index for each socket.
    fn map_listeners<'a, T>(
        &'a self,
        wishes: &'a [usize],
        part: impl Fn(&LoadedAccess) -> T + 'a,
    ) -> impl Iterator<Item = Option<T>> + 'a {
        wishes.iter().map(move |at| self.own.get(*at)?.as_ref().map(&part))
    }

    pub fn chains(&self, wishes: &[usize]) -> ListenerChains {
        let own = self.map_listeners(wishes, |own| own.chain.clone()).collect();
        ListenerChains { all: self.all.chain.clone(), own }
    }

    #[cfg(feature = "http")]
    pub fn authz_pools(&self, wishes: &[usize]) -> ListenerAuthzPools {
        let own = self.map_listeners(wishes, |own| own.permits.clone()).collect();
        ListenerAuthzPools { all: self.all.permits.clone(), own }
    }

    /// Replaces the access options in the broker's `options`.
    pub fn apply_to_options(&self, wishes: &[usize], options: BrokerOptions) -> BrokerOptions {
        let LoadedAccess { asks, judges, ref chain, ref permissions, .. } = self.all;
        let own = self.map_listeners(wishes, |own| {
            let (methods, permissions) = (own.chain.methods(), own.permissions.clone());
            Arc::new(ListenerAccess {
                authz: own.asks,
                authenticates: own.judges,
                identity_domain: own.identity_domain,
                methods,
                permissions,
            })
        });
        let own = match self.own.iter().any(Option::is_some) {
            true => own.collect(),
            false => Vec::new(),
        };
        let access = AccessByListener { methods: chain.methods(), own };
        let (permissions, bans) = (permissions.clone(), self.bans.clone());
        BrokerOptions { access, authz: asks, authenticates: judges, permissions, bans, ..options }
    }
}

/// Loads access options, and collects errors. Rarely used parts are marked cold, so that they do
/// not lie among the code of every start.
struct SecurityLoader<'a> {
    own: &'a SecuritySettings,
    resources: &'a AuthResources,
    /// Cache of verified passwords, new with each reload; all listeners share the cache.
    verified: Option<Arc<VerifiedCache>>,
    chain: BackendChain,
    permissions: Option<Arc<AclRuleSet>>,
    #[cfg(feature = "http")]
    permits: Option<Arc<ConnectionPool<HttpAuthzServer>>>,
    banner: Vec<(&'static str, String)>,
    wrongs: Vec<String>,
    #[cfg(feature = "http")]
    keys: Vec<Arc<RemoteJwks>>,
}

impl<'a> SecurityLoader<'a> {
    /// Loads the access options of `own`, the present settings.
    fn load_access(&mut self, anonymous: AnonymousAccess, ports: &[Option<u16>]) -> LoadedAccess {
        self.load_backends(ports);
        self.load_rules(ports);
        #[cfg(feature = "http")]
        self.load_authz_server(ports);
        let mut chain = std::mem::take(&mut self.chain);
        chain.anonymous = anonymous == AnonymousAccess::Always;
        LoadedAccess {
            chain: Arc::new(chain),
            permissions: self.permissions.take(),
            asks: self.own.broker_authz_settings(),
            judges: self.own.requires_authentication() || anonymous == AnonymousAccess::Never,
            identity_domain: 0,
            #[cfg(feature = "http")]
            permits: self.permits.take(),
        }
    }

    /// Loads the access options of a listener, with those of all listeners for the rest.
    #[cold]
    fn load_listener_access(
        &mut self,
        listener: &ListenerAccessSettings<'a>,
        settings: &SecuritySettings,
        all: &LoadedAccess,
        ports: &[Option<u16>],
    ) -> LoadedAccess {
        let ListenerAccessSettings { listener, anonymous, security, own_access } = *listener;
        self.own = security;
        if own_access.backends || own_access.rules {
            let said = self.banner.len();
            let mut own = self.load_access(anonymous, ports);
            for (_, text) in &mut self.banner[said..] {
                text.push_str(&format!(", at {listener}"));
            }
            if !own_access.backends {
                // The same files and servers: one chain serves all listeners.
                let backends = all.chain.backends.clone();
                own.chain = Arc::new(BackendChain { backends, anonymous: own.chain.anonymous });
            } else {
                let domain = security.identity_domain();
                let is_that_of_all = domain == settings.identity_domain();
                own.identity_domain = if is_that_of_all { 0 } else { domain };
            }
            return own;
        }
        let chain = BackendChain {
            backends: all.chain.backends.clone(),
            anonymous: anonymous == AnonymousAccess::Always,
        };
        LoadedAccess {
            chain: Arc::new(chain),
            permissions: all.permissions.clone(),
            asks: all.asks,
            judges: self.own.requires_authentication() || anonymous == AnonymousAccess::Never,
            identity_domain: 0,
            #[cfg(feature = "http")]
            permits: all.permits.clone(),
        }
    }
}

impl SecurityLoader<'_> {
    /// Loads the backends in the order of their use: backends without a request for each client
    /// come first.
    fn load_backends(&mut self, ports: &[Option<u16>]) {
        let own = self.own;
        if let Some(user) = own.certificate_user {
            let client_id = own.certificate_client_id;
            self.add_backend(CertificateBackend { user, client_id });
        }
        #[cfg(feature = "http")]
        self.load_jwks();
        if !own.jwt_keys.as_os_str().is_empty() {
            let keys = KeySet::read(&own.jwt_keys).map_err(|why| vec![why]);
            if let Some(keys) = self.collect_errors(keys) {
                self.add_banner_line("tokens", format!("by {}", own.jwt_keys.display()));
                self.add_backend(JwtBackend {
                    keys: JwtKeySource::File(keys),
                    reading: own.jwt_validator(),
                });
            }
        }
        if !own.users.as_os_str().is_empty()
            && let Some(mut users) = self.collect_errors(UserFile::read(&own.users))
        {
            users.remember_in(self.verified.clone());
            self.add_banner_line(
                "users",
                format!("{} in {}", users.user_count(), own.users.display()),
            );
            self.add_backend(users);
        }
        #[cfg(feature = "http")]
        self.load_http_backend(ports);
        #[cfg(feature = "postgres")]
        self.load_sql_backend(&own.postgres, ports, PostgresDatabase::new);
        #[cfg(feature = "mysql")]
        self.load_sql_backend(&own.mysql, ports, MysqlDatabase::new);
        #[cfg(feature = "redis")]
        self.load_redis_backend(ports);
    }

    fn load_rules(&mut self, ports: &[Option<u16>]) {
        // Rules from a backend count as rules: a client without rules has no permission.
        self.permissions = self.own.may_supply_rules().then(Arc::default);
        let file = &self.own.acl_file;
        if !file.as_os_str().is_empty()
            && let Some(all) = self.collect_errors(acl::read_acl_file(file, ports))
        {
            self.add_banner_line("rules", format!("{} in {}", all.len(), file.display()));
            self.permissions = Some(Arc::new(all));
        }
    }

    fn load_bans(&mut self) -> Option<Arc<BanList>> {
        let file = &self.own.bans_file;
        if file.as_os_str().is_empty() {
            return None;
        }
        let all = self.collect_errors(bans::read_ban_file(file, UnixTimestamp::now()))?;
        self.add_banner_line("bans", format!("{} in {}", all.len(), file.display()));
        Some(Arc::new(all))
    }

    fn add_backend(&mut self, backend: impl AuthBackend + 'static) {
        self.chain.backends.push(Arc::new(backend));
    }

    fn add_banner_line(&mut self, what: &'static str, text: String) {
        self.banner.push((what, text));
    }

    fn collect_errors<T>(&mut self, read: Result<T, Vec<String>>) -> Option<T> {
        read.map_err(|whys| self.wrongs.extend(whys)).ok()
    }
}

#[cfg(feature = "http")]
impl SecurityLoader<'_> {
    #[cold]
    fn load_jwks(&mut self) {
        let Some(url) = &self.own.jwt_url else { return };
        let tls = self.tls_config(url.scheme == "https");
        let runtime = &self.resources.runtime;
        let refresh = self.own.jwt_refresh_s;
        let before = self.resources.remote_key_sets();
        let bounds = self.own.remote_limits();
        let proxy = self.own.http.proxy.clone();
        let route = HttpRoute { tls, proxy, follows_redirects: false };
        let set = RemoteJwks::with_route(url, &route, refresh, bounds, runtime.clone(), &before);
        self.add_banner_line("tokens", format!("by {url}"));
        self.add_backend(JwtBackend {
            keys: JwtKeySource::Url(set.clone()),
            reading: self.own.jwt_validator(),
        });
        self.keys.push(set);
    }

    #[cold]
    fn load_authz_server(&mut self, ports: &[Option<u16>]) {
        let own = &self.own.permits;
        let Some((url, _)) = &own.call.url else { return };
        let tls = self.tls_config(url.scheme == "https");
        self.add_banner_line("permits", format!("by {url}"));
        self.permits = HttpAuthzServer::connection_pool(own, tls, self.own.remote_limits(), ports);
    }

    #[cold]
    fn load_http_backend(&mut self, ports: &[Option<u16>]) {
        let Some((url, _)) = &self.own.http.call.url else { return };
        let tls = self.tls_config(url.scheme == "https");
        if let Some(http) = HttpAuthServer::new(&self.own.http, tls, ports) {
            self.add_banner_line("asked", url.to_string());
            self.add_backend(RemoteBackend::new(
                http,
                self.own.remote_limits(),
                self.resources.runtime.clone(),
            ));
        }
    }
}

#[cfg(feature = "redis")]
impl SecurityLoader<'_> {
    #[cold]
    fn load_redis_backend(&mut self, ports: &[Option<u16>]) {
        let own = self.own;
        let Some(url) = &own.redis.url else { return };
        let tls = self.tls_config(url.scheme == "rediss");
        if let Some(redis) = RedisAuthServer::new(&own.redis, tls, own.password_form, ports) {
            self.add_banner_line("asked", url.to_string());
            let remote =
                RemoteBackend::new(redis, own.remote_limits(), self.resources.runtime.clone());
            self.add_backend(remote.remember_in(self.verified.clone()));
        }
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl SecurityLoader<'_> {
    #[cold]
    fn load_sql_backend<D: SqlDatabase>(
        &mut self,
        settings: &SqlAuthSettings,
        ports: &[Option<u16>],
        database: fn(&ServerUrl, Option<Arc<ClientConfig>>) -> D,
    ) {
        let Some(url) = &settings.url else { return };
        let tls = self.tls_config(settings.tls);
        let form = self.own.password_form;
        if let Some(tables) = SqlAuthServer::new(database(url, tls), settings, form, ports) {
            self.add_banner_line("asked", url.to_string());
            let remote = RemoteBackend::new(
                tables,
                self.own.remote_limits(),
                self.resources.runtime.clone(),
            );
            self.add_backend(remote.remember_in(self.verified.clone()));
        }
    }
}

#[cfg(feature = "remote")]
impl SecurityLoader<'_> {
    /// Returns the TLS configuration of a backend; `None` if the backend does not use TLS
    /// (`wanted`), or if a file is wrong: then the error is recorded.
    fn tls_config(&mut self, wanted: bool) -> Option<Arc<ClientConfig>> {
        if !wanted {
            return None;
        }
        let file = &self.own.remote.authorities;
        let authorities = (!file.as_os_str().is_empty()).then(|| file.display().to_string());
        let is_ours = authorities.is_some();
        let config = tls_client_config(authorities).map_err(|why| {
            let hint = "this host has no file of CAs, name one with auth.backend_ca".to_string();
            vec![if is_ours { why } else { hint }]
        });
        self.collect_errors(config)
    }
}
