//! The tables `[[gateway]]` of a file, with `[[gateway.out]]` and `[[gateway.in]]`.

use super::file::OptionFileReader;
use super::links::{LinkKindOptions, LinkOptions, LinkTables, check_name, replace_links};
use super::option_text::{own_limits, own_row, table_list};
use super::settings::ProgramSettings;
use super::{OptionError, OptionPlan, override_settings};
use crate::links::write_topics;
use auth::settings::AnonymousAccess;
use config::listen_url::{ListenHost, ListenUrl};
use config::row::OptionScope;
use connectors::gateway::settings::{GatewaySettings, IN_ROWS, OUT_ROWS, ROWS};
use connectors::gateway::{GatewayRuleSettings, SocketAddress};
use connectors::{LinkKind, LinkSettings, local_session};
use toml::de::DeTable;

pub(crate) type GatewayOptions = LinkOptions<GatewaySettings>;

const TABLES: LinkTables<GatewaySettings> =
    LinkTables { rows: ROWS, scope: Some(OptionScope::Link) };

pub(super) const KIND: LinkKindOptions = LinkKindOptions {
    name: "gateway",
    read: |reader, at, table| reader.read_gateway(at, table),
    names: |plan| plan.gateways.iter().map(|own| &*own.settings.name).collect(),
    check: OptionPlan::check_gateways,
    add_settings: |plan, settings| plan.add_gateways(settings),
    replace: |plan, next| replace_links(&mut plan.gateways, &next.gateways),
    write_list: |out| {
        table_list("gateway", ROWS, out);
        table_list("gateway.out", OUT_ROWS, out);
        table_list("gateway.in", IN_ROWS, out);
    },
    write_page,
    write_topics: |text| write_topics(LinkKind::Gateway, text),
};

impl OptionFileReader<'_> {
    fn read_gateway(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkOptions::new(self.origin(at), ROWS);
        let (mut outward, mut inward) = (Vec::new(), Vec::new());
        for (name, value) in table {
            let begin = name.span().start;
            match &**name.get_ref() {
                "out" => self.read_link_rules("gateway.out", OUT_ROWS, begin, value, &mut outward),
                "in" => self.read_link_rules("gateway.in", IN_ROWS, begin, value, &mut inward),
                key => self.read_link_option(&mut own, &TABLES, key, begin, value),
            }
        }
        let plain = |all: Vec<(usize, GatewayRuleSettings)>| -> Vec<GatewayRuleSettings> {
            all.into_iter().map(|(_, rule)| rule).collect()
        };
        let rules = (plain(outward), plain(inward));
        let others = self.plan.gateways.iter().map(|other| &*other.settings.name);
        if let Some(why) = check_name("gateway", &own.settings.name, others) {
            return self.report_error(at, why);
        }
        match own.settings.resolve_options((&rules.0, &rules.1)) {
            Err(why) => self.report_error(at, why),
            Ok(()) => self.plan.gateways.push(own),
        }
    }
}

impl OptionPlan {
    /// Adds every `[[gateway]]` with session limits: `limits` over the options for all.
    fn add_gateways(&self, settings: &mut ProgramSettings) {
        let gateway = |given: &GatewayOptions| {
            let own = override_settings(settings, &given.limits).broker;
            let mut gateway = given.settings.clone();
            gateway.limits = local_session::session_limits(&own).into();
            gateway.takes_rows = self.is_sent_to(&gateway.link_id());
            gateway
        };
        let gateways: Vec<_> = self.gateways.iter().map(gateway).collect();
        settings.add_links(gateways);
    }

    fn check_gateways(&self, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
        let others = self.groups.len() + self.link_names().len() - self.gateways.len();
        let most = broker::limits::CLIENT_GROUPS_MAX.saturating_sub(others);
        if let Some(beyond) = self.gateways.get(most) {
            let why = format!("with groups, bridges and sinks there is room for {most} gateways");
            wrongs.push(OptionError { origin: beyond.origin.clone(), why });
        }
        for given in &self.gateways {
            let own = &given.settings;
            let misfit = own.check_rule_target(self.is_sent_to(&own.link_id()));
            wrongs.extend(misfit.map(|why| OptionError { origin: given.origin.clone(), why }));
        }
        self.check_places(settings, wrongs);
        if settings.allow_anonymous == AnonymousAccess::Always {
            return;
        }
        for given in &self.gateways {
            let Some(place) = given.settings.first_open_listener() else { continue };
            let why = format!(
                "{place} would let in anyone of any host: use an address of this host like \
                 127.0.0.1, or user_name and password (zmq), or tls.ca (sp), or say \
                 allow_anonymous = true"
            );
            wrongs.push(OptionError { origin: given.origin.clone(), why });
        }
    }

    /// Checks that no two sockets use the same address: the second would retry forever.
    fn check_places(&self, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
        let taken = settings.listeners.iter().map(|listener| &listener.url);
        let of_listener =
            |url: &ListenUrl| Some((address_of_listener(url)?, format!("{url} of a listener")));
        let mut taken: Vec<(SocketAddress, String)> = taken.filter_map(of_listener).collect();
        for given in &self.gateways {
            let name = &given.settings.name;
            for place in &given.settings.listen {
                if let Some((_, other)) =
                    taken.iter().find(|(other, _)| other.conflicts_with(place))
                {
                    let what = if matches!(place, SocketAddress::Ipc(_)) { "path" } else { "port" };
                    let why = format!(
                        "gateway {name} cannot listen at {place} beside {other}: give each a \
                         {what} of its own"
                    );
                    wrongs.push(OptionError { origin: given.origin.clone(), why });
                }
                taken.push((place.clone(), format!("{place} of gateway {name}")));
            }
        }
    }
}

