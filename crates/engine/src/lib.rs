//! The runtime of the broker: shard threads, sockets and the rings between shards. The engine makes
//! no decision of the MQTT protocol: it passes bytes to `broker::Shard`, performs the effects of
//! its outbox, and supplies the time. Only the choice of the socket to close when sockets hold too
//! much memory is its own: see `connections`.

mod batched_send;
mod burst_release;
mod clock;
pub mod code_pages;
mod connection_acceptor;
mod connection_limiter;
mod connections;
pub mod descriptors;
mod handle;
mod heap;
pub mod limited_log;
mod listener;
pub mod options;
mod pause_detector;
mod pending_auth;
mod poll_token;
pub mod proxy;
pub mod quic;
mod relay;
mod ring;
mod scheduler;
pub mod send_queue;
mod server;
mod shard_control;
mod shard_driver;
mod shard_turn;
mod socket;
mod socket_registry;
mod store_client;
mod stream;
pub mod tls;
mod transport_stack;
pub mod websocket;

pub use handle::EngineHandle;
pub use listener::{Listener, ListenerSocket, ListenerTransport};
pub use pending_auth::{
    AuthHandler, AuthResponder, AuthTask, AuthzHandler, AuthzResponder, AuthzTask,
};
pub use relay::{LinkRelay, RelayLoan, RelaySocket};
pub use server::{Server, ServerFault, ServerOptions, StoreLocation};
pub use transport::ConnectionLiveness;
