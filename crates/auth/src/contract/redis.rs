//! The contract for a real Redis server.

use super::super::password_format::{PasswordFormat, PasswordHashKind, SaltPosition};
use super::super::remote::RemoteBackend;
use super::super::tables::redis::{RedisAuthServer, RedisAuthSettings, RedisCommand};
use super::forms::{authenticator_with, has_rules, hash, is_as_told, password_form, rows, verdict};
use super::installed::is_installed;
use super::ports::free_port;
use super::servers::{ServerProcess, folder, give, run};
use super::*;
use net::control_runtime::ControlRuntime;
use net::redis::SCHEMES;
use net::server_pool::RemoteLimits;
use net::server_url::ServerUrl;
use std::fs;
use std::path::Path;
use transport::TlsClientOptions;

struct RedisServer {
    folder: PathBuf,
    plain: u16,
    tls: u16,
    started: ServerProcess,
}

const USER: &str = "redis";
const OURS: &str = "godwit:it%27s@";

impl RedisServer {
    fn start() -> RedisServer {
        let folder = folder("redis", USER);
        let certificates = certificates("redis-tls");
        for name in ["server.pem", "server.key", "ca.pem", "stranger-ca.pem"] {
            fs::copy(certificates.join(name), folder.join(name)).unwrap();
            give(&folder.join(name), USER);
        }
        let _ = fs::remove_dir_all(certificates);
        let (plain, tls) = (free_port(), free_port());
        let started = serve(&folder, plain, tls);
        let server = RedisServer { folder, plain, tls, started };
        server.run(&include_str!("redis.txt").replace("HASH", hash()));
        server
    }

    fn run(&self, commands: &str) {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", &self.plain.to_string(), "--user", "godwit", "--pass", "it's", "-n", "2"]);
        run(cli, commands);
    }

    fn backend(&self, who: &str, form: PasswordFormat) -> Arc<dyn AuthBackend> {
        self.ask(&format!("redis://{who}localhost:{}/2", self.plain), form)
    }

    fn ask(&self, url: &str, form: PasswordFormat) -> Arc<dyn AuthBackend> {
        let settings = settings(url);
        Arc::new(remote(RedisAuthServer::new(&settings, None, form, &[]).unwrap()))
    }

