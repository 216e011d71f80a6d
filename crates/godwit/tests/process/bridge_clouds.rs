//! Requirements of cloud brokers on a bridge, tested with a broker of this project: client
//! certificates, user names and passwords, and a TLS front end that requires ALPN and SNI.

use crate::bridges::{BOTH, edge};
use crate::broker::{TestBroker, TestProgram, godwit, run};
use crate::clients::nowhere;
use crate::doors::{CertificateFolder, refs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

const OURS: &str = "it is the test's own";
const WHO: &[&str] = &["-V", "5", "-u", "gateway-7", "-P", "secret"];

/// Checks that the bridge carries one message to the remote broker, which admits only the user
/// `gateway-7`.
fn carries(near: &TestBroker, far: &TestBroker) {
    let (far_port, near_port) = (far.port(), near.port());
    let mut reader = godwit(&["sub", "-p", &far_port, "-t", "site/up/#", "-q", "1", "-d"]);
    reader.args(WHO).args(["-C", "1", "-W", "20"]);
    let mut reader = TestProgram::start(reader);
    reader.wait_for("SUBACK");
    let (code, _, why) = run(&["pub", "-p", &near_port, "-t", "up/a", "-m", "1", "-q", "1"]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(reader.finish(), (Some(0), "1\n".to_string()));
}

#[test]
fn who_has_certificate_user_and_password_comes_in() {
    let certs = with_user("bridge-clouds");
    let port = nowhere().port();
    let mut asks = certs.set(&[
        ("tls.certificate", "server.pem"),
        ("tls.key", "server.key"),
        ("tls.client_ca", "ca.pem"),
        ("auth.users", "users"),
    ]);
    let words = ["tls.client_certificate=required", "allow_anonymous=false"];
    asks.extend(words.iter().flat_map(|word| ["--set".to_string(), word.to_string()]));
    asks.extend(["--listen".to_string(), format!("tls://127.0.0.1:{port}")]);
    let far = TestBroker::start(&refs(&asks));
    let bridge = |name: &str, certificate: &str, password: &str| {
        let shown = match certificate {
            "" => String::new(),
            own => shown(&certs, own),
        };
        let options = format!(
            "servers = [\"tls://localhost:{port}\"]\ntls.ca = \"{}\"\n{shown}\
             user_name = \"gateway-7\"\npassword = \"{password}\"\n{BOTH}",
            certs.path("ca.pem")
        );
        edge(name, &options, &[]).0
    };
    let mut near = bridge("bridge-clouds-in", "client", "secret");
    near.program.wait_for("godwit::bridge connected");
    carries(&near, &far);
    for (certificate, password, why) in [
        ("", "secret", "certificate"),
        ("stranger", "secret", "UnknownCA"),
        ("client", "wrong", "user name or password"),
    ] {
        let mut near = bridge("bridge-clouds-out", certificate, password);
        let line = near.program.wait_for("not connected");
        assert!(line.to_lowercase().contains(&why.to_lowercase()), "{certificate}: {line}");
        assert!(!line.contains("secret"), "{line}");
    }
}

/// Requirements of Azure Event Grid over WebSocket: a client certificate, and its authentication
/// name as the user name.
#[test]
fn over_websocket_with_a_certificate_its_name_is_the_user_name() {
    let certs = with_user("bridge-clouds-wss");
    let [inner, port] = [nowhere(), nowhere()].map(|address| address.port());
    let mut asks = certs.set(&[
        ("tls.certificate", "server.pem"),
        ("tls.key", "server.key"),
        ("tls.client_ca", "ca.pem"),
        ("auth.users", "users"),
    ]);
    let words = [
        "tls.client_certificate=required",
        "allow_anonymous=false",
        "auth.certificate=common_name",
        "trace.client_id=gateway-7",
    ];
    asks.extend(words.iter().flat_map(|word| ["--set".to_string(), word.to_string()]));
    for url in [format!("wss://127.0.0.1:{port}"), format!("ws://127.0.0.1:{inner}")] {
        asks.extend(["--listen".to_string(), url]);
    }
    let mut far = TestBroker::start(&refs(&asks));
    let options = |port: u16, more: &str| {
        format!(
            "servers = [\"wss://localhost:{port}\"]\nclient_id = \"gateway-7\"\n\
             tls.ca = \"{}\"\ntls.alpn = [\"http/1.1\"]\n{more}{BOTH}",
            certs.path("ca.pem")
        )
    };
    let shown = shown(&certs, "client");
    let named = format!("{shown}user_name = \"sensor-7\"\n");
    let (mut near, _) = edge("bridge-clouds-wss-in", &options(port, &named), &[]);
    near.program.wait_for("godwit::bridge connected");
    let said = far.program.wait_for("CONNECT");
    for part in [" id=gateway-7 ", " user_name=sensor-7\""] {
        assert!(said.contains(part), "{said}");
    }
    carries(&near, &far);
    drop(near);
    let (mut near, _) = edge("bridge-clouds-wss-none", &options(port, ""), &[]);
    let line = near.program.wait_for("not connected");
    assert!(line.to_lowercase().contains("certificate"), "{line}");
    drop(near);
    // Whoever stands in front of it is asked for the protocol and the name.
    let (port, asked) = front(&certs, "http/1.1", true, ([127, 0, 0, 1], inner).into());
    let named = format!("{shown}user_name = \"gateway-7\"\npassword = \"secret\"\n");
    let (mut near, _) = edge("bridge-clouds-wss-front", &options(port, &named), &[]);
    near.program.wait_for("godwit::bridge connected");
    carries(&near, &far);
    let wanted = (Some("http/1.1".to_string()), Some("localhost".to_string()));
    assert!(asked.lock().unwrap().contains(&wanted), "{asked:?}");
}

/// Returns a folder with certificates and a file `users` that contains the user `gateway-7`.
fn with_user(name: &str) -> CertificateFolder {
    let certs = CertificateFolder::new(name);
    let users = certs.path("users");
    assert_eq!(run(&["passwd", "-b", &users, "gateway-7", "secret"]).0, Some(0));
    certs
}

/// Starts a remote broker that requires a user name and a password.
fn asking(name: &str) -> (CertificateFolder, TestBroker) {
    let certs = with_user(name);
    let mut asks = certs.set(&[("auth.users", "users")]);
    asks.extend(["--set".to_string(), "allow_anonymous=false".to_string()]);
    let far = TestBroker::start(&refs(&asks));
    (certs, far)
}

/// Returns the bridge options for a client certificate and its key.
fn shown(certs: &CertificateFolder, certificate: &str) -> String {
    let [pem, key] = ["pem", "key"].map(|kind| certs.path(&format!("{certificate}.{kind}")));
    format!("tls.certificate = \"{pem}\"\ntls.key = \"{key}\"\n")
}

/// ALPN protocol and SNI server name of each ClientHello that the front end received.
type RecordedHellos = Arc<Mutex<Vec<(Option<String>, Option<String>)>>>;

/// Starts a TLS front end like that of a cloud broker. The front end requires a client certificate
/// if `insists` is set, and passes on connections with the protocol `alpn`, or, if `alpn` is empty,
/// connections with a server name. Returns the port and the recorded ClientHellos.
fn front(
    certs: &CertificateFolder,
    alpn: &str,
    insists: bool,
    to: SocketAddr,
) -> (u16, RecordedHellos) {
    let chain = CertificateDer::pem_file_iter(certs.path("server.pem")).expect(OURS);
    let key = PrivateKeyDer::from_pem_file(certs.path("server.key")).expect(OURS);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().expect(OURS);
    let builder = match insists {
        true => {
            let mut roots = RootCertStore::empty();
            let ours = CertificateDer::from_pem_file(certs.path("ca.pem")).expect(OURS);
            roots.add(ours).expect(OURS);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect(OURS))
        }
        false => builder.with_no_client_auth(),
    };
    let chain = chain.collect::<Result<Vec<_>, _>>().expect(OURS);
    let mut config = builder.with_single_cert(chain, key).expect(OURS);
    let takes_any = alpn.is_empty();
    if !takes_any {
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    }
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").expect(OURS);
    listener.set_nonblocking(true).expect(OURS);
    let port = listener.local_addr().expect(OURS).port();
    let asked = RecordedHellos::default();
    let told = asked.clone();
    thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect(OURS);
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect(OURS);
            while let Ok((socket, _)) = listener.accept().await {
                // One after the other: a bridge has one connection.
                let Ok(mut inner) = acceptor.accept(socket).await else { continue };
                let said = inner.get_ref().1;
                let protocol =
                    said.alpn_protocol().map(|name| String::from_utf8_lossy(name).into());
                let name = said.server_name().map(String::from);
                let is_right = if takes_any { name.is_some() } else { protocol.is_some() };
                told.lock().expect(OURS).push((protocol, name));
                if is_right {
                    let mut broker = TcpStream::connect(to).await.expect(OURS);
                    let _ = copy_bidirectional(&mut inner, &mut broker).await;
                }
            }
        });
    });
    (port, asked)
}

