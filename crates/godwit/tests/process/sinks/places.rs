//! Destinations of sinks in tests: files, a web server, SQLite, PostgreSQL and MariaDB.

use super::contract::{
    OURS, SinkPlace, SinkRow, a_broker_that_is_killed_loses_nothing, sink_of_rows, stands,
};
use super::relay::TcpRelay;
use crate::broker::{PATIENCE, scratch};
use crate::installed::is_installed;
use crate::ports::free_port;
use crate::servers::{ServerProcess, as_user, folder, give, install_mariadb, run};
use crate::stub::{TestWebServer, WebResponse};
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Returns the row in an object `{"topic":...,"payload":...}`. A payload that is JSON is returned
/// as JSON text.
pub(super) fn row_of(value: &serde_json::Value) -> SinkRow {
    let text = |name: &str| match &value[name] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (text("topic"), text("payload"))
}

/// Option that inserts a row into the table `m` of each database.
const INSERT: &str =
    "sql.statement = \"INSERT INTO m (topic, payload) VALUES (${topic}, ${payload})\"\n";

struct FilePlace<F> {
    folder: PathBuf,
    format: PhantomData<F>,
}

/// Format of the rows in a file.
pub(super) trait RowFormat {
    const NAME: &'static str;
    /// Returns the rows in the file of the options and in the rotated files next to it.
    fn rows(path: &Path) -> Vec<SinkRow>;
}

pub(super) struct JsonRows;
pub(super) struct CsvRows;
pub(super) struct ParquetRows;

impl RowFormat for JsonRows {
    const NAME: &'static str = "json";

    fn rows(path: &Path) -> Vec<SinkRow> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| row_of(&serde_json::from_str(line).expect(line))).collect()
    }
}

impl RowFormat for CsvRows {
    const NAME: &'static str = "csv";

    fn rows(path: &Path) -> Vec<SinkRow> {
        let text = fs::read_to_string(path).unwrap_or_default();
        csv(&text).into_iter().skip(1).map(|line| (line[3].clone(), line[6].clone())).collect()
    }
}

impl RowFormat for ParquetRows {
    const NAME: &'static str = "parquet";

    fn rows(path: &Path) -> Vec<SinkRow> {
        let mut rows = Vec::new();
        for path in parquet_files(path.parent().expect("a folder")) {
            for row in SerializedFileReader::try_from(path.as_path()).expect("a whole file") {
                let row = row.expect("a row");
                let text = |at| row.get_string(at).expect("a text").clone();
                rows.push((text(3), text(6)));
            }
        }
        rows
    }
}

/// Returns the Parquet files of a folder, ordered by name.
pub(super) fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect(OURS).path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    paths.sort();
    paths
}

impl<F: RowFormat> FilePlace<F> {
    fn new() -> FilePlace<F> {
        FilePlace { folder: scratch(&format!("sink-place-{}", F::NAME)), format: PhantomData }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("below").join("rows")
    }
}

impl<F: RowFormat> SinkPlace for FilePlace<F> {
    const NAME: &'static str = F::NAME;

    fn options(&self) -> String {
        let format = Self::NAME;
        format!("file.path = {:?}\nfile.format = \"{format}\"\n", self.path().display().to_string())
    }

    fn rows(&self) -> Vec<SinkRow> {
        F::rows(&self.path())
    }

    /// Replaces the folder by a file atomically: rows written in between would be lost.
    fn stop(&mut self) {
        let [below, away] = ["below", "away"].map(|name| self.folder.join(name));
        fs::write(&away, "in the way").expect(OURS);
        match below.exists() {
            true => swap(&below, &away),
            false => fs::rename(&away, &below).expect(OURS),
        }
    }

    fn start(&mut self) {
        let [below, away] = ["below", "away"].map(|name| self.folder.join(name));
        match away.exists() {
            true => swap(&below, &away),
            false => fs::rename(&below, &away).expect(OURS),
        }
        fs::remove_file(&away).expect(OURS);
    }

    fn clear(&mut self) {
        let _ = fs::remove_dir_all(self.folder.join("below"));
    }
}

fn swap(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect(OURS);
}

