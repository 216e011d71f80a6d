//! Packets as lines of the transcript language. `encode` turns text into bytes; `decode` turns
//! bytes into text by `Display` of the `mqtt` crate. `HEX 10 0c ...` stands for bytes which the
//! language cannot express.

use mqtt::{
    Auth, ConnAck, Connect, Disconnect, FilterListBuf, Packet, PacketId, Properties, PropertiesBuf,
    Property, ProtocolVersion, Publish, PublishAck, QoS, ReasonCode, SubAck, Subscribe,
    SubscribeOptions, SubscriptionListBuf, UnsubAck, Unsubscribe, Will,
};

/// A word of a line: `"text"`, `name`, `name=value`, `name="text":"text"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LineWord {
    name: String,
    /// The part after `=`, or the text of a word which is only a text.
    value: Option<Vec<u8>>,
    second: Option<Vec<u8>>,
}

/// Encodes a packet line. `version` is the connection's; a CONNECT line sets its own.
pub fn encode(text: &str, version: ProtocolVersion) -> Result<Vec<u8>, String> {
    if let Some(hex) = text.strip_prefix("HEX ") {
        return hex_bytes(hex).ok_or_else(|| format!("not hex: {text}"));
    }
    let words = words(text)?;
    let Some((kind, words)) = words.split_first() else { return Err("an empty line".into()) };
    let mut out = Vec::new();
    PacketLine { words, version }
        .encode(&kind.name, &mut out)
        .map_err(|why| format!("{why}: {text}"))?;
    Ok(out)
}

/// Decodes the first packet of the broker's bytes. Returns its line and length, or `None` if the
/// packet is incomplete.
pub fn decode(bytes: &[u8], version: ProtocolVersion) -> Option<(String, usize)> {
    let hex = |bytes: &[u8]| {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("HEX {}", bytes.join(" "))
    };
    let frame = match mqtt::split_frame(bytes, u32::MAX) {
        Ok(Some(frame)) => frame,
        Ok(None) => return None,
        Err(_) => return Some((hex(bytes), bytes.len())),
    };
    let line = match Packet::decode(frame, version) {
        Ok(packet) => packet.to_string(),
        // The broker answers an unknown version with a CONNACK of another version.
        Err(_) => match Packet::decode(frame, ProtocolVersion::V311) {
            Ok(packet @ Packet::ConnAck(_)) => format!("{packet} v=311"),
            _ => hex(&bytes[..frame.len]),
        },
    };
    Some((line, frame.len))
}

/// Returns the protocol version of a CONNECT, even if the packet is otherwise malformed.
pub fn version_of(connect: &[u8]) -> Option<ProtocolVersion> {
    let frame = mqtt::split_frame(connect, u32::MAX).ok()??;
    let (len, rest) = frame.body.split_first_chunk::<2>()?;
    if frame.packet_type() != 1 {
        return None;
    }
    match rest.get(usize::from(u16::from_be_bytes(*len)))? {
        // With or without the bridge bit of mosquitto, 0x80.
        0x03 | 0x83 => Some(ProtocolVersion::V31),
        0x04 | 0x84 => Some(ProtocolVersion::V311),
        _ => Some(ProtocolVersion::V5),
    }
}

/// Whether a received line matches an expected line. `*` stands for any word, `name=*` for any
/// value.
pub fn matches_expected(expected: &str, came: &str) -> bool {
    let split = |text: &str| raw_words(text).unwrap_or_default();
    let (expected, came) = (split(expected), split(came));
    expected.len() == came.len()
        && expected.iter().zip(&came).all(|(expected, came)| {
            let open = expected.strip_suffix('*').filter(|known| known.ends_with('='));
            expected == came || expected == "*" || open.is_some_and(|known| came.starts_with(known))
        })
}