/// Requirements of AWS IoT Core on port 443: a client certificate, the ALPN protocol and the server
/// name.
#[test]
fn protocol_and_name_are_asked_for() {
    let (certs, far) = asking("bridge-clouds-alpn");
    let (port, asked) = front(&certs, "x-amzn-mqtt-ca", true, far.address);
    let options = |alpn: &str| {
        format!(
            "servers = [\"tls://127.0.0.1:{port}\"]\ntls.ca = \"{}\"\n\
             tls.server_name = \"localhost\"\nuser_name = \"gateway-7\"\npassword = \"secret\"\n\
             {}{alpn}{BOTH}",
            certs.path("ca.pem"),
            shown(&certs, "client")
        )
    };
    let (mut near, _) = edge("bridge-clouds-none", &options(""), &[]);
    near.program.wait_for("not connected");
    drop(near);
    let other = options("tls.alpn = [\"mqtt\"]\n");
    let (mut near, _) = edge("bridge-clouds-other", &other, &[]);
    near.program.wait_for("not connected");
    drop(near);
    let right = options("tls.alpn = [\"mqtt\", \"x-amzn-mqtt-ca\"]\n");
    let without = right.replace(&shown(&certs, "client"), "");
    let (mut near, _) = edge("bridge-clouds-bare", &without, &[]);
    let line = near.program.wait_for("not connected");
    assert!(line.to_lowercase().contains("certificate"), "{line}");
    drop(near);
    asked.lock().unwrap().clear();
    let (mut near, _) = edge("bridge-clouds-asked", &right, &[]);
    near.program.wait_for("godwit::bridge connected");
    carries(&near, &far);
    let wanted = (Some("x-amzn-mqtt-ca".to_string()), Some("localhost".to_string()));
    assert!(asked.lock().unwrap().contains(&wanted), "{asked:?}");
}

