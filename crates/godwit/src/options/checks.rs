//! Checks across several options, and options that this version does not support yet.

use super::links::LINK_KINDS;
use super::settings::{ListenerSettings, LogTarget, ProgramSettings};
use super::{OptionError, OptionPlan};
use auth::settings::AnonymousAccess;
use broker::message::Durability;
use broker::{BrokerOptions, limits};
use engine::tls::{ClientCertificateMode, TlsVersionMin};

pub(super) fn check_plan(plan: &OptionPlan, wrongs: &mut Vec<OptionError>) {
    let settings = plan.settings(1);
    let checks = [
        ("listen", check_listen as fn(&ProgramSettings) -> Option<String>),
        ("data", check_data_folder),
        ("log.target", check_log_target),
        ("queue.bytes_max", check_queue),
    ];
    check_listeners(plan, &settings, wrongs);
    check_access(plan, &settings, wrongs);
    plan.check_imported(&settings, wrongs);
    check_queues(plan, &settings, wrongs);
    plan.check_sends(wrongs);
    check_namespaces(plan, &settings, wrongs);
    let (groups, most) = (plan.groups.len(), limits::CLIENT_GROUPS_MAX);
    if let Some(beyond) = plan.groups.get(most) {
        let why = format!("there are {groups} groups, use at most {most}");
        wrongs.push(OptionError { origin: beyond.origin.clone(), why });
    }
    LINK_KINDS.iter().for_each(|kind| (kind.check)(plan, &settings, wrongs));
    for (key, check) in checks {
        if let Some(why) = check(&settings) {
            wrongs.push(OptionError { origin: plan.origin(key), why });
        }
    }
}

fn check_listen(settings: &ProgramSettings) -> Option<String> {
    let most = limits::LISTENERS_MAX;
    match settings.listeners.len() {
        0 => Some("listen is empty, use at least one URL like tcp://127.0.0.1:1883".to_string()),
        many if many > most => Some(format!("there are {many} listeners, use at most {most}")),
        _ => None,
    }
}

/// Checks that the parts of each listener fit together.
fn check_listeners(plan: &OptionPlan, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
    for (at, listener) in settings.listeners.iter().enumerate() {
        let url = &listener.url;
        let closed =
            listener.anonymous == AnonymousAccess::Loopback && !listener.accepts_other_hosts();
        let open = closed && !url.is_loopback() && !listener.requires_credentials();
        let wrong = open.then(|| describe_open_listener(&url.to_string()));
        let wrong = wrong.or_else(|| check_tls(listener).map(|why| format!("{url}: {why}")));
        if let Some(why) = wrong {
            wrongs.push(OptionError { origin: plan.listener_origin(at), why });
        }
    }
}

fn check_tls(listener: &ListenerSettings) -> Option<String> {
    if !listener.url.is_tls() {
        return None;
    }
    if listener.url.is_quic() && listener.transport.proxy.is_some() {
        return Some(
            "proxy.protocol is for streams of bytes: give quic a [[listener]] with \
             proxy.protocol = \"off\""
                .to_string(),
        );
    }
    let files = &listener.transport.tls;
    if listener.transport.psk_file.is_some() {
        return check_psk(listener);
    }
    let (certificates, keys) = (files.certificates.len(), files.keys.len());
    if certificates == 0 {
        return Some(format!(
            "a {} listener needs tls.certificate and tls.key, the paths of PEM files",
            listener.url.scheme()
        ));
    }
    if certificates != keys {
        return Some(format!(
            "tls.certificate has {certificates} paths and tls.key {keys}, use a key for each"
        ));
    }
    let vouched = files.client_authorities.is_some();
    match files.client {
        ClientCertificateMode::Off if vouched || !files.revoked.is_empty() => Some(
            "tls.client_ca and tls.crl do nothing with tls.client_certificate = \"off\", use \
             \"required\" or \"optional\""
                .to_string(),
        ),
        ClientCertificateMode::Optional | ClientCertificateMode::Required if !vouched => Some(
            "tls.client_certificate needs tls.client_ca, the CAs that vouch for clients"
                .to_string(),
        ),
        _ => None,
    }
}

/// Returns the error if a listener with pre-shared keys has options that need certificates.
fn check_psk(listener: &ListenerSettings) -> Option<String> {
    let files = &listener.transport.tls;
    let why = if listener.url.is_quic() {
        "tls.psk_file is not for quic, which needs a certificate: give quic a [[listener]] with \
         tls.psk_file = \"\""
    } else if files.version_min == TlsVersionMin::V13 {
        "tls.psk_file is for TLS 1.2: give it a [[listener]] with tls.version_min = \"1.2\""
    } else if files.client != ClientCertificateMode::Off {
        "a client with a key shows no certificate: give tls.psk_file a [[listener]] with \
         tls.client_certificate = \"off\""
    } else {
        return None;
    };
    Some(why.to_string())
}

