//! Descriptions of options, without the settings type of their rows, for code which writes options:
//! the import of other brokers' configurations.

use crate::row::{OptionRow, split_key};
use crate::value::OptionKind;

/// An option without the setter of its [`OptionRow`].
#[derive(Clone, Copy)]
pub struct OptionDescription {
    pub key: &'static str,
    pub kind: OptionKind,
    /// Default as text, in the form of an environment variable. See [`OptionKind::read_text`].
    pub default: &'static str,
    /// Whether a `[[listener]]` may set the option for its own clients.
    pub has_listener_scope: bool,
    /// Cargo feature which the option needs and this build lacks. The program refuses the option
    /// then.
    pub missing_feature: Option<&'static str>,
}

/// Every option of the program as built, with the checks which decide whether a value is valid.
pub struct OptionCatalog {
    /// Options in the order of the documents and the sample file.
    pub options: Vec<OptionDescription>,
    /// Options of a `[[bridge]]`; empty in a build without bridges.
    pub bridge_options: Vec<OptionDescription>,
    /// Checks the filter, the template and the bridge name of a topic rule of a bridge.
    pub check_bridge_topic: fn(&str, &str, &str) -> Result<(), String>,
    /// Checks a user name for a file of users.
    pub check_user_name: fn(&str) -> Result<(), String>,
    /// Hashes a password for a file of users.
    pub hash_password: fn(&[u8]) -> Result<String, String>,
}

impl OptionDescription {
    /// Describes a row. `has_listener_scope` tells whether a `[[listener]]` may set the option.
    pub fn of_row<S>(row: &OptionRow<S>, has_listener_scope: bool) -> OptionDescription {
        let OptionRow { key, kind, default, .. } = *row;
        OptionDescription { key, kind, default, has_listener_scope, missing_feature: None }
    }

    /// Returns the section of the key, or "" for keys at the top of a file.
    pub fn section(&self) -> &'static str {
        split_key(self.key).0
    }

    /// Returns the part of the key behind the section: `level` of `log.level`.
    pub fn name(&self) -> &'static str {
        split_key(self.key).1
    }
}

impl OptionCatalog {
    /// Returns the option of a key, or `None` if this build lacks the option.
    pub fn find(&self, key: &str) -> Option<&OptionDescription> {
        self.options.iter().find(|option| option.key == key)
    }

    /// Returns the option of a `[[bridge]]`, or `None` if this build lacks the option.
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
