//! Tests of messages when sockets disconnect and when the connection to the local session ends. A
//! gateway and an engine run in this process; the tests decide when the broker authorizes, and thus
//! acknowledges, a message.

use super::Gateway;
use super::peer_message::{PeerId, PeerMessage};
use super::peer_set::PeerSet;
use super::settings::GatewaySettings;
use super::tests::gateway;
use crate::local_session::{
    LocalBroker, LocalSession, LocalSessionRequest, first_packet, read_frame,
};
use crate::metrics::LinkMetrics;
use crate::{LinkKind, LinkSettings, LinkStop, LinkTaskResources};
use broker::access_rules::acl_rules::{AclAction, AclRuleSet};
use broker::interface::authz::AuthzDecision;
use broker::options::client_groups::AuthzOptions;
use broker::session::session_report::{SessionReport, SessionSelector};
use engine::{AuthzTask, Server, ServerOptions};
use mqtt::{
    Packet, PacketId, PropertiesBuf, Property, ProtocolVersion, Publish, QoS, SubscribeOptions,
};
use std::collections::VecDeque;
use std::future::Future;
use std::iter;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};
use zmtp_sp::MultipartMessage;

const PATIENCE: Duration = Duration::from_secs(10);
/// Time to wait before a test concludes that a notification does not come; longer than any takes.
const A_WHILE: Duration = Duration::from_millis(300);
const OUT: &[(&str, &str)] = &[("filter", "out/#"), ("retained", "once")];
const IN: &[(&str, &str)] = &[("filter", "in/a"), ("topic", "from/a"), ("qos", "1")];

/// A gateway and a broker which asks the test to authorize the gateway's requests.
struct GatewayTestbed {
    server: Server,
    asked: Receiver<AuthzTask>,
    home: Arc<LocalBroker>,
    settings: GatewaySettings,
    peers: Arc<PeerSet>,
    metrics: Arc<LinkMetrics>,
    again: Arc<Notify>,
    stop: watch::Sender<LinkStop>,
    task: JoinHandle<()>,
}

impl GatewayTestbed {
    /// Creates a testbed with the given options, without listeners and outgoing connections.
    fn new(lines: &[(&str, &str)]) -> GatewayTestbed {
        let (asks, asked) = channel();
        let asks = Mutex::new(asks);
        let options = broker::BrokerOptions {
            authz: Some(AuthzOptions::default()),
            permissions: Some(Arc::new(AclRuleSet::new(Vec::new()))),
            ..broker::BrokerOptions::default()
        };
        let server = Server::start(ServerOptions {
            auth_handler: None,
            authz_handler: Some(Arc::new(move |request| {
                let _ = asks.lock().expect("nobody panics there").send(request);
            })),
            listeners: Vec::new(),
            shards: 1,
            io_uring: true,
            descriptors_reserved: 0,
            options: Arc::new(options),
            seed: 7,
            store: None,
            log: Box::new(|_| {}),
        });
        let server = server.expect("it starts");
        let own = [&[("listen", "tcp://127.0.0.1:1"), ("identity.user", "plant")], lines].concat();
        let pattern = lines.iter().find(|(key, _)| *key == "pattern");
        let hears = pattern.is_some_and(|(_, name)| *name == "pair");
        let inside: &[&[(&str, &str)]] = if hears { &[IN] } else { &[] };
        let mut settings = gateway(&own, &[OUT], inside).expect("it is right");
        settings.listen.clear();
        settings.name = "g".into();
        let home = Arc::new(LocalBroker::new(server.handle().clone()));
        let (metrics, again) =
            (Arc::new(LinkMetrics::for_kind(LinkKind::Gateway)), Arc::new(Notify::new()));
        let resources = LinkTaskResources {
            home: home.clone(),
            hub: Arc::default(),
            dial_tls: Arc::default(),
            listen_tls: Arc::default(),
            again: again.clone(),
            metrics: metrics.clone(),
        };
        let gateway = Gateway::new(&settings, &resources);
        let peers = gateway.shared.peers.clone();
        let (stop, stopped) = watch::channel(LinkStop::No);
        let task = tokio::spawn(gateway.run(stopped));
        GatewayTestbed { server, asked, home, settings, peers, metrics, again, stop, task }
    }

