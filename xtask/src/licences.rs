//! Checks the licences and bans in deny.toml for every package of any build. The check needs no
//! network, so it runs everywhere and at once; `cargo deny check` reads the same file, and also
//! checks advisories.

use std::collections::BTreeSet;
use std::fs;

use crate::shell::{cargo, output};
use crate::tree::root;

/// The parts of deny.toml which this check reads.
#[derive(Debug, Default, PartialEq)]
struct LicencePolicy {
    allow: Vec<String>,
    banned: Vec<String>,
    /// Packages allowed by a feature, but banned in the default build.
    optional: Vec<String>,
}

/// Set of packages for [`packages`].
#[derive(Clone, Copy, PartialEq)]
enum BuildScope {
    /// All packages of all features.
    All,
    /// Packages in the default build.
    Default,
}

pub(crate) fn run(_args: &[String]) -> Result<(), String> {
    let path = root().join("deny.toml");
    let text = fs::read_to_string(&path).map_err(|e| format!("licences: deny.toml: {e}"))?;
    let rules = LicencePolicy::read(&text);
    let mut bad = 0;
    for build in [BuildScope::All, BuildScope::Default] {
        let tree = packages(build)?;
        // A package that was printed before ends in ` (*)`, which is not part of its licence.
        let packages: BTreeSet<&str> =
            tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
        for line in packages.iter().filter(|line| !line.is_empty()) {
            let (package, licence) = line.split_once('|').unwrap_or((line, ""));
            if let Some(why) = rules.judge(build, package, licence) {
                println!("{package}: {why}");
                bad += 1;
            }
        }
        let of = if build == BuildScope::All { "" } else { " without more features" };
        println!("licences: {} packages{of}", packages.len());
    }
    println!("licences: {bad} refused");
    if bad > 0 { Err("licences: see deny.toml for what is allowed and why".into()) } else { Ok(()) }
}

fn packages(build: BuildScope) -> Result<String, String> {
    let mut tree = cargo();
    tree.args(["tree", "--workspace", "--target", "all", "--prefix", "none"]);
    if build == BuildScope::All {
        tree.arg("--all-features");
    }
    output(tree.args(["--edges", "normal,build,dev", "--format", "{p}|{l}"]))
}

impl LicencePolicy {
    fn read(text: &str) -> LicencePolicy {
        let (mut rules, mut table, mut list) = (LicencePolicy::default(), "", "");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if line.starts_with('[') && line.ends_with(']') && !line.contains('"') {
                (table, list) = (line, "");
                continue;
            }
            // A row of a list may contain a list, too.
            if let Some((key, _)) = line.split_once(" = [").filter(|_| !line.starts_with('{')) {
                list = key;
            }
            let into = match (table, list) {
                ("[licenses]", "allow") => &mut rules.allow,
                ("[bans]", "deny") if line.contains("wrappers = [") => &mut rules.optional,
                ("[bans]", "deny") => &mut rules.banned,
                _ => continue,
            };
            // In a row of [bans] the first string is the crate, the second the reason.
            let strings = line.split('"').skip(1).step_by(2);
            let take = if table == "[bans]" { 1 } else { usize::MAX };
            into.extend(strings.take(take).map(str::to_string));
            if line.ends_with(']') {
                list = "";
            }
        }
        rules
    }

    fn judge(&self, build: BuildScope, package: &str, licence: &str) -> Option<String> {
        let name = package.split(' ').next().unwrap_or(package);
        let is_in = |list: &[String]| list.iter().any(|banned| banned == name);
        if is_in(&self.banned) || build == BuildScope::Default && is_in(&self.optional) {
            return Some("banned by deny.toml".into());
        }
        if licence.is_empty() {
            return Some("names no licence; read it, then list it or do without".into());
        }
        let allowed = self.allows(licence);
        (!allowed).then(|| format!("licence {licence} is not allowed by deny.toml"))
    }

    /// Whether an SPDX expression (OR of ANDs of names and brackets) is satisfied by `allow`. Old
    /// crates write `/` for OR.
    fn allows(&self, licence: &str) -> bool {
        let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let tokens: Vec<&str> = spaced.split_whitespace().collect();
        let mut at = 0;
        let allowed = self.any(&tokens, &mut at);
        allowed && at == tokens.len()
    }

    fn any(&self, tokens: &[&str], at: &mut usize) -> bool {
        let mut allowed = self.every(tokens, at);
        while tokens.get(*at) == Some(&"OR") {
            *at += 1;
            allowed |= self.every(tokens, at);
        }
        allowed
    }

    fn every(&self, tokens: &[&str], at: &mut usize) -> bool {
        let mut allowed = self.one(tokens, at);
        while tokens.get(*at) == Some(&"AND") {
            *at += 1;
            allowed &= self.one(tokens, at);
        }
        allowed
    }

    fn one(&self, tokens: &[&str], at: &mut usize) -> bool {
        let Some(name) = tokens.get(*at) else {
            return false;
        };
        *at += 1;
        if *name == "(" {
            let allowed = self.any(tokens, at);
            *at += 1;
            return allowed;
        }
        let mut name = (*name).to_string();
        if tokens.get(*at) == Some(&"WITH") {
            name = format!("{name} WITH {}", tokens.get(*at + 1).unwrap_or(&""));
            *at += 2;
        }
        self.allow.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::{BuildScope, LicencePolicy};

    const DENY: &str = "[licenses]\nallow = [\n    \"MIT\",\n    # why\n    \"ISC\",\n]\n\
                        [bans]\ndeny = [\n    { crate = \"dashmap\", reason = \"no\" },\n    \
                        { crate = \"openssl-sys\", wrappers = [\"openssl\"] },\n]\n\
                        [sources]\nallow = [\"GPL-3.0\"]\n";

    #[test]
    fn an_expression_is_allowed_as_spdx_reads_it() {
        let rules = LicencePolicy::read(DENY);
        assert_eq!(rules.allow, ["MIT", "ISC"]);
        for good in ["MIT", "GPL-3.0 OR MIT", "Zlib/ISC", "(GPL-3.0 OR MIT) AND ISC"] {
            assert_eq!(rules.judge(BuildScope::All, "a v1.0.0", good), None, "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH some-exception", "MIT ISC", "(MIT"] {
            let why = format!("licence {bad} is not allowed by deny.toml");
            assert_eq!(rules.judge(BuildScope::All, "a v1.0.0", bad), Some(why));
        }
    }

    #[test]
    fn a_banned_crate_is_refused_whatever_its_licence() {
        let why = Some("banned by deny.toml".to_string());
        let rules = LicencePolicy::read(DENY);
        assert_eq!(rules.judge(BuildScope::All, "dashmap v6.0.0", "MIT"), why);
        assert_eq!(rules.judge(BuildScope::Default, "openssl-sys v0.9.1", "MIT"), why);
        assert_eq!(rules.judge(BuildScope::All, "openssl-sys v0.9.1", "MIT"), None, "by a feature");
    }

    #[test]
    fn a_crate_without_licence_is_refused() {
        let why = Some("names no licence; read it, then list it or do without".to_string());
        assert_eq!(LicencePolicy::read(DENY).judge(BuildScope::All, "a v1.0.0", ""), why);
    }
}