/// Requirements of HiveMQ Cloud: a user name and a password over TLS, and the server name of the
/// cluster by SNI.
#[test]
fn user_and_password_go_over_tls_to_the_name_in_the_url() {
    let (certs, far) = asking("bridge-clouds-sni");
    let (port, asked) = front(&certs, "", false, far.address);
    for version in ["5.0", "3.1.1"] {
        let options = |host: &str, password: &str| {
            format!(
                "servers = [\"tls://{host}:{port}\"]\nversion = \"{version}\"\n\
                 tls.ca = \"{}\"\nuser_name = \"gateway-7\"\npassword = \"{password}\"\n{BOTH}",
                certs.path("ca.pem")
            )
        };
        // Nobody can ask for an address by SNI.
        let (mut near, _) = edge("bridge-clouds-address", &options("127.0.0.1", "secret"), &[]);
        near.program.wait_for("not connected");
        drop(near);
        let (mut near, _) = edge("bridge-clouds-wrong", &options("localhost", "wrong"), &[]);
        near.program.wait_for("not connected: it refused CONNECT");
        drop(near);
        let (mut near, _) = edge("bridge-clouds-named", &options("localhost", "secret"), &[]);
        near.program.wait_for("godwit::bridge connected");
        carries(&near, &far);
    }
    let wanted = (None, Some("localhost".to_string()));
    assert!(asked.lock().unwrap().contains(&wanted), "{asked:?}");
}
