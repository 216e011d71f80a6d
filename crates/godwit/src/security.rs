//! What the options say of identity and permission, read from its files and ready to be used.

#[cfg(feature = "http")]
use crate::acl::warden::{ListenerDesks, PermitSettings, Permits};
use crate::host;
use crate::identity::Limits;
use crate::identity::backend::{Backend, Chain, ListenerChains};
use crate::identity::certificate::{Certificates, Part};
#[cfg(feature = "http")]
use crate::identity::http::{Http, HttpSettings};
#[cfg(feature = "http")]
use crate::identity::jwks::Jwks;
use crate::identity::jwt::{Claims, Place, Reading, Source, Tokens};
use crate::identity::keys::Keys;
#[cfg(feature = "tables")]
use crate::identity::password::Form;
#[cfg(feature = "http")]
use crate::identity::remote::Desk;
#[cfg(feature = "http")]
use crate::identity::remote::http::SCHEMES;
#[cfg(feature = "remote")]
use crate::identity::remote::url::Url;
#[cfg(feature = "remote")]
use crate::identity::remote::{Bounds, Remote, RemoteSettings};
#[cfg(feature = "mysql")]
use crate::identity::tables::mysql::Mysql;
#[cfg(feature = "postgres")]
use crate::identity::tables::postgres::Postgres;
#[cfg(feature = "redis")]
use crate::identity::tables::redis::{Redis, RedisSettings};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::identity::tables::sql::{Database, TableSettings, Tables};
use crate::identity::users::Users;
use crate::identity::verified::VerifiedCache;
use crate::options::settings::{Anonymous, ListenerSettings, Settings};
use crate::outside::Outside;
use crate::timestamp::Timestamp;
use crate::{acl, bans};
use broker::bans::Bans;
use broker::options::{AccessByListener, Asks, ListenerAccess, Options};
use broker::permissions::Permissions;
#[cfg(feature = "remote")]
use carrier::Trust;
#[cfg(feature = "remote")]
use rustls::ClientConfig;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// What the rows of the table say.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecuritySettings {
    pub(crate) acl_file: PathBuf,
    pub(crate) bans_file: PathBuf,
    pub(crate) certificate_user: Option<Part>,
    pub(crate) certificate_client_id: Option<Part>,
    #[cfg(feature = "http")]
    pub(crate) http: HttpSettings,
    pub(crate) jwt_claims: Claims,
    pub(crate) jwt_keys: PathBuf,
    pub(crate) jwt_place: Place,
    #[cfg(feature = "http")]
    pub(crate) jwt_refresh_s: u32,
    /// Instead of a file.
    #[cfg(feature = "http")]
    pub(crate) jwt_url: Option<Url>,
    /// 0 threads are as many as the host is good for.
    pub(crate) limits: Limits,
    /// How long a password that was right is remembered.
    pub(crate) password_cache_s: u32,
    #[cfg(feature = "mysql")]
    pub(crate) mysql: TableSettings,
    #[cfg(feature = "tables")]
    pub(crate) password_form: Form,
    /// Whom shards ask what a client may do.
    #[cfg(feature = "http")]
    pub(crate) permits: PermitSettings,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: TableSettings,
    #[cfg(feature = "redis")]
    pub(crate) redis: RedisSettings,
    #[cfg(feature = "remote")]
    pub(crate) remote: RemoteSettings,
    pub(crate) users: PathBuf,
}

/// Each thread that hashes takes the memory that a hash asks for.
const THREADS_AUTO_MAX: usize = 4;

impl SecuritySettings {
    /// Connections to each server that is asked about clients.
    pub(crate) fn backend_connections_max(&self) -> usize {
        #[cfg(feature = "remote")]
        return self.remote.bounds.connections_max;
        #[cfg(not(feature = "remote"))]
        0
    }

    pub(crate) fn limits(&self) -> Limits {
        let Limits { threads, .. } = self.limits;
        let threads = if threads == 0 { host::cores().clamp(1, THREADS_AUTO_MAX) } else { threads };
        Limits { threads, ..self.limits }
    }

    /// Whether anybody is asked who it is.
    pub(crate) fn authenticates(&self) -> bool {
        self.certificate_user.is_some()
            || self.has_tokens()
            || !self.users.as_os_str().is_empty()
            || self.asks_others()
    }

    fn has_tokens(&self) -> bool {
        #[cfg(feature = "http")]
        if self.jwt_url.is_some() {
            return true;
        }
        !self.jwt_keys.as_os_str().is_empty()
    }

