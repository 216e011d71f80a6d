//! The contract for a real MariaDB server.

use super::super::remote::RemoteBackend;
use super::super::remote::template::AuthTemplate;
use super::super::tables::sql::{SqlAuthServer, SqlAuthSettings};
use super::installed::is_installed;
use super::ports::free_port;
use super::servers::{ServerProcess, folder, give, install_mariadb};
use super::sql::{PASSWORD, SqlBackendOptions, SqlServer, stands_with_tables};
use super::*;
use net::control_runtime::ControlRuntime;
use net::server_url::ServerUrl;
use net::sql::mysql::{MysqlDatabase, SCHEMES};
use rustls::ClientConfig;
use std::fs;
use std::path::Path;
use transport::TlsClientOptions;

struct MysqlServer {
    folder: PathBuf,
    port: u16,
    started: ServerProcess,
}

const USER: &str = "mysql";

impl MysqlServer {
    fn start() -> MysqlServer {
        let folder = folder("mysql", USER);
        let certificates = certificates("mysql-tls");
        for name in ["server.pem", "server.key", "ca.pem", "stranger-ca.pem"] {
            fs::copy(certificates.join(name), folder.join(name)).unwrap();
            give(&folder.join(name), USER);
        }
        let _ = fs::remove_dir_all(certificates);
        install_mariadb(&folder.join("files"));
        let tables = folder.join("tables.sql");
        let hash = include_str!("../vectors/mosquitto_7.txt").trim().trim_start_matches("ann:");
        let sql = include_str!("mysql.sql").replace("HASH", hash);
        fs::write(&tables, sql.replace("PASSWORD", &PASSWORD.replace('\'', "''"))).unwrap();
        give(&tables, USER);
        let port = free_port();
        let first = format!("--init-file={}", tables.display());
        MysqlServer { started: serve(&folder, port, &[&first]), folder, port }
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

impl SqlServer for MysqlServer {
    const NAME: &str = "mysql";
    const SLOW: &str =
        "SELECT sleep(60) AS password_hash FROM mqtt_user WHERE username = ${username}";

    fn backend(&self, asks: &SqlBackendOptions) -> Arc<dyn AuthBackend> {
        let url = format!("mysql://{}@localhost:{}/godwit", asks.who, self.port);
        let template = |text: &str| AuthTemplate::parse(text, false).unwrap();
        let settings = SqlAuthSettings {
            user: Some(template(asks.user)),
            rules: asks.rules.map(template),
            ..SqlAuthSettings::default()
        };
        let tls = asks.authority.and_then(|authority| self.trust(authority));
        let server = MysqlDatabase::new(&ServerUrl::parse(&url, SCHEMES).unwrap(), tls);
        let tables = SqlAuthServer::new(server, &settings, asks.form, &[]).unwrap();
        Arc::new(RemoteBackend::new(tables, asks.bounds, Arc::new(ControlRuntime::default())))
    }

    fn stop(&mut self) {
        self.started.stop();
    }

    fn restart(&mut self) {
        self.started = serve(&self.folder, self.port, &[]);
    }
}

impl Drop for MysqlServer {
    fn drop(&mut self) {
        self.started.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(folder: &Path, port: u16, more: &[&str]) -> ServerProcess {
    let at = |name: &str| folder.join(name).display().to_string();
    let options = [
        "--bind-address=127.0.0.1".to_string(),
        format!("--port={port}"),
        format!("--datadir={}", at("files")),
        format!("--socket={}", at("socket")),
        format!("--pid-file={}", at("pid")),
        format!("--ssl-cert={}", at("server.pem")),
        format!("--ssl-key={}", at("server.key")),
        "--innodb-flush-log-at-trx-commit=0".to_string(),
        "--innodb-log-file-size=4M".to_string(),
    ];
    let mut command = vec!["mariadbd", "--no-defaults"];
    command.extend(options.iter().map(String::as_str));
    command.extend(more);
    ServerProcess::new(&command, USER, "TERM", "ready for connections")
}

#[test]
fn mysql_stands_the_contract() {
    if is_installed("MariaDB", "mariadbd") {
        stands_with_tables(&mut MysqlServer::start());
    }
}
