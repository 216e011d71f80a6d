//! A process with a low limit of file descriptors: clients use up their share, and the store, links
//! and reloads still work.

use crate::broker::{PATIENCE, TestBroker, TestProgram, godwit, run, scratch};
use crate::doors::{CONNACK, CONNECT, CertificateFolder, refs};
use crate::ports::free_port;
use crate::stub::{TestWebServer, WebResponse};
use crate::web;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts `godwit` with a limit on open file descriptors.
fn limited(descriptors: u32, arguments: &[&str]) -> TestProgram {
    let mut command = Command::new("sh");
    let shell = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    command.args(["-c", &shell]).arg(godwit::<&str>(&[]).get_program()).args(arguments);
    TestProgram::start(command)
}

fn urls(program: &mut TestProgram, count: usize) -> Vec<String> {
    let url = |program: &mut TestProgram| {
        let line = program.wait_for("listening on");
        line.split_once("listening on").expect("a URL").1.trim().to_string()
    };
    let urls = (0..count).map(|_| url(program)).collect();
    program.wait_for("memory limit");
    urls
}

trait DescriptorStream: Read + Write {}
impl<T: Read + Write> DescriptorStream for T {}

/// Connects to a listener of any kind. The kernel completes the connection even if the broker does
/// not accept it.
fn connect(url: &str) -> Box<dyn DescriptorStream> {
    let soon = Some(Duration::from_millis(700));
    if let Some(path) = url.strip_prefix("unix://") {
        let stream = UnixStream::connect(path).expect("the kernel takes it");
        stream.set_read_timeout(soon).expect("a socket");
        return Box::new(stream);
    }
    let stream = TcpStream::connect(format!("127.0.0.1:{}", web::port(url)));
    let stream = stream.expect("the kernel takes it");
    stream.set_read_timeout(soon).expect("a socket");
    Box::new(stream)
}

