//! Options as those see them who write options for others: without what a row sets.

use crate::row::{OptionRow, split_key};
use crate::value::OptionKind;

/// An option, without what it sets.
#[derive(Clone, Copy)]
pub struct OptionDescription {
    pub key: &'static str,
    pub kind: OptionKind,
    /// As an environment variable would say it.
    pub default: &'static str,
    /// Whether a `[[listener]]` may have it for itself.
    pub has_listener_scope: bool,
    /// Cargo feature without which the program refuses it, where the build has not got it.
    pub missing_feature: Option<&'static str>,
}

/// Every option of the program as it was built, and what decides whether a value fits it.
pub struct OptionCatalog {
    /// In the order of the docs and the sample file.
    pub options: Vec<OptionDescription>,
    /// Options of a `[[bridge]]`; none in a build without bridges.
    pub bridge_options: Vec<OptionDescription>,
    /// Checks filter, template and bridge name of a topic that a bridge carries.
    pub check_bridge_topic: fn(&str, &str, &str) -> Result<(), String>,
    /// Checks the name of a user in a file of users.
    pub check_user_name: fn(&str) -> Result<(), String>,
    /// Hashes a password as a file of users has it.
    pub hash_password: fn(&[u8]) -> Result<String, String>,
}

impl OptionDescription {
    /// Describes a row; `has_listener_scope` says whether a `[[listener]]` may have it.
    pub fn of_row<S>(row: &OptionRow<S>, has_listener_scope: bool) -> OptionDescription {
        let OptionRow { key, kind, default, .. } = *row;
        OptionDescription { key, kind, default, has_listener_scope, missing_feature: None }
    }

    /// Empty for the keys that stand at the top of a file.
    pub fn section(&self) -> &'static str {
        split_key(self.key).0
    }

    /// The key without its section.
    pub fn name(&self) -> &'static str {
        split_key(self.key).1
    }
}

impl OptionCatalog {
    /// Returns the option of a key, if this build has it.
    pub fn find(&self, key: &str) -> Option<&OptionDescription> {
        self.options.iter().find(|option| option.key == key)
    }

    /// Returns the option of a bridge, if this build has it.
    pub fn find_bridge_option(&self, key: &str) -> Option<&OptionDescription> {
        self.bridge_options.iter().find(|option| option.key == key)
    }
}

impl std::fmt::Debug for OptionCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options = self.options.len();
        f.debug_struct("OptionCatalog").field("options", &options).finish_non_exhaustive()
    }
}
