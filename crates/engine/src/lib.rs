//! The body of the broker: shard threads, sockets, rings between shards. It decides nothing that
//! MQTT knows of: it brings bytes to `broker::Shard`, performs what the outbox says, and tells
//! time. Only which socket has to go when sockets hold too much is its own choice: see `holding`.

mod abandoned;
mod body;
mod clock;
pub mod code;
pub mod descriptors;
mod docket;
mod door;
mod handle;
mod heap;
mod holding;
mod host;
mod intake;
mod layers;
mod leave;
mod pause;
pub mod proxy;
pub mod quic;
mod relay;
mod release;
mod ring;
mod salvo;
mod seat;
mod server;
mod shelf;
mod sleep;
mod socket;
mod stream;
mod through;
pub mod tls;
pub mod underway;
pub mod web;

pub use docket::{Answer, ConnectionLiveness, Judge, Question, Reply, Request, Warden};
pub use door::{Door, Listener, ListenerSocket};
pub use handle::Handle;
pub use relay::{LinkRelay, RelayLoan, RelaySocket};
pub use server::{Fault, Server, Setup, Shelter};
