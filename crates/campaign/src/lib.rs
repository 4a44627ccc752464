//! Measurements on many machines at one instant, and one result of them. A plan names roles; roles
//! are placed on agents; each agent is given an order, which its policy judges; processes are made
//! before the instant and start at it; and what they measured is put together.
//!
//! What a role does is in none of these modules: it is a command of horolog, run as a process of
//! its own. Nothing here makes a command line of free text, and nothing prints.

#[cfg(feature = "nats")]
pub mod agent;
#[cfg(feature = "nats")]
pub mod controller;
mod fault;
mod id;
pub mod instruction;
pub mod job;
pub mod local;
pub mod merge;
pub mod message;
#[cfg(feature = "nats")]
pub mod nats;
pub mod order;
mod packing;
pub mod place;
pub mod plan;
pub mod policy;
pub mod role;
pub mod shipped;
pub mod spool;

pub use fault::Fault;
pub use id::{
    AGENT_NAME_MAX, AgentName, CAMPAIGN_ID_MAX, CampaignId, IdError, JobId, ROLE_NAME_MAX, RoleName,
};
