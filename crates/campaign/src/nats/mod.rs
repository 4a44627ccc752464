//! NATS, where agents and controllers meet: the connection, and what is kept there.

mod connect;
mod store;

pub use connect::{Broker, Identity, NatsError, Tls};
pub use store::{AGENT_AGE_MAX, Change, Kept, Store, Told};
