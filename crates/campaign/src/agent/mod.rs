//! Campaign agent: publishes its presence and capabilities, executes the orders that its policy
//! allows, and reports the results, whether or not the broker is reachable.

mod addresses;
mod broker_link;
mod clock;
mod executor;
mod run;
mod state_machine;

pub use addresses::reachable_addresses;
pub use run::{AgentCallbacks, AgentError, AgentOptions, run};
pub use state_machine::{
    ABANDON_GRACE_NS, AgentAction, AgentClockReadings, AgentIdentityAndPolicy, AgentStateMachine,
    InterruptedOrder, PersistentState, START_WAIT_MAX_NS,
};