    /// Returns the broker's next authorization request for `action`, and allows all other requests.
    async fn asked(&self, action: AclAction) -> AuthzTask {
        let mut found = None;
        until("a question", || {
            while found.is_none()
                && let Ok(request) = self.asked.try_recv()
            {
                match request.request.action == action {
                    true => found = Some(request),
                    false => request.responder.respond(AuthzDecision::Allow),
                }
            }
            found.is_some()
        })
        .await;
        found.expect("it was waited for")
    }

    async fn allow(&self, action: AclAction) {
        self.asked(action).await.responder.respond(AuthzDecision::Allow);
    }

    /// Allows the subscription of the gateway, and waits for the subscribed session.
    async fn subscribed(&self) {
        self.allow(AclAction::Subscribe).await;
        until("its session", || !self.filters().is_empty()).await;
    }

    fn report(&self) -> Option<SessionReport> {
        let which = SessionSelector::ClientIds(vec![self.settings.link_id().into()]);
        self.server.handle().report_sessions(which).pop()
    }

    fn filters(&self) -> Vec<Box<str>> {
        self.report().map_or(Vec::new(), |report| report.filters)
    }

    fn enter(&self) -> PeerId {
        self.peers.add_peer(&self.settings, Arc::default()).expect("there is room")
    }

    /// Adds a peer, with the local session prepared. QoS 0 messages in between are counted by the
    /// session.
    async fn works_for(&self) -> PeerId {
        let peer = self.enter();
        self.publish(QoS::AtLeastOnce, "first", false).await;
        let receipt = self.given(peer).await.receipt;
        self.peers.record_arrival(peer, receipt);
        until("its receipt", || !self.is_owed()).await;
        peer
    }

    /// Removes a peer. Returns the number of messages lost with the peer.
    fn leave(&self, id: PeerId) -> usize {
        self.peers.remove_peer(id, iter::empty(), true)
    }

    fn says(&self, id: PeerId, message: MultipartMessage) {
        self.peers.accept_inbound(id, &mut [message].into());
    }

    /// Waits for the next message to a peer.
    async fn given(&self, id: PeerId) -> Arc<PeerMessage> {
        let mut found = None;
        until("a message", || {
            found = self.peers.next_for_peer(id, &self.settings);
            found.is_some()
        })
        .await;
        found.expect("it was waited for")
    }

    /// Connects a client with all permissions.
    async fn client(&self, link_id: &str) -> LocalSession {
        let (receive_maximum, is_last, is_quiet) = (10, true, false);
        let wish = LocalSessionRequest { link_id, receive_maximum, is_last, is_quiet };
        self.home.connect(wish).await.expect("it is let in")
    }

    async fn reader(&self, filter: &str) -> LocalSession {
        let mut local = self.client("$link/gateway/reader").await;
        let options = SubscribeOptions::default();
        local.subscribe(&[(filter, options)], &[]).await.expect("it subscribes");
        local
    }

    async fn publish(&self, qos: QoS, payload: &str, retain: bool) {
        let mut local = self.client("$link/gateway/writer").await;
        local.write_all(&packet(qos, payload, retain)).await.expect("it reads");
        if qos > QoS::AtMostOnce {
            read_frame(&mut local.stream, &mut local.read).await.expect("it acknowledges");
        }
        local.disconnect().await.expect("it reads");
    }