/// Returns a line without the words `name=value` of the given `names`.
pub fn strip_values(text: &str, names: &[&str]) -> String {
    let words = raw_words(text).unwrap_or_default();
    let kept = words.into_iter().filter(|word| {
        !names.iter().any(|name| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
    });
    kept.collect::<Vec<_>>().join(" ")
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

/// Splits a line at blanks outside of quotes. Quotes and escapes stay in the words.
pub(crate) fn raw_words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted, mut escaped) = (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        if letter.is_whitespace() && !quoted {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.push(letter);
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
    }
    if quoted {
        return Err(format!("a quote is open: {text}"));
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    Ok(words)
}

fn words(text: &str) -> Result<Vec<LineWord>, String> {
    raw_words(text)?.iter().map(|raw| LineWord::parse(raw)).collect()
}

impl LineWord {
    fn parse(raw: &str) -> Result<LineWord, String> {
        let quote = raw.find('"').unwrap_or(raw.len());
        if let Some((name, value)) = raw.split_once('=').filter(|(name, _)| name.len() < quote) {
            let (value, rest) = LineWord::value(value)?;
            let second = match rest.strip_prefix(':') {
                Some(second) => Some(LineWord::value(second)?.0),
                None => None,
            };
            return Ok(LineWord { name: name.into(), value: Some(value), second });
        }
        if raw.starts_with('"') || raw.starts_with("hex:") {
            let (value, _) = LineWord::value(raw)?;
            return Ok(LineWord { value: Some(value), ..LineWord::default() });
        }
        Ok(LineWord { name: raw.into(), ..LineWord::default() })
    }

    /// Reads `word`, `"text"`, `"text"*count` or `hex:00ff`. Returns the bytes and the rest of the
    /// word.
    fn value(raw: &str) -> Result<(Vec<u8>, &str), String> {
        if let Some(hex) = raw.strip_prefix("hex:") {
            let bytes = hex_bytes(hex).ok_or_else(|| format!("not hex: {raw}"))?;
            return Ok((bytes, ""));
        }
        let Some(quoted) = raw.strip_prefix('"') else { return Ok((raw.into(), "")) };
        let (mut text, mut letters) = (String::new(), quoted.char_indices());
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => return LineWord::repeated(text, &quoted[at + 1..]),
                '\\' => text.push(unescape(&mut letters)?),
                _ => text.push(letter),
            }
        }
        Err(format!("a quote is open: {raw}"))
    }

    fn repeated(text: String, rest: &str) -> Result<(Vec<u8>, &str), String> {
        let Some(count) = rest.strip_prefix('*') else { return Ok((text.into(), rest)) };
        let end = count.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(count.len());
        let times = count[..end].parse().map_err(|_| format!("how often? {rest}"))?;
        Ok((text.repeat(times).into_bytes(), &count[end..]))
    }
}

fn unescape(letters: &mut std::str::CharIndices<'_>) -> Result<char, String> {
    match letters.next().map(|(_, letter)| letter) {
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some('u') => {
            let hex: String = letters
                .map(|(_, letter)| letter)
                .skip(1)
                .take_while(|letter| *letter != '}')
                .collect();
            let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
            code.ok_or_else(|| format!("no character {hex}"))
        }
        Some(letter) => Ok(letter),
        None => Err("nothing is escaped".into()),
    }
}

/// The words of a line behind the packet's name.
struct PacketLine<'a> {
    words: &'a [LineWord],
    version: ProtocolVersion,
}

/// Encodes the property of a word. `owner` resolves `expiry`, which differs in PUBLISH and CONNECT.
/// Returns `None` for a word which is not a property.
fn property(owner: &str, word: &LineWord) -> Result<Option<PropertiesBuf>, String> {
    let mut buf = PropertiesBuf::default();
    let bytes = word.value.as_deref().unwrap_or_default();
    let text = || std::str::from_utf8(bytes).map_err(|_| format!("{} is not text", word.name));
    let number = || text()?.parse().map_err(|_| format!("{} is not a number", word.name));
    let half = || number().map(|value: u32| value as u16);
    let byte = || number().map(|value: u32| value as u8);
    let second = word.second.as_deref().unwrap_or_default();
    buf.push(match word.name.as_str() {
        "payload_format" => Property::PayloadFormatIndicator(byte()?),
        "expiry" if owner == "message" => Property::MessageExpiryInterval(number()?),
        "expiry" => Property::SessionExpiryInterval(number()?),
        "content_type" => Property::ContentType(text()?),
        "response_topic" => Property::ResponseTopic(text()?),
        "correlation" => Property::CorrelationData(bytes),
        "subscription_id" => Property::SubscriptionIdentifier(number()?),
        "assigned_id" => Property::AssignedClientIdentifier(text()?),
        "server_keep_alive" => Property::ServerKeepAlive(half()?),
        "auth_method" => Property::AuthenticationMethod(text()?),
        "auth" => Property::AuthenticationData(bytes),
        "request_problem" => Property::RequestProblemInformation(byte()?),
        "delay" => Property::WillDelayInterval(number()?),
        "request_response" => Property::RequestResponseInformation(byte()?),
        "response" => Property::ResponseInformation(text()?),
        "server_reference" => Property::ServerReference(text()?),
        "reason_string" => Property::ReasonString(text()?),
        "receive_maximum" => Property::ReceiveMaximum(half()?),
        "topic_alias_maximum" => Property::TopicAliasMaximum(half()?),
        "alias" => Property::TopicAlias(half()?),
        "maximum_qos" => Property::MaximumQoS(byte()?),
        "retain_available" => Property::RetainAvailable(byte()?),
        "user" => Property::UserProperty(
            text()?,
            std::str::from_utf8(second).map_err(|_| "user is not text")?,
        ),
        "maximum_packet_size" => Property::MaximumPacketSize(number()?),
        "wildcard_available" => Property::WildcardSubscriptionAvailable(byte()?),
        "subscription_id_available" => Property::SubscriptionIdentifierAvailable(byte()?),
        "shared_available" => Property::SharedSubscriptionAvailable(byte()?),
        _ => return Ok(None),
    });
    Ok(Some(buf))
}

