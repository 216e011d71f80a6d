//! Certificates and keys in the forms that users have, on listeners, clients, bridges and
//! authentication servers, compared with mosquitto and the same files. Each form is accepted as by
//! mosquitto, or refused with a text that names the form and a remedy. `docs/security.md` has the
//! same table.

mod limited;

use crate::bridges::mosquitto_with;
use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::doors::{CONNACK, ListenerBroker, s_client};
use crate::installed::is_installed;
use crate::stub::{TestWebServer, WebResponse};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Result for a form of certificate: accepted, or refused with a text that contains these words.
#[derive(Clone, Copy, Debug)]
enum FormOutcome {
    Accepted,
    Refused(&'static str),
}

use FormOutcome::{Accepted, Refused};

/// A server certificate to test, with the expected results.
struct ServerForm {
    certificate: &'static str,
    key: &'static str,
    /// File for the listener's `tls.chain` and for mosquitto's `cafile`.
    pool: &'static str,
    /// File of CAs that clients trust.
    trusted: &'static str,
    host: &'static str,
    /// Result of this program's listener with mosquitto's client.
    listener: FormOutcome,
    /// Result of this program's client with mosquitto's listener.
    client: FormOutcome,
    /// Whether mosquitto's client accepts mosquitto's listener; `None` if mosquitto does not start.
    mosquitto: Option<bool>,
}

const GOOD: ServerForm = ServerForm {
    certificate: "v3.pem",
    key: "v3.key",
    pool: "",
    trusted: "ca.pem",
    host: "localhost",
    listener: Accepted,
    client: Accepted,
    mosquitto: Some(true),
};

/// Returns a form with which neither this program's listener nor mosquitto starts.
const fn unusable(certificate: &'static str, key: &'static str, words: &'static str) -> ServerForm {
    ServerForm { certificate, key, listener: Refused(words), mosquitto: None, ..GOOD }
}

const SERVERS: &[ServerForm] = &[
    GOOD,
    ServerForm { certificate: "v1.pem", key: "v1.key", ..GOOD },
    ServerForm {
        certificate: "v1-of-old-ca.pem",
        key: "v1-of-old-ca.key",
        trusted: "old-ca.pem",
        ..GOOD
    },
    ServerForm {
        certificate: "v3-of-old-ca.pem",
        key: "v3-of-old-ca.key",
        trusted: "old-ca.pem",
        ..GOOD
    },
    ServerForm { certificate: "no-names.pem", key: "no-names.key", ..GOOD },
    ServerForm {
        certificate: "no-names-other.pem",
        key: "no-names-other.key",
        client: Refused("its common name is not \"localhost\""),
        mosquitto: Some(false),
        ..GOOD
    },
    ServerForm {
        certificate: "no-names-address.pem",
        key: "no-names-address.key",
        host: "127.0.0.1",
        ..GOOD
    },
    ServerForm {
        certificate: "other-names.pem",
        key: "other-names.key",
        client: Refused("elsewhere.example"),
        mosquitto: Some(false),
        ..GOOD
    },
    ServerForm { certificate: "self-ca.pem", key: "self-ca.key", trusted: "self-ca.pem", ..GOOD },
    ServerForm {
        certificate: "self-ca.pem",
        key: "self-ca.key",
        client: Refused("put the certificate itself into"),
        mosquitto: Some(false),
        ..GOOD
    },
    ServerForm {
        certificate: "self-leaf.pem",
        key: "self-leaf.key",
        trusted: "self-leaf.pem",
        ..GOOD
    },
    ServerForm {
        certificate: "self-leaf.pem",
        key: "self-leaf.key",
        client: Refused("unknown issuer"),
        mosquitto: Some(false),
        ..GOOD
    },
    ServerForm { certificate: "below-whole.pem", key: "below.key", ..GOOD },
    // A common name does not pass over the name constraints of a CA between; OpenSSL holds only
    // one with a dot against them.
    ServerForm {
        certificate: "bounded-whole.pem",
        key: "bounded-leaf.key",
        client: Refused("not valid for any names"),
        mosquitto: Some(true),
        ..GOOD
    },
    // The chain is completed from the file of CAs.
    ServerForm { certificate: "below.pem", key: "below.key", pool: "mid-and-ca.pem", ..GOOD },
    ServerForm {
        certificate: "below.pem",
        key: "below.key",
        client: Refused("an intermediate certificate is missing"),
        mosquitto: Some(false),
        ..GOOD
    },
    unusable("below-reversed.pem", "below.key", "is not the first one"),
    unusable("v3.pem", "v1.key", "this is not the key of"),
    ServerForm { certificate: "v3-windows.pem", ..GOOD },
    ServerForm { certificate: "v3-both.pem", key: "v3-both.pem", ..GOOD },
    ServerForm { certificate: "v3-parameters.pem", key: "v3-parameters.key", ..GOOD },
    ServerForm { certificate: "ed25519.pem", key: "ed25519.key", ..GOOD },
    // mosquitto wants PEM.
    ServerForm { certificate: "v3.der", key: "v3-key.der", mosquitto: None, ..GOOD },
    unusable("v3.p12", "v3.p12", "this is PKCS #12, use openssl pkcs12"),
    unusable("v3.p7b", "v3.key", "this is PKCS #7, use openssl pkcs7"),
    unusable("v3-utf16.pem", "v3.key", "UTF-16"),
    // OpenSSL accepts its own form; the error of this program names a command that converts it.
    ServerForm {
        certificate: "v3-trusted.pem",
        listener: Refused("TRUSTED CERTIFICATE, use openssl x509"),
        ..GOOD
    },
    unusable("v3.pem", "v3-locked.key", "locked with a password, use one without: openssl pkey"),
    unusable("v1.pem", "v1-locked.key", "locked with a password, use one without: openssl pkey"),
    unusable("short.pem", "short.key", "RSA of 2048 to 8192 bits"),
    // ring knows neither the key nor its signatures.
    ServerForm {
        certificate: "p521.pem",
        key: "p521.key",
        listener: Refused("ECDSA P-256 or P-384"),
        client: Refused("handshake"),
        ..GOOD
    },
    // The chain is the client's to check, and none accepts SHA-1.
    ServerForm {
        certificate: "sha1.pem",
        key: "sha1.key",
        client: Refused("use RSA of 2048 to 8192 bits"),
        mosquitto: None,
        ..GOOD
    },
    ServerForm {
        certificate: "past.pem",
        key: "past.key",
        client: Refused("it has expired"),
        mosquitto: Some(false),
        ..GOOD
    },
];

/// Creates a folder with all certificates of `make.sh`.
fn folder(name: &str) -> PathBuf {
    let folder = scratch(name);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/tls_forms/make.sh");
    let made = Command::new("sh").arg(script).current_dir(&folder).output().expect("sh runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // mosquitto gives up root, and reads its files as somebody else.
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(&folder).status();
    assert!(opened.expect("chmod runs").success());
    folder
}

fn path(folder: &Path, file: &str) -> String {
    folder.join(file).display().to_string()
}

fn say(program: &mut Command, host: &str, port: &str, ca: &str) -> (bool, String) {
    program.args(["-h", host, "-p", port, "--cafile", ca, "-t", "a", "-m", "b", "-q", "1"]);
    let output = program.output().expect("the client runs");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn judge(what: &str, form: &str, outcome: FormOutcome, done: bool, said: &str) {
    match outcome {
        Accepted => assert!(done, "{what} with {form}: {said}"),
        Refused(words) => {
            assert!(!done, "{what} with {form} was accepted");
            assert!(said.contains(words), "{what} with {form} does not say {words:?}: {said}");
        }
    }
}

#[test]
fn every_form_of_a_servers_certificate_is_accepted_or_refused_in_words() {
    if !is_installed("mosquitto's client", "mosquitto_pub") {
        return;
    }
    let folder = folder("tls-forms-servers");
    let file = |name: &str| path(&folder, name);
    for (at, form) in SERVERS.iter().enumerate() {
        let name = format!("{at}: {} for {} by {}", form.certificate, form.host, form.trusted);
        our_listener(&name, form, &file);
        their_listener(&name, at, form, &file);
    }
}

fn our_listener(name: &str, form: &ServerForm, file: &dyn Fn(&str) -> String) {
    let mut options = vec!["serve".into(), "--memory".into(), "--listen".into()];
    options.push("tls://127.0.0.1:0".to_string());
    let mut set =
        |key: &str, value: String| options.extend(["--set".into(), format!("{key}={value}")]);
    set("tls.certificate", file(form.certificate));
    set("tls.key", file(form.key));
    if !form.pool.is_empty() {
        set("tls.chain", file(form.pool));
    }
    if let Refused(_) = form.listener {
        options[0] = "check".into();
        options.retain(|option| option != "--memory");
        let refs: Vec<_> = options.iter().map(String::as_str).collect();
        let (code, _, said) = run(&refs);
        return judge("our listener", name, form.listener, code == Some(0), &said);
    }
    let refs: Vec<_> = options[1..].iter().map(String::as_str).collect();
    let broker = ListenerBroker::start(&refs);
    let client = &mut Command::new("mosquitto_pub");
    let (done, said) = say(client, form.host, &broker.port(0), &file(form.trusted));
    let like_mosquitto = match form.mosquitto {
        Some(true) => Accepted,
        None if matches!(form.client, Accepted) => Accepted,
        _ => Refused(""),
    };
    judge("our listener and mosquitto's client", name, like_mosquitto, done, &said);
}

fn their_listener(name: &str, at: usize, form: &ServerForm, file: &dyn Fn(&str) -> String) {
    if form.mosquitto.is_none() {
        return;
    }
    let mut more = format!("certfile {}\nkeyfile {}\n", file(form.certificate), file(form.key));
    if !form.pool.is_empty() {
        more.push_str(&format!("cafile {}\n", file(form.pool)));
    }
    let Some((_their, port)) = mosquitto_with(&format!("tls-forms-server-{at}"), &more) else {
        return;
    };
    let port = port.to_string();
    let client = &mut Command::new("mosquitto_pub");
    let (done, said) = say(client, form.host, &port, &file(form.trusted));
    assert_eq!(Some(done), form.mosquitto, "mosquitto with {name}: {said}");
    let (done, said) = say(&mut godwit(&["pub"]), form.host, &port, &file(form.trusted));
    judge("our client", name, form.client, done, &said);
}

/// A client certificate to test, with the expected results.
struct ClientForm {
    certificate: &'static str,
    key: &'static str,
    /// File of CAs that the listener trusts.
    trusted: &'static str,
    list: &'static str,
    ours: FormOutcome,
    mosquitto: bool,
}

const ANN: ClientForm = ClientForm {
    certificate: "client-v3.pem",
    key: "client-v3.key",
    trusted: "ca.pem",
    list: "",
    ours: Accepted,
    mosquitto: true,
};

const CLIENTS: &[ClientForm] = &[
    ANN,
    ClientForm { certificate: "client-v1.pem", key: "client-v1.key", ..ANN },
    // Version 1 has no extension that could limit it, so its CA has to be named itself.
    ClientForm {
        certificate: "client-v1-below.pem",
        key: "client-v1-below.key",
        ours: Refused("X.509 version 1 from an unknown issuer"),
        mosquitto: false,
        ..ANN
    },
    ClientForm {
        certificate: "client-v1-below.pem",
        key: "client-v1-below.key",
        trusted: "mid-and-ca.pem",
        ..ANN
    },
    ClientForm {
        certificate: "client-v1.pem",
        key: "client-v1.key",
        list: "crl.pem",
        ours: Refused("cannot be looked up in tls.crl"),
        ..ANN
    },
    ClientForm { list: "crl.pem", ..ANN },
    ClientForm { certificate: "client-below-whole.pem", key: "client-below.key", ..ANN },
    ClientForm {
        certificate: "client-below.pem",
        key: "client-below.key",
        ours: Refused("an intermediate certificate is missing"),
        mosquitto: false,
        ..ANN
    },
    ClientForm {
        certificate: "client-server-use.pem",
        key: "client-server-use.key",
        ours: Refused("extended key usage"),
        mosquitto: false,
        ..ANN
    },
    ClientForm {
        certificate: "client-is-ca.pem",
        key: "client-is-ca.key",
        ours: Refused("certificate of a CA"),
        ..ANN
    },
    ClientForm {
        certificate: "client-past.pem",
        key: "client-past.key",
        ours: Refused("it has expired"),
        mosquitto: false,
        ..ANN
    },
    ClientForm {
        certificate: "client-of-past-ca.pem",
        key: "client-of-past-ca.key",
        trusted: "past-ca.pem",
        ours: Refused("out of its own dates"),
        mosquitto: false,
        ..ANN
    },
    // An authority that another one of the file has issued is as good as that one.
    ClientForm {
        certificate: "client-of-past-mid.pem",
        key: "client-of-past-mid.key",
        trusted: "past-both.pem",
        ours: Refused("out of its own dates"),
        mosquitto: false,
        ..ANN
    },
    ClientForm {
        certificate: "client-of-past-ca.pem",
        key: "client-of-past-ca.key",
        trusted: "ca-and-past-ca.pem",
        ours: Refused(""),
        mosquitto: false,
        ..ANN
    },
    ClientForm { trusted: "ca-and-past-ca.pem", ..ANN },
    ClientForm {
        certificate: "client-self.pem",
        key: "client-self.key",
        trusted: "client-self.pem",
        ..ANN
    },
    ClientForm {
        certificate: "client-self.pem",
        key: "client-self.key",
        ours: Refused("put the certificate itself into tls.client_ca"),
        mosquitto: false,
        ..ANN
    },
    ClientForm {
        certificate: "client-self-leaf.pem",
        key: "client-self-leaf.key",
        trusted: "client-self-leaf.pem",
        ..ANN
    },
    // Who is trusted for a name must not make other names.
    ClientForm {
        certificate: "client-minted-whole.pem",
        key: "client-minted.key",
        trusted: "client-self-leaf.pem",
        ours: Refused("unknown issuer"),
        mosquitto: false,
        ..ANN
    },
    ClientForm { certificate: "client-ed25519.pem", key: "client-ed25519.key", ..ANN },
    ClientForm { certificate: "client-p521.pem", key: "client-p521.key", ours: Refused(""), ..ANN },
    ClientForm {
        certificate: "client-sha1.pem",
        key: "client-sha1.key",
        ours: Refused("use RSA of 2048 to 8192 bits"),
        mosquitto: false,
        ..ANN
    },
];

#[test]
fn every_form_of_a_clients_certificate_is_accepted_or_refused_in_words() {
    if !is_installed("openssl", "openssl") {
        return;
    }
    let folder = folder("tls-forms-clients");
    let file = |name: &str| path(&folder, name);
    for (at, form) in CLIENTS.iter().chain(limited::CLIENTS).enumerate() {
        let name = format!("{} by {} with list {:?}", form.certificate, form.trusted, form.list);
        let (certificate, key) = (file(form.certificate), file(form.key));
        let shown = |version: &'static str| {
            let mut shown =
                vec![version, "-cert", &certificate, "-cert_chain", &certificate, "-key", &key];
            shown.extend(["-cipher", "ALL:@SECLEVEL=0"]);
            shown.into_iter().map(String::from).collect::<Vec<_>>()
        };
        let trusted = file(form.trusted);
        for version in ["-tls1_2", "-tls1_3"] {
            let mut options = vec!["--listen".to_string(), "tls://127.0.0.1:0".to_string()];
            let mut set =
                |key: &str, value: &str| options.extend(["--set".into(), format!("{key}={value}")]);
            set("tls.certificate", &file("v3.pem"));
            set("tls.key", &file("v3.key"));
            set("tls.client_ca", &trusted);
            set("tls.client_certificate", "required");
            if !form.list.is_empty() {
                set("tls.crl", &file(form.list));
            }
            let refs: Vec<_> = options.iter().map(String::as_str).collect();
            let mut broker = ListenerBroker::start(&refs);
            let shown = shown(version);
            let refs: Vec<_> = shown.iter().map(String::as_str).collect();
            let (done, said) = s_client(&broker.port(0), &refs);
            let said = match form.ours {
                Refused(_) if !done => broker.program.wait_for("ended before CONNECT"),
                _ => said,
            };
            judge(&format!("our listener {version}"), &name, form.ours, done, &said);
        }
        let mut more = format!("cafile {trusted}\nrequire_certificate true\n");
        more.push_str(&format!("certfile {}\nkeyfile {}\n", file("v3.pem"), file("v3.key")));
        if !form.list.is_empty() {
            more.push_str(&format!("crlfile {}\n", file(form.list)));
        }
        let their = mosquitto_with(&format!("tls-forms-client-{at}"), &more);
        let Some((_their, port)) = their else { continue };
        let shown = shown("-tls1_2");
        let refs: Vec<_> = shown.iter().map(String::as_str).collect();
        let (done, said) = s_client(&port.to_string(), &refs);
        assert_eq!(done, form.mosquitto, "mosquitto with {name}: {said}");
    }
}

#[test]
fn a_bridge_accepts_the_same_forms_and_names_what_it_refuses() {
    let folder = folder("tls-forms-bridge");
    let file = |name: &str| path(&folder, name);
    for (at, (own, trusted, words)) in [
        ("v1", "ca", None),
        ("no-names", "ca", None),
        ("self-ca", "self-ca", None),
        ("self-ca", "ca", Some("put the certificate itself into")),
        ("past", "ca", Some("it has expired")),
    ]
    .into_iter()
    .enumerate()
    {
        let more = format!(
            "certfile {}\nkeyfile {}\n",
            file(&format!("{own}.pem")),
            file(&format!("{own}.key"))
        );
        let Some((_their, port)) = mosquitto_with(&format!("tls-forms-bridge-{at}"), &more) else {
            return;
        };
        let config = folder.join(format!("bridge-{at}.toml"));
        let ca = file(&format!("{trusted}.pem"));
        let text = format!(
            "[[bridge]]\nname = \"far\"\nservers = [\"tls://localhost:{port}\"]\ntls.ca = \"{ca}\"\n\
             [[bridge.out]]\nfilter = \"#\"\n"
        );
        std::fs::write(&config, text).expect("this host has room for it");
        let mut command = godwit(&["--memory", "--listen", "tcp://127.0.0.1:0", "--config"]);
        command.arg(&config);
        let mut program = TestProgram::start(command);
        program.wait_for(words.unwrap_or("connected"));
    }
}

/// Starts a web server with a certificate that rustls would refuse for a server by default.
fn web_server(own: &str, folder: &Path) -> TestWebServer {
    let pem = |end: &str| folder.join(format!("{own}.{end}"));
    let chain = CertificateDer::pem_file_iter(pem("pem")).expect("it is there");
    let chain = chain.collect::<Result<_, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_file(pem("key")).expect("it is there");
    let provider = rustls::crypto::ring::default_provider();
    let key = provider.key_provider.load_private_key(key).expect("ring knows it");
    let keys = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let builder = rustls::ServerConfig::builder_with_provider(provider.into());
    let builder = builder.with_safe_default_protocol_versions().expect("ring has them");
    let config = builder.with_no_client_auth().with_cert_resolver(Arc::new(keys));
    let allow = |_: &_| WebResponse::Json(200, r#"{"result":"allow"}"#.into());
    TestWebServer::start(0, Some(Arc::new(config)), allow)
}

/// HTTP servers stand in for databases, which are reached over the same TLS client.
#[test]
fn a_server_that_is_asked_has_the_same_forms_and_the_log_names_what_is_refused() {
    let folder = folder("tls-forms-asked");
    for (own, trusted, words) in [
        ("v3", "ca", None),
        ("v1", "ca", None),
        ("no-names", "ca", None),
        ("self-ca", "self-ca", None),
        ("self-leaf", "self-leaf", None),
        ("self-ca", "ca", Some("put the certificate itself into")),
        ("other-names", "ca", Some("elsewhere.example")),
        ("past", "ca", Some("it has expired")),
    ] {
        let web = web_server(own, &folder);
        let url = format!("auth.http_url=https://localhost:{}/", web.port);
        let ca = format!("auth.backend_ca={}", path(&folder, &format!("{trusted}.pem")));
        let mut broker = TestBroker::start(&["--set", &url, "--set", &ca]);
        let port = broker.port();
        let client = ["-p", &port, "-u", "ann", "-P", "x", "-q", "1", "-t", "a", "-m", "b"];
        let (code, _, said) = run(&[&["pub"], &client[..]].concat());
        assert_eq!(code == Some(0), words.is_none(), "{own} by {trusted}: {said}");
        if let Some(words) = words {
            assert!(web.asked().is_empty(), "{own} by {trusted} is asked");
            broker.program.wait_for(words);
        }
    }
}

#[test]
fn a_client_without_a_cipher_for_the_certificate_gets_handshake_failure_and_the_log_says_why() {
    let folder = folder("tls-forms-cipher");
    let set =
        |key: &str, file: &str| ["--set".to_string(), format!("{key}={}", path(&folder, file))];
    let listen = ["--listen".to_string(), "tls://127.0.0.1:0".to_string()];
    let options = [listen, set("tls.certificate", "v3.pem"), set("tls.key", "v3.key")].concat();
    let refs: Vec<_> = options.iter().map(String::as_str).collect();
    let mut broker = ListenerBroker::start(&refs);
    for (arguments, alert, words) in [
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"][..],
            "handshake failure",
            "no cipher suite in common",
        ),
        (&["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"], "handshake failure", "ECDHE"),
        (
            &["-tls1_3", "-sigalgs", "rsa_pss_rsae_sha256"],
            "handshake failure",
            "no cipher suite in common",
        ),
        (&["-tls1_3", "-groups", "X448"], "handshake failure", "no key exchange in common"),
        (
            &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            "handshake failure",
            "no version of TLS in common",
        ),
    ] {
        let (welcomed, said) = s_client(&broker.port(0), arguments);
        assert!(!welcomed && said.contains(alert), "{arguments:?}: {said}");
        let line = broker.program.wait_for("ended before CONNECT");
        assert!(line.contains(words), "{arguments:?}: {line}");
        // A shard notes one a second.
        thread::sleep(Duration::from_millis(1100));
    }
}

/// Starts a relay. Returns its port, and a thread that returns the longest record of the server.
fn watch_records(port: &str) -> (String, thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let own = listener.local_addr().expect("it is bound").port().to_string();
    let server = format!("127.0.0.1:{port}");
    let watch = thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the client comes");
        let mut server = TcpStream::connect(server).expect("the broker listens");
        let (mut from, mut to) =
            (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
        let up = thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(len @ 1..) = server.read(&mut buffer) {
            all.extend_from_slice(&buffer[..len]);
            if client.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        drop(client);
        let _ = up.join();
        longest_record(&all)
    });
    (own, watch)
}

fn longest_record(mut bytes: &[u8]) -> usize {
    let mut longest = 0;
    while let [_, _, _, high, low, rest @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        longest = longest.max(len);
        bytes = rest.get(len..).unwrap_or_default();
    }
    longest
}

#[test]
fn a_device_that_asks_for_short_records_gets_them() {
    let folder = folder("tls-forms-fragments");
    let set =
        |key: &str, file: &str| ["--set".to_string(), format!("{key}={}", path(&folder, file))];
    let listen = ["--listen".to_string(), "tls://127.0.0.1:0".to_string()];
    let plain = ["--listen".to_string(), "tcp://127.0.0.1:0".to_string()];
    let files = [set("tls.certificate", "below-whole.pem"), set("tls.key", "below.key")];
    let options = [&[listen, plain][..], &files].concat().concat();
    let refs: Vec<_> = options.iter().map(String::as_str).collect();
    let broker = ListenerBroker::start(&refs);
    let payload = "x".repeat(9000);
    let (code, _, said) = run(&["pub", "-p", &broker.port(1), "-t", "big", "-r", "-m", &payload]);
    assert_eq!(code, Some(0), "{said}");
    for version in ["-tls1_2", "-tls1_3"] {
        for (asked, most) in
            [("512", 512), ("1024", 1024), ("2048", 2048), ("4096", 4096), ("", 16_384)]
        {
            let (port, watch) = watch_records(&broker.port(0));
            let mut arguments = vec![version];
            if !asked.is_empty() {
                arguments.extend(["-maxfraglen", asked]);
            }
            let all = subscribe(&port, &arguments);
            let longest = watch.join().expect("it watches");
            assert!(all.windows(CONNACK.len()).any(|window| window == CONNACK), "{arguments:?}");
            assert!(all.windows(9000).any(|window| window == payload.as_bytes()), "{arguments:?}");
            // What encryption adds is not counted [RFC 6066, 4].
            assert!(longest <= most + 256, "{arguments:?}: a record of {longest} bytes");
            assert!(asked.is_empty() || longest > most / 2, "{arguments:?}: {longest}");
        }
    }
}

/// Returns the bytes that a subscriber of `big` receives through `openssl s_client`.
fn subscribe(port: &str, arguments: &[&str]) -> Vec<u8> {
    let words = "printf '\\020\\015\\000\\004MQTT\\004\\002\\000\\074\\000\\001c'; \
                 printf '\\202\\010\\000\\001\\000\\003big\\000'; sleep 1; printf '\\340\\000'";
    let script = format!(
        "({words}) | timeout 20 openssl s_client -connect 127.0.0.1:{port} -ign_eof -quiet {}",
        arguments.join(" ")
    );
    Command::new("sh").args(["-c", &script]).output().expect("sh runs").stdout
}
