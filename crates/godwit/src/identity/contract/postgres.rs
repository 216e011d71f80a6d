//! The contract for PostgreSQL, with a real one.

use super::super::remote::Remote;
use super::super::remote::template::Template;
use super::super::remote::url::Url;
use super::super::tables::postgres::{Postgres, SCHEMES};
use super::super::tables::sql::{TableSettings, Tables};
use super::installed::is_installed;
use super::ports::free_port;
use super::servers::{Started, as_user, folder, give, run};
use super::sql::{Asks, PASSWORD, SqlServer, stands_with_tables};
use super::*;
use crate::runtime::Runtime;
use carrier::Trust;
use rustls::ClientConfig;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Packages of Debian name their programs by version.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    let found = found.filter(|path| path.exists()).max();
    found.map_or(name.to_string(), |path| path.display().to_string())
}

struct Server {
    folder: PathBuf,
    port: u16,
    started: Started,
}

const USER: &str = "postgres";

impl Server {
    fn start() -> Server {
        let folder = folder("postgres", USER);
        let at = folder.join("data").display().to_string();
        let password = folder.join("password");
        fs::write(&password, PASSWORD).unwrap();
        give(&password, USER);
        let mut initdb = as_user(USER, &program("initdb"));
        initdb.args(["-D", &at, "-A", "scram-sha-256", "-U", "godwit", "--no-sync"]);
        initdb.args(["-E", "UTF8", "--locale=C", "--no-instructions", "--pwfile"]).arg(&password);
        run(initdb, "");
        let certificates = certificates("postgres-tls");
        for name in ["server.pem", "server.key", "ca.pem", "stranger-ca.pem"] {
            let copy = folder.join(name);
            fs::copy(certificates.join(name), &copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
            give(&copy, USER);
        }
        let _ = fs::remove_dir_all(certificates);
        let mut single = as_user(USER, &program("postgres"));
        single.args(["--single", "-D", &at, "postgres"]);
        let hash = include_str!("../vectors/mosquitto_7.txt").trim().trim_start_matches("ann:");
        // A statement a line, as a server without clients reads them; HASH is of "secret".
        run(single, &include_str!("postgres.sql").replace("HASH", hash));
        let port = free_port();
        Server { started: serve(&folder, port), folder, port }
    }

    fn url(&self, who: &str) -> Url {
        let text = format!("postgres://{who}@localhost:{}/postgres", self.port);
        Url::parse(&text, SCHEMES).unwrap()
    }

    fn trust(&self, authority: &str) -> Option<Arc<ClientConfig>> {
        let authorities = Some(self.folder.join(authority).display().to_string());
        Some(Trust { authorities, ..Trust::default() }.config().unwrap())
    }
}

impl SqlServer for Server {
    const NAME: &str = "postgres";
    const SLOW: &str = "SELECT '' AS password_hash FROM pg_sleep(60) WHERE '' <> ${username}";

    fn stop(&mut self) {
        self.started.stop();
    }

    fn restart(&mut self) {
        self.started = serve(&self.folder, self.port);
    }

    fn backend(&self, asks: &Asks) -> Arc<dyn Backend> {
        let template = |text: &str| Template::parse(text, false).unwrap();
        let settings = TableSettings {
            user: Some(template(asks.user)),
            rules: asks.rules.map(template),
            ..TableSettings::default()
        };
        let tls = asks.authority.and_then(|authority| self.trust(authority));
        let server = Postgres::new(&self.url(asks.who), tls);
        let tables = Tables::new(server, &settings, asks.form, &[]).unwrap();
        Arc::new(Remote::new(tables, asks.bounds, Arc::new(Runtime::default())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.started.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(folder: &Path, port: u16) -> Started {
    let at = |name: &str| folder.join(name).display().to_string();
    let options = [
        "listen_addresses=127.0.0.1".to_string(),
        "unix_socket_directories=".to_string(),
        "fsync=off".to_string(),
        "ssl=on".to_string(),
        format!("ssl_cert_file={}", at("server.pem")),
        format!("ssl_key_file={}", at("server.key")),
        format!("port={port}"),
    ];
    let (postgres, data) = (program("postgres"), at("data"));
    let mut command = vec![postgres.as_str(), "-D", &data];
    options.iter().for_each(|option| command.extend(["-c", option]));
    Started::new(&command, USER, "INT", "ready to accept connections")
}

#[test]
fn postgres_stands_the_contract() {
    if is_installed("PostgreSQL", program("initdb")) {
        stands_with_tables(&mut Server::start());
    }
}