    /// Whether another server says who a client is.
    fn asks_others(&self) -> bool {
        #[cfg(feature = "http")]
        if self.http.call.url.is_some() {
            return true;
        }
        #[cfg(feature = "mysql")]
        if self.mysql.url.is_some() {
            return true;
        }
        #[cfg(feature = "postgres")]
        if self.postgres.url.is_some() {
            return true;
        }
        #[cfg(feature = "redis")]
        if self.redis.url.is_some() {
            return true;
        }
        false
    }

    /// Whether somebody is asked what clients may do.
    pub(crate) fn asks(&self) -> Option<Asks> {
        #[cfg(feature = "http")]
        return self.permits.asks();
        #[cfg(not(feature = "http"))]
        None
    }

    /// Whether clients may have rules of their own, or somebody is asked.
    fn brings_rules(&self) -> bool {
        if self.asks().is_some() {
            return true;
        }
        #[cfg(feature = "http")]
        if self.http.call.url.is_some() && self.http.takes_rules {
            return true;
        }
        #[cfg(feature = "mysql")]
        if self.mysql.url.is_some() && self.mysql.rules.is_some() {
            return true;
        }
        #[cfg(feature = "postgres")]
        if self.postgres.url.is_some() && self.postgres.rules.is_some() {
            return true;
        }
        #[cfg(feature = "redis")]
        if self.redis.url.is_some() && self.redis.rules.is_some() {
            return true;
        }
        self.has_tokens() && !self.jwt_claims.permissions.is_empty()
    }

    /// Whether anything says what clients may do.
    pub(crate) fn has_rules(&self) -> bool {
        !self.acl_file.as_os_str().is_empty() || self.brings_rules()
    }

    fn reading(&self) -> Arc<Reading> {
        Reading { place: self.jwt_place, claims: self.jwt_claims.clone() }.into()
    }

    #[cfg(feature = "remote")]
    fn bounds(&self) -> Bounds {
        Bounds { questions_max: self.limits.queue_max, ..self.remote.bounds }
    }

    /// Where the keys of tokens are.
    pub(crate) fn set_keys(&mut self, text: &str) {
        #[cfg(feature = "http")]
        {
            self.jwt_url = Url::parse(text, SCHEMES).ok();
            if self.jwt_url.is_some() {
                return self.jwt_keys.clear();
            }
        }
        self.jwt_keys = text.into();
    }
}

/// Who may come in, and what they may do, of one listener or of all that have none of their own.
#[derive(Default)]
pub(crate) struct LoadedAccess {
    chain: Arc<Chain>,
    permissions: Option<Arc<Permissions>>,
    asks: Option<Asks>,
    /// Whether a CONNECT waits for the chain's verdict.
    judges: bool,
    #[cfg(feature = "http")]
    permits: Option<Arc<Desk<Permits>>>,
}

pub(crate) struct Security {
    all: LoadedAccess,
    /// By the place among the settings' listeners.
    own: Vec<Option<LoadedAccess>>,
    pub(crate) bans: Option<Arc<Bans>>,
    /// A line for each part, for whoever started us.
    pub(crate) banner: Vec<(&'static str, String)>,
}

impl Security {
    /// Reads every file, or tells everything that is wrong. `ports` are those of the listeners.
    /// No other server is asked yet.
    pub(crate) fn load(
        settings: &Settings,
        ports: &[Option<u16>],
        outside: &Outside,
    ) -> Result<Security, Vec<String>> {
        let mut load = Load {
            own: &settings.security,
            outside,
            chain: Chain::default(),
            permissions: None,
            #[cfg(feature = "http")]
            permits: None,
            banner: Vec::new(),
            verified: VerifiedCache::new(settings.security.password_cache_s).map(Arc::new),
            wrongs: Vec::new(),
            #[cfg(feature = "http")]
            keys: Vec::new(),
        };
        let all = load.access(settings.allow_anonymous, ports);
        let bans = load.bans();
        let own = settings.listeners.iter().map(|listener| {
            let own = listener.own_access;
            own.any().then(|| load.access_of(listener, &all, ports))
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
        outside.keep_keys(load.keys);
        Ok(Security { all, own, bans, banner: load.banner })
    }

    /// `wishes` says which of the settings' listeners each socket is of.
    fn own<'a, T>(
        &'a self,
        wishes: &'a [usize],
        part: impl Fn(&LoadedAccess) -> T + 'a,
    ) -> impl Iterator<Item = Option<T>> + 'a {
        wishes.iter().map(move |at| self.own.get(*at)?.as_ref().map(&part))
    }

    pub(crate) fn chains(&self, wishes: &[usize]) -> ListenerChains {
        let own = self.own(wishes, |own| own.chain.clone()).collect();
        ListenerChains { all: self.all.chain.clone(), own }
    }