impl PacketLine<'_> {
    fn encode(&self, kind: &str, out: &mut Vec<u8>) -> Result<(), String> {
        let properties = self.properties(kind)?;
        let properties = Properties::trusted(&properties);
        let reason = self.reason()?;
        match kind {
            "CONNECT" => return self.connect(properties, out),
            "PUBLISH" => return self.publish(properties, out),
            "SUBSCRIBE" => return self.subscribe(properties, out),
            "UNSUBSCRIBE" => return self.unsubscribe(properties, out),
            _ => {}
        }
        let ack =
            || Ok::<_, String>(PublishAck { packet_id: self.packet_id()?, reason, properties });
        let codes = self.codes();
        let packet = match kind {
            "CONNACK" => {
                let session_present = self.value("present").is_some_and(|value| value == b"1");
                Packet::ConnAck(ConnAck { session_present, reason, properties })
            }
            "PUBACK" => Packet::PubAck(ack()?),
            "PUBREC" => Packet::PubRec(ack()?),
            "PUBREL" => Packet::PubRel(ack()?),
            "PUBCOMP" => Packet::PubComp(ack()?),
            "SUBACK" => {
                let packet_id = self.packet_id()?;
                Packet::SubAck(SubAck { packet_id, properties, codes: &codes })
            }
            "UNSUBACK" => {
                let packet_id = self.packet_id()?;
                Packet::UnsubAck(UnsubAck { packet_id, properties, codes: &codes })
            }
            "PINGREQ" => Packet::PingReq,
            "PINGRESP" => Packet::PingResp,
            "DISCONNECT" => Packet::Disconnect(Disconnect { reason, properties }),
            "AUTH" => Packet::Auth(Auth { reason, properties }),
            _ => return Err(format!("no packet {kind}")),
        };
        packet.encode(self.version, out);
        Ok(())
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        self.words.iter().find(|word| word.name == name)?.value.as_deref()
    }

    fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word.name == name && word.value.is_none())
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        let Some(value) = self.value(name) else { return Ok(default) };
        let text = std::str::from_utf8(value).unwrap_or_default();
        text.parse().map_err(|_| format!("{name} is not a number"))
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        let value = self.value(name).map(std::str::from_utf8).transpose();
        value.map_err(|_| format!("{name} is not text"))
    }

    /// Returns the quoted words without a name: topics, filters and the payload.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.words
            .iter()
            .filter(|word| word.name.is_empty())
            .filter_map(|word| word.value.as_deref())
    }

    fn qos(&self, name: &str) -> Result<QoS, String> {
        QoS::from_bits(self.number(name, 0)?).ok_or_else(|| "no such QoS".into())
    }

    fn packet_id(&self) -> Result<PacketId, String> {
        let first = self.words.first().and_then(|word| word.name.parse().ok());
        first.ok_or_else(|| "a packet id first".into())
    }

    fn reason(&self) -> Result<ReasonCode, String> {
        for word in self.words.iter().filter(|word| word.value.is_none()) {
            if let Some(hex) = word.name.strip_prefix("0x") {
                let code = u8::from_str_radix(hex, 16).ok();
                return code
                    .and_then(ReasonCode::from_byte)
                    .ok_or_else(|| format!("reason {hex}?"));
            }
            let all = mqtt::reason_code::REASONS.iter().map(|row| row.reason);
            if let Some(reason) = all.into_iter().find(|reason| format!("{reason:?}") == word.name)
            {
                return Ok(reason);
            }
        }
        Ok(ReasonCode::Success)
    }

    /// Parses the reason codes of SUBACK and UNSUBACK: `[0 1 0x87]`.
    fn codes(&self) -> Vec<u8> {
        let code = |word: &LineWord| {
            let text = word.name.trim_matches(['[', ']']);
            match text.strip_prefix("0x") {
                Some(hex) => u8::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            }
        };
        self.words.iter().skip(1).filter_map(code).collect()
    }

    fn properties(&self, kind: &str) -> Result<Vec<u8>, String> {
        let owner = if kind == "PUBLISH" { "message" } else { "" };
        let mut bytes = Vec::new();
        for word in self.words.iter().filter(|word| word.value.is_some()) {
            if let Some(buf) = property(owner, word)? {
                bytes.extend_from_slice(buf.as_properties().as_bytes());
            }
        }
        Ok(bytes)
    }

    fn connect(&self, properties: Properties<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let version = match self.value("v") {
            None | Some(b"5") => ProtocolVersion::V5,
            Some(b"311") => ProtocolVersion::V311,
            Some(b"31") => ProtocolVersion::V31,
            Some(_) => return Err("v is 31, 311 or 5".into()),
        };
        let mut will_properties = Vec::new();
        for word in self.words {
            let Some(name) = word.name.strip_prefix("will_") else { continue };
            let word = LineWord { name: name.into(), ..word.clone() };
            if let Some(buf) = property("message", &word)? {
                will_properties.extend_from_slice(buf.as_properties().as_bytes());
            }
        }
        let will = match self.text("will")? {
            None => None,
            Some(topic) => Some(Will {
                qos: self.qos("will_qos")?,
                retain: self.has("will_retain"),
                topic,
                payload: self.value("will_payload").unwrap_or_default(),
                properties: Properties::trusted(&will_properties),
            }),
        };
        let connect = Connect {
            is_bridge: self.has("bridge"),
            version,
            clean_start: self.number("clean", 1)? == 1,
            keep_alive_s: self.number("keep_alive", 0)?,
            client_id: self.text("id")?.unwrap_or_default(),
            will,
            user_name: self.text("user_name")?,
            password: self.value("password"),
            properties,
        };
        connect.encode(version, out);
        Ok(())
    }

    fn publish(&self, properties: Properties<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let qos = self.qos("qos")?;
        let mut texts = self.texts();
        let topic = texts.next().ok_or("a topic in quotes")?;
        let publish = Publish {
            dup: self.has("dup"),
            qos,
            retain: self.has("retain"),
            topic: std::str::from_utf8(topic).map_err(|_| "a topic is text")?,
            packet_id: if qos == QoS::AtMostOnce { None } else { Some(self.packet_id()?) },
            properties,
            payload: texts.next().unwrap_or_default(),
        };
        publish.encode(self.version, out);
        Ok(())
    }

    fn subscribe(&self, properties: Properties<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let mut filters = SubscriptionListBuf::default();
        let starts = (0..self.words.len()).filter(|&at| self.words[at].name.is_empty());
        let starts: Vec<usize> = starts.chain([self.words.len()]).collect();
        for pair in starts.windows(2) {
            let own = PacketLine { words: &self.words[pair[0]..pair[1]], version: self.version };
            let filter = own.texts().next().unwrap_or_default();
            let options = SubscribeOptions {
                qos: own.qos("qos")?,
                no_local: own.has("no_local"),
                retain_as_published: own.has("retain_as_published"),
                retain_handling: own.number("retain_handling", 0)?,
            };
            filters.push(std::str::from_utf8(filter).map_err(|_| "a filter is text")?, options);
        }
        let (packet_id, filters) = (self.packet_id()?, filters.as_subscriptions());
        Subscribe { packet_id, properties, filters }.encode(self.version, out);
        Ok(())
    }

    fn unsubscribe(&self, properties: Properties<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let mut filters = FilterListBuf::default();
        for filter in self.texts() {
            filters.push(std::str::from_utf8(filter).map_err(|_| "a filter is text")?);
        }
        let (packet_id, filters) = (self.packet_id()?, filters.as_filters());
        Unsubscribe { packet_id, properties, filters }.encode(self.version, out);
        Ok(())
    }
}