/// Parses CSV (RFC 4180). An incomplete last record is ignored.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut record, mut value) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut chars) = (false, text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                value.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut value)),
            '\r' if !is_quoted && chars.peek() == Some(&'\n') => {
                chars.next();
                record.push(std::mem::take(&mut value));
                all.push(std::mem::take(&mut record));
            }
            c => value.push(c),
        }
    }
    all
}

#[test]
fn files_of_json_stand_the_contract() {
    stands(&mut FilePlace::<JsonRows>::new());
}

#[test]
fn files_of_csv_stand_the_contract() {
    stands(&mut FilePlace::<CsvRows>::new());
}

#[test]
fn files_of_parquet_stand_the_contract() {
    stands(&mut FilePlace::<ParquetRows>::new());
}

struct WebhookPlace {
    web: Option<TestWebServer>,
    port: u16,
    relay: TcpRelay,
    rows: Arc<Mutex<Vec<SinkRow>>>,
}

impl WebhookPlace {
    fn new() -> WebhookPlace {
        let (port, rows) = (free_port(), Arc::default());
        let mut hook = WebhookPlace { web: None, port, relay: TcpRelay::to(port), rows };
        hook.start();
        hook
    }
}

impl SinkPlace for WebhookPlace {
    const NAME: &'static str = "webhook";

    fn options(&self) -> String {
        format!("http.url = \"http://127.0.0.1:{}/hook?a=b\"\n", self.port)
    }

    fn rows(&self) -> Vec<SinkRow> {
        self.rows.lock().expect(OURS).clone()
    }

    fn stop(&mut self) {
        self.web = None;
    }

    fn start(&mut self) {
        let rows = self.rows.clone();
        let web = TestWebServer::start(self.port, None, move |asked| {
            assert_eq!(asked.line, "POST /hook?a=b HTTP/1.1");
            let batch: serde_json::Value = serde_json::from_str(&asked.body).expect("JSON");
            let batch = batch.as_array().expect("an array").iter().map(row_of);
            rows.lock().expect(OURS).extend(batch);
            WebResponse::Json(200, String::new())
        });
        self.web = Some(web);
    }

    fn clear(&mut self) {
        self.rows.lock().expect(OURS).clear();
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.relay)
    }
}

#[test]
fn a_webhook_stands_the_contract() {
    stands(&mut WebhookPlace::new());
}

struct SqlitePlace {
    folder: PathBuf,
    /// Connection whose transaction blocks writes to the database while the destination is stopped.
    lock: Option<rusqlite::Connection>,
}

impl SqlitePlace {
    fn path(&self) -> PathBuf {
        self.folder.join("below").join("rows.db")
    }
}

impl SinkPlace for SqlitePlace {
    const NAME: &'static str = "sqlite";

    fn options(&self) -> String {
        format!(
            "sql.url = \"sqlite:{}\"\n\
             sql.setup = [\"{TABLE}\"]\n\
             {INSERT}",
            self.path().display()
        )
    }

    fn rows(&self) -> Vec<SinkRow> {
        let Ok(conn) = rusqlite::Connection::open(self.path()) else { return Vec::new() };
        let Ok(mut all) = conn.prepare("SELECT topic, payload FROM m ORDER BY n") else {
            return Vec::new();
        };
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.map_or_else(|_| Vec::new(), |rows| rows.filter_map(Result::ok).collect())
    }

    fn stop(&mut self) {
        if !self.path().exists() {
            let below = self.folder.join("below");
            fs::remove_dir(&below).expect(OURS);
            return fs::write(below, "in the way").expect(OURS);
        }
        let lock = rusqlite::Connection::open(self.path()).expect(OURS);
        lock.busy_timeout(PATIENCE).expect(OURS);
        lock.execute_batch("BEGIN IMMEDIATE").expect(OURS);
        self.lock = Some(lock);
    }

    fn start(&mut self) {
        let below = self.folder.join("below");
        if below.is_file() {
            fs::remove_file(&below).expect(OURS);
            fs::create_dir(&below).expect(OURS);
        }
        self.lock = None;
    }

