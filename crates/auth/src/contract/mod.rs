//! The contract of all backends: right, wrong and malformed credentials, silent and failed
//! backends, replacement while clients wait. A new backend adds a [`ContractSubject`]: here, or in
//! a file of its own if a server has to be started.

mod forms;
#[cfg(feature = "http")]
mod http;
mod installed;
#[cfg(feature = "http")]
mod jwks;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "http")]
mod permits;
mod ports;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod servers;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
mod tls;
#[cfg(feature = "http")]
mod web;

use self::tls::{certificates, served};
use super::backend::{AuthBackend, BackendChain, BackendOutcome, BackendReply};
use super::certificate::{CertificateBackend, CertificateNameField};
use super::password_hash::PasswordHash;
use super::users::UserFile;
use super::{Authenticator, AuthenticatorLimits, jwt, test_tokens};
use crate::acl;
use broker::access_rules::acl_rules::AclRuleSet;
use broker::peer::authentication::SecretBytes;
use broker::{
    AlternativeName, AuthDecision, AuthRequest, AuthStep, ListenerId, PeerAddress, PeerCertificate,
    Refusal,
};
use engine::ConnectionLiveness;
use mqtt::ProtocolVersion;
use net::scram::{self, client::ScramClient};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A backend under test, and requests with valid and invalid credentials.
struct ContractSubject {
    backend: Arc<dyn AuthBackend>,
    right: AuthRequest,
    /// Request of the client in `right`, with credentials of another client.
    wrong: AuthRequest,
    /// A client that the backend does not know.
    stranger: AuthRequest,
    user: &'static str,
}

const LIMITS: AuthenticatorLimits =
    AuthenticatorLimits { threads: 2, queue_max: 100, failures_max: 0 };
const SOON: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_millis(100);

pub(crate) fn claim(user_name: Option<&str>, password: Option<&[u8]>) -> AuthRequest {
    AuthRequest {
        peer: PeerAddress::Network(([192, 0, 2, 1], 1).into()),
        version: ProtocolVersion::V5,
        client_id: "id".into(),
        user_name: user_name.map(Into::into),
        password: password.map(|password| SecretBytes(password.into())),
        listener: ListenerId(0),
        certificate: None,
        step: None,
    }
}

