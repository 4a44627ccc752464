//! Counter snapshots of a host: its interfaces, its softnet backlogs, its UDP sockets and its time
//! servers. A snapshot is read locally from the kernel and the servers, served to clients with the
//! token, and requested remotely. It is read-only.

pub mod kernel;
mod query;
mod reader;
mod remote;
mod serve;
mod snapshot;
mod text;

pub use horolog_http::{BearerToken, BearerTokenError};

pub use kernel::{SoftnetCounts, UdpCounts, UdpSocketCounts};
pub use query::{CounterQuery, CounterQueryError};
pub use reader::{CounterReader, ServerCountsResult, ServerQueryFn, check_interfaces};
pub use remote::{RemoteSnapshotError, SnapshotLocation};
pub use serve::{confine, respond};
pub use snapshot::{CounterSnapshot, InterfaceCounts, SCHEMA, ServerCounts, UnavailableCounter};
pub use text::render_text;