    /// Allows all authorization requests of the gateway, until the future is dropped.
    async fn lets_all(&self) {
        loop {
            self.asked
                .try_iter()
                .for_each(|request| request.responder.respond(AuthzDecision::Allow));
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Passes messages to the intake, as fast as the intake has room.
    async fn says_all(&self, id: PeerId, mut said: VecDeque<MultipartMessage>) {
        while !said.is_empty() {
            self.peers.accept_inbound(id, &mut said);
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn is_online(&self) -> bool {
        self.report().is_some_and(|report| report.is_online)
    }

    /// Whether the session has messages which the gateway has not acknowledged.
    fn is_owed(&self) -> bool {
        self.report().is_some_and(|report| report.in_flight > 0)
    }

    /// Takes over the gateway's session and disconnects, so the gateway loses its connection.
    async fn breaks_off(&self) {
        let (link_id, receive_maximum) = (self.settings.link_id(), 1);
        let wish = LocalSessionRequest {
            link_id: &link_id,
            receive_maximum,
            is_last: false,
            is_quiet: true,
        };
        let local = self.home.connect(wish).await.expect("it is let in");
        local.disconnect().await.expect("it reads");
        until("that it notices", || !self.metrics.last_error().is_empty()).await;
    }

    /// Stops the gateway, and waits until the peers are being closed.
    async fn is_to_end(&self) {
        self.stop.send(LinkStop::ForNow).expect("it runs");
        until("an end", || self.peers.close_deadline().is_some()).await;
    }

    /// Waits for the end of the gateway. Returns the dropped messages by reason.
    async fn ends_having_lost(self) -> Vec<(&'static str, u64)> {
        let metrics = self.metrics.clone();
        self.ends().await;
        metrics.drop_counts().filter(|(_, count)| *count > 0).collect()
    }

    async fn ends(self) {
        _ = self.stop.send(LinkStop::ForNow);
        self.task.await.expect("it ends");
        self.server.stop().expect("it stops");
    }
}

fn packet(qos: QoS, payload: &str, retain: bool) -> Vec<u8> {
    let (mut packet, mut properties) = (Vec::new(), PropertiesBuf::default());
    properties.push(Property::ResponseTopic("answers"));
    let publish = Publish {
        dup: false,
        qos,
        retain,
        topic: "out/a",
        packet_id: (qos > QoS::AtMostOnce).then_some(PacketId::MIN),
        properties: properties.as_properties(),
        payload: payload.as_bytes(),
    };
    publish.encode(ProtocolVersion::V5, &mut packet);
    packet
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, waited).await.is_ok(), "no {what}");
}

/// Returns the payload of the next message of this client.
async fn next(local: &mut LocalSession) -> String {
    loop {
        let read = timeout(PATIENCE, read_frame(&mut local.stream, &mut local.read)).await;
        let len = read.expect("a packet comes").expect("it is connected");
        let payload = match first_packet(&local.read, ProtocolVersion::V5) {
            Some(Packet::Publish(publish)) => String::from_utf8(publish.payload.to_vec()).ok(),
            _ => None,
        };
        local.read.drain(..len);
        if let Some(payload) = payload {
            return payload;
        }
    }
}

pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("there are descriptors").block_on(test);
}

fn frames(all: &[&str]) -> MultipartMessage {
    let frames = all.iter().map(|frame| frame.as_bytes().to_vec()).collect();
    MultipartMessage { envelope: Vec::new(), frames }
}

/// A peer sends a message and disconnects, and the gateway loses its session before the
/// acknowledgement.
async fn said_and_gone() -> (GatewayTestbed, LocalSession) {
    let stage = GatewayTestbed::new(&[("pattern", "pair")]);
    stage.subscribed().await;
    let reader = stage.reader("from/#").await;
    let peer = stage.enter();
    stage.says(peer, frames(&["in/a", "hello"]));
    stage.asked(AclAction::Publish).await;
    stage.leave(peer);
    stage.breaks_off().await;
    (stage, reader)
}

#[test]
fn what_a_socket_said_is_said_again_where_the_connection_ends_behind_it() {
    run(async {
        let (stage, mut reader) = said_and_gone().await;
        stage.allow(AclAction::Publish).await;
        assert_eq!(next(&mut reader).await, "hello");
        stage.ends().await;
    });
}

#[test]
fn what_a_socket_said_is_said_again_where_the_gateway_stops_before_it_could_be() {
    run(async {
        let (stage, mut reader) = said_and_gone().await;
        stage.stop.send(LinkStop::ForNow).expect("it runs");
        stage.allow(AclAction::Publish).await;
        assert_eq!(next(&mut reader).await, "hello");
        stage.ends().await;
    });
}

/// Two requests wait for responses of a peer, which answers one and disconnects. A third request
/// arrives before this broker acknowledges the response. Returns the requests which the next peer
/// gets.
async fn asked_of_the_next(pattern: &str) -> Vec<String> {
    let stage = GatewayTestbed::new(&[("protocol", "sp"), ("pattern", pattern)]);
    stage.subscribed().await;
    let mut reader = stage.reader("answers").await;
    let first = stage.enter();
    let mut answer = frames(&["yes"]);
    for question in ["first", "second"] {
        stage.publish(QoS::AtLeastOnce, question, false).await;
        let given = stage.given(first).await;
        assert_eq!(given.message.frames, frames(&[question]).frames);
        answer.envelope.clone_from(&given.message.envelope);
    }
    stage.says(first, answer);
    let told = stage.asked(AclAction::Publish).await;
    stage.leave(first);
    stage.publish(QoS::AtLeastOnce, "third", false).await;
    sleep(A_WHILE).await;
    let next_one = stage.enter();
    sleep(A_WHILE).await;
    told.responder.respond(AuthzDecision::Allow);
    assert_eq!(next(&mut reader).await, "yes");
    let mut asked = Vec::new();
    while !asked.contains(&"third".to_string()) {
        let given = stage.given(next_one).await;
        asked.extend(given.message.frames.iter().map(|one| String::from_utf8_lossy(one).into()));
    }
    stage.ends().await;
    asked
}

#[test]
fn a_question_that_nobody_was_there_for_waits_for_who_comes() {
    run(async {
        assert_eq!(asked_of_the_next("surveyor").await, ["third"]);
    });
}

#[test]
fn a_question_that_nobody_answered_is_asked_again_whatever_comes_behind_it() {
    run(async {
        assert_eq!(asked_of_the_next("req").await, ["first", "third"]);
    });
}

#[test]
fn what_no_session_has_is_counted_where_sockets_have_gone() {
    run(async {
        let stage = GatewayTestbed::new(&[("pattern", "pair")]);
        stage.subscribed().await;
        let peer = stage.enter();
        stage.says(peer, frames(&["in/a", "hello"]));
        let told = stage.asked(AclAction::Publish).await;
        stage.publish(QoS::AtMostOnce, "waits for the socket", false).await;
        sleep(A_WHILE).await;
        stage.stop.send(LinkStop::ForNow).expect("it runs");
        sleep(A_WHILE).await;
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            stage.publish(qos, "comes when it stops", false).await;
        }
        until("the one that is kept", || stage.is_owed()).await;
        told.responder.respond(AuthzDecision::Allow);
        until("an end", || stage.peers.close_deadline().is_some()).await;
        assert_eq!(stage.leave(peer), 1);
        assert_eq!(stage.ends_having_lost().await, [("no_peer", 1)]);
    });
}

