//! What the options say of identity and permission, read from its files and ready to be used.

use crate::host;
use crate::identity::Limits;
use crate::identity::backend::{Backend, Chain};
use crate::identity::certificate::{Certificates, Part};
use crate::identity::jwt::{Claims, Place, Tokens};
use crate::identity::keys::Keys;
use crate::identity::users::Users;
use crate::options::settings::{Anonymous, Settings};
use crate::timestamp::Timestamp;
use crate::{acl, bans};
use broker::bans::Bans;
use broker::permissions::Permissions;
use std::path::PathBuf;
use std::sync::Arc;

/// What the rows of the table say.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecuritySettings {
    pub(crate) acl_file: PathBuf,
    pub(crate) bans_file: PathBuf,
    pub(crate) certificate_user: Option<Part>,
    pub(crate) certificate_client_id: Option<Part>,
    pub(crate) jwt_claims: Claims,
    pub(crate) jwt_keys: PathBuf,
    pub(crate) jwt_place: Place,
    /// 0 threads are as many as the host is good for.
    pub(crate) limits: Limits,
    pub(crate) users: PathBuf,
}

impl SecuritySettings {
    pub(crate) fn limits(&self) -> Limits {
        let Limits { threads, .. } = self.limits;
        let threads = if threads == 0 { (host::cores() / 2).max(1) } else { threads };
        Limits { threads, ..self.limits }
    }

    /// Whether anybody is asked who it is.
    pub(crate) fn authenticates(&self) -> bool {
        self.certificate_user.is_some()
            || !self.jwt_keys.as_os_str().is_empty()
            || !self.users.as_os_str().is_empty()
    }
}

pub(crate) struct Security {
    pub(crate) chain: Chain,
    pub(crate) permissions: Option<Arc<Permissions>>,
    pub(crate) bans: Option<Arc<Bans>>,
    /// A line for each part, for whoever started us.
    pub(crate) banner: Vec<(&'static str, String)>,
}

impl Security {
    /// Reads every file, or tells everything that is wrong. `ports` are those of the listeners.
    pub(crate) fn load(
        settings: &Settings,
        ports: &[Option<u16>],
    ) -> Result<Security, Vec<String>> {
        let own = &settings.security;
        let (mut wrongs, mut banner) = (Vec::new(), Vec::new());
        let anonymous = settings.allow_anonymous == Anonymous::Always;
        let mut chain = Chain { anonymous, ..Chain::default() };
        if let Some(user) = own.certificate_user {
            let client_id = own.certificate_client_id;
            chain.backends.push(Arc::new(Certificates { user, client_id }));
        }
        if !own.jwt_keys.as_os_str().is_empty() {
            match Keys::read(&own.jwt_keys) {
                Ok(keys) => {
                    banner.push(("tokens", format!("by {}", own.jwt_keys.display())));
                    let (place, claims) = (own.jwt_place, own.jwt_claims.clone());
                    chain.backends.push(Arc::new(Tokens { keys, place, claims }));
                }
                Err(why) => wrongs.push(why),
            }
        }
        if !own.users.as_os_str().is_empty() {
            match Users::read(&own.users) {
                Ok(users) => {
                    banner.push(("users", format!("{} in {}", users.len(), own.users.display())));
                    chain.backends.push(Arc::new(users) as Arc<dyn Backend>);
                }
                Err(why) => wrongs.extend(why),
            }
        }
        // Rules in tokens are rules: who has none may do nothing.
        let in_tokens =
            !own.jwt_keys.as_os_str().is_empty() && !own.jwt_claims.permissions.is_empty();
        let mut permissions = in_tokens.then(Arc::default);
        if !own.acl_file.as_os_str().is_empty() {
            match acl::read(&own.acl_file, ports) {
                Ok((all, members)) => {
                    chain.members = members;
                    banner.push(("rules", format!("{} in {}", all.len(), own.acl_file.display())));
                    permissions = Some(Arc::new(all));
                }
                Err(why) => wrongs.extend(why),
            }
        }
        let mut list = None;
        if !own.bans_file.as_os_str().is_empty() {
            match bans::read(&own.bans_file, Timestamp::now()) {
                Ok(all) => {
                    banner.push(("bans", format!("{} in {}", all.len(), own.bans_file.display())));
                    list = Some(Arc::new(all));
                }
                Err(why) => wrongs.extend(why),
            }
        }
        let security = Security { chain, permissions, bans: list, banner };
        if wrongs.is_empty() { Ok(security) } else { Err(wrongs) }
    }
}