    #[cfg(feature = "http")]
    pub(crate) fn desks(&self, wishes: &[usize]) -> ListenerDesks {
        let own = self.own(wishes, |own| own.permits.clone()).collect();
        ListenerDesks { all: self.all.permits.clone(), own }
    }

    /// What shards go by, in place of the same of `options`.
    pub(crate) fn in_force(&self, wishes: &[usize], options: Options) -> Options {
        let LoadedAccess { asks, judges, ref chain, ref permissions, .. } = self.all;
        let own = self.own(wishes, |own| {
            let (methods, permissions) = (own.chain.methods(), own.permissions.clone());
            Arc::new(ListenerAccess { asks: own.asks, judges: own.judges, methods, permissions })
        });
        let own = match self.own.iter().any(Option::is_some) {
            true => own.collect(),
            false => Vec::new(),
        };
        let access = AccessByListener { methods: chain.methods(), own };
        let (permissions, bans) = (permissions.clone(), self.bans.clone());
        Options { access, asks, judges, permissions, bans, ..options }
    }
}

/// What is read so far, and what was wrong. What most have no use for is cold: it would lie among
/// what runs at every start.
struct Load<'a> {
    own: &'a SecuritySettings,
    outside: &'a Outside,
    /// A new one with each reload; all listeners share it.
    verified: Option<Arc<VerifiedCache>>,
    chain: Chain,
    permissions: Option<Arc<Permissions>>,
    #[cfg(feature = "http")]
    permits: Option<Arc<Desk<Permits>>>,
    banner: Vec<(&'static str, String)>,
    wrongs: Vec<String>,
    #[cfg(feature = "http")]
    keys: Vec<Arc<Jwks>>,
}

impl<'a> Load<'a> {
    /// By the settings whose turn it is.
    fn access(&mut self, anonymous: Anonymous, ports: &[Option<u16>]) -> LoadedAccess {
        self.backends(ports);
        self.rules(ports);
        #[cfg(feature = "http")]
        self.permits(ports);
        let mut chain = std::mem::take(&mut self.chain);
        chain.anonymous = anonymous == Anonymous::Always;
        LoadedAccess {
            chain: Arc::new(chain),
            permissions: self.permissions.take(),
            asks: self.own.asks(),
            judges: self.own.authenticates() || anonymous == Anonymous::Never,
            #[cfg(feature = "http")]
            permits: self.permits.take(),
        }
    }

    /// What a listener has for itself, and the rest from all.
    #[cold]
    fn access_of(
        &mut self,
        listener: &'a ListenerSettings,
        all: &LoadedAccess,
        ports: &[Option<u16>],
    ) -> LoadedAccess {
        self.own = &listener.security;
        let ListenerSettings { anonymous, own_access, .. } = *listener;
        if own_access.backends || own_access.rules {
            let said = self.banner.len();
            let mut own = self.access(anonymous, ports);
            for (_, text) in &mut self.banner[said..] {
                text.push_str(&format!(", at {}", listener.url));
            }
            if !own_access.backends {
                // The same files and servers: they are asked by one chain for all.
                let backends = all.chain.backends.clone();
                own.chain = Arc::new(Chain { backends, anonymous: own.chain.anonymous });
            }
            return own;
        }
        let chain = Chain {
            backends: all.chain.backends.clone(),
            anonymous: anonymous == Anonymous::Always,
        };
        LoadedAccess {
            chain: Arc::new(chain),
            permissions: all.permissions.clone(),
            asks: all.asks,
            judges: self.own.authenticates() || anonymous == Anonymous::Never,
            #[cfg(feature = "http")]
            permits: all.permits.clone(),
        }
    }
}

impl Load<'_> {
    /// In the order in which they are asked: whoever needs nobody else comes first.
    fn backends(&mut self, ports: &[Option<u16>]) {
        let own = self.own;
        if let Some(user) = own.certificate_user {
            let client_id = own.certificate_client_id;
            self.ask(Certificates { user, client_id });
        }
        #[cfg(feature = "http")]
        self.published_keys();
        if !own.jwt_keys.as_os_str().is_empty() {
            let keys = Keys::read(&own.jwt_keys).map_err(|why| vec![why]);
            if let Some(keys) = self.take(keys) {
                self.say("tokens", format!("by {}", own.jwt_keys.display()));
                self.ask(Tokens { keys: Source::File(keys), reading: own.reading() });
            }
        }
        if !own.users.as_os_str().is_empty()
            && let Some(mut users) = self.take(Users::read(&own.users))
        {
            users.remember_in(self.verified.clone());
            self.say("users", format!("{} in {}", users.len(), own.users.display()));
            self.ask(users);
        }
        #[cfg(feature = "http")]
        self.http(ports);
        #[cfg(feature = "postgres")]
        self.tables(&own.postgres, ports, Postgres::new);
        #[cfg(feature = "mysql")]
        self.tables(&own.mysql, ports, Mysql::new);
        #[cfg(feature = "redis")]
        self.redis(ports);
    }

