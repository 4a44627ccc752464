//! Nodes on several hosts: the leader of a run, and members that join it. A member runs its node as
//! the leader's host runs its own, and forwards the node's entries. There is no authentication: use
//! clusters only on networks whose hosts trust each other.

mod leader;
mod member;
mod message;
mod responder;

pub(crate) use leader::{LeaderListener, RemoteNode};
pub use member::{MemberError, MemberOptions, join};
pub use message::NodeClockOffset;
pub(crate) use message::TaskStatus;
