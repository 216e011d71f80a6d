//! The further tests of SQL servers: meanings of rows, wrong queries, timeouts, TLS, lost servers
//! and their return.

use super::super::password_format::{PasswordFormat, PasswordHashKind, SaltPosition};
use super::forms::{authenticator_with, has_rules, hash, is_as_told, password_form, rows, verdict};
use super::*;
use net::server_pool::RemoteLimits;

pub(super) trait SqlServer {
    /// Name of the server in the tables of `forms`.
    const NAME: &'static str;
    /// A query that exceeds every timeout.
    const SLOW: &'static str;

    fn backend(&self, asks: &SqlBackendOptions) -> Arc<dyn AuthBackend>;
    fn stop(&mut self);
    fn restart(&mut self);
}

/// Options that differ between the backends of one test.
pub(super) struct SqlBackendOptions {
    pub(super) who: &'static str,
    pub(super) user: &'static str,
    pub(super) rules: Option<&'static str>,
    pub(super) form: PasswordFormat,
    /// CA file for a connection over TLS.
    pub(super) authority: Option<&'static str>,
    pub(super) bounds: RemoteLimits,
}

impl Default for SqlBackendOptions {
    fn default() -> SqlBackendOptions {
        SqlBackendOptions {
            who: "godwit:it's%20our%20p%40ss%3Aword%2F%25",
            user: "SELECT * FROM mqtt_user WHERE username = ${username}",
            rules: Some("SELECT * FROM mqtt_acl WHERE username = ${username} ORDER BY id"),
            form: PasswordFormat::default(),
            authority: None,
            bounds: RemoteLimits { timeout_ms: 20_000, connections_max: 2, questions_max: 100 },
        }
    }
}

/// A password with characters that URLs encode.
pub(super) const PASSWORD: &str = "it's our p@ss:word/%";

fn who(user: &str) -> AuthRequest {
    claim(Some(user), Some(b"secret"))
}

fn one(backend: Arc<dyn AuthBackend>, request: &AuthRequest) -> Result<String, Refusal> {
    answer(&authenticator_for(&[backend]), request)
}

pub(super) fn stands_with_tables<S: SqlServer>(server: &mut S) {
    let first = server.backend(&SqlBackendOptions::default());
    let subject = |backend| ContractSubject {
        backend,
        right: who("ann"),
        wrong: claim(Some("ann"), Some(b"wrong")),
        stranger: who("bob"),
        user: "ann",
    };
    stands(&subject(first.clone()));
    let authenticator = authenticator_for(&[first]);
    reads_rows(server, &authenticator);
    forms_of_rows(server);
    forms_of_rules(server);
    knows_clients_by_more_than_a_name(server);
    survives_trouble(server);
    assert_eq!(answer(&authenticator, &who("ann")), Ok("ann".into()));

    let trusted = server
        .backend(&SqlBackendOptions { authority: Some("ca.pem"), ..SqlBackendOptions::default() });
    stands(&subject(trusted));
    let strange =
        SqlBackendOptions { authority: Some("stranger-ca.pem"), ..SqlBackendOptions::default() };
    assert_eq!(one(server.backend(&strange), &who("ann")), Err(Refusal::NoVerdict));

    server.stop();
    assert_eq!(answer(&authenticator, &who("ann")), Err(Refusal::NoVerdict));
    assert_eq!(answer(&authenticator, &who("bob")), Err(Refusal::NoVerdict));
    server.restart();
    assert_eq!(answer_at_last(&authenticator, &who("ann")), Ok("ann".into()));
    let wrong = claim(Some("ann"), Some(b"wrong"));
    assert_eq!(answer(&authenticator, &wrong), Err(Refusal::BadCredentials));
}

fn reads_rows(server: &impl SqlServer, authenticator: &Arc<Authenticator>) {
    let verdict = ask(authenticator, &who("ann")).recv_timeout(SOON).unwrap();
    let AuthDecision::Allow(principal) = verdict else { panic!("{verdict:?}") };
    assert_eq!(principal.groups, ["staff".into(), "night".into()]);
    assert!(!principal.is_superuser);
    are_the_rules_of(RULES, principal.permissions);
    // Malformed rows refuse the client.
    for user in ["root", "plain", "twice", "none"] {
        assert_eq!(answer(authenticator, &who(user)), Err(Refusal::NoVerdict), "{user}");
    }
    let without_rules =
        server.backend(&SqlBackendOptions { rules: None, ..SqlBackendOptions::default() });
    let verdict =
        ask(&self::authenticator_for(&[without_rules]), &who("root")).recv_timeout(SOON).unwrap();
    let AuthDecision::Allow(principal) = verdict else { panic!("{verdict:?}") };
    assert!(principal.is_superuser && principal.permissions.is_none());
    let form = PasswordFormat {
        hash_kind: PasswordHashKind::Sha256,
        salt: SaltPosition::Prefix,
        rounds: 0,
    };
    let salted = server.backend(&SqlBackendOptions { form, ..SqlBackendOptions::default() });
    assert_eq!(one(salted.clone(), &who("salted")), Ok("salted".into()));
    let wrong = claim(Some("salted"), Some(b"Secret"));
    assert_eq!(one(salted, &wrong), Err(Refusal::BadCredentials));
}

