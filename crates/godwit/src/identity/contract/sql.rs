//! What each server with tables has to stand beside the contract: what its rows mean, wrong
//! queries, silence, TLS, death and return.

use super::super::password::{Form, Kind, Salt};
use super::super::remote::Bounds;
use super::*;

pub(super) trait SqlServer {
    /// A query that takes longer than anybody waits.
    const SLOW: &'static str;

    fn backend(&self, asks: &Asks) -> Arc<dyn Backend>;
    fn stop(&mut self);
    fn restart(&mut self);
}

/// What differs between the backends of one test.
pub(super) struct Asks {
    pub(super) who: &'static str,
    pub(super) user: &'static str,
    pub(super) rules: Option<&'static str>,
    pub(super) form: Form,
    /// Who vouches for the server, if it is asked over TLS.
    pub(super) authority: Option<&'static str>,
    pub(super) bounds: Bounds,
}

impl Default for Asks {
    fn default() -> Asks {
        Asks {
            who: "godwit:it's%20our%20p%40ss%3Aword%2F%25",
            user: "SELECT * FROM mqtt_user WHERE username = ${username}",
            rules: Some("SELECT * FROM mqtt_acl WHERE username = ${username} ORDER BY id"),
            form: Form::default(),
            authority: None,
            bounds: Bounds { timeout_ms: 20_000, connections_max: 2, questions_max: 100 },
        }
    }
}

/// What URLs have in their encoded form.
pub(super) const PASSWORD: &str = "it's our p@ss:word/%";

fn who(user: &str) -> Claim {
    claim(Some(user), Some(b"secret"))
}

fn one(backend: Arc<dyn Backend>, claim: &Claim) -> Result<String, Refusal> {
    answer(&porter(&[backend]), claim)
}

pub(super) fn stands_with_tables<S: SqlServer>(server: &mut S) {
    let first = server.backend(&Asks::default());
    let subject = |backend| Subject {
        backend,
        right: who("ann"),
        wrong: claim(Some("ann"), Some(b"wrong")),
        stranger: who("bob"),
        user: "ann",
    };
    stands(&subject(first.clone()));
    let porter = porter(&[first]);
    reads_rows(server, &porter);
    survives_trouble(server);
    assert_eq!(answer(&porter, &who("ann")), Ok("ann".into()));

    let trusted = server.backend(&Asks { authority: Some("ca.pem"), ..Asks::default() });
    stands(&subject(trusted));
    let strange = Asks { authority: Some("stranger-ca.pem"), ..Asks::default() };
    assert_eq!(one(server.backend(&strange), &who("ann")), Err(Refusal::NoVerdict));

    server.stop();
    assert_eq!(answer(&porter, &who("ann")), Err(Refusal::NoVerdict));
    assert_eq!(answer(&porter, &who("bob")), Err(Refusal::NoVerdict));
    server.restart();
    assert_eq!(answer_at_last(&porter, &who("ann")), Ok("ann".into()));
    let wrong = claim(Some("ann"), Some(b"wrong"));
    assert_eq!(answer(&porter, &wrong), Err(Refusal::BadCredentials));
}

fn reads_rows(server: &impl SqlServer, porter: &Arc<Porter>) {
    let verdict = ask(porter, &who("ann")).recv_timeout(SOON).unwrap();
    let Verdict::Allow(grant) = verdict else { panic!("{verdict:?}") };
    assert_eq!(grant.groups, ["staff".into(), "night".into()]);
    assert!(!grant.is_superuser);
    are_the_rules_of(RULES, grant.permissions);
    // What cannot be understood lets nobody in.
    for user in ["root", "plain", "twice", "none"] {
        assert_eq!(answer(porter, &who(user)), Err(Refusal::NoVerdict), "{user}");
    }
    let without_rules = server.backend(&Asks { rules: None, ..Asks::default() });
    let verdict = ask(&self::porter(&[without_rules]), &who("root")).recv_timeout(SOON).unwrap();
    let Verdict::Allow(grant) = verdict else { panic!("{verdict:?}") };
    assert!(grant.is_superuser && grant.permissions.is_none());
    let form = Form { kind: Kind::Sha256, salt: Salt::Prefix, rounds: 0 };
    let salted = server.backend(&Asks { form, ..Asks::default() });
    assert_eq!(one(salted.clone(), &who("salted")), Ok("salted".into()));
    let wrong = claim(Some("salted"), Some(b"Secret"));
    assert_eq!(one(salted, &wrong), Err(Refusal::BadCredentials));
}

fn survives_trouble<S: SqlServer>(server: &S) {
    let wrong = server.backend(&Asks { user: "SELECT * FROM nowhere", ..Asks::default() });
    let behind = porter(&[wrong]);
    for _ in 0..3 {
        assert_eq!(answer(&behind, &who("ann")), Err(Refusal::NoVerdict));
    }
    let stranger = server.backend(&Asks { who: "godwit:wrong", ..Asks::default() });
    assert_eq!(one(stranger, &who("ann")), Err(Refusal::NoVerdict));
    let bounds = Bounds { timeout_ms: 300, connections_max: 1, questions_max: 10 };
    let slow = server.backend(&Asks { user: S::SLOW, bounds, ..Asks::default() });
    assert_eq!(one(slow, &who("ann")), Err(Refusal::NoVerdict));
}
