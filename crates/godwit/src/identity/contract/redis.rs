//! The contract for Redis, with a real one.

use super::super::password::{Form, Kind, Salt};
use super::super::remote::url::Url;
use super::super::remote::{Bounds, Remote};
use super::super::tables::redis::{Command, Redis, RedisSettings};
use super::super::tables::resp::SCHEMES;
use super::forms::{has_rules, hash, is_as_told, password_form, porter_of, rows, verdict};
use super::installed::is_installed;
use super::ports::free_port;
use super::servers::{Started, folder, give, run};
use super::*;
use crate::runtime::Runtime;
use carrier::Trust;
use std::fs;
use std::path::Path;

struct Server {
    folder: PathBuf,
    plain: u16,
    tls: u16,
    started: Started,
}

const USER: &str = "redis";
const OURS: &str = "godwit:it%27s@";

impl Server {
    fn start() -> Server {
        let folder = folder("redis", USER);
        let certificates = certificates("redis-tls");
        for name in ["server.pem", "server.key", "ca.pem", "stranger-ca.pem"] {
            fs::copy(certificates.join(name), folder.join(name)).unwrap();
            give(&folder.join(name), USER);
        }
        let _ = fs::remove_dir_all(certificates);
        let (plain, tls) = (free_port(), free_port());
        let started = serve(&folder, plain, tls);
        let server = Server { folder, plain, tls, started };
        server.run(&include_str!("redis.txt").replace("HASH", hash()));
        server
    }

    fn run(&self, commands: &str) {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", &self.plain.to_string(), "--user", "godwit", "--pass", "it's", "-n", "2"]);
        run(cli, commands);
    }

    fn backend(&self, who: &str, form: Form) -> Arc<dyn Backend> {
        self.ask(&format!("redis://{who}localhost:{}/2", self.plain), form)
    }

    fn ask(&self, url: &str, form: Form) -> Arc<dyn Backend> {
        let settings = settings(url);
        Arc::new(remote(Redis::new(&settings, None, form, &[]).unwrap()))
    }

