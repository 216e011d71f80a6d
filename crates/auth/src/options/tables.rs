//! Options of databases with users and rules.

use super::{AuthOptionTables, AuthOptionTarget};
use crate::password_format::{PasswordHashKind as Hashed, SaltPosition};
use config::row::{OptionRow, OptionScope, count};
use config::value::OptionKind;

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options `auth.password_*` that all databases share.
    pub(super) const TABLES: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "auth.password_form",
            kind: OptionKind::Choice(&[
                "tagged",
                "pbkdf2_sha256",
                "pbkdf2_sha512",
                "sha256",
                "sha512",
            ]),
            default: "tagged",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how passwords are hashed in the tables of other servers",
            long: "`tagged` is a hash that says what it is: `$argon2id$`, `$2b$` (bcrypt), `$7$`, \
                   `$6$` and `PBKDF2$`. The others are hexadecimal digits, with a column `salt` \
                   beside them, as EMQX has them; a single SHA is weak. Plain text is not read.",
            source: "",
            set: |settings, value| {
                settings.security().password_form.hash_kind = match value.text() {
                    "pbkdf2_sha256" => Hashed::Pbkdf2Sha256,
                    "pbkdf2_sha512" => Hashed::Pbkdf2Sha512,
                    "sha256" => Hashed::Sha256,
                    "sha512" => Hashed::Sha512,
                    _ => Hashed::Tagged,
                };
            },
        },
        OptionRow {
            key: "auth.password_rounds",
            kind: count(1, 10_000_000, "rounds"),
            default: "10000",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "rounds of `pbkdf2_sha256` and `pbkdf2_sha512`",
            long: "",
            source: "",
            set: |settings, value| settings.security().password_form.rounds = value.u32(),
        },
        OptionRow {
            key: "auth.password_salt",
            kind: OptionKind::Choice(&["prefix", "suffix", "none"]),
            default: "prefix",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "where the salt stands when `sha256` and `sha512` are made",
            long: "",
            source: "",
            set: |settings, value| {
                settings.security().password_form.salt = match value.text() {
                    "suffix" => SaltPosition::Suffix,
                    "none" => SaltPosition::None,
                    _ => SaltPosition::Prefix,
                };
            },
        },
    ];
}