    fn clear(&mut self) {
        let below = self.folder.join("below");
        let _ = fs::remove_dir_all(&below);
        fs::create_dir_all(&below).expect(OURS);
    }
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS m (n INTEGER PRIMARY KEY, topic, payload)";

#[test]
fn sqlite_stands_the_contract() {
    let mut place = SqlitePlace { folder: scratch("sink-place-sqlite"), lock: None };
    place.clear();
    stands(&mut place);
}

#[test]
fn rows_that_a_rule_sends_to_a_sink_are_not_lost_by_kills() {
    let mut place = SqlitePlace { folder: scratch("sink-rows-sqlite"), lock: None };
    place.clear();
    let text = sink_of_rows(&place);
    a_broker_that_is_killed_loses_nothing(&mut place, &text);
}

/// Returns the path of a program of PostgreSQL. Debian installs the programs in a folder per
/// version.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    let found = found.filter(|path| path.exists()).max();
    found.map_or(name.to_string(), |path| path.display().to_string())
}

pub(super) struct PostgresPlace {
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    relay: TcpRelay,
    started: Option<ServerProcess>,
}

impl PostgresPlace {
    /// Installs a PostgreSQL server. Returns `None` if PostgreSQL is not available on the host.
    pub(super) fn new(name: &str) -> Option<PostgresPlace> {
        if !is_installed("PostgreSQL", program("initdb")) {
            return None;
        }
        let folder = folder(name, "postgres");
        let password = folder.join("password");
        fs::write(&password, "it's secret").expect(OURS);
        give(&password, "postgres");
        let mut initdb = as_user("postgres", &program("initdb"));
        initdb.arg("-D").arg(folder.join("data")).arg("--pwfile").arg(&password);
        initdb.args(["-A", "scram-sha-256", "-U", "godwit", "--no-sync", "-E", "UTF8"]);
        initdb.args(["--locale=C", "--no-instructions"]);
        run(initdb, "");
        let port = free_port();
        let mut place = PostgresPlace { folder, port, relay: TcpRelay::to(port), started: None };
        place.start();
        place.ask("CREATE TABLE m (n SERIAL PRIMARY KEY, topic TEXT, payload TEXT)");
        Some(place)
    }

    pub(super) fn serve(&mut self, more: &[String]) {
        let (postgres, data) = (program("postgres"), self.folder.join("data"));
        let (data, port) = (data.display().to_string(), format!("port={}", self.port));
        let mut command = vec![postgres.as_str(), "-D", &data];
        let fixed = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", &port];
        let more = more.iter().map(String::as_str);
        fixed.into_iter().chain(more).for_each(|option| command.extend(["-c", option]));
        let ready = "ready to accept connections";
        self.started = Some(ServerProcess::new(&command, "postgres", "INT", ready));
    }

