//! NATS broker between agents and controllers: connection and stored data.

mod connect;
mod store;

pub use connect::{BrokerClientIdentity, BrokerOptions, NatsError, TlsOptions};
pub use store::{BrokerStore, HEARTBEAT_TTL, StoredMessage, StoredValue, WriteOutcome};