#[test]
fn a_question_that_waits_when_it_stops_is_the_sessions_again() {
    run(async {
        let stage = GatewayTestbed::new(&[("pattern", "req")]);
        stage.subscribed().await;
        let peer = stage.enter();
        for qos in [QoS::AtLeastOnce, QoS::AtMostOnce] {
            stage.publish(qos, if qos > QoS::AtMostOnce { "kept" } else { "not" }, false).await;
        }
        until("what is owed", || stage.is_owed()).await;
        sleep(A_WHILE).await;
        stage.is_to_end().await;
        assert_eq!(stage.given(peer).await.message.frames, frames(&["not"]).frames);
        assert_eq!(stage.leave(peer), 0);
        until("an end of its connection", || !stage.is_online()).await;
        assert!(stage.is_owed(), "it was not answered");
        stage.ends().await;
    });
}

#[test]
fn what_a_socket_gave_back_is_counted_where_no_session_has_it() {
    run(async {
        let stage = GatewayTestbed::new(&[("pattern", "push")]);
        stage.subscribed().await;
        let peer = stage.works_for().await;
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            stage.publish(qos, "for it", false).await;
        }
        until("what is owed", || stage.is_owed()).await;
        sleep(A_WHILE).await;
        assert_eq!(stage.leave(peer), 0);
        assert_eq!(stage.ends_having_lost().await, [("no_peer", 1)]);
    });
}

#[test]
fn what_a_socket_takes_at_the_last_moment_is_acknowledged() {
    run(async {
        let stage = GatewayTestbed::new(&[("pattern", "push")]);
        stage.subscribed().await;
        let peer = stage.enter();
        stage.publish(QoS::AtLeastOnce, "for it", false).await;
        let receipt = stage.given(peer).await.receipt.expect("it has a QoS");
        until("what is owed", || stage.is_owed()).await;
        stage.is_to_end().await;
        // As late as a peer's task may report the arrival of its last message.
        sleep_until(stage.peers.close_deadline().expect("it is said") + Duration::from_millis(50))
            .await;
        stage.peers.record_arrival(peer, Some(receipt));
        stage.leave(peer);
        until("an end of its connection", || !stage.is_online()).await;
        assert!(!stage.is_owed(), "it comes again");
        stage.ends().await;
    });
}

