//! Listing of the agents and campaigns at a broker. Missing buckets are created; nothing else is
//! changed.

use super::eligibility::{PresentAgents, classify_agents};
use super::run::CampaignError;
use super::setup::INBOX;
use crate::nats::{BrokerOptions, BrokerStore};

/// Agents and campaigns at a broker.
#[derive(Clone, Debug)]
pub struct BrokerListing {
    /// Present agents.
    pub agents: PresentAgents,
    /// Identifiers of the campaigns whose state is stored at the broker.
    pub campaigns: Vec<String>,
}

/// Lists the agents and campaigns at a broker. Clock offsets are not checked, because their limit
/// is set by a plan.
///
/// # Errors
///
/// The broker cannot be used.
pub fn list(broker: &BrokerOptions, version: &str) -> Result<BrokerListing, CampaignError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = broker.connect("horolog campaign list", INBOX).await?;
        let store = BrokerStore::open(client, &broker.servers_text(), broker.replicas).await?;
        let states = store.agents().await?;
        let eligible = classify_agents(states.iter().map(|stored| &*stored.bytes), version, None);
        let campaigns = store.campaigns().await?;
        Ok(BrokerListing { agents: eligible, campaigns })
    })
}