/// Returns the error for a listener that is open to the network without authentication. Also used
/// when a host name resolves to an address beyond loopback.
pub(crate) fn describe_open_listener(url: &str) -> String {
    format!(
        "{url} can be reached from other hosts, and authentication is missing: listen on \
         127.0.0.1 or [::1], name users with auth.users, or let everyone in with \
         allow_anonymous = true"
    )
}

/// Checks `allow_anonymous` and `auth.certificate_client_id` of each listener; an error common to
/// several listeners is reported once.
fn check_access(plan: &OptionPlan, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
    let mut said = Vec::new();
    for (at, listener) in settings.listeners.iter().enumerate() {
        let checks = [
            ("allow_anonymous", check_anyone_can_connect(listener)),
            ("auth.certificate_client_id", check_certificate(listener)),
        ];
        for (key, why) in checks {
            let Some(why) = why else { continue };
            let origin = plan.origin_at(at, key);
            if !said.contains(&(key, origin.clone())) {
                said.push((key, origin.clone()));
                wrongs.push(OptionError { origin, why });
            }
        }
    }
}

fn check_anyone_can_connect(listener: &ListenerSettings) -> Option<String> {
    let closed = listener.anonymous == AnonymousAccess::Never
        && !listener.security.requires_authentication();
    closed.then(|| {
        "allow_anonymous = false: nobody could connect, because authentication is missing; name \
         users with auth.users, or use \"loopback\" or true"
            .to_string()
    })
}

fn check_certificate(listener: &ListenerSettings) -> Option<String> {
    let own = &listener.security;
    let alone = own.certificate_client_id.is_some() && own.certificate_user.is_none();
    alone.then(|| {
        "auth.certificate_client_id needs auth.certificate, which says who the client is"
            .to_string()
    })
}

fn check_data_folder(settings: &ProgramSettings) -> Option<String> {
    let nowhere = settings.data.is_empty() && settings.broker.durability != Durability::Memory;
    nowhere.then(|| {
        "data is empty, use the path of a folder, or durability = \"memory\" (--memory)".to_string()
    })
}

fn check_log_target(settings: &ProgramSettings) -> Option<String> {
    let nowhere =
        settings.log.target == LogTarget::File && settings.log.file.as_os_str().is_empty();
    nowhere.then(|| "log.target = \"file\" needs the file's path in log.file".to_string())
}

/// Refuses a namespace with the user's name on listeners without authentication: there no user name
/// is confirmed, so no client could connect.
fn check_namespaces(plan: &OptionPlan, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
    for (at, listener) in settings.listeners.iter().enumerate() {
        if listener.security.requires_authentication() {
            continue;
        }
        let options = listener.broker.as_deref().unwrap_or(&settings.broker);
        let namespace = options.namespace.as_ref().filter(|namespace| namespace.asks_for_user());
        wrongs.extend(namespace.map(|namespace| OptionError {
            origin: plan.listener_origin(at),
            why: format!(
                "namespace = \"{namespace}\" lets nobody in, because nobody is asked who it is: \
                 name users with auth.users"
            ),
        }));
    }
}

/// Checks the queues of listeners and groups with their own options.
fn check_queues(plan: &OptionPlan, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
    for (at, listener) in settings.listeners.iter().enumerate() {
        let Some(own) = &listener.broker else { continue };
        let wrong =
            describe_too_small(own).filter(|_| describe_too_small(&settings.broker).is_none());
        wrongs.extend(wrong.map(|why| OptionError { origin: plan.listener_origin(at), why }));
    }
    for class in &settings.broker.client_groups {
        let wrong = describe_too_small(&class.options)
            .filter(|_| describe_too_small(&settings.broker).is_none());
        wrongs.extend(wrong.map(|why| OptionError { origin: plan.group_origin(&class.name), why }));
    }
}

fn check_queue(settings: &ProgramSettings) -> Option<String> {
    describe_too_small(&settings.broker)
}

/// Returns the error for `queue.bytes_max` below `connection.packet_bytes_max`: a large message
/// would be dropped silently.
fn describe_too_small(options: &BrokerOptions) -> Option<String> {
    let (queue, packet) = (options.queue_bytes_max, options.packet_bytes_max);
    (queue < u64::from(packet)).then(|| {
        format!(
            "queue.bytes_max = {queue} is less than connection.packet_bytes_max = {packet}: one \
             packet must fit into a queue, use at least {packet}"
        )
    })
}