fn token(user: &str, issuer: &str) -> String {
    let body = format!(r#"{{"sub":"{user}","device":"d","iss":"{issuer}","aud":"mqtt"}}"#);
    test_tokens::signed(r#"{"alg":"HS256"}"#, &body)
}

fn certified(common_name: &str) -> AuthRequest {
    let certificate =
        PeerCertificate { common_name: Some(common_name.into()), ..PeerCertificate::default() };
    AuthRequest { certificate: Some(Arc::new(certificate)), ..claim(None, None) }
}

fn scratch(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("godwit-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

fn subjects() -> Vec<ContractSubject> {
    let file =
        scratch("contract", &format!("ann:{}\n", PasswordHash::from_password(b"right").unwrap()));
    let users = UserFile::read(&file).unwrap();
    let _ = std::fs::remove_file(file);
    let seven = scratch("contract-7", include_str!("../vectors/mosquitto_7.txt"));
    let mosquitto = UserFile::read(&seven).unwrap();
    let _ = std::fs::remove_file(seven);
    let file = scratch(
        "contract-scram",
        &format!("ann:{}\n", PasswordHash::scram_from_password(b"right").unwrap()),
    );
    let provers = UserFile::read(&file).unwrap();
    let _ = std::fs::remove_file(file);
    let certificates =
        CertificateBackend { user: CertificateNameField::CommonName, client_id: None };
    vec![
        ContractSubject {
            backend: Arc::new(users),
            right: claim(Some("ann"), Some(b"right")),
            wrong: claim(Some("ann"), Some(b"wrong")),
            stranger: claim(Some("bob"), Some(b"right")),
            user: "ann",
        },
        ContractSubject {
            backend: Arc::new(provers),
            right: claim(Some("ann"), Some(b"right")),
            wrong: claim(Some("ann"), Some(b"wrong")),
            stranger: claim(Some("bob"), Some(b"right")),
            user: "ann",
        },
        ContractSubject {
            backend: Arc::new(mosquitto),
            right: claim(Some("ann"), Some(b"secret")),
            wrong: claim(Some("ann"), Some(b"")),
            stranger: claim(Some("bob"), Some(b"secret")),
            user: "ann",
        },
        ContractSubject {
            backend: Arc::new(jwt::tests::tokens()),
            right: claim(None, Some(token("ann", "us").as_bytes())),
            wrong: claim(Some("ann"), Some(token("ann", "them").as_bytes())),
            stranger: claim(Some("ann"), Some(b"right")),
            user: "ann",
        },
        ContractSubject {
            backend: Arc::new(certificates),
            right: certified("ann"),
            wrong: certified(""),
            stranger: claim(Some("ann"), Some(b"right")),
            user: "ann",
        },
    ]
}

/// All tests of the contract, for a backend that is started in a file of its own.
fn stands(subject: &ContractSubject) {
    let all = [
        comes_in,
        is_not_fooled,
        leaves_it_to_the_next,
        waits_for_nobody_dead,
        waits_for_the_slow_alone,
        is_forgotten,
        knows_nobody_in_particular,
    ];
    all.iter().for_each(|rule| rule(subject));
}

/// Permissions of ann as an ACL file; every other source must yield equal rules.
const RULES: &str = "[[rule]]\nallow = \"publish\"\ntopic = \"a/${clientid}\"\nqos = 1\n\
    retain = false\n[[rule]]\ndeny = \"all\"\ntopic = \"b/#\"\n";

fn are_the_rules_of(file: &str, said: Option<Arc<AclRuleSet>>) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = scratch(&format!("contract-{number}.toml"), file);
    let expected = acl::read_acl_file(&path, &[]).unwrap();
    let _ = std::fs::remove_file(path);
    assert_eq!(said.as_deref(), Some(&expected));
}

#[test]
fn a_token_says_the_rules_of_a_file() {
    let rules = r#"[{"allow":"publish","topic":"a/${clientid}","qos":1,"retain":false},
        {"deny":"all","topic":"b/#"}]"#;
    let body = format!(r#"{{"sub":"ann","device":"d","iss":"us","aud":"mqtt","acl":{rules}}}"#);
    let token = test_tokens::signed(r#"{"alg":"HS256"}"#, &body);
    let authenticator = authenticator_for(&[Arc::new(jwt::tests::tokens())]);
    let verdict =
        ask(&authenticator, &claim(None, Some(token.as_bytes()))).recv_timeout(SOON).unwrap();
    let AuthDecision::Allow(principal) = verdict else { panic!("{verdict:?}") };
    are_the_rules_of(RULES, principal.permissions);
}

fn ask(authenticator: &Arc<Authenticator>, request: &AuthRequest) -> Receiver<AuthDecision> {
    ask_while(authenticator, request, &ConnectionLiveness::default())
}

/// Authenticates a client whose connection may close before the answer.
fn ask_while(
    authenticator: &Arc<Authenticator>,
    request: &AuthRequest,
    liveness: &ConnectionLiveness,
) -> Receiver<AuthDecision> {
    let (sender, receiver) = channel();
    let answer = Box::new(move |verdict| _ = sender.send(verdict));
    authenticator.authenticate(request.clone(), liveness.clone(), answer);
    receiver
}

fn authenticator_for(backends: &[Arc<dyn AuthBackend>]) -> Arc<Authenticator> {
    Authenticator::new(chain(backends), LIMITS)
}

fn chain(backends: &[Arc<dyn AuthBackend>]) -> BackendChain {
    BackendChain { backends: backends.to_vec(), ..BackendChain::default() }
}

fn user_of(verdict: AuthDecision) -> Result<String, Refusal> {
    match verdict {
        AuthDecision::Allow(principal) => {
            Ok(principal.user.as_deref().unwrap_or_default().to_string())
        }
        AuthDecision::Challenge { .. } => panic!("it asked for more"),
        AuthDecision::Deny(refusal) => Err(refusal),
    }
}

fn answer(authenticator: &Arc<Authenticator>, request: &AuthRequest) -> Result<String, Refusal> {
    user_of(ask(authenticator, request).recv_timeout(SOON).expect("an answer"))
}

/// Repeats until there is a decision: a lost server is tried again after a while.
fn answer_at_last(
    authenticator: &Arc<Authenticator>,
    request: &AuthRequest,
) -> Result<String, Refusal> {
    let begun = std::time::Instant::now();
    loop {
        match answer(authenticator, request) {
            Err(Refusal::NoVerdict) if begun.elapsed() < SOON => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// A backend that calls its function for each request.
struct ScriptedBackend(fn(BackendReply));

impl AuthBackend for ScriptedBackend {
    fn name(&self) -> &'static str {
        "puppet"
    }

    fn authenticate(&self, _: &AuthRequest, reply: BackendReply) {
        (self.0)(reply);
    }
}

/// A backend that stores its replies until the test answers.
#[derive(Default)]
struct SlowBackend {
    kept: Mutex<Vec<BackendReply>>,
}

impl AuthBackend for SlowBackend {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn authenticate(&self, _: &AuthRequest, reply: BackendReply) {
        self.kept.lock().unwrap().push(reply);
    }
}

fn ignorant() -> Arc<dyn AuthBackend> {
    Arc::new(ScriptedBackend(|reply| reply.send(BackendOutcome::Ignore)))
}

#[test]
fn the_right_proof_comes_in_and_no_other_does() {
    subjects().iter().for_each(comes_in);
}

fn comes_in(subject: &ContractSubject) {
    let authenticator = authenticator_for(std::slice::from_ref(&subject.backend));
    for _ in 0..3 {
        assert_eq!(answer(&authenticator, &subject.right), Ok(subject.user.to_string()));
        assert_eq!(answer(&authenticator, &subject.wrong), Err(Refusal::BadCredentials));
        assert_eq!(answer(&authenticator, &subject.stranger), Err(Refusal::BadCredentials));
    }
}

#[test]
fn names_and_passwords_are_only_that() {
    subjects().iter().for_each(is_not_fooled);
}

fn is_not_fooled(subject: &ContractSubject) {
    let strange = ["", "'", "' OR '1'='1", "a:b", "ann\n", "ann\0", "../x", "${user}", "*", "Ann"];
    if subject.right.user_name.is_none() {
        return;
    }
    let authenticator = authenticator_for(std::slice::from_ref(&subject.backend));
    for text in strange {
        let password = subject.right.password.as_ref().map(|secret| &secret.0[..]);
        let as_name = claim(Some(text), password);
        assert_eq!(answer(&authenticator, &as_name), Err(Refusal::BadCredentials), "{text:?}");
        let as_password = claim(subject.right.user_name.as_deref(), Some(text.as_bytes()));
        assert_eq!(answer(&authenticator, &as_password), Err(Refusal::BadCredentials), "{text:?}");
    }
    let large = vec![b'x'; 64 * 1024];
    let large = claim(subject.right.user_name.as_deref(), Some(&large));
    assert_eq!(answer(&authenticator, &large), Err(Refusal::BadCredentials));
    let half = claim(subject.right.user_name.as_deref(), None);
    assert_eq!(answer(&authenticator, &half), Err(Refusal::BadCredentials));
}

#[test]
fn who_does_not_know_leaves_it_to_the_next() {
    subjects().iter().for_each(leaves_it_to_the_next);
}

fn leaves_it_to_the_next(subject: &ContractSubject) {
    let next: Arc<dyn AuthBackend> =
        Arc::new(ScriptedBackend(|reply| reply.send(BackendOutcome::Allow(Box::default()))));
    let behind = authenticator_for(&[subject.backend.clone(), next]);
    assert_eq!(answer(&behind, &subject.stranger), Ok(String::new()));
    assert_eq!(answer(&behind, &subject.wrong), Err(Refusal::BadCredentials), "it knows");
    let before = authenticator_for(&[ignorant(), ignorant(), subject.backend.clone()]);
    assert_eq!(answer(&before, &subject.right), Ok(subject.user.to_string()));
}

#[test]
fn a_dead_backend_lets_nobody_in_and_nobody_past() {
    subjects().iter().for_each(waits_for_nobody_dead);
}

fn waits_for_nobody_dead(subject: &ContractSubject) {
    let deaths: [fn(BackendReply); 2] =
        [|reply| reply.send(BackendOutcome::Fail("dead".into())), drop];
    for death in deaths {
        let authenticator =
            authenticator_for(&[Arc::new(ScriptedBackend(death)), subject.backend.clone()]);
        assert_eq!(answer(&authenticator, &subject.right), Err(Refusal::NoVerdict));
    }
}

#[test]
fn a_slow_backend_holds_up_only_who_waits_for_it() {
    subjects().iter().for_each(waits_for_the_slow_alone);
}

fn waits_for_the_slow_alone(subject: &ContractSubject) {
    let slow = Arc::new(SlowBackend::default());
    let authenticator = authenticator_for(&[slow.clone(), subject.backend.clone()]);
    let waiting: Vec<_> = (0..10).map(|_| ask(&authenticator, &subject.right)).collect();
    assert_eq!(waiting[0].recv_timeout(NEVER), Err(RecvTimeoutError::Timeout));
    authenticator.replace_backends(chain(std::slice::from_ref(&subject.backend)), LIMITS);
    assert_eq!(answer(&authenticator, &subject.right), Ok(subject.user.to_string()));
    while slow.kept.lock().unwrap().len() < waiting.len() {
        std::thread::yield_now();
    }
    for reply in std::mem::take(&mut *slow.kept.lock().unwrap()) {
        reply.send(BackendOutcome::Ignore);
    }
    for one in waiting {
        let user = user_of(one.recv_timeout(SOON).unwrap());
        assert_eq!(user, Ok(subject.user.to_string()));
    }
}

#[test]
fn a_reload_forgets_who_is_gone() {
    subjects().iter().for_each(is_forgotten);
}

fn is_forgotten(subject: &ContractSubject) {
    let authenticator = authenticator_for(std::slice::from_ref(&subject.backend));
    assert_eq!(answer(&authenticator, &subject.right), Ok(subject.user.to_string()));
    authenticator.replace_backends(chain(&[ignorant()]), LIMITS);
    let refusal = answer(&authenticator, &subject.right).unwrap_err();
    assert!(matches!(refusal, Refusal::BadCredentials | Refusal::NotWelcome), "{refusal:?}");
    // A request in progress is decided by the new backends as well.
    let slow = Arc::new(SlowBackend::default());
    let backend: Arc<dyn AuthBackend> = slow.clone();
    authenticator.replace_backends(chain(std::slice::from_ref(&backend)), LIMITS);
    let waiting = ask(&authenticator, &subject.right);
    while slow.kept.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    authenticator.replace_backends(chain(&[ignorant()]), LIMITS);
    let reply = slow.kept.lock().unwrap().pop().unwrap();
    reply.send(BackendOutcome::Allow(Box::default()));
    let refusal = user_of(waiting.recv_timeout(SOON).unwrap()).unwrap_err();
    assert!(matches!(refusal, Refusal::BadCredentials | Refusal::NotWelcome), "{refusal:?}");
}

#[test]
fn nobody_in_particular_comes_in_only_where_that_is_allowed() {
    subjects().iter().for_each(knows_nobody_in_particular);
}

fn knows_nobody_in_particular(subject: &ContractSubject) {
    let backends = std::slice::from_ref(&subject.backend);
    let open = Authenticator::new(BackendChain { anonymous: true, ..chain(backends) }, LIMITS);
    assert_eq!(answer(&open, &claim(None, None)), Ok(String::new()));
    assert_eq!(answer(&open, &subject.wrong), Err(Refusal::BadCredentials));
    assert_eq!(answer(&authenticator_for(backends), &claim(None, None)), Err(Refusal::NotWelcome));
}

#[test]
fn a_full_queue_and_a_guessing_address_are_refused_at_once() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let slow: Arc<dyn AuthBackend> = Arc::new(ScriptedBackend(|reply| {
        while !GOES_ON.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        reply.send(BackendOutcome::Deny("no"));
    }));
    let limits = AuthenticatorLimits { threads: 1, queue_max: 2, failures_max: 4 };
    let authenticator = Authenticator::new(chain(&[slow]), limits);
    let who = claim(Some("ann"), Some(b"x"));
    let all: Vec<_> = (0..6).map(|_| ask(&authenticator, &who)).collect();
    GOES_ON.store(true, Ordering::SeqCst);
    let all: Vec<_> =
        all.iter().map(|one| user_of(one.recv_timeout(SOON).unwrap()).unwrap_err()).collect();
    assert!(all.contains(&Refusal::TooBusy), "{all:?}");
    let failed = all.iter().filter(|refusal| **refusal == Refusal::BadCredentials).count();
    for _ in failed..4 {
        assert_eq!(answer(&authenticator, &who), Err(Refusal::BadCredentials));
    }
    assert_eq!(answer(&authenticator, &who), Err(Refusal::TooManyFailures));
    let other =
        AuthRequest { peer: PeerAddress::Network(([192, 0, 2, 2], 1).into()), ..who.clone() };
    assert_eq!(answer(&authenticator, &other), Err(Refusal::BadCredentials));
    let local =
        |process| AuthRequest { peer: PeerAddress::Unix { user: 1000, process }, ..who.clone() };
    for process in 0..4 {
        assert_eq!(answer(&authenticator, &local(process)), Err(Refusal::BadCredentials));
    }
    assert_eq!(answer(&authenticator, &local(4)), Err(Refusal::TooManyFailures), "another process");
}

#[test]
fn nobody_is_asked_about_a_client_that_has_gone() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let slow: Arc<dyn AuthBackend> = Arc::new(ScriptedBackend(|reply| {
        ASKED.fetch_add(1, Ordering::SeqCst);
        while !GOES_ON.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        reply.send(BackendOutcome::Allow(Box::default()));
    }));
    // Once after the first backend, and once before it.
    let authenticator = Authenticator::new(
        chain(&[ignorant(), slow]),
        AuthenticatorLimits { threads: 1, queue_max: 100, ..LIMITS },
    );
    let who = claim(Some("ann"), Some(b"x"));
    let first = ask(&authenticator, &who);
    while ASKED.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let all: Vec<_> = (0..60)
        .map(|_| {
            let liveness = ConnectionLiveness::default();
            (ask_while(&authenticator, &who, &liveness), liveness)
        })
        .collect();
    let (gone, here) = all.split_at(50);
    gone.iter().for_each(|(_, liveness)| liveness.close());
    GOES_ON.store(true, Ordering::SeqCst);
    assert_eq!(user_of(first.recv_timeout(SOON).unwrap()), Ok(String::new()));
    for (answer, _) in here {
        assert_eq!(user_of(answer.recv_timeout(SOON).unwrap()), Ok(String::new()));
    }
    assert_eq!(ASKED.load(Ordering::SeqCst), 1 + 10);
    let unanswered = gone.iter().filter(|(answer, _)| answer.try_recv().is_err()).count();
    assert_eq!(unanswered, 50);
}

#[test]
fn each_name_of_a_certificate_can_be_the_user() {
    let names = PeerCertificate {
        common_name: Some("ann".into()),
        subject: "CN=ann,O=Example".into(),
        alternatives: vec![
            AlternativeName::Address([192, 0, 2, 7].into()),
            AlternativeName::Dns("ann.example".into()),
        ],
    };
    let known = AuthRequest { certificate: Some(Arc::new(names)), ..claim(None, None) };
    for (user, name) in [
        (CertificateNameField::CommonName, "ann"),
        (CertificateNameField::Subject, "CN=ann,O=Example"),
        (CertificateNameField::AlternativeName, "192.0.2.7"),
    ] {
        let authenticator =
            authenticator_for(&[Arc::new(CertificateBackend { user, client_id: None })]);
        assert_eq!(answer(&authenticator, &known), Ok(name.to_string()));
        assert_eq!(
            answer(&authenticator, &certified("")),
            Err(Refusal::BadCredentials),
            "it has none"
        );
    }
}

/// Authenticates by SCRAM with `first` as the client's first message.
fn begin_with(
    authenticator: &Arc<Authenticator>,
    first: &str,
    client: &ScramClient,
) -> Result<String, Refusal> {
    let step = |data: &str, memory| {
        let data = SecretBytes(data.as_bytes().into());
        let step = Some(AuthStep { method: scram::METHOD.into(), data, memory });
        ask(authenticator, &AuthRequest { step, ..claim(None, None) })
            .recv_timeout(SOON)
            .expect("an answer")
    };
    match step(first, None) {
        AuthDecision::Challenge { data, memory } => {
            let (last, _) =
                client.client_final_message(std::str::from_utf8(&data).unwrap()).unwrap();
            user_of(step(&last, Some(memory)))
        }
        verdict => user_of(verdict),
    }
}

fn exchange(
    authenticator: &Arc<Authenticator>,
    user: &str,
    password: &str,
) -> Result<String, Refusal> {
    let client = ScramClient::with_nonce(password, user, "abc");
    begin_with(authenticator, &client.client_first_message(), &client)
}

#[test]
fn who_proves_its_password_without_saying_it_comes_in() {
    let lines = format!(
        "ann:{}\nbob:{}\n",
        PasswordHash::scram_from_password(b"right").unwrap(),
        PasswordHash::from_password(b"right").unwrap()
    );
    let file = scratch("contract-exchange", &lines);
    let users: Arc<dyn AuthBackend> = Arc::new(UserFile::read(&file).unwrap());
    let _ = std::fs::remove_file(file);
    let authenticator = authenticator_for(&[ignorant(), users.clone()]);
    assert_eq!(*chain(&[users]).methods(), [Box::from(scram::METHOD)]);
    assert_eq!(exchange(&authenticator, "ann", "right"), Ok("ann".into()));
    let wrong = Err(Refusal::BadCredentials);
    assert_eq!(exchange(&authenticator, "ann", "wrong"), wrong);
    // Neither is told from a wrong password before the last step.
    assert_eq!(exchange(&authenticator, "bob", "right"), wrong);
    assert_eq!(exchange(&authenticator, "eve", "right"), wrong);
    let ann = ScramClient::with_nonce("right", "ann", "abc");
    for first in ["n,a=eve,n=ann,r=abc", "p=tls-unique,,n=ann,r=abc", "ann"] {
        assert_eq!(begin_with(&authenticator, first, &ann), wrong, "{first}");
    }
}
