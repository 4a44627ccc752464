//! Campaigns: measurements on many hosts with a common start time, and one result. A plan names
//! roles; roles are placed on agents; each agent receives an order, which its policy judges;
//! processes are created before the start time and begin at it; their results are merged.
//!
//! A role's work is implemented in none of these modules: it is a command of horolog, run as a
//! process of its own. No command line is built from free text, and nothing is printed.

#[cfg(feature = "nats")]
pub mod agent;
pub mod assignment;
pub mod builtin_plans;
#[cfg(feature = "nats")]
pub mod controller;
mod file_error;
mod id;
pub mod job;
pub mod local;
pub mod merge;
#[cfg(feature = "nats")]
pub mod nats;
pub mod order;
mod packing;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod report;
pub mod role;
pub mod spool;

pub use file_error::FileContentError;
pub use id::{
    AGENT_NAME_MAX, AgentName, CAMPAIGN_ID_MAX, CampaignId, IdError, JobId, ROLE_NAME_MAX, RoleName,
};