fn survives_trouble<S: SqlServer>(server: &S) {
    let wrong = server.backend(&SqlBackendOptions {
        user: "SELECT * FROM nowhere",
        ..SqlBackendOptions::default()
    });
    let behind = authenticator_for(&[wrong]);
    for _ in 0..3 {
        assert_eq!(answer(&behind, &who("ann")), Err(Refusal::NoVerdict));
    }
    let stranger =
        server.backend(&SqlBackendOptions { who: "godwit:wrong", ..SqlBackendOptions::default() });
    assert_eq!(one(stranger, &who("ann")), Err(Refusal::NoVerdict));
    let bounds = RemoteLimits { timeout_ms: 300, connections_max: 1, questions_max: 10 };
    let slow = server.backend(&SqlBackendOptions {
        user: S::SLOW,
        bounds,
        ..SqlBackendOptions::default()
    });
    assert_eq!(one(slow, &who("ann")), Err(Refusal::NoVerdict));
}

/// Returns the rows of a table that apply to this server.
fn rows_of<S: SqlServer>(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    rows(table).filter(|row| ["sql", S::NAME].contains(&row[1]))
}

/// Returns a query for one row with these columns.
fn query(columns: &str, condition: &str) -> &'static str {
    let columns = columns.replace("'H'", &format!("'{}'", hash()));
    // A placeholder inside a text of the query would be bound; the row must contain it instead.
    let texts = columns.split('\'').enumerate().map(|(at, part)| match part.split_once("${") {
        _ if at % 2 == 0 => part.to_string(),
        None => format!("'{part}'"),
        Some((before, after)) => format!("CONCAT('{before}$', '{{{after}')"),
    });
    let columns: String = texts.collect();
    format!("SELECT {columns} FROM (SELECT 1 AS one) AS t {condition}").leak()
}

fn forms_of_rows<S: SqlServer>(server: &S) {
    let mut wrongs = Vec::new();
    for row in rows_of::<S>(include_str!("forms/rows.tsv")) {
        let [whose, _, form, columns, answer] = row[..] else { panic!("{row:?}") };
        let user = query(columns, "WHERE ${username} <> ''");
        let form = password_form(form);
        let backend = server.backend(&SqlBackendOptions {
            user,
            rules: None,
            form,
            ..SqlBackendOptions::default()
        });
        let verdict = verdict(&authenticator_with(&backend, false), &who("ann"));
        let is = is_as_told(verdict, answer, true, false);
        wrongs.extend(is.err().map(|why| format!("{whose}: {columns}: {why}")));
    }
    assert!(wrongs.is_empty(), "{}:\n{}", S::NAME, wrongs.join("\n"));
}

fn forms_of_rules<S: SqlServer>(server: &S) {
    let user = query("'H' AS password_hash", "WHERE ${username} <> ''");
    for row in rows_of::<S>(include_str!("forms/rules.tsv")) {
        let [whose, _, columns, rules] = row[..] else { panic!("{row:?}") };
        let asks = SqlBackendOptions {
            user,
            rules: Some(query(columns, "")),
            ..SqlBackendOptions::default()
        };
        let backend = server.backend(&asks);
        match verdict(&authenticator_with(&backend, false), &who("ann")) {
            AuthDecision::Allow(principal) if rules != "none" => has_rules(&principal, rules),
            AuthDecision::Deny(Refusal::NoVerdict) if rules == "none" => {}
            other => panic!("{}, {whose}: {columns}: {other:?}, not {rules}", S::NAME),
        }
    }
}

/// The query may search by the client id or by a name of the certificate, with and without a
/// password.
fn knows_clients_by_more_than_a_name<S: SqlServer>(server: &S) {
    let by_id = AuthRequest { client_id: "ann".into(), ..claim(None, Some(b"secret")) };
    let by_certificate = AuthRequest {
        password: Some(SecretBytes(b"secret".as_slice().into())),
        ..certified("ann")
    };
    for (user, right) in [
        ("SELECT password_hash FROM mqtt_user WHERE username = ${clientid}", by_id),
        ("SELECT password_hash FROM mqtt_user WHERE username = ${cert_cn}", by_certificate),
    ] {
        let backend = server.backend(&SqlBackendOptions {
            user,
            rules: None,
            ..SqlBackendOptions::default()
        });
        for anonymous in [false, true] {
            let authenticator = authenticator_with(&backend, anonymous);
            let is = |request: &AuthRequest, answer: &str| {
                let is_named = request.password.is_some();
                is_as_told(verdict(&authenticator, request), answer, is_named, anonymous).unwrap();
            };
            is(&right, "allow");
            let named = AuthRequest { user_name: Some("somebody".into()), ..right.clone() };
            is(&named, "allow");
            let AuthDecision::Allow(principal) = verdict(&authenticator, &named) else {
                panic!("it is")
            };
            assert_eq!(principal.user, None, "nobody looked for that name");
            let wrong = Some(SecretBytes(b"wrong".as_slice().into()));
            is(&AuthRequest { password: wrong, ..right.clone() }, "wrong");
            is(&AuthRequest { password: None, ..right.clone() }, "ignore");
        }
    }
}
