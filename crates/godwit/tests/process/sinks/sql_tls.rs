//! `sql.tls`: connections to databases over TLS, and refusal of servers without a trusted
//! certificate.

use super::contract::{OURS, SinkPlace, SinkRig, wait_for};
use super::places::{MysqlPlace, PostgresPlace};
use super::tls::certificates;
use crate::servers::give;
use std::fs;
use std::path::Path;

/// A database that can report the encryption of a connection.
trait TlsPlace: SinkPlace {
    const USER: &'static str;
    fn folder(&self) -> &Path;
    /// Returns the URL, and a statement that writes the TLS version of its own connection.
    fn options(&self) -> String;
    fn start_with_tls(&mut self, certificate: String, key: String);
}

impl TlsPlace for PostgresPlace {
    const USER: &'static str = "postgres";

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn options(&self) -> String {
        format!(
            "sql.url = \"postgres://godwit:it's%20secret@localhost:{}/postgres\"\n\
             sql.statement = \"INSERT INTO m (topic, payload) SELECT ${{topic}}, \
             coalesce(version, 'plain') FROM pg_stat_ssl WHERE pid = pg_backend_pid()\"\n",
            self.port
        )
    }

    fn start_with_tls(&mut self, certificate: String, key: String) {
        let files = [format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")];
        self.serve(&[&["ssl=on".to_string()][..], &files].concat());
    }
}

impl TlsPlace for MysqlPlace {
    const USER: &'static str = "mysql";

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn options(&self) -> String {
        format!(
            "sql.url = \"mysql://godwit:it's%20secret@localhost:{}/godwit\"\n\
             sql.statement = \"INSERT INTO m (topic, payload) SELECT ${{topic}}, \
             if(variable_value = '', 'plain', variable_value) \
             FROM information_schema.session_status WHERE variable_name = 'Ssl_version'\"\n",
            self.port
        )
    }

    fn start_with_tls(&mut self, certificate: String, key: String) {
        self.serve(&[format!("--ssl-cert={certificate}"), format!("--ssl-key={key}")]);
    }
}

fn only_a_database_that_is_vouched_for_gets_anything<D: TlsPlace>(mut database: D) {
    let name = format!("sink-{}-tls", D::NAME);
    let tls = certificates(&name);
    let sink = |tls_options: &str| {
        let options = TlsPlace::options(&database);
        format!(
            "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 50\nretry_max_s = 1\n\
             {options}{tls_options}"
        )
    };
    let vouched = |authority: &str| {
        sink(&format!("sql.tls = true\ntls.ca = \"{}/{authority}\"\n", tls.display()))
    };
    let (plain, right, wrong) = (sink(""), vouched("ca.pem"), vouched("stranger-ca.pem"));
    // As servers are that speak no TLS; what says so is the row.
    let mut edge = SinkRig::start(&name, &plain, &[]);
    edge.publish(&["-t", "a", "-m", "x", "-q", "1"]);
    let row = |topic: &str, by: &str| (topic.to_string(), by.to_string());
    wait_for(&database, "plain", |rows| rows == [row("a", "plain")]);
    edge.reload(&right);
    edge.wait_for_value("last_error", |value| value.contains("it does not speak TLS"));
    edge.publish(&["-t", "b", "-m", "x", "-q", "1"]);
    database.stop();
    let own = |name: &str| {
        let path = database.folder().join(name);
        fs::copy(tls.join(name), &path).expect(OURS);
        let chmod = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, chmod).expect(OURS);
        give(&path, D::USER);
        path.display().to_string()
    };
    let (certificate, key) = (own("server.pem"), own("server.key"));
    edge.reload(&wrong);
    database.start_with_tls(certificate, key);
    edge.wait_for_value("last_error", |value| value.contains("certificate"));
    edge.wait_for_value("state", |value| value == "0");
    assert_eq!(database.rows().len(), 1, "nobody vouches for it");
    edge.reload(&right);
    wait_for(&database, "by TLS", |rows| {
        rows.len() == 2 && rows[1].0 == "b" && rows[1].1.starts_with("TLSv1.")
    });
    let _ = fs::remove_dir_all(tls);
}

#[test]
fn postgres_by_tls() {
    if let Some(database) = PostgresPlace::new("sink-postgres-sealed") {
        only_a_database_that_is_vouched_for_gets_anything(database);
    }
}

#[test]
fn mariadb_by_tls() {
    if let Some(database) = MysqlPlace::new("sink-mysql-sealed") {
        only_a_database_that_is_vouched_for_gets_anything(database);
    }
}
