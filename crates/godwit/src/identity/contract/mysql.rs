//! The contract for MariaDB, with a real one.

use super::super::remote::Remote;
use super::super::remote::template::Template;
use super::super::remote::url::Url;
use super::super::tables::mysql::{Mysql, SCHEMES};
use super::super::tables::sql::{TableSettings, Tables};
use super::installed::is_installed;
use super::ports::free_port;
use super::servers::{Started, folder, give, install_mariadb};
use super::sql::{Asks, PASSWORD, SqlServer, stands_with_tables};
use super::*;
use crate::runtime::Runtime;
use carrier::Trust;
use rustls::ClientConfig;
use std::fs;
use std::path::Path;

struct Server {
    folder: PathBuf,
    port: u16,
    started: Started,
}

const USER: &str = "mysql";

impl Server {
    fn start() -> Server {
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
        Server { started: serve(&folder, port, &[&first]), folder, port }
    }

    fn trust(&self, authority: &str) -> Option<Arc<ClientConfig>> {
        let authorities = Some(self.folder.join(authority).display().to_string());
        Some(Trust { authorities, ..Trust::default() }.config().unwrap())
    }
}

impl SqlServer for Server {
    const NAME: &str = "mysql";
    const SLOW: &str =
        "SELECT sleep(60) AS password_hash FROM mqtt_user WHERE username = ${username}";

    fn backend(&self, asks: &Asks) -> Arc<dyn Backend> {
        let url = format!("mysql://{}@localhost:{}/godwit", asks.who, self.port);
        let template = |text: &str| Template::parse(text, false).unwrap();
        let settings = TableSettings {
            user: Some(template(asks.user)),
            rules: asks.rules.map(template),
            ..TableSettings::default()
        };
        let tls = asks.authority.and_then(|authority| self.trust(authority));
        let server = Mysql::new(&Url::parse(&url, SCHEMES).unwrap(), tls);
        let tables = Tables::new(server, &settings, asks.form, &[]).unwrap();
        Arc::new(Remote::new(tables, asks.bounds, Arc::new(Runtime::default())))
    }

    fn stop(&mut self) {
        self.started.stop();
    }

    fn restart(&mut self) {
        self.started = serve(&self.folder, self.port, &[]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.started.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(folder: &Path, port: u16, more: &[&str]) -> Started {
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
    Started::new(&command, USER, "TERM", "ready for connections")
}

#[test]
fn mysql_stands_the_contract() {
    if is_installed("MariaDB", "mariadbd") {
        stands_with_tables(&mut Server::start());
    }
}
