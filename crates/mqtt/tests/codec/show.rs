//! Formats packets in the notation of the vectors.

use mqtt::*;
use std::fmt::Write;

pub(crate) fn show(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Connect(packet) => connect(packet),
        Packet::ConnAck(packet) => {
            let present = if packet.session_present { " present" } else { "" };
            format!("CONNACK{present}{}", rest(packet.reason, packet.properties))
        }
        Packet::Publish(packet) => publish(packet),
        Packet::PubAck(packet) => ack("PUBACK", packet),
        Packet::PubRec(packet) => ack("PUBREC", packet),
        Packet::PubRel(packet) => ack("PUBREL", packet),
        Packet::PubComp(packet) => ack("PUBCOMP", packet),
        Packet::Subscribe(packet) => subscribe(packet),
        Packet::SubAck(packet) => {
            codes("SUBACK", packet.packet_id, packet.codes, packet.properties)
        }
        Packet::Unsubscribe(packet) => {
            let filters = packet.filters.iter().map(|filter| format!(" {}", quoted(filter)));
            let filters: String = filters.collect();
            format!("UNSUBSCRIBE {}{filters}{}", packet.packet_id, properties(packet.properties))
        }
        Packet::UnsubAck(packet) => {
            codes("UNSUBACK", packet.packet_id, packet.codes, packet.properties)
        }
        Packet::PingReq => "PINGREQ".into(),
        Packet::PingResp => "PINGRESP".into(),
        Packet::Disconnect(packet) => {
            format!("DISCONNECT{}", rest(packet.reason, packet.properties))
        }
        Packet::Auth(packet) => format!("AUTH{}", rest(packet.reason, packet.properties)),
    }
}

fn connect(packet: &Connect<'_>) -> String {
    let version = match packet.version {
        ProtocolVersion::V31 => "3.1",
        ProtocolVersion::V311 => "3.1.1",
        ProtocolVersion::V5 => "5.0",
    };
    let mut out = format!("CONNECT {version} id={}", quoted(packet.client_id));
    if packet.clean_start {
        out += " clean";
    }
    if packet.is_bridge {
        out += " bridge";
    }
    write!(out, " keep_alive={}", packet.keep_alive_s).unwrap();
    if let Some(will) = &packet.will {
        write!(out, " will={} will_qos={}", quoted(will.topic), will.qos as u8).unwrap();
        if will.retain {
            out += " will_retain";
        }
        write!(out, " will_payload=\"{}\"", will.payload.escape_ascii()).unwrap();
        if !will.properties.is_empty() {
            write!(out, " will_properties={}", properties(will.properties).trim_start()).unwrap();
        }
    }
    if let Some(user_name) = packet.user_name {
        write!(out, " user={}", quoted(user_name)).unwrap();
    }
    if let Some(password) = packet.password {
        write!(out, " password=\"{}\"", password.escape_ascii()).unwrap();
    }
    out + &properties(packet.properties)
}

fn publish(packet: &Publish<'_>) -> String {
    let mut out = format!("PUBLISH {} qos={}", quoted(packet.topic), packet.qos as u8);
    if let Some(packet_id) = packet.packet_id {
        write!(out, " id={packet_id}").unwrap();
    }
    if packet.dup {
        out += " dup";
    }
    if packet.retain {
        out += " retain";
    }
    write!(out, " \"{}\"", packet.payload.escape_ascii()).unwrap();
    out + &properties(packet.properties)
}

fn subscribe(packet: &Subscribe<'_>) -> String {
    let mut out = format!("SUBSCRIBE {}", packet.packet_id);
    for (filter, options) in packet.filters {
        write!(out, " {} qos={}", quoted(filter), options.qos as u8).unwrap();
        if options.no_local {
            out += " no_local";
        }
        if options.retain_as_published {
            out += " retain_as_published";
        }
        if options.retain_handling != 0 {
            write!(out, " retain_handling={}", options.retain_handling).unwrap();
        }
    }
    out + &properties(packet.properties)
}

fn ack(name: &str, packet: &PublishAck<'_>) -> String {
    format!("{name} {}{}", packet.packet_id, rest(packet.reason, packet.properties))
}

fn codes(name: &str, packet_id: PacketId, codes: &[u8], tail: Properties<'_>) -> String {
    let codes: Vec<String> = codes.iter().map(|code| format!("{code:02x}")).collect();
    format!("{name} {packet_id} [{}]{}", codes.join(", "), properties(tail))
}

fn rest(reason: ReasonCode, tail: Properties<'_>) -> String {
    match reason {
        ReasonCode::Success => properties(tail),
        _ => format!(" {reason:?}{}", properties(tail)),
    }
}

fn properties(properties: Properties<'_>) -> String {
    if properties.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = properties.iter().map(|property| format!("{property:?}")).collect();
    format!(" [{}]", shown.join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}
