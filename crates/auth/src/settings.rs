//! Values of the options about identity and permission.

use crate::AuthenticatorLimits;
#[cfg(feature = "http")]
use crate::acl::authorizer::HttpAuthzSettings;
use crate::certificate::CertificateNameField;
#[cfg(feature = "http")]
use crate::http::HttpAuthSettings;
use crate::jwt::{JwtClaimNames, JwtValidator, TokenLocation};
use crate::password_format::PasswordFormat;
#[cfg(feature = "remote")]
use crate::remote::RemoteSettings;
#[cfg(feature = "redis")]
use crate::tables::redis::RedisAuthSettings;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::tables::sql::SqlAuthSettings;
use broker::options::client_groups::AuthzOptions;
use config::listen_url::ListenUrl;
#[cfg(feature = "remote")]
use net::server_pool::RemoteLimits;
use net::server_url::ServerUrl;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

/// Values of the option rows about security.
#[derive(Clone, Debug, Default)]
pub struct SecuritySettings {
    pub acl_file: PathBuf,
    pub bans_file: PathBuf,
    pub certificate_user: Option<CertificateNameField>,
    pub certificate_client_id: Option<CertificateNameField>,
    #[cfg(feature = "http")]
    pub http: HttpAuthSettings,
    pub jwt_claims: JwtClaimNames,
    pub jwt_keys: PathBuf,
    pub jwt_place: TokenLocation,
    pub jwt_refresh_s: u32,
    /// URL of a JWK set, instead of `jwt_keys`.
    pub jwt_url: Option<ServerUrl>,
    /// Bounds of the [`Authenticator`](crate::Authenticator); 0 threads select a number by the
    /// host's cores.
    pub limits: AuthenticatorLimits,
    /// Time for which a verified password is cached, in seconds.
    pub password_cache_s: u32,
    #[cfg(feature = "mysql")]
    pub mysql: SqlAuthSettings,
    pub password_form: PasswordFormat,
    /// Settings of the HTTP server that authorizes publishes and subscriptions.
    #[cfg(feature = "http")]
    pub permits: HttpAuthzSettings,
    #[cfg(feature = "postgres")]
    pub postgres: SqlAuthSettings,
    #[cfg(feature = "redis")]
    pub redis: RedisAuthSettings,
    #[cfg(feature = "remote")]
    pub remote: RemoteSettings,
    pub users: PathBuf,
}

/// Use of a server that authenticates clients.
struct RemoteBackendUse {
    is_used: bool,
    /// Whether the server supplies rules of clients.
    has_rules: bool,
}

/// Access without authentication. With authentication `Loopback` means `Never`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnonymousAccess {
    Always,
    #[default]
    Loopback,
    Never,
}

/// Access options that a listener has for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerAccessFlags {
    pub anonymous: bool,
    pub backends: bool,
    pub rules: bool,
}

impl ListenerAccessFlags {
    pub fn any(self) -> bool {
        self.anonymous || self.backends || self.rules
    }
}

/// Access settings of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerAccessSettings<'a> {
    pub listener: &'a ListenUrl,
    pub anonymous: AnonymousAccess,
    pub security: &'a SecuritySettings,
    pub own_access: ListenerAccessFlags,
}

/// Largest automatic number of threads, since each thread needs the memory of a hash.
const THREADS_AUTO_MAX: usize = 4;

impl SecuritySettings {
    /// Returns a number for the set of known users: equal for settings with the same files, servers
    /// and requests, and never 0.
    #[cold]
    pub fn identity_domain(&self) -> u64 {
        let mut own = self.clone();
        (own.acl_file, own.bans_file) = Default::default();
        own.limits = AuthenticatorLimits::default();
        own.password_cache_s = 0;
        #[cfg(feature = "http")]
        {
            (own.permits, own.http.proxy) = Default::default();
        }
        #[cfg(feature = "remote")]
        {
            own.remote = RemoteSettings::default();
        }
        let mut hasher = DefaultHasher::new();
        format!("{own:?}").hash(&mut hasher);
        hasher.finish() | 1
    }

    /// Returns the number of connections to each backend server.
    pub fn backend_connections_max(&self) -> usize {
        #[cfg(feature = "remote")]
        return self.remote.bounds.connections_max;
        #[cfg(not(feature = "remote"))]
        0
    }

    pub fn limits(&self) -> AuthenticatorLimits {
        let AuthenticatorLimits { threads, .. } = self.limits;
        let threads = if threads == 0 {
            std::thread::available_parallelism().map_or(1, usize::from).clamp(1, THREADS_AUTO_MAX)
        } else {
            threads
        };
        AuthenticatorLimits { threads, ..self.limits }
    }

    /// Whether any backend is configured.
    pub fn requires_authentication(&self) -> bool {
        self.certificate_user.is_some()
            || self.has_tokens()
            || !self.users.as_os_str().is_empty()
            || self.uses_remote_backend()
    }

    pub fn has_tokens(&self) -> bool {
        self.jwt_url.is_some() || !self.jwt_keys.as_os_str().is_empty()
    }

    /// Whether another server authenticates clients: HTTP or a database.
    pub fn uses_remote_backend(&self) -> bool {
        self.remote_backends().any(|backend| backend.is_used)
    }

    fn remote_backends(&self) -> impl Iterator<Item = RemoteBackendUse> {
        let backends = [
            #[cfg(feature = "http")]
            (self.http.call.url.is_some(), self.http.takes_rules),
            #[cfg(feature = "mysql")]
            (self.mysql.url.is_some(), self.mysql.rules.is_some()),
            #[cfg(feature = "postgres")]
            (self.postgres.url.is_some(), self.postgres.rules.is_some()),
            #[cfg(feature = "redis")]
            (self.redis.url.is_some(), self.redis.rules.is_some()),
        ];
        backends.into_iter().map(|(is_used, has_rules)| RemoteBackendUse { is_used, has_rules })
    }

    /// Returns the options of authorization by a server, if configured.
    pub fn broker_authz_settings(&self) -> Option<AuthzOptions> {
        #[cfg(feature = "http")]
        return self.permits.broker_settings();
        #[cfg(not(feature = "http"))]
        None
    }

    /// Whether backends may supply a client's own rules, or a server authorizes clients.
    pub fn may_supply_rules(&self) -> bool {
        self.broker_authz_settings().is_some()
            || self.remote_backends().any(|backend| backend.is_used && backend.has_rules)
            || (self.has_tokens() && !self.jwt_claims.permissions.is_empty())
    }

    /// Whether the ACL file, backends or a server restrict actions of clients.
    pub fn has_rules(&self) -> bool {
        !self.acl_file.as_os_str().is_empty() || self.may_supply_rules()
    }

    pub fn jwt_validator(&self) -> Arc<JwtValidator> {
        JwtValidator { place: self.jwt_place, claims: self.jwt_claims.clone() }.into()
    }

    #[cfg(feature = "remote")]
    pub fn remote_limits(&self) -> RemoteLimits {
        RemoteLimits { questions_max: self.limits.queue_max, ..self.remote.bounds }
    }

    /// Sets the source of the token keys: a URL sets `jwt_url`, a path `jwt_keys`.
    pub fn set_keys(&mut self, text: &str) {
        #[cfg(feature = "http")]
        {
            self.jwt_url = ServerUrl::parse(text, net::http_client::SCHEMES).ok();
            if self.jwt_url.is_some() {
                return self.jwt_keys.clear();
            }
        }
        self.jwt_keys = text.into();
    }
}