    fn secure(&self, authority: &str) -> Arc<dyn Backend> {
        let authorities = Some(self.folder.join(authority).display().to_string());
        let trust = Trust { authorities, ..Trust::default() }.config().unwrap();
        let settings = settings(&format!("rediss://{OURS}localhost:{}/2", self.tls));
        Arc::new(remote(Redis::new(&settings, Some(trust), Form::default(), &[]).unwrap()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.started.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn settings(url: &str) -> RedisSettings {
    let user = "HMGET user:${username} password_hash salt is_superuser groups";
    RedisSettings {
        url: Some(Url::parse(url, SCHEMES).unwrap()),
        user: Some(Command::parse(user).unwrap()),
        rules: Some(Command::parse_rules("HGETALL acl:${username}").unwrap()),
    }
}

fn remote(server: Redis) -> Remote<Redis> {
    let bounds = Bounds { timeout_ms: 20_000, connections_max: 2, questions_max: 100 };
    Remote::new(server, bounds, Arc::new(Runtime::default()))
}

fn serve(folder: &Path, plain: u16, tls: u16) -> Started {
    let at = folder.display();
    let options = format!(
        "bind 127.0.0.1\nport {plain}\ntls-port {tls}\ndir {at}\nappendonly yes\n\
         tls-cert-file {at}/server.pem\ntls-key-file {at}/server.key\ntls-auth-clients no\n\
         user default off\nuser godwit on \">it's\" ~* &* +@all\n"
    );
    let file = folder.join("redis.conf").display().to_string();
    fs::write(&file, options).unwrap();
    give(Path::new(&file), USER);
    // It tells on stdout that it is ready.
    let command = ["sh", "-c", "exec redis-server \"$0\" >&2", &file];
    Started::new(&command, USER, "TERM", "Ready to accept connections")
}

#[test]
fn redis_stands_the_contract() {
    if !is_installed("Redis", "redis-server") {
        return;
    }
    let mut server = Server::start();
    let who = |user: &str| claim(Some(user), Some(b"secret"));
    let subject = |backend| Subject {
        backend,
        right: who("ann"),
        wrong: claim(Some("ann"), Some(b"wrong")),
        stranger: who("bob"),
        user: "ann",
    };
    let one = |backend: Arc<dyn Backend>, claim: &Claim| answer(&porter(&[backend]), claim);
    let first = server.backend(OURS, Form::default());
    stands(&subject(first.clone()));

    let porter = porter(&[first]);
    let verdict = ask(&porter, &who("ann")).recv_timeout(SOON).unwrap();
    let Verdict::Allow(grant) = verdict else { panic!("{verdict:?}") };
    assert_eq!(grant.groups, ["staff".into(), "night".into()]);
    assert!(grant.is_superuser);
    // Its hashes have no order and nothing that denies.
    let rules = "[[rule]]\nallow = \"publish\"\ntopic = \"a/${clientid}\"\n\
                 [[rule]]\nallow = \"subscribe\"\ntopic = \"b/#\"\nqos = [0, 1]\n";
    are_the_rules_of(rules, grant.permissions);
    // What cannot be understood lets nobody in: rules that deny, no hash, no hash table.
    for user in ["root", "plain", "none", "text"] {
        assert_eq!(answer(&porter, &who(user)), Err(Refusal::NoVerdict), "{user}");
    }
    let form = Form { kind: Kind::Sha256, salt: Salt::Suffix, rounds: 0 };
    assert_eq!(one(server.backend(OURS, form), &who("salted")), Ok("salted".into()));

    for stranger in ["godwit:wrong@", "nobody:x@", ""] {
        let stranger = server.backend(stranger, Form::default());
        assert_eq!(one(stranger, &who("ann")), Err(Refusal::NoVerdict));
    }
    forms_of_hashes(&server);
    stands(&subject(server.secure("ca.pem")));
    assert_eq!(one(server.secure("stranger-ca.pem"), &who("ann")), Err(Refusal::NoVerdict));

    server.started.stop();
    assert_eq!(answer(&porter, &who("ann")), Err(Refusal::NoVerdict));
    server.started = serve(&server.folder, server.plain, server.tls);
    assert_eq!(answer_at_last(&porter, &who("ann")), Ok("ann".into()));
    assert_eq!(answer(&porter, &claim(Some("ann"), Some(b"wrong"))), Err(Refusal::BadCredentials));
}

/// A row's commands for a client of its own, whose name is a number.
fn commands(row: &str, name: &str) -> String {
    let named = row.replace("user:N", &format!("user:{name}"));
    let named = named.replace("acl:N", &format!("acl:{name}"));
    let words = named.split(' ').map(|word| if word == "H" { hash() } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn forms_of_hashes(server: &Server) {
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
        let user = Some(Command::parse(&user).unwrap());
        let settings = RedisSettings { user, rules: None, ..settings(&url) };
        let redis = Redis::new(&settings, None, password_form(form), &[]).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(remote(redis));
        let claim = claim(Some(&format!("form-{at}")), Some(b"secret"));
        let is = is_as_told(verdict(&porter_of(&backend, false), &claim), answer, true, false);
        wrongs.extend(is.err().map(|why| format!("{whose}: {text}: {why}")));
    }
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    for (at, row) in rules() {
        let [whose, _, text, rules] = row[..] else { panic!("{row:?}") };
        let backend = server.backend(OURS, Form::default());
        let claim = claim(Some(&format!("rule-{at}")), Some(b"secret"));
        match verdict(&porter_of(&backend, false), &claim) {
            Verdict::Allow(grant) if rules != "none" => has_rules(&grant, rules),
            Verdict::Deny(Refusal::NoVerdict) if rules == "none" => {}
            other => panic!("{whose}: {text}: {other:?}, not {rules}"),
        }
    }
    // By its id alone, with a password.
    let user = Some(Command::parse("HGET user:${clientid} password_hash").unwrap());
    let settings = RedisSettings { user, rules: None, ..settings(&url) };
    let redis = Redis::new(&settings, None, Form::default(), &[]).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(remote(redis));
    let by_id = Claim { client_id: "ann".into(), ..claim(None, Some(b"secret")) };
    for anonymous in [false, true] {
        let porter = porter_of(&backend, anonymous);
        is_as_told(verdict(&porter, &by_id), "allow", true, anonymous).unwrap();
        let without = Claim { password: None, ..by_id.clone() };
        is_as_told(verdict(&porter, &without), "ignore", false, anonymous).unwrap();
    }
}