/// Connects, and returns whether the broker accepts the client within 700 ms. The connection stays
/// open in both cases.
fn comes_in(url: &str) -> (bool, Box<dyn DescriptorStream>) {
    let mut stream = connect(url);
    let (words, expected): (&[u8], &[u8]) = match url.starts_with("ws") {
        true => (web::UPGRADE.as_bytes(), b"HTTP"),
        false => (CONNECT, CONNACK),
    };
    // Each has a client id of its own: one with that of another would end it.
    let mut words = words.to_vec();
    if !url.starts_with("ws") {
        words[1] = 12;
        words[13] = 0;
        words.truncate(14);
    }
    stream.write_all(&words).expect("the kernel takes it");
    let mut read = vec![0; expected.len()];
    let came = match stream.read_exact(&mut read) {
        Ok(()) => read == expected,
        Err(fault) if matches!(fault.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(fault) => panic!("turned away: {fault}"),
    };
    (came, stream)
}

fn open_descriptors(program: &TestProgram) -> usize {
    let folder = format!("/proc/{}/fd", program.id());
    std::fs::read_dir(folder).expect("it runs").count()
}

fn fill(url: &str) -> Vec<Box<dyn DescriptorStream>> {
    let mut all = Vec::new();
    loop {
        let (came, stream) = comes_in(url);
        all.push(stream);
        if !came {
            return all;
        }
        assert!(all.len() < 200, "nothing stops them");
    }
}

#[test]
fn what_is_durable_goes_on_when_clients_have_used_up_their_descriptors() {
    let folder = scratch("descriptors");
    let (data, socket) = (folder.join("data"), folder.join("socket"));
    let path = |path: &Path| path.to_str().expect("a path in UTF-8").to_string();
    let (data, socket) = (path(&data), format!("unix://{}", path(&socket)));
    let arguments = [
        "serve",
        "--data",
        &data,
        "--shards",
        "2",
        "--set",
        "store.memory_bytes=1MiB",
        "-l",
        "tcp://127.0.0.1:0",
        "-l",
        "ws://127.0.0.1:0/mqtt",
        "-l",
        &socket,
    ];
    let mut program = limited(90, &arguments);
    let urls = urls(&mut program, 3);
    let port = web::port(&urls[0]);
    // Whoever publishes is in before.
    let lines = ["pub", "-p", &port, "-t", "kept", "-q", "1", "-r", "-l", "-V", "5", "-d"];
    let mut publisher = TestProgram::start(godwit(&lines));
    publisher.wait_for("CONNACK");
    for url in &urls {
        let before = open_descriptors(&program);
        let held = fill(url);
        assert!(held.len() > 10, "{url}: only {} are in", held.len());
        if url == &urls[0] {
            let line = program.wait_for("connections wait to be accepted");
            assert!(line.contains("limit=90 ") && line.contains("LimitNOFILE="), "{line}");
        }
        assert!(open_descriptors(&program) <= 75, "{} of 90", open_descriptors(&program));
        // The store opens files, many times.
        for _ in 0..20 {
            publisher.write(&format!("{}\n", "x".repeat(300_000)));
            publisher.wait_for("received PUBACK");
        }
        drop(held);
        let until = Instant::now() + PATIENCE;
        while open_descriptors(&program) > before + 8 {
            assert!(Instant::now() < until, "they are not closed");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(comes_in(url).0, "{url}: nobody is let in any more");
    }
    program.wait_for("connections are accepted as they come again");
    assert!(!program.seen().iter().any(|line| line.contains("the disk refuses")));
    let (code, _, why) = run(&["sub", "-p", &port, "-t", "kept", "-C", "1", "-W", "5"]);
    assert_eq!(code, Some(0), "{why}");
}

/// A reload reads certificates and rules while clients use all descriptors that clients may have.
#[test]
fn options_are_read_again_when_clients_have_used_up_their_descriptors() {
    let folder = scratch("descriptors-reload");
    let (file, rules) = (folder.join("godwit.toml"), folder.join("acl.toml"));
    let text = format!("[acl]\nfile = \"{}\"\n", rules.display());
    std::fs::write(&rules, "[[rule]]\nallow = \"all\"\ntopic = \"#\"\n").expect("a file");
    std::fs::write(&file, text).expect("a file");
    let config = file.display().to_string();
    let arguments = ["serve", "--memory", "--config", &config, "-l", "tcp://127.0.0.1:0"];
    let mut program = limited(64, &arguments);
    let urls = urls(&mut program, 1);
    let held = fill(&urls[0]);
    program.wait_for("connections wait to be accepted");
    std::fs::write(&rules, "[[rule]]\nallow = \"all\"\ntopic = \"a\"\n").expect("a file");
    program.signal("HUP");
    program.wait_for("options read again");
    drop(held);
}

/// Four components that open descriptors later: an authorization server with a new connection per
/// request, a sink that creates files, a bridge whose remote broker starts late, and certificates
/// that are read again.
#[test]
fn links_and_servers_are_reached_when_clients_have_used_up_their_descriptors() {
    let certs = CertificateFolder::new("descriptors-links");
    let web = TestWebServer::start(0, None, |_| {
        WebResponse::JsonAndClose(r#"{"result":"allow"}"#.into())
    });
    let far = free_port();
    let folder = certs.folder.display();
    let text = format!(
        "[[bridge]]\nname = \"far\"\nservers = [\"tcp://127.0.0.1:{far}\"]\n\
         retry_max_s = 1\n[[bridge.out]]\nfilter = \"#\"\n\
         [[sink]]\nname = \"files\"\nfilters = [\"#\"]\nbatch.wait_ms = 10\n\
         file.path = \"{folder}/${{payload}}\"\n\
         [acl]\nhttp_url = \"http://127.0.0.1:{}/\"\nhttp_cache_s = \"off\"\n",
        web.port
    );
    let config = certs.path("godwit.toml");
    std::fs::write(&config, text).expect("this host has room for it");
    let listen = ["-l", "tcp://127.0.0.1:0", "-l", "tls://127.0.0.1:0", "--memory", "--config"];
    let arguments = certs.serve(&[&listen[..], &[&config]].concat());
    let mut program = limited(90, &[&["serve"], &refs(&arguments)[..]].concat());
    let urls = urls(&mut program, 2);
    let port = web::port(&urls[0]);
    let lines = ["pub", "-p", &port, "-t", "t", "-q", "1", "-l", "-V", "5", "-d"];
    let mut publisher = TestProgram::start(godwit(&lines));
    publisher.wait_for("CONNACK");
    let held = fill(&urls[0]);
    program.wait_for("connections wait to be accepted");
    let far = format!("tcp://127.0.0.1:{far}");
    let _far = TestBroker::start(&["--listen", &far]);
    program.wait_for("connected");
    for number in 0..20 {
        publisher.write(&format!("{number}\n"));
        publisher.wait_for("received PUBACK");
    }
    assert!(web.asked().len() >= 20, "a publish is not asked about");
    let until = Instant::now() + PATIENCE;
    while !(0..20).all(|number| certs.folder.join(number.to_string()).exists()) {
        assert!(Instant::now() < until, "the sink's files are not there");
        std::thread::sleep(Duration::from_millis(50));
    }
    program.signal("HUP");
    program.wait_for("options read again");
    assert!(!program.seen().iter().any(|line| line.contains("Too many open files")));
    drop(held);
}