    fn ask(&self, statement: &str) -> String {
        let url = format!("host=127.0.0.1 port={} user=godwit dbname=postgres", self.port);
        let mut psql = Command::new("psql");
        psql.args([&url, "-XAtq", "-c", statement]).env("PGPASSWORD", "it's secret");
        let output = psql.output().expect("psql can be run");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl SinkPlace for PostgresPlace {
    const NAME: &'static str = "postgres";

    fn options(&self) -> String {
        format!(
            "sql.url = \"postgres://godwit:it's%20secret@127.0.0.1:{}/postgres\"\n\
             {INSERT}",
            self.port
        )
    }

    fn rows(&self) -> Vec<SinkRow> {
        let all = self.ask(
            "SELECT coalesce(json_agg(json_build_object('topic', topic, 'payload', payload) \
             ORDER BY n), '[]') FROM m",
        );
        let all: serde_json::Value = serde_json::from_str(&all).unwrap_or_default();
        all.as_array().map_or_else(Vec::new, |all| all.iter().map(row_of).collect())
    }

    fn stop(&mut self) {
        self.started = None;
    }

    fn start(&mut self) {
        self.serve(&[]);
    }

    fn clear(&mut self) {
        self.ask("TRUNCATE m");
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.relay)
    }

    fn takes_nul(&self) -> bool {
        false
    }
}

impl Drop for PostgresPlace {
    fn drop(&mut self) {
        self.started = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn postgres_stands_the_contract() {
    if let Some(mut place) = PostgresPlace::new("sink-postgres") {
        stands(&mut place);
    }
}

pub(super) struct MysqlPlace {
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    relay: TcpRelay,
    started: Option<ServerProcess>,
}

const MYSQL_TABLE: &str = "CREATE DATABASE godwit CHARACTER SET utf8mb4;
    CREATE TABLE godwit.m (n INT AUTO_INCREMENT PRIMARY KEY, topic TEXT, payload LONGTEXT);
    CREATE USER 'godwit'@'127.0.0.1' IDENTIFIED BY 'it''s secret';
    GRANT ALL ON godwit.* TO 'godwit'@'127.0.0.1';
";

impl MysqlPlace {
    /// Installs a MariaDB server. Returns `None` if MariaDB is not available on the host.
    pub(super) fn new(name: &str) -> Option<MysqlPlace> {
        if !is_installed("MariaDB", "mariadbd") {
            return None;
        }
        let folder = folder(name, "mysql");
        install_mariadb(&folder.join("files"));
        let first = folder.join("first.sql");
        // A statement a line.
        fs::write(&first, MYSQL_TABLE.replace("\n    ", "\n")).expect(OURS);
        give(&first, "mysql");
        let port = free_port();
        let mut place = MysqlPlace { folder, port, relay: TcpRelay::to(port), started: None };
        place.serve(&[format!("--init-file={}", first.display())]);
        Some(place)
    }

    pub(super) fn serve(&mut self, more: &[String]) {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let options = [
            "--bind-address=127.0.0.1".to_string(),
            format!("--port={}", self.port),
            format!("--datadir={}", at("files")),
            format!("--socket={}", at("socket")),
            format!("--pid-file={}", at("pid")),
            "--innodb-flush-log-at-trx-commit=0".to_string(),
            "--innodb-log-file-size=4M".to_string(),
        ];
        let mut command = vec!["mariadbd", "--no-defaults"];
        command.extend(options.iter().chain(more).map(String::as_str));
        self.started = Some(ServerProcess::new(&command, "mysql", "TERM", "ready for connections"));
    }

    fn ask(&self, statement: &str) -> String {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-ugodwit", "-h127.0.0.1", "-N", "--raw", "godwit"]);
        client.arg(format!("-P{}", self.port)).args(["--default-character-set=utf8mb4", "-e"]);
        client.arg(statement).env("MYSQL_PWD", "it's secret");
        let output = client.output().expect("mariadb can be run");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl SinkPlace for MysqlPlace {
    const NAME: &'static str = "mysql";

    fn options(&self) -> String {
        format!(
            "sql.url = \"mysql://godwit:it's%20secret@127.0.0.1:{}/godwit\"\n\
             {INSERT}",
            self.port
        )
    }

    fn rows(&self) -> Vec<SinkRow> {
        let all = self.ask(
            "SELECT json_object('topic', to_base64(topic), 'payload', to_base64(payload)) \
             FROM m ORDER BY n",
        );
        let decode = |text: &str| {
            use base64ct::{Base64, Encoding};
            let text: String = text.split_whitespace().collect();
            String::from_utf8(Base64::decode_vec(&text).expect("base64")).expect("text")
        };
        let row = |line: &str| {
            let (topic, payload) = row_of(&serde_json::from_str(line).expect(line));
            (decode(&topic), decode(&payload))
        };
        all.lines().map(row).collect()
    }

    fn stop(&mut self) {
        self.started = None;
    }

    fn start(&mut self) {
        self.serve(&[]);
    }

    fn clear(&mut self) {
        self.ask("DELETE FROM m");
    }

    fn relay(&self) -> Option<&TcpRelay> {
        Some(&self.relay)
    }

    /// The sink sends one statement at a time and waits for each response, so the delay is short.
    fn late_ms(&self) -> u64 {
        3
    }
}

impl Drop for MysqlPlace {
    fn drop(&mut self) {
        self.started = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn mariadb_stands_the_contract() {
    if let Some(mut place) = MysqlPlace::new("sink-mysql") {
        stands(&mut place);
    }
}