    fn rules(&mut self, ports: &[Option<u16>]) {
        // Rules that a backend may bring are rules: who has none may do nothing.
        self.permissions = self.own.brings_rules().then(Arc::default);
        let file = &self.own.acl_file;
        if !file.as_os_str().is_empty()
            && let Some(all) = self.take(acl::read(file, ports))
        {
            self.say("rules", format!("{} in {}", all.len(), file.display()));
            self.permissions = Some(Arc::new(all));
        }
    }

    fn bans(&mut self) -> Option<Arc<Bans>> {
        let file = &self.own.bans_file;
        if file.as_os_str().is_empty() {
            return None;
        }
        let all = self.take(bans::read(file, Timestamp::now()))?;
        self.say("bans", format!("{} in {}", all.len(), file.display()));
        Some(Arc::new(all))
    }

    fn ask(&mut self, backend: impl Backend + 'static) {
        self.chain.backends.push(Arc::new(backend));
    }

    fn say(&mut self, what: &'static str, text: String) {
        self.banner.push((what, text));
    }

    fn take<T>(&mut self, read: Result<T, Vec<String>>) -> Option<T> {
        read.map_err(|whys| self.wrongs.extend(whys)).ok()
    }
}

#[cfg(feature = "http")]
impl Load<'_> {
    #[cold]
    fn published_keys(&mut self) {
        let Some(url) = &self.own.jwt_url else { return };
        let tls = self.tls(url.scheme == "https");
        let Outside { runtime, .. } = self.outside;
        let refresh = self.own.jwt_refresh_s;
        let before = self.outside.keys();
        let bounds = self.own.bounds();
        let set = Jwks::new(url, tls, refresh, bounds, runtime.clone(), &before);
        self.say("tokens", format!("by {url}"));
        self.ask(Tokens { keys: Source::Url(set.clone()), reading: self.own.reading() });
        self.keys.push(set);
    }

    #[cold]
    fn permits(&mut self, ports: &[Option<u16>]) {
        let own = &self.own.permits;
        let Some((url, _)) = &own.call.url else { return };
        let tls = self.tls(url.scheme == "https");
        self.say("permits", format!("by {url}"));
        self.permits = Permits::desk(own, tls, self.own.bounds(), ports);
    }

    #[cold]
    fn http(&mut self, ports: &[Option<u16>]) {
        let Some((url, _)) = &self.own.http.call.url else { return };
        let tls = self.tls(url.scheme == "https");
        if let Some(http) = Http::new(&self.own.http, tls, ports) {
            self.say("asked", url.to_string());
            self.ask(Remote::new(http, self.own.bounds(), self.outside.runtime.clone()));
        }
    }
}

#[cfg(feature = "redis")]
impl Load<'_> {
    #[cold]
    fn redis(&mut self, ports: &[Option<u16>]) {
        let own = self.own;
        let Some(url) = &own.redis.url else { return };
        let tls = self.tls(url.scheme == "rediss");
        if let Some(redis) = Redis::new(&own.redis, tls, own.password_form, ports) {
            self.say("asked", url.to_string());
            let remote = Remote::new(redis, own.bounds(), self.outside.runtime.clone());
            self.ask(remote.remember_in(self.verified.clone()));
        }
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl Load<'_> {
    #[cold]
    fn tables<D: Database>(
        &mut self,
        settings: &TableSettings,
        ports: &[Option<u16>],
        database: fn(&Url, Option<Arc<ClientConfig>>) -> D,
    ) {
        let Some(url) = &settings.url else { return };
        let tls = self.tls(settings.tls);
        let form = self.own.password_form;
        if let Some(tables) = Tables::new(database(url, tls), settings, form, ports) {
            self.say("asked", url.to_string());
            let remote = Remote::new(tables, self.own.bounds(), self.outside.runtime.clone());
            self.ask(remote.remember_in(self.verified.clone()));
        }
    }
}

#[cfg(feature = "remote")]
impl Load<'_> {
    /// Whom we trust, where the server speaks TLS.
    fn tls(&mut self, wanted: bool) -> Option<Arc<ClientConfig>> {
        if !wanted {
            return None;
        }
        let file = &self.own.remote.authorities;
        let authorities = (!file.as_os_str().is_empty()).then(|| file.display().to_string());
        let is_ours = authorities.is_some();
        let config = Trust { authorities, ..Trust::default() }.config().map_err(|why| {
            let hint = "this host has no file of CAs, name one with auth.backend_ca".to_string();
            vec![if is_ours { why } else { hint }]
        });
        self.take(config)
    }
}
