//! Listing of a broker: agents and campaigns. It changes nothing, except that missing buckets are
//! created.

use super::eligibility::{EligibleAgents, classify};
use super::run::CampaignError;
use super::setup::INBOX;
use crate::nats::{BrokerOptions, BrokerStore};

/// Agents and campaigns at a broker.
#[derive(Clone, Debug)]
pub struct BrokerListing {
    /// Present agents.
    pub classify: EligibleAgents,
    /// Campaigns that are not over.
    pub campaigns: Vec<String>,
}

/// Lists agents and campaigns. Clocks are not checked: plans set the limit.
///
/// # Errors
///
/// The broker cannot be used.
pub fn list(broker: &BrokerOptions, version: &str) -> Result<BrokerListing, CampaignError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = broker.connect("horolog campaign list", INBOX).await?;
        let store = BrokerStore::open(client, &broker.shown(), broker.replicas).await?;
        let states = store.agents().await?;
        let eligible = classify(states.iter().map(|stored| &*stored.bytes), version, None);
        let campaigns = store.campaigns().await?;
        Ok(BrokerListing { classify: eligible, campaigns })
    })
}
