//! The contract for a real PostgreSQL server.

use super::super::remote::RemoteBackend;
use super::super::remote::template::AuthTemplate;
use super::super::tables::sql::{SqlAuthServer, SqlAuthSettings};
use super::installed::is_installed;
use super::ports::free_port;
use super::servers::{ServerProcess, as_user, folder, give, run};
use super::sql::{PASSWORD, SqlBackendOptions, SqlServer, stands_with_tables};
use super::*;
use net::control_runtime::ControlRuntime;
use net::server_url::ServerUrl;
use net::sql::postgres::{PostgresDatabase, SCHEMES};
use rustls::ClientConfig;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use transport::TlsClientOptions;

/// Returns the path of a PostgreSQL program; Debian installs programs in a folder per version.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    let found = found.filter(|path| path.exists()).max();
    found.map_or(name.to_string(), |path| path.display().to_string())
}

struct PostgresServer {
    folder: PathBuf,
    port: u16,
    started: ServerProcess,
}

const USER: &str = "postgres";

impl PostgresServer {
    fn start() -> PostgresServer {
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
        // One statement per line, as the single-user server reads them; HASH is of "secret".
        run(single, &include_str!("postgres.sql").replace("HASH", hash));
        let port = free_port();
        PostgresServer { started: serve(&folder, port), folder, port }
    }

    fn url(&self, who: &str) -> ServerUrl {
        let text = format!("postgres://{who}@localhost:{}/postgres", self.port);
        ServerUrl::parse(&text, SCHEMES).unwrap()
    }

    fn trust(&self, authority: &str) -> Option<Arc<ClientConfig>> {
        let authorities = Some(self.folder.join(authority).display().to_string());
        Some(
            TlsClientOptions { authorities, ..TlsClientOptions::default() }
                .client_config()
                .unwrap(),
        )
    }
}

impl SqlServer for PostgresServer {
    const NAME: &str = "postgres";
    const SLOW: &str = "SELECT '' AS password_hash FROM pg_sleep(60) WHERE '' <> ${username}";

    fn stop(&mut self) {
        self.started.stop();
    }

    fn restart(&mut self) {
        self.started = serve(&self.folder, self.port);
    }

    fn backend(&self, asks: &SqlBackendOptions) -> Arc<dyn AuthBackend> {
        let template = |text: &str| AuthTemplate::parse(text, false).unwrap();
        let settings = SqlAuthSettings {
            user: Some(template(asks.user)),
            rules: asks.rules.map(template),
            ..SqlAuthSettings::default()
        };
        let tls = asks.authority.and_then(|authority| self.trust(authority));
        let server = PostgresDatabase::new(&self.url(asks.who), tls);
        let tables = SqlAuthServer::new(server, &settings, asks.form, &[]).unwrap();
        Arc::new(RemoteBackend::new(tables, asks.bounds, Arc::new(ControlRuntime::default())))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.started.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(folder: &Path, port: u16) -> ServerProcess {
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
    ServerProcess::new(&command, USER, "INT", "ready to accept connections")
}

#[test]
fn postgres_stands_the_contract() {
    if is_installed("PostgreSQL", program("initdb")) {
        stands_with_tables(&mut PostgresServer::start());
    }
}
