//! The user file in mosquitto's format: a line `NAME:HASH` per user. Blank lines and lines that
//! begin with `#` are ignored.

use super::backend::{AuthBackend, BackendOutcome, BackendReply};
use super::password_hash::PasswordHash;
use super::verified_cache::VerifiedCache;
use broker::peer::authentication::{Principal, SecretBytes};
use broker::{AuthRequest, AuthStep};
use config::source::{self, LineErrors};
use net::scram::{self, ScramExchange, ScramVerifier};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct UserFile {
    by_name: HashMap<Box<str>, PasswordHash>,
    /// The names, for a choice of a `decoy` that is stable per unknown name.
    names: Vec<Box<str>>,
    chance: RandomState,
    /// Whether any user has a SCRAM verifier.
    knows_scram: bool,
    /// Key of the SCRAM parameters sent for unknown users, see [`ScramVerifier::decoy`].
    decoy_key: [u8; 32],
    /// Cache of verified passwords; `None` hashes every time.
    verified: Option<Arc<VerifiedCache>>,
}

/// Longest line, above any possible name and hash.
const LINE_BYTES_MAX: usize = 128 * 1024;

impl UserFile {
    /// Reads the file; the error has a sentence for each wrong line.
    pub fn read(path: &Path) -> Result<UserFile, Vec<String>> {
        source::read(path, "user file (auth.users)", "user names are", UserFile::parse)
    }

    fn parse(text: &str) -> Result<UserFile, LineErrors> {
        let (mut users, mut wrongs) = (UserFile::default(), Vec::new());
        // Without random bytes a client could only find out which names exist.
        let _ = SystemRandom::new().fill(&mut users.decoy_key);
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err(why) = users.parse_user_line(line) {
                wrongs.push((at + 1, why));
            }
        }
        if wrongs.is_empty() { Ok(users) } else { Err(wrongs) }
    }

    fn parse_user_line(&mut self, line: &str) -> Result<(), String> {
        if line.len() > LINE_BYTES_MAX {
            return Err("the line is too long, use NAME:HASH".into());
        }
        // The text before the colon is not repeated: it may be a password in the wrong place.
        let Some((name, hash)) = line.split_once(':') else {
            return Err("a colon is missing, use NAME:HASH".into());
        };
        check_name(name)?;
        let hash = PasswordHash::parse(hash)?;
        self.knows_scram |= matches!(hash, PasswordHash::Scram(_));
        if self.by_name.insert(name.into(), hash).is_some() {
            return Err(format!("user {name:?} stands above already, leave one line"));
        }
        self.names.push(name.into());
        Ok(())
    }

    pub fn remember_in(&mut self, verified: Option<Arc<VerifiedCache>>) {
        self.verified = verified;
    }

    pub fn user_count(&self) -> usize {
        self.names.len()
    }

    /// Returns a hash to compute for an unknown user: the hash of some user, always the same for a
    /// name, so that repeated attempts reveal nothing. `None` if there are no users.
    fn decoy(&self, name: &str) -> Option<&PasswordHash> {
        let at = self.chance.hash_one(name) % self.names.len().max(1) as u64;
        self.by_name.get(self.names.get(at as usize)?)
    }

    fn check(&self, request: &AuthRequest) -> BackendOutcome {
        let (Some(name), Some(password)) = (&request.user_name, &request.password) else {
            return BackendOutcome::Ignore;
        };
        match self.by_name.get(name) {
            Some(hash) if hash.verify_with_cache(&password.0, self.verified.as_deref()) => {
                let user = Some(name.as_ref().into());
                BackendOutcome::Allow(Box::new(Principal { user, ..Principal::default() }))
            }
            Some(_) => BackendOutcome::Deny("wrong password"),
            None => {
                if let Some(hash) = self.decoy(name) {
                    hash.simulate_verify(&password.0, self.verified.as_deref());
                }
                BackendOutcome::Ignore
            }
        }
    }
}

impl UserFile {
    fn verifier(&self, user: &str) -> Option<&ScramVerifier> {
        match self.by_name.get(user) {
            Some(PasswordHash::Scram(verifier)) => Some(verifier),
            _ => None,
        }
    }

    /// Handles a step of SCRAM. Only the last step depends on whether the user exists.
    fn continue_scram(&self, step: &AuthStep) -> Result<BackendOutcome, &'static str> {
        let Some(SecretBytes(memory)) = &step.memory else {
            let said = ScramExchange::parse_client_first(&step.data.0)?;
            let decoy = || ScramVerifier::decoy(&self.decoy_key, &said.user);
            let verifier = self.verifier(&said.user).cloned().unwrap_or_else(decoy);
            let Some(nonce) = scram::nonce() else {
                return Ok(BackendOutcome::Fail("the system gives no random bytes".into()));
            };
            let said = said.with_server_first(&verifier, &nonce);
            let data = said.server_first().as_bytes().into();
            return Ok(BackendOutcome::Challenge {
                data,
                memory: SecretBytes(said.to_memory().into()),
            });
        };
        let said = ScramExchange::from_memory(memory).ok_or("its memory is not ours")?;
        let decoy = ScramVerifier::decoy(&self.decoy_key, &said.user);
        let verifier = self.verifier(&said.user);
        let proof = said.verify(verifier.unwrap_or(&decoy), &step.data.0)?;
        verifier.ok_or("unknown to all")?;
        let (user, says) = (Some(said.user.into()), Some(proof.into_bytes().into()));
        Ok(BackendOutcome::Allow(Box::new(Principal {
            user,
            auth_data: says,
            ..Principal::default()
        })))
    }
}

/// Checks that a name can stand before the colon of a line.
pub fn check_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("the user name is empty".into()),
        name if name.starts_with('#') => Err("a user name cannot begin with #".into()),
        name if name.contains(':') || name.contains(char::is_control) => {
            Err("a user name has no colon and no control characters".into())
        }
        _ => Ok(()),
    }
}

impl AuthBackend for UserFile {
    fn name(&self) -> &'static str {
        "users"
    }

    fn methods(&self) -> &'static [&'static str] {
        if self.knows_scram { &[scram::METHOD] } else { &[] }
    }

    fn authenticate(&self, request: &AuthRequest, reply: BackendReply) {
        reply.send(match &request.step {
            Some(step) => self.continue_scram(step).unwrap_or_else(BackendOutcome::Deny),
            None => self.check(request),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_line_is_told_and_no_secret_is() {
        let text = "# ours\n\nann:$6$upYBdQUvD/FiT7j/$3JX5\nbob:hunter2\nhunter3\n:x\n";
        let wrongs = UserFile::parse(text).unwrap_err();
        let lines: Vec<usize> = wrongs.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 5, 6]);
        for (_, why) in &wrongs {
            assert!(!why.contains("hunter") && !why.contains("3JX5"), "{why}");
        }
        assert!(wrongs[1].1.contains("godwit passwd FILE USER"));
    }

    #[test]
    fn a_user_stands_once() {
        let line = include_str!("vectors/mosquitto_7.txt");
        assert_eq!(UserFile::parse(line).unwrap().user_count(), 1);
        let wrongs = UserFile::parse(&format!("{line}{line}")).unwrap_err();
        assert_eq!(wrongs, [(2, "user \"ann\" stands above already, leave one line".into())]);
    }
}
