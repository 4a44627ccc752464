//! A machine's packet counters as a page: of its interfaces, its softnet backlogs, its UDP sockets
//! and the time servers on it. It is read here from the kernel and the servers, served to who has
//! the token, and asked for from elsewhere. Nothing can be changed by it.

mod gather;
pub mod kernel;
mod page;
mod query;
mod remote;
mod serve;
mod text;

pub use horolog_http::{Token, TokenError};

pub use gather::{AskServers, Gatherer, Told};
pub use kernel::{Socket, Softnet, UdpCounters};
pub use page::{Interface, Page, SCHEMA, Server, Unread};
pub use query::{Query, QueryError};
pub use remote::{Remote, RemoteError};
pub use serve::answer;
pub use text::text;
