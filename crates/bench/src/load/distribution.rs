//! Distributes a plan's clients over threads: round robin, but all members of a shared subscription
//! on one thread, since a loss shows only in their combined streams.

use super::client::{ClientState, LoadClient, LoadPublisher};
use crate::plan::{ConsumerIndex, LoadPlan, share_filter};
use crate::template::{self, BenchRng, BenchTemplate, TemplateValues};
use crate::track::StreamTracks;
use std::collections::{HashMap, VecDeque};

/// Clients of one thread, in the order in which they connect.
#[derive(Debug, Default)]
pub(crate) struct ThreadClients {
    pub(crate) clients: Vec<LoadClient>,
    /// Number of shared subscriptions with members in `clients`.
    pub(crate) shares: u32,
}

pub(crate) fn distribute_clients(plan: &LoadPlan) -> Vec<ThreadClients> {
    let mut dealer = ClientDistributor {
        plan,
        parts: (0..plan.threads.max(1) * plan.share.count)
            .map(|_| ThreadClients::default())
            .collect(),
        shares: HashMap::new(),
        next: 0,
    };
    let wanted = dealer.index_consumers();
    let (mut place, mut stream) = (0, 0);
    for at in 0..plan.groups.len() {
        for nth in 0..plan.groups[at].clients {
            dealer.add_client(at, nth, place, &mut stream, &wanted);
            place += 1;
        }
    }
    // Each agent computes the same distribution and keeps its own part.
    let own = plan.share.index * plan.threads.max(1);
    dealer.parts.drain(own..own + plan.threads.max(1)).collect()
}

/// Returns the generator of a client's random names: the same seed and place give the same names.
pub(crate) fn client_rng(plan: &LoadPlan, place: u64) -> BenchRng {
    BenchRng::new((plan.seed ^ place).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

struct ClientDistributor<'a> {
    plan: &'a LoadPlan,
    parts: Vec<ThreadClients>,
    /// Maps a shared filter to the thread of all its members, and to its index there.
    shares: HashMap<String, (usize, u32)>,
    next: usize,
}

impl ClientDistributor<'_> {
    fn index_consumers(&self) -> ConsumerIndex {
        let (mut wanted, mut place) = (ConsumerIndex::default(), 0);
        for group in &self.plan.groups {
            for nth in 0..group.clients {
                if !group.subscribe.is_empty() {
                    let mut rng = client_rng(self.plan, place);
                    let (_, filters) = group.client_names(group.number_first + nth, &mut rng);
                    filters.iter().for_each(|filter| wanted.add(filter, 1));
                }
                place += 1;
            }
        }
        wanted
    }

    fn add_client(
        &mut self,
        at: usize,
        nth: u64,
        place: u64,
        stream: &mut u32,
        wanted: &ConsumerIndex,
    ) {
        let group = &self.plan.groups[at];
        let number = group.number_first + nth;
        let mut rng = client_rng(self.plan, place);
        let (id, filters) = group.client_names(number, &mut rng);
        let who = TemplateValues {
            number,
            topics: group.topics,
            client_id: &id,
            ..TemplateValues::default()
        };
        let publisher = group.publish.as_ref().map(|publishing| {
            let user_name = group.user_name(&who, &mut rng).unwrap_or_default();
            let who = TemplateValues { user_name: &user_name, ..who };
            let template = template::varies_by_message(&publishing.topic)
                .then(|| BenchTemplate::parse(&publishing.topic));
            let topic = match &template {
                Some(_) => publishing.topic.clone(),
                None => template::fill_template(&publishing.topic, &who, &mut rng),
            };
            let publisher = LoadPublisher {
                consumer_count: wanted.consumers_of(&topic),
                topic,
                template,
                stream: *stream,
                seq: 0,
                packet_id: 0,
                flights: VecDeque::new(),
                backlog_len: 0,
                backlog_due_ns: 0,
                user_name,
            };
            *stream += 1;
            Box::new(publisher)
        });
        let (thread, share) = self.thread_for(&filters);
        self.parts[thread].clients.push(LoadClient {
            transport: None,
            state: ClientState::Waiting,
            version: group.version,
            is_dirty: false,
            is_pinging: false,
            is_settled: false,
            was_live: false,
            group: at as u16,
            retries: 0,
            shared_group: share,
            number,
            index: place,
            opened_ns: 0,
            requested_ns: 0,
            lost_ns: 0,
            id: id.into(),
            filters: filters.into(),
            tail: Vec::new(),
            out: Vec::new(),
            out_from: 0,
            tracks: StreamTracks::default(),
            publisher,
        });
    }

    fn thread_for(&mut self, filters: &[String]) -> (usize, Option<u32>) {
        let threads = self.parts.len();
        let Some(filter) = filters.iter().find(|filter| share_filter(filter).is_some()) else {
            self.next += 1;
            return ((self.next - 1) % threads, None);
        };
        let next = self.shares.len() % threads;
        let parts = &mut self.parts;
        let (thread, share) = *self.shares.entry(filter.clone()).or_insert_with(|| {
            parts[next].shares += 1;
            (next, parts[next].shares - 1)
        });
        (thread, Some(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PayloadKind, PlanGroup, PublishPace, PublishPlan};
    use mqtt::QoS;

    #[test]
    fn members_of_a_share_stand_together_and_others_take_turns() {
        let shared = PlanGroup {
            clients: 6,
            topics: 2,
            subscribe: vec!["$share/g%t/a/#".into()],
            ..PlanGroup::default()
        };
        let publish = PublishPlan {
            topic: "a/%i".into(),
            qos: QoS::AtMostOnce,
            retain: false,
            body: PayloadKind::Sized(16),
            pace: PublishPace::AsTaken,
            inflight: 0,
            messages_max: None,
            wait_ms: (0, 0),
        };
        let publishers = PlanGroup { clients: 4, publish: Some(publish), ..PlanGroup::default() };
        let plan = LoadPlan { groups: vec![shared, publishers], threads: 2, ..LoadPlan::default() };
        let parts = distribute_clients(&plan);
        for part in &parts {
            let members = part.clients.iter().filter(|client| client.group == 0);
            assert_eq!(members.clone().count(), 3);
            let parity: Vec<u64> = members.map(|client| client.number % 2).collect();
            assert!(parity.iter().all(|one| *one == parity[0]), "{parity:?}");
            assert_eq!(part.shares, 1);
            let fans = part.clients.iter().filter_map(|client| client.publisher.as_ref());
            assert_eq!(fans.map(|publisher| publisher.consumer_count).collect::<Vec<_>>(), [2, 2]);
        }
    }
}