#[test]
fn what_it_is_let_have_while_nobody_is_there_it_has_once() {
    run(async {
        let stage = GatewayTestbed::new(&[("pattern", "push")]);
        stage.asked(AclAction::Subscribe).await.responder.respond(AuthzDecision::Deny);
        let peer = stage.enter();
        stage.asked(AclAction::Subscribe).await.responder.respond(AuthzDecision::Deny);
        until("a connection", || stage.is_online()).await;
        stage.leave(peer);
        until("an end of it", || !stage.is_online()).await;
        stage.publish(QoS::AtLeastOnce, "retained", true).await;
        stage.again.notify_one();
        let request = stage.asked(AclAction::Subscribe).await;
        // No packet of the subscription arrives before a peer connects.
        request.responder.respond(AuthzDecision::Allow);
        let late = std::time::Instant::now() + PATIENCE;
        while !stage.filters().iter().any(|filter| &**filter == "out/#") {
            assert!(std::time::Instant::now() < late, "it does not have it");
            std::thread::yield_now();
        }
        let peer = stage.enter();
        stage.allow(AclAction::Subscribe).await;
        assert_eq!(stage.given(peer).await.message.frames[1], b"retained");
        // A later process would request retained messages again while the note exists.
        let is_noted = || stage.filters().iter().any(|filter| filter.contains("/.notes/"));
        until("an end of the note", || !is_noted()).await;
        stage.ends().await;
    });
}

#[test]
fn it_stops_where_its_session_is_gone_and_does_not_come_again() {
    run(async {
        let stage = GatewayTestbed::new(&[("pattern", "push")]);
        stage.subscribed().await;
        stage.enter();
        stage.allow(AclAction::Subscribe).await;
        stage.home.end_session(&stage.settings.link_id()).await.expect("it ends");
        // The broker treats a missing answer as a refusal, but only after a timeout.
        let _question = stage.asked(AclAction::Subscribe).await;
        assert!(timeout(PATIENCE / 3, stage.ends()).await.is_ok(), "it goes on");
    });
}

/// Number of messages: more than may wait for acknowledgements of this broker.
const MANY: usize = 1500;

/// A pair with short queues of peers, and `count` messages waiting for its peer.
async fn pair_with_much(qos: QoS, count: usize) -> (GatewayTestbed, LocalSession, PeerId) {
    let stage = GatewayTestbed::new(&[("pattern", "pair"), ("peer.queue_messages_max", "2")]);
    stage.subscribed().await;
    let reader = stage.reader("from/#").await;
    let peer = stage.works_for().await;
    let mut writer = stage.client("$link/gateway/writer").await;
    for _ in 0..count {
        writer.write_all(&packet(qos, "out", false)).await.expect("it reads");
        if qos > QoS::AtMostOnce {
            let read = read_frame(&mut writer.stream, &mut writer.read).await;
            writer.read.drain(..read.expect("it acknowledges"));
        }
    }
    writer.disconnect().await.expect("it reads");
    (stage, reader, peer)
}

/// Reads `count` messages, and drops them.
async fn reads(reader: &mut LocalSession, count: usize) {
    for _ in 0..count {
        next(reader).await;
    }
}

#[test]
fn who_talks_and_does_not_read_is_heard_while_much_waits_for_it() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        run(async {
            let (stage, mut reader, peer) = pair_with_much(qos, 50).await;
            let said = (0..MANY).map(|_| frames(&["in/a", "hello"])).collect();
            tokio::select! {
                ((), ()) = async {
                    tokio::join!(stage.says_all(peer, said), reads(&mut reader, MANY))
                } => {}
                () = stage.lets_all() => {}
            }
            for _ in 0..50 {
                assert_eq!(stage.given(peer).await.message.frames[1], b"out");
            }
            assert!(stage.metrics.drop_counts().all(|(_, count)| count == 0));
            stage.ends().await;
        });
    }
}

#[test]
fn who_answers_each_message_before_it_reads_the_next_has_them_all() {
    run(async {
        let (stage, mut reader, peer) = pair_with_much(QoS::AtMostOnce, MANY).await;
        let answer = "a".repeat(4000);
        let echo = async {
            for _ in 0..MANY {
                let message = loop {
                    match stage.peers.next_for_peer(peer, &stage.settings) {
                        Some(message) => break message,
                        None => tokio::task::yield_now().await,
                    }
                };
                assert_eq!(message.message.frames[1], b"out");
                let mut said: VecDeque<_> = [frames(&["in/a", &answer])].into();
                while !said.is_empty() {
                    stage.peers.accept_inbound(peer, &mut said);
                    tokio::task::yield_now().await;
                }
            }
        };
        let both = async { tokio::join!(echo, reads(&mut reader, MANY)) };
        tokio::select! {
            done = timeout(3 * PATIENCE, both) => assert!(done.is_ok(), "it hangs"),
            () = stage.lets_all() => {}
        }
        assert!(stage.metrics.drop_counts().all(|(_, count)| count == 0));
        stage.ends().await;
    });
}