    fn secure(&self, authority: &str) -> Arc<dyn AuthBackend> {
        let authorities = Some(self.folder.join(authority).display().to_string());
        let trust = TlsClientOptions { authorities, ..TlsClientOptions::default() }
            .client_config()
            .unwrap();
        let settings = settings(&format!("rediss://{OURS}localhost:{}/2", self.tls));
        Arc::new(remote(
            RedisAuthServer::new(&settings, Some(trust), PasswordFormat::default(), &[]).unwrap(),
        ))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.started.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn settings(url: &str) -> RedisAuthSettings {
    let user = "HMGET user:${username} password_hash salt is_superuser groups";
    RedisAuthSettings {
        url: Some(ServerUrl::parse(url, SCHEMES).unwrap()),
        user: Some(RedisCommand::parse(user).unwrap()),
        rules: Some(RedisCommand::parse_rules("HGETALL acl:${username}").unwrap()),
    }
}

fn remote(server: RedisAuthServer) -> RemoteBackend<RedisAuthServer> {
    let bounds = RemoteLimits { timeout_ms: 20_000, connections_max: 2, questions_max: 100 };
    RemoteBackend::new(server, bounds, Arc::new(ControlRuntime::default()))
}

fn serve(folder: &Path, plain: u16, tls: u16) -> ServerProcess {
    let at = folder.display();
    let options = format!(
        "bind 127.0.0.1\nport {plain}\ntls-port {tls}\ndir {at}\nappendonly yes\n\
         tls-cert-file {at}/server.pem\ntls-key-file {at}/server.key\ntls-auth-clients no\n\
         user default off\nuser godwit on \">it's\" ~* &* +@all\n"
    );
    let file = folder.join("redis.conf").display().to_string();
    fs::write(&file, options).unwrap();
    give(Path::new(&file), USER);
    // Redis reports its readiness on stdout.
    let command = ["sh", "-c", "exec redis-server \"$0\" >&2", &file];
    ServerProcess::new(&command, USER, "TERM", "Ready to accept connections")
}

#[test]
fn redis_stands_the_contract() {
    if !is_installed("Redis", "redis-server") {
        return;
    }
    let mut server = RedisServer::start();
    let who = |user: &str| claim(Some(user), Some(b"secret"));
    let subject = |backend| ContractSubject {
        backend,
        right: who("ann"),
        wrong: claim(Some("ann"), Some(b"wrong")),
        stranger: who("bob"),
        user: "ann",
    };
    let one = |backend: Arc<dyn AuthBackend>, request: &AuthRequest| {
        answer(&authenticator_for(&[backend]), request)
    };
    let first = server.backend(OURS, PasswordFormat::default());
    stands(&subject(first.clone()));

    let authenticator = authenticator_for(&[first]);
    let verdict = ask(&authenticator, &who("ann")).recv_timeout(SOON).unwrap();
    let AuthDecision::Allow(principal) = verdict else { panic!("{verdict:?}") };
    assert_eq!(principal.groups, ["staff".into(), "night".into()]);
    assert!(principal.is_superuser);
    // Hashes of Redis have no order, so they hold grants only.
    let rules = "[[rule]]\nallow = \"publish\"\ntopic = \"a/${clientid}\"\n\
                 [[rule]]\nallow = \"subscribe\"\ntopic = \"b/#\"\nqos = [0, 1]\n";
    are_the_rules_of(rules, principal.permissions);
    // Malformed rows refuse the client: rules that deny, no hash, no hash table.
    for user in ["root", "plain", "none", "text"] {
        assert_eq!(answer(&authenticator, &who(user)), Err(Refusal::NoVerdict), "{user}");
    }
    let form = PasswordFormat {
        hash_kind: PasswordHashKind::Sha256,
        salt: SaltPosition::Suffix,
        rounds: 0,
    };
    assert_eq!(one(server.backend(OURS, form), &who("salted")), Ok("salted".into()));

    for stranger in ["godwit:wrong@", "nobody:x@", ""] {
        let stranger = server.backend(stranger, PasswordFormat::default());
        assert_eq!(one(stranger, &who("ann")), Err(Refusal::NoVerdict));
    }
    forms_of_hashes(&server);
    stands(&subject(server.secure("ca.pem")));
    assert_eq!(one(server.secure("stranger-ca.pem"), &who("ann")), Err(Refusal::NoVerdict));

    server.started.stop();
    assert_eq!(answer(&authenticator, &who("ann")), Err(Refusal::NoVerdict));
    server.started = serve(&server.folder, server.plain, server.tls);
    assert_eq!(answer_at_last(&authenticator, &who("ann")), Ok("ann".into()));
    assert_eq!(
        answer(&authenticator, &claim(Some("ann"), Some(b"wrong"))),
        Err(Refusal::BadCredentials)
    );
}

/// Returns the commands of a row, for a client with a number as its name.
fn commands(row: &str, name: &str) -> String {
    let named = row.replace("user:N", &format!("user:{name}"));
    let named = named.replace("acl:N", &format!("acl:{name}"));
    let words = named.split(' ').map(|word| if word == "H" { hash() } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn forms_of_hashes(server: &RedisServer) {
    let table = || rows(include_str!("forms/rows.tsv")).filter(|row| row[1] == "redis").enumerate();
    let rules =
        || rows(include_str!("forms/rules.tsv")).filter(|row| row[1] == "redis").enumerate();
    let mut all = String::new();
    for (at, row) in table() {
        let (before, _) = row[3].split_once(" | ").expect("commands and words");
        all.push_str(&format!("{}\n", commands(before, &format!("form-{at}"))));
    }
    for (at, row) in rules() {
        let name = format!("rule-{at}");
        let user = commands("HSET user:N password_hash H", &name);
        all.push_str(&format!("{user}\n{}\n", commands(row[2], &name)));
    }
    server.run(&all);
    let url = format!("redis://{OURS}localhost:{}/2", server.plain);
    let mut wrongs = Vec::new();
    for (at, row) in table() {
        let [whose, _, form, text, answer] = row[..] else { panic!("{row:?}") };
        let (_, words) = text.split_once(" | ").expect("commands and words");
        let user = match words.split_once(' ') {
            _ if words == "GET" || words == "HGETALL" => format!("{words} user:${{username}}"),
            Some(("HGET", field)) => format!("HGET user:${{username}} {field}"),
            _ => format!("HMGET user:${{username}} {words}"),
        };
        let user = Some(RedisCommand::parse(&user).unwrap());
        let settings = RedisAuthSettings { user, rules: None, ..settings(&url) };
        let redis = RedisAuthServer::new(&settings, None, password_form(form), &[]).unwrap();
        let backend: Arc<dyn AuthBackend> = Arc::new(remote(redis));
        let request = claim(Some(&format!("form-{at}")), Some(b"secret"));
        let is = is_as_told(
            verdict(&authenticator_with(&backend, false), &request),
            answer,
            true,
            false,
        );
        wrongs.extend(is.err().map(|why| format!("{whose}: {text}: {why}")));
    }
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    for (at, row) in rules() {
        let [whose, _, text, rules] = row[..] else { panic!("{row:?}") };
        let backend = server.backend(OURS, PasswordFormat::default());
        let request = claim(Some(&format!("rule-{at}")), Some(b"secret"));
        match verdict(&authenticator_with(&backend, false), &request) {
            AuthDecision::Allow(principal) if rules != "none" => has_rules(&principal, rules),
            AuthDecision::Deny(Refusal::NoVerdict) if rules == "none" => {}
            other => panic!("{whose}: {text}: {other:?}, not {rules}"),
        }
    }
    // By the client identifier alone, with a password.
    let user = Some(RedisCommand::parse("HGET user:${clientid} password_hash").unwrap());
    let settings = RedisAuthSettings { user, rules: None, ..settings(&url) };
    let redis = RedisAuthServer::new(&settings, None, PasswordFormat::default(), &[]).unwrap();
    let backend: Arc<dyn AuthBackend> = Arc::new(remote(redis));
    let by_id = AuthRequest { client_id: "ann".into(), ..claim(None, Some(b"secret")) };
    for anonymous in [false, true] {
        let authenticator = authenticator_with(&backend, anonymous);
        is_as_told(verdict(&authenticator, &by_id), "allow", true, anonymous).unwrap();
        let without = AuthRequest { password: None, ..by_id.clone() };
        is_as_told(verdict(&authenticator, &without), "ignore", false, anonymous).unwrap();
    }
}
