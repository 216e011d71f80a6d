//! The tables `[[gateway]]` of a file, with `[[gateway.out]]` and `[[gateway.in]]`.

use super::file::OptionFileReader;
use super::links::{LinkOptions, LinkTables, check_name};
use super::settings::ProgramSettings;
use super::{OptionError, OptionPlan, override_settings};
use auth::settings::AnonymousAccess;
use config::listen_url::{ListenHost, ListenUrl};
use config::row::OptionScope;
use connectors::gateway::settings::{GatewaySettings, IN_ROWS, OUT_ROWS, ROWS};
use connectors::gateway::{GatewayRuleSettings, SocketAddress};
use connectors::local_session;
use toml::de::DeTable;

pub(crate) type GatewayOptions = LinkOptions<GatewaySettings>;

const TABLES: LinkTables<GatewaySettings> =
    LinkTables { rows: ROWS, scope: Some(OptionScope::Link) };

impl OptionFileReader<'_> {
    pub(super) fn read_gateway(&mut self, at: usize, table: &DeTable<'_>) {
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
    /// Returns every `[[gateway]]` with session limits: `limits` over the options for all.
    pub(super) fn gateway_settings(&self, settings: &ProgramSettings) -> Vec<GatewaySettings> {
        let gateway = |given: &GatewayOptions| {
            let own = override_settings(settings, &given.limits).broker;
            let mut gateway = given.settings.clone();
            gateway.limits = local_session::session_limits(&own).into();
            gateway.takes_rows = self.is_sent_to(&gateway.link_id());
            gateway
        };
        self.gateways.iter().map(gateway).collect()
    }

    /// Whether the gateways of two plans differ, so that a reload must replace all.
    pub(super) fn gateways_differ(&self, next: &OptionPlan) -> bool {
        let own =
            |plan: &OptionPlan| plan.gateways.iter().map(LinkOptions::values).collect::<Vec<_>>();
        own(self) != own(next)
    }

    pub(super) fn check_gateways(&self, settings: &ProgramSettings, wrongs: &mut Vec<OptionError>) {
        let most = broker::limits::CLIENT_GROUPS_MAX.saturating_sub(self.links_before_gateways());
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

    fn links_before_gateways(&self) -> usize {
        let others = self.groups.len() + self.bridges.len();
        #[cfg(feature = "sink")]
        let others = others + self.sinks.len();
        others
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