/// Returns the address of a listener for clients, to compare with addresses of gateways; `None` for
/// QUIC, whose datagrams do not conflict.
fn address_of_listener(url: &ListenUrl) -> Option<SocketAddress> {
    match url {
        _ if url.is_quic() => None,
        ListenUrl::Unix { path } => Some(SocketAddress::Ipc(path.clone())),
        ListenUrl::Network { host, port, .. } => {
            let host = match host {
                ListenHost::Address(address) => address.to_string(),
                ListenHost::Name(name) => name.clone(),
            };
            Some(SocketAddress::Net { scheme: "tcp", host, port: *port, path: String::new() })
        }
    }
}

fn write_page(page: &mut String) {
    page.push_str(PAGE_HEAD);
    ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str(&own_limits(OptionScope::Link));
    page.push_str("\n### Rules outward\n\nOptions of `[[gateway.out]]`.\n");
    OUT_ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
    page.push_str("\n### Rules inward\n\nOptions of `[[gateway.in]]`.\n");
    IN_ROWS.iter().for_each(|row| page.push_str(&own_row(row)));
}

const PAGE_HEAD: &str = "
## Gateways

Every `[[gateway]]` of the file speaks to sockets of ZeroMQ, or of nanomsg and NNG. `gateways.md`
says how to use them and what they promise:

```toml
[[gateway]]
name = \"plant\"
protocol = \"zmq\"
pattern = \"pub\"
listen = [\"tcp://127.0.0.1:5556\"]

[[gateway.out]]
filter = \"sensors/#\"

[[gateway]]
name = \"jobs\"
protocol = \"sp\"
pattern = \"pull\"
listen = [\"ipc:///run/godwit/jobs.ipc\"]
form = \"raw\"

[[gateway.in]]
topic = \"jobs\"
```
";

#[cfg(test)]
mod tests {
    use crate::options::OptionSources;
    use crate::options::tests::{file_complaints, scratch, settings};

    fn pub_at(name: &str, places: &str) -> String {
        format!(
            "[[gateway]]\nname = \"{name}\"\npattern = \"pub\"\nlisten = [{places}]\n\
             [[gateway.out]]\nfilter = \"a\"\n"
        )
    }

    #[test]
    fn a_gateway_for_other_hosts_is_let_be_as_its_complaint_says() {
        let own = pub_at("g", "\"tcp://0.0.0.0:5555\"");
        let why = file_complaints("open-gateway.toml", &own);
        assert!(why.starts_with("open-gateway.toml:1: tcp://0.0.0.0:5555 would let in"), "{why}");
        let (_, advice) = why.rsplit_once("or say ").expect("it says what to say");
        let path = scratch("open-gateway-said.toml", &format!("{advice}\n{own}"));
        assert_eq!(
            settings(&OptionSources { config: Some(path), ..OptionSources::default() })
                .links
                .count(),
            1
        );
    }

    #[test]
    fn gateways_cannot_listen_where_somebody_does() {
        let listen = "listen = [\"tcp://[::1]:1\", \"quic://127.0.0.1:5\", \"unix:///run/m\"]\n\
                      allow_anonymous = true\n[tls]\ncertificate = [\"c\"]\nkey = [\"k\"]\n";
        let first = pub_at("g", "\"tcp://127.0.0.1:5\", \"tcp://10.0.0.1:6\", \"ipc:///run/g\"");
        let two = |places: &str| format!("{listen}{first}{}", pub_at("h", places));
        let apart = "\"tcp://10.0.0.1:5\", \"tcp://*:7\", \"ipc:///run/h\", \"tcp://localhost:1\"";
        let path = scratch("apart-gateways.toml", &two(apart));
        assert_eq!(
            settings(&OptionSources { config: Some(path), ..OptionSources::default() })
                .links
                .count(),
            2
        );
        for (place, other) in [
            ("tcp://127.0.0.1:5", "tcp://127.0.0.1:5 of gateway g: give each a port"),
            ("tcp://*:6", "tcp://10.0.0.1:6 of gateway g: give each a port"),
            ("tcp://[::]:5", "tcp://127.0.0.1:5 of gateway g: give each a port"),
            ("tcp://[::ffff:127.0.0.1]:5", "tcp://127.0.0.1:5 of gateway g: give each a port"),
            ("ipc:///run//g", "ipc:///run/g of gateway g: give each a path"),
            ("tcp://[::1]:1", "tcp://[::1]:1 of a listener: give each a port"),
            ("ipc:///run/m", "unix:///run/m of a listener: give each a path"),
        ] {
            let why = file_complaints("same-place.toml", &two(&format!("\"{place}\"")));
            let place = place.replace('*', "0.0.0.0");
            let expected = format!(
                "same-place.toml:12: gateway h cannot listen at {place} beside {other} of its own"
            );
            assert_eq!(why, expected);
        }
        let twice = pub_at("g", "\"tcp://127.0.0.1:5\", \"tcp://127.0.0.1:5\"");
        let why = file_complaints("twice.toml", &twice);
        assert!(
            why.contains("at tcp://127.0.0.1:5 beside tcp://127.0.0.1:5 of gateway g:"),
            "{why}"
        );
    }
}
