//! An agent: it says that it is there and what it can do, carries out what its policy allows, and
//! tells what came of it, whether the broker is there or not.

mod clock;
mod hands;
mod machine;
mod post;
mod run;
mod sight;

pub use machine::{Act, Character, LINGER_NS, Left, Machine, Memory, Now, WAIT_MAX_NS};
pub use run::{AgentError, AgentOptions, Owner, run};
