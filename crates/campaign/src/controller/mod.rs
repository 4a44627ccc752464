//! Campaign controller: places a plan on the present agents, starts them at a common time, and
//! collects their reports.

mod assign;
mod campaign_state;
mod clocks;
mod driver;
mod eligibility;
mod event;
mod ledger;
mod list;
mod presence;
mod reader;
mod run;
mod setup;
mod start;
mod wait;

pub use eligibility::{PresentAgents, classify_agents};
pub use event::CampaignProgressEvent;
pub use ledger::{AgentProgress, Ledger, LedgerChange};
pub use list::{BrokerListing, list};
pub use run::{CampaignError, CollectedResults, ControllerOptions, NewOrResumedCampaign, run};
