//! Nodes on several machines: the leader of a run, and members that join it. A member runs its node
//! as the leader's machine runs its own, and sends on what it hands over. Nobody is authenticated
//! here: it is for networks whose hosts trust each other.

mod leader;
mod member;
mod message;
mod responder;

pub(crate) use leader::{Leader, Remote};
pub use member::{Member, MemberError, join};
pub use message::Clock;
pub(crate) use message::TaskState;
