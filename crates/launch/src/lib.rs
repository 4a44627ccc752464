//! Starting programs later: once what they depend on is there, or at an exact instant, here or
//! handed to the background. It sets no clock and starts nothing that it was not given.

mod condition;
mod course;
mod grid;
mod instant;
pub mod notation;
mod program;
mod signals;
mod strike;
mod wait;

pub use condition::{Condition, Endpoint, EndpointError, Sight, UdpEndpoint};
pub use course::{Backoff, Change, Course, Known};
pub use instant::{Instant, Scale};
pub use program::Program;
pub use signals::Came;
pub use strike::{StrikeOptions, Struck, strike};
pub use wait::{WaitOptions, Waited, wait};
