//! `[[gateway]]` in a file, with `[[gateway.out]]` and `[[gateway.in]]` below it.

use super::file::Reader;
use super::links::{LinkGiven, Tables, name_misfit};
use super::settings::{Anonymous, Settings};
use super::{Plan, Wrong, overruled};
use crate::links::gateway::settings::{GatewaySettings, IN_ROWS, OUT_ROWS, ROWS};
use crate::links::gateway::{Place, RuleGiven};
use crate::links::near;
use crate::links::rows::LIMIT_KEYS;
use crate::listen::{Host, ListenUrl};
use toml::de::DeTable;

pub(crate) type GatewayGiven = LinkGiven<GatewaySettings>;

const TABLES: Tables<GatewaySettings> = (ROWS, LIMIT_KEYS);

impl Reader<'_> {
    pub(super) fn gateway(&mut self, at: usize, table: &DeTable<'_>) {
        let mut own = LinkGiven::new(self.origin(at), ROWS);
        let (mut outward, mut inward) = (Vec::new(), Vec::new());
        for (name, value) in table {
            let begin = name.span().start;
            match &**name.get_ref() {
                "out" => self.link_rules("gateway.out", OUT_ROWS, begin, value, &mut outward),
                "in" => self.link_rules("gateway.in", IN_ROWS, begin, value, &mut inward),
                key => self.link_option(&mut own, TABLES, key, begin, value),
            }
        }
        let plain = |all: Vec<(usize, RuleGiven)>| -> Vec<RuleGiven> {
            all.into_iter().map(|(_, rule)| rule).collect()
        };
        let rules = (plain(outward), plain(inward));
        let others = self.plan.gateways.iter().map(|other| &*other.settings.name);
        if let Some(why) = name_misfit("gateway", &own.settings.name, others) {
            return self.wrong(at, why);
        }
        match own.settings.finish((&rules.0, &rules.1)) {
            Err(why) => self.wrong(at, why),
            Ok(()) => self.plan.gateways.push(own),
        }
    }
}

impl Plan {
    /// Every gateway with the limits of its session.
    pub(super) fn gateways(&self, settings: &Settings) -> Vec<GatewaySettings> {
        let gateway = |given: &GatewayGiven| {
            let own = overruled(settings, &given.limits).broker;
            let mut gateway = given.settings.clone();
            gateway.limits = near::limits(&own).into();
            gateway.takes_rows = self.is_sent_to(&gateway.link_id());
            gateway
        };
        self.gateways.iter().map(gateway).collect()
    }

    /// What differs between the gateways of two plans makes them change.
    pub(super) fn gateways_differ(&self, next: &Plan) -> bool {
        let own = |plan: &Plan| plan.gateways.iter().map(LinkGiven::values).collect::<Vec<_>>();
        own(self) != own(next)
    }

    pub(super) fn check_gateways(&self, settings: &Settings, wrongs: &mut Vec<Wrong>) {
        let most = broker::limits::CLASSES_MAX.saturating_sub(self.links_before_gateways());
        if let Some(beyond) = self.gateways.get(most) {
            let why = format!("with groups, bridges and sinks there is room for {most} gateways");
            wrongs.push(Wrong { origin: beyond.origin.clone(), why });
        }
        for given in &self.gateways {
            let own = &given.settings;
            let misfit = own.rows_misfit(self.is_sent_to(&own.link_id()));
            wrongs.extend(misfit.map(|why| Wrong { origin: given.origin.clone(), why }));
        }
        self.check_places(settings, wrongs);
        if settings.allow_anonymous == Anonymous::Always {
            return;
        }
        for given in &self.gateways {
            let Some(place) = given.settings.open_to_all() else { continue };
            let why = format!(
                "{place} would let in anyone of any host: use an address of this host like \
                 127.0.0.1, or user_name and password (zmq), or tls.ca (sp), or say \
                 allow_anonymous = true"
            );
            wrongs.push(Wrong { origin: given.origin.clone(), why });
        }
    }

    /// Whoever comes second to a place would try to listen there for ever.
    fn check_places(&self, settings: &Settings, wrongs: &mut Vec<Wrong>) {
        let taken = settings.listeners.iter().map(|listener| &listener.url);
        let of_listener = |url: &ListenUrl| Some((place_of(url)?, format!("{url} of a listener")));
        let mut taken: Vec<(Place, String)> = taken.filter_map(of_listener).collect();
        for given in &self.gateways {
            let name = &given.settings.name;
            for place in &given.settings.listen {
                if let Some((_, other)) = taken.iter().find(|(other, _)| other.excludes(place)) {
                    let what = if matches!(place, Place::Ipc(_)) { "path" } else { "port" };
                    let why = format!(
                        "gateway {name} cannot listen at {place} beside {other}: give each a \
                         {what} of its own"
                    );
                    wrongs.push(Wrong { origin: given.origin.clone(), why });
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

/// Where a listener of clients is; QUIC's datagrams are in nobody's way.
fn place_of(url: &ListenUrl) -> Option<Place> {
    match url {
        _ if url.is_quic() => None,
        ListenUrl::Unix { path } => Some(Place::Ipc(path.clone())),
        ListenUrl::Network { host, port, .. } => {
            let host = match host {
                Host::Address(address) => address.to_string(),
                Host::Name(name) => name.clone(),
            };
            Some(Place::Net { scheme: "tcp", host, port: *port, path: String::new() })
        }
    }
}
